//! Flows that a path filters: their data are dropped while probes and other flows pass. Such a flow moves alone.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Deadline, Span, Time};
use segue_keepalive::size::Direction;
use segue_keepalive::{Client, ClientInput, Counted, PathLosses};
use segue_steering::{Class, PathId, Steering};
use segue_wire::FlowKey;
use segue_wire::signal::{CountedFlow, FlowSeen, FromHost};
use segue_wire::{Header, Size};

use super::audit::{Audit, ENOUGH, FEW, Found, Least, Totals};
use super::watch::{Filter, FlowWatch};
use super::{Host, Path};
use crate::{FlowCount, HostOutput, Order, Output, Report};

/// An audit that finds no filter ends after this time.
const FRUITLESS: Span = Span::from_secs(3);
/// An audit with a suspect ends after this time.
const LONGEST: Span = Span::from_secs(8);
/// An audit ends once its path has lost nothing for this long.
const CALM: Span = Span::from_secs(1);
/// Minimum time from the end of an audit to the next.
const PAUSE: Span = Span::from_secs(2);
/// How long a verdict of loss waits for the counts of flows.
const UNDECIDED: Span = Span::from_millis(800);
/// The same while a flow looks filtered.
const LIKELY: Span = Span::from_secs(2);
/// The latest time by which counters include a packet, after its answer would have arrived.
const COUNTED: Span = Span::from_millis(300);
/// Extra time for an answer to a question, for a busy machine.
const BUSY: Span = Span::from_millis(100);
/// Minimum time between two requests to the anchor.
const APART: Span = Span::from_millis(25);
/// This many lost questions may be chance.
const QUESTIONS_LOST: u64 = 1;
/// If this many flows lose alike, the path is at fault.
const ALIKE: usize = 3;
/// Initial time until a flow may use its path again; it doubles each time that the flow is filtered anew.
const RETRY: Span = Span::from_secs(60);
const LONGEST_RETRY: Span = Span::from_secs(3_600);
/// Timeout of a path test.
const TEST: Span = Span::from_secs(1);
/// Maximum number of filtered flows kept; a new one replaces the oldest.
const MOST: usize = 1_024;

impl Path {
    /// Returns whether verdicts of loss wait until it is known which flows lose.
    pub(super) fn holds_verdicts(&self) -> bool {
        self.watch.as_deref().is_some_and(|watch| watch.holds)
    }

    fn totals(&self) -> Option<Totals> {
        let client = self.client.as_ref()?;
        let lost = client.counted().map(Counted::lost);
        Some(Totals { questions: self.questions.settled(), lost })
    }

    /// The audit in progress.
    fn audit(&self) -> Option<&Audit> {
        self.watch.as_deref()?.audit.as_ref()
    }

    fn audit_mut(&mut self) -> Option<&mut Audit> {
        self.watch.as_deref_mut()?.audit.as_mut()
    }

    /// When the next round is due.
    pub(super) fn audit_deadline(&self) -> Deadline {
        Some((self.audit()?.next, "the flows of a path that loses packets are counted"))
    }

    /// Returns whether its current losses are attributed to filtered flows.
    pub(super) fn is_excused(&self, now: Time) -> bool {
        self.watch.as_deref().is_some_and(|watch| now < watch.excused)
    }

    /// Returns whether it may be losing copies of flows that it filters.
    pub(super) fn loses_copies(&self, now: Time) -> bool {
        self.watch.as_deref().is_some_and(|watch| now < watch.copies)
    }

    /// Returns whether an audit is in progress, so that the host asks for the path's counters more often.
    pub(super) fn is_audited(&self) -> bool {
        self.audit().is_some()
    }
}

impl Host {
    /// The flows on a path that are not known to be filtered there, most recently used first.
    fn flows_on(&self, number: u8) -> Vec<FlowKey> {
        let here = |key: &FlowKey, path: u8| path == number && !self.is_filtered(key, number);
        let on = self.flows.iter().filter(|(key, flow)| here(key, flow.path));
        let mut flows: Vec<(core::cmp::Reverse<Time>, FlowKey)> =
            on.map(|(key, flow)| (core::cmp::Reverse(flow.last_seen), *key)).collect();
        flows.sort_unstable();
        flows.into_iter().map(|(_, key)| key).collect()
    }

    /// Handles new counters of a path: starts an audit if it loses more than usual.
    pub(super) fn watch_flows(&mut self, now: Time, number: u8, was_up: bool) {
        let registered = self.registered();
        let Some(path) = self.paths.get_mut(&number) else { return };
        if let Some(client) = &path.client {
            path.questions.expire(now, client.answer_within() + BUSY);
        }
        // Without questions nothing would show that probes pass.
        let asks = path.client.as_ref().is_some_and(|client| client.config().doubt.is_some());
        let Some(totals) = path.totals() else { return };
        let up = was_up && path.is_up();
        if path.watch.is_none() && totals.lost == [0; 2] {
            return;
        }
        let watch = path.watch.get_or_insert_with(|| Box::new(FlowWatch::new(now)));
        if !up || now < watch.copies {
            // Losses of an outage, and in the first counts after it, do not count here; neither do those of copies of
            // filtered flows.
            (watch.at, watch.lost) = (now, totals.lost);
        }
        let is_new = path.loss_told == [false; 2]
            && path.losses.as_deref().is_some_and(PathLosses::is_lossy);
        let jumps = watch.jumps(now, totals.lost) || is_new;
        match &mut watch.audit {
            Some(audit) => audit.on_lost(now, totals.lost),
            None => {
                let rested = watch.ended.is_none_or(|at| now.since(at) >= PAUSE);
                if jumps && up && rested && registered && asks {
                    let flows = self.flows_on(number);
                    self.begin_audit(now, number, flows);
                }
            }
        }
        self.review_hold(now, number);
    }

    fn begin_audit(&mut self, now: Time, number: u8, flows: Vec<FlowKey>) {
        let Some(path) = self.paths.get_mut(&number).filter(|_| !flows.is_empty()) else { return };
        let Some(watch) = &mut path.watch else { return };
        watch.audit = Some(Audit::new(now, number, flows));
        // Before the verdict is reported.
        self.review_hold(now, number);
        self.count_flows(now, number);
    }

    fn end_audit(&mut self, now: Time, number: u8) {
        let watch = self.paths.get_mut(&number).and_then(|path| path.watch.as_deref_mut());
        if let Some(watch) = watch {
            (watch.audit, watch.ended) = (None, Some(now));
        }
        self.review_hold(now, number);
    }

    /// Starts a round. Rounds of different paths are at least [`APART`] from each other, as the anchor requires.
    fn count_flows(&mut self, now: Time, number: u8) {
        let soon = self.counted_at.map(|at| at + APART).filter(|at| *at > now);
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(audit) = path.audit_mut() else { return };
        if let Some(at) = soon {
            audit.next = at;
            return;
        }
        audit.next = now + audit.pause(now);
        self.counted_at = Some(now);
        self.rounds = self.rounds.wrapping_add(1);
        let order = Order::CountFlows(round_of(self.rounds, number), audit.flows.clone());
        self.out.push_back(Output::Order(order));
        self.feed(now, number, ClientInput::Recount);
    }

    /// Handles the datapath's counts, and asks the anchor for its own.
    pub(super) fn on_counted(&mut self, now: Time, round: u32, counts: &[Option<FlowCount>]) {
        let Some(path) = self.paths.get_mut(&path_of(round)) else { return };
        let Some(totals) = path.totals() else { return };
        let Some(audit) = path.audit_mut() else { return };
        audit.count(now, round, counts, totals);
        let flows = audit.flows.iter().map(CountedFlow::from).collect();
        let message = FromHost::CountFlows { round, flows };
        self.out.push_back(Output::own(HostOutput::Signal(message)));
    }

    /// Handles the anchor's counts.
    pub(super) fn on_flow_counts(&mut self, now: Time, round: u32, seen: Vec<FlowSeen>) {
        let number = path_of(round);
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(audit) = path.audit_mut() else { return };
        audit.answer(now, round, seen);
        let filtered: Vec<Found> =
            self.judged(number, ENOUGH).into_iter().filter(|found| found.filtered).collect();
        let alike = filtered.len() + self.lately_filtered(now, number) >= ALIKE
            && self.all_alike(now, number, &self.judged(number, FEW));
        if let Some(since) = filtered.iter().map(|found| found.since).max() {
            self.suspect_translator(now, number, since);
        }
        if filtered.is_empty() || alike {
            self.review_hold(now, number);
            return;
        }
        for found in filtered {
            self.on_filtered(now, number, &found);
        }
        // Judge the remaining flows without the filtered ones, once the last packets of those are counted.
        let flows = self.flows_on(number);
        if let Some(path) = self.paths.get_mut(&number)
            && let Some(client) = &path.client
            && let Some(watch) = path.watch.as_deref_mut()
        {
            watch.excused = now + client.answer_within() + COUNTED;
            if let Some(audit) = &mut watch.audit {
                audit.restart(now, flows);
            }
            if let Some(losses) = path.losses.as_deref_mut() {
                losses.restart(now, client);
            }
        }
        self.review_hold(now, number);
        self.evaluate(now);
    }

    fn judged(&self, number: u8, least: Least) -> Vec<Found> {
        let Some(path) = self.paths.get(&number) else { return Vec::new() };
        // A path whose packet size shrinks loses the flows with larger packets until the new size is known.
        let settle = path.client.as_ref().map(Client::answer_within);
        let settle = settle.filter(|_| !path.tests_sizes());
        let (Some(audit), Some(settle), Some(totals)) = (path.audit(), settle, path.totals())
        else {
            return Vec::new();
        };
        audit.judge(settle, totals, least)
    }

    /// Number of flows found filtered on a path within the last minute ([`RETRY`]).
    fn lately_filtered(&self, now: Time, number: u8) -> usize {
        let lately = |(_, of): &(FlowKey, u8), filter: &Filter| {
            *of == number && !filter.released && now.since(filter.at) < RETRY
        };
        self.filters.iter().filter(|(place, filter)| lately(place, filter)).count()
    }

    /// Returns whether, in one direction, every flow with enough packets loses everything, and these flows and those
    /// found recently are at least [`ALIKE`].
    fn all_alike(&self, now: Time, number: u8, judged: &[Found]) -> bool {
        let lately = self.lately_filtered(now, number);
        [Direction::Up, Direction::Down].into_iter().any(|way| {
            let of_way = || judged.iter().filter(|found| found.direction == way);
            let some = of_way().count();
            some > 0 && some + lately >= ALIKE && of_way().all(|found| found.mostly)
        })
    }

    /// Updates whether a verdict of loss waits, and reports a verdict that no longer does.
    fn review_hold(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get(&number) else { return };
        let held = path.holds_verdicts();
        let holds = self.is_to_hold(now, number);
        if let Some(path) = self.paths.get_mut(&number)
            && let Some(watch) = path.watch.as_deref_mut()
        {
            watch.holds = holds;
        }
        if held && !holds {
            self.tell_losses(now, number);
        }
    }

    /// Returns whether a verdict waits because it may concern a single flow: no question was lost, and the counts of
    /// flows are pending or point to that flow.
    fn is_to_hold(&self, now: Time, number: u8) -> bool {
        let Some(path) = self.paths.get(&number) else { return false };
        let Some(verdict) = path.losses.as_deref().and_then(|losses| losses.latest()) else {
            return false;
        };
        let Some(audit) = path.audit() else { return false };
        // A verdict that was already reported stands.
        if path.loss_told != [false; 2] {
            return false;
        }
        let judged = self.judged(number, FEW);
        // A single lost packet may be chance.
        let loses = |found: &Found| found.counted.lost() > 1;
        let questions_pass = !Host::lost_questions(path, audit);
        let likely = judged.iter().any(|found| found.mostly) && questions_pass;
        if likely && !self.all_alike(now, number, &judged) {
            return now.since(verdict.at) < LIKELY;
        }
        let is_decided = judged.iter().any(|found| loses(found) && !found.mostly);
        !is_decided && questions_pass && now.since(verdict.at) < UNDECIDED
    }

    /// Returns whether questions were lost since an audit began.
    fn lost_questions(path: &Path, audit: &Audit) -> bool {
        let (Some(totals), Some(before)) = (path.totals(), audit.first_totals()) else {
            return false;
        };
        totals.questions.lost().saturating_sub(before.questions.lost()) > QUESTIONS_LOST
    }

    /// Handles a flow whose data a path drops.
    fn on_filtered(&mut self, now: Time, number: u8, found: &Found) {
        let Found { flow: key, direction, counted, since, length, .. } = *found;
        let before = self.filters.remove(&(key, number));
        let wait = before.map_or(RETRY, |before| (before.wait * 2).min(LONGEST_RETRY));
        if self.filters.len() >= MOST {
            let oldest = self.filters.iter().min_by_key(|(_, filter)| filter.at);
            if let Some(oldest) = oldest.map(|(place, _)| *place) {
                self.filters.remove(&oldest);
            }
        }
        let payload = self.paths.get(&number).map_or(Size::MOST, |path| path.payload(direction));
        let most = payload.max(Size::LEAST);
        let filter = Filter {
            direction,
            counted,
            since,
            at: now,
            released: false,
            due: now + wait,
            wait,
            test: None,
            bytes: (Header::LEN as u16).saturating_add(length).clamp(Size::LEAST, most),
        };
        self.filters.insert((key, number), filter);
        let to = self.flows.get(&key).and_then(|flow| self.path_for(&key, flow.class, flow.pinned));
        let to = to.filter(|to| *to != number);
        if let (Some(to), Some(flow)) = (to, self.flows.get_mut(&key)) {
            flow.path = to;
            self.out.push_back(Output::Order(Order::Bind(key, u32::from(to))));
        }
        let name = |n: u8| self.paths.get(&n).map_or_else(String::new, |p| p.name().to_string());
        self.out.push_back(Output::report(Report::FlowFiltered {
            flow: key,
            path: name(number),
            direction,
            counted,
            took: now.since(since),
            to: to.map(name),
        }));
    }

    /// Returns whether a path is known to filter a flow.
    pub(super) fn is_filtered(&self, key: &FlowKey, number: u8) -> bool {
        !self.filters.is_empty()
            && self.filters.get(&(*key, number)).is_some_and(|filter| !filter.released)
    }

    /// The path for a flow whose class uses path `number`: another one if that path filters the flow. The flow then
    /// stays on the other path as long as that carries it, or if every path filters it.
    pub(super) fn open_path(&self, key: &FlowKey, class: Class, number: u8) -> u8 {
        if !self.is_filtered(key, number) {
            return number;
        }
        let present = self.flows.get(key).map(|flow| flow.path);
        let carries = |n: &u8| {
            let path = self.paths.get(n).filter(|path| path.is_up() && !path.is_lossy());
            *n != number && path.is_some() && !self.is_filtered(key, *n)
        };
        let stays = || present.filter(|n| self.paths.get(n).is_some_and(|path| path.is_set()));
        let elsewhere = present.filter(carries).or_else(|| self.beside_filter(key, class, number));
        elsewhere.or_else(stays).unwrap_or(number)
    }

    /// The best usable path for a flow that its class's path filters; `None` if there is no other.
    fn beside_filter(&self, key: &FlowKey, class: Class, number: u8) -> Option<u8> {
        let views: Vec<_> = self.views();
        let open =
            views.into_iter().filter(|view| !self.is_filtered(key, view.id.0)).collect::<Vec<_>>();
        Steering::beside(class, &open, PathId(number)).map(|PathId(n)| n)
    }

    /// Returns whether a flow stays on a path that filters it because no other is available.
    pub(super) fn keeps_filtered(&self, number: u8) -> bool {
        let stays = |(key, path): &(FlowKey, u8)| {
            *path == number && self.flows.get(key).is_some_and(|flow| flow.path == number)
        };
        self.filters.iter().any(|(place, filter)| !filter.released && stays(place))
    }

    /// The filtered flows: flow, path name and evidence.
    pub fn filters(&self) -> impl Iterator<Item = (&FlowKey, &str, &Filter)> {
        let there = self
            .filters
            .iter()
            .filter(|((key, _), filter)| !filter.released && self.flows.contains_key(key));
        there.filter_map(|((key, number), filter)| {
            Some((key, self.paths.get(number)?.name(), filter))
        })
    }

    /// Why a flow does not use the path of its class, if a filter is the reason.
    #[must_use]
    pub fn why_flow(&self, now: Time, key: &FlowKey) -> Option<String> {
        let mut filters = self.filters().filter(|(of, ..)| *of == key).peekable();
        filters.peek()?;
        let said: Vec<String> =
            filters.map(|(_, path, filter)| filter.evidence(path, now)).collect();
        Some(said.join("; "))
    }

    /// Counts flows, ends audits and lets filtered flows try again.
    pub(super) fn tick_filters(&mut self, now: Time) {
        let due = |path: &Path| path.audit_deadline().is_some_and(|(at, _)| at <= now);
        let numbers: Vec<u8> =
            self.paths.iter().filter(|(_, path)| due(path)).map(|(n, _)| *n).collect();
        for number in numbers {
            if self.is_audit_over(now, number) {
                self.end_audit(now, number);
            } else {
                self.count_flows(now, number);
                self.review_hold(now, number);
            }
        }
        self.retry_filtered(now);
    }

    fn is_audit_over(&self, now: Time, number: u8) -> bool {
        let Some(path) = self.paths.get(&number) else { return true };
        let Some(audit) = path.audit().filter(|_| path.is_up()) else { return true };
        let age = now.since(audit.began);
        if self.judged(number, FEW).iter().any(|found| found.mostly) {
            return age >= LONGEST;
        }
        age >= FRUITLESS || now.since(audit.lost_at) >= CALM
    }

    /// When a filtered flow may try again.
    pub(super) fn filters_deadline(&self) -> Deadline {
        let due = self.filters.values().map(|filter| filter.due).min()?;
        Some((due, "a filtered flow tries its path again"))
    }

    /// Tests the paths of filtered flows with a packet of the same size and code point before the flows return.
    fn retry_filtered(&mut self, now: Time) {
        if self.filters_deadline().is_none_or(|(at, _)| at > now) {
            return;
        }
        let due = self.filters.iter().filter(|(_, filter)| filter.due <= now);
        let due: Vec<(FlowKey, u8)> = due.map(|(place, _)| *place).collect();
        for (key, number) in due {
            let token = self.secrets.seed() as u32;
            let is_up = self.paths.get(&number).is_some_and(|path| path.is_up());
            let dscp = self.flows.get(&key).map(|flow| flow.dscp);
            let Some(filter) = self.filters.get_mut(&(key, number)) else { continue };
            let Some(dscp) = dscp.filter(|_| !filter.released) else {
                self.filters.remove(&(key, number));
                continue;
            };
            let unanswered = filter.test.take().is_some();
            if unanswered && is_up {
                filter.wait = (filter.wait * 2).min(LONGEST_RETRY);
            }
            if unanswered || !is_up {
                filter.due = now + filter.wait;
                continue;
            }
            (filter.test, filter.due) = (Some(token), now + TEST);
            let (size, answer) = match filter.direction {
                Direction::Up => (filter.bytes, Size::LEAST),
                Direction::Down => (Size::LEAST, filter.bytes),
            };
            let test = Size { token, size, answer };
            self.out.push_back(Output::Order(Order::TestSize(u32::from(number), test, dscp)));
        }
    }

    /// Handles the answer to a path test. Returns whether the test was for a filtered flow, which may then use the path
    /// again.
    pub(super) fn on_filter_tested(&mut self, now: Time, number: u8, token: u32) -> bool {
        let mut tested =
            self.filters.iter_mut().filter(|((_, n), f)| *n == number && f.test == Some(token));
        let Some((_, filter)) = tested.next() else { return false };
        (filter.test, filter.released) = (None, true);
        // The entry expires if the flow is not filtered again within its wait time plus ten minutes.
        filter.due = now + filter.wait + Span::from_secs(600);
        self.evaluate(now);
        true
    }

    /// Prepares for copies of another path's packets on this one, from the host and from the anchor. If this path
    /// filters a flow, the loss of its copies says nothing about other flows.
    pub(super) fn expect_lost_copies(&mut self, now: Time, over: u8) {
        let elsewhere = |key: &FlowKey| self.flows.get(key).is_some_and(|flow| flow.path != over);
        let concerns = |((key, number), filter): (&(FlowKey, u8), &Filter)| {
            *number == over && !filter.released && elsewhere(key)
        };
        if !self.filters.iter().any(concerns) {
            return;
        }
        if let Some(path) = self.paths.get_mut(&over)
            && let Some(client) = &path.client
            && let Some(watch) = path.watch.as_deref_mut()
        {
            watch.copies = now + client.answer_within() + COUNTED;
        }
    }

    /// Forgets the filters of a path that is gone or belongs to another interface.
    pub(super) fn forget_filters(&mut self, number: u8) {
        self.filters.retain(|(_, of), _| *of != number);
    }
}

/// Encodes a round's number and its path.
fn round_of(count: u32, number: u8) -> u32 {
    count << 8 | u32::from(number)
}

fn path_of(round: u32) -> u8 {
    round as u8
}
