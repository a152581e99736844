//! Invariants of the two ends of a path's measurement.

use alloc::format;

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Client, Config, Estimates, Sample, Server, State};

use segue_sim::net::FaultyLink;
use segue_wire::Probe;

use crate::violation::{Violation, counters_of};

/// Timestamps are in whole microseconds, and a round trip involves two.
const STAMPS: Span = Span::from_micros(2);
/// A stalled end reads waiting packets at most this long after it checks its timeouts.
const MOMENT: Span = Span::from_millis(2);
/// Requests and unsolicited responses per second beyond 1/T_KA: one for the edge of the second, and one for each
/// start or switch.
const SPARE_PROBES: u32 = 2;
/// Bound of the loss average after the quiet time, which lasts more than ten main time constants and two loss
/// intervals.
const LOSS_FORGOTTEN: f64 = 0.01;

/// The reference model: since when each end has been in its state, and what was last observed of it.
pub(super) struct Watch {
    /// The client's configuration.
    config: Config,
    /// Maximum lateness of its ticks.
    late: Span,
    /// The longest T_KA of either end since the client started, for its downlink state: the server learns a
    /// shorter one only from a request.
    slowest: Span,
    /// The shortest T_KA of either end in the previous and in the current second: a longer one is announced
    /// first.
    fastest: [Span; 2],
    /// K and T_KA of the newest request that has arrived, or the server's initial values.
    stated: (u8, Span),
    client: End,
    server: End,
    second: u64,
    sent: Sent,
    /// The client does not have to be up before this time, because it stalled before it was up.
    excused: Time,
    still: Option<Still>,
}

/// A client that is stalled, or has resumed without having read yet.
#[derive(Clone, Copy, Debug)]
struct Still {
    until: Time,
    /// Its number of state changes when the stall began.
    transitions: u64,
    /// When its timeout expires according to what it had read; `None` if the timeout may have expired before.
    silent: Option<Time>,
    /// When its next request was due.
    due: Time,
    /// When the last new answer arrived.
    answer: Option<Time>,
}

/// The client's packets, as counted from requests that have arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// The client's start, and the highest sequence number that has arrived.
    start: u32,
    newest: u32,
    /// The value of Sc at which counting started, and the highest that has arrived.
    from: u32,
    to: u32,
    /// Packets sent in earlier starts.
    before: u64,
    /// Starts can no longer be distinguished.
    blurred: bool,
}

/// State of one end.
struct End {
    /// When it started or was switched on.
    since: Time,
    on: bool,
    /// Sequence number of its last probe, and when it left.
    last_seq: u32,
    last_sent: Time,
    /// The highest sequence number to which it has read an answer.
    answered: u32,
    /// Probes in the current second.
    probes: u32,
    disturbed: u32,
    counters: [u64; 9],
    /// Start of its last stall, and the time when it had resumed and read everything that had waited.
    stalled: Time,
    resumed: Time,
    /// How far its timeouts may be delayed: by the duration of its stalls, until the first answer after them.
    moved: Span,
}

impl End {
    fn new(now: Time) -> End {
        End {
            since: now,
            on: true,
            last_seq: 0,
            last_sent: now,
            answered: 0,
            probes: 0,
            disturbed: 0,
            counters: [0; 9],
            stalled: now,
            resumed: now,
            moved: Span::ZERO,
        }
    }

    fn begin(&mut self, now: Time) {
        let (probes, disturbed) = (self.probes, self.disturbed + 1);
        *self = End { probes, disturbed, ..End::new(now) };
    }

    fn switch(&mut self, now: Time, on: bool) {
        if on != self.on {
            (self.on, self.since) = (on, now);
            self.disturbed += 1;
        }
    }

    /// Checks the number of a probe, which must follow the last one.
    fn on_probe(&mut self, now: Time, seq: u32, who: &str) -> Result<(), Violation> {
        let follows = seq == self.last_seq.wrapping_add(1);
        Violation::unless(follows, "probe numbers grow", || {
            format!("the {who} sends number {seq} after {}", self.last_seq)
        })?;
        (self.last_seq, self.last_sent) = (seq, now);
        self.probes += 1;
        Ok(())
    }

    fn expect_counters(&mut self, estimates: &Estimates, who: &str) -> Result<(), Violation> {
        let counters = counters_of(estimates);
        let grow = counters.iter().zip(&self.counters).all(|(now, before)| now >= before);
        Violation::unless(grow, "counters grow", || {
            format!("the {who} had {:?} and has {counters:?}", self.counters)
        })?;
        self.counters = counters;
        Ok(())
    }
}

impl Watch {
    pub(super) fn new(config: &Config, late: Span, start: Time) -> Watch {
        let config = config.clone();
        let (client, server) = (End::new(start), End::new(start));
        let (t_ka, stated) = (config.t_ka, (config.k, config.t_ka));
        let (slowest, fastest) = (t_ka, [t_ka; 2]);
        let (second, sent, excused, still) = (0, Sent::default(), start, None);
        Watch {
            config,
            late,
            slowest,
            fastest,
            stated,
            client,
            server,
            second,
            sent,
            excused,
            still,
        }
    }

    pub(super) fn client_began(&mut self, now: Time, config: &Config) {
        self.client.begin(now);
        self.slowest = config.t_ka.max(self.stated.1);
        self.still = None;
    }

    /// The client's settings change.
    pub(super) fn client_configured(&mut self, now: Time, config: &Config) {
        if *config == self.config {
            return;
        }
        self.turn_second(now);
        self.config = config.clone();
        self.slowest = self.slowest.max(config.t_ka);
        self.fastest[1] = self.fastest[1].min(config.t_ka);
        self.client.since = self.client.since.max(now);
        self.client.disturbed += 1;
        self.still = None;
    }

    /// The client stalls, and reads waiting packets at `reads`.
    pub(super) fn client_stalls(
        &mut self,
        (now, reads): (Time, Time),
        client: &Client,
        up: &FaultyLink,
        down: &FaultyLink,
    ) {
        // The timeout is postponed only once per silence.
        let (before, transitions) = (self.client.resumed, client.estimates().transitions);
        let read = client.last_response();
        let judges = client.state() == State::Up && read > before;
        let out = read + self.config.time_out();
        let due = self.client.last_sent + self.config.t_ka;
        let silent = judges.then_some(out);
        let well = self.well_from(up, down).is_some_and(|from| now > from);
        // The client does not notice a smaller delay.
        let notices = reads.since(due.min(out)) > Span(self.config.t_ka.0 / 4) + MOMENT;
        if !well || !notices || self.late > Span::ZERO {
            self.excused = reads;
        }
        self.still = Some(Still { until: reads, transitions, silent, due, answer: None });
        (self.client.stalled, self.client.resumed) = (now, reads);
        self.client.moved = self.client.moved + reads.since(now);
    }

    /// A response waits for a stalled client.
    pub(super) fn waits_for_client(&mut self, now: Time, probe: &Probe) {
        let newer = probe.seq > self.client.answered;
        if let Some(still) = self.still.as_mut().filter(|_| newer) {
            still.answer = Some(now);
        }
    }

    /// The client reads a response.
    pub(super) fn client_reads(&mut self, arrival: &Arrival, rtt_max: Span) {
        let client = &mut self.client;
        if arrival.probe.seq > client.answered {
            client.answered = arrival.probe.seq;
            if arrival.at > client.resumed + rtt_max {
                client.moved = Span::ZERO;
            }
        }
    }

    pub(super) fn server_stalls(&mut self, reads: Time) {
        self.server.resumed = reads;
    }

    /// "Late ticks" at [`Client`]: if the tick of a timeout is late, the client first reads waiting packets.
    fn expect_put_off(&mut self, now: Time, client: &Client) -> Result<(), Violation> {
        let Some(still) = self.still.take_if(|still| now > still.until) else { return Ok(()) };
        let silent = still.silent.filter(|_| self.late == Span::ZERO);
        let (Some(silent), Some(answer)) = (silent, still.answer) else { return Ok(()) };
        let late =
            still.due > silent + Span(self.config.t_ka.0 / 4) && still.due + MOMENT < still.until;
        let in_time = answer + self.config.time_out() > now;
        let kept = client.estimates().transitions == still.transitions;
        Violation::unless(kept || !late || !in_time || !self.client.on, "no false alarm", || {
            format!(
                "the client went down while an answer waited, which came at {answer:?}: {still:?}"
            )
        })
    }

    /// A request of this start of the client arrives, and states K.
    pub(super) fn on_arrival(&mut self, now: Time, start: u32, probe: &Probe, k: u8) {
        let (seq, sc) = (probe.seq, probe.sc);
        let newer = start > self.sent.start || self.sent.newest == 0 || seq > self.sent.newest;
        let stated = (k, Span::from_millis(probe.t_ka_ms.into()));
        if newer && start >= self.sent.start && stated != self.stated {
            self.turn_second(now);
            self.stated = stated;
            self.fastest[1] = self.fastest[1].min(stated.1);
            self.server.since = self.server.since.max(now);
        }
        let Sent { start: known, newest, from, to, .. } = self.sent;
        if start < known {
            // A request overtaken by one of a later start looks like another start.
            self.sent.blurred = true;
        } else if start == known && newest > 0 {
            self.sent.newest = newest.max(seq);
            self.sent.to = to.max(sc);
        } else {
            self.sent.before += u64::from(to - from);
            // A start whose first number is higher than the last one before does not look like a start.
            let goes_on = newest > 0 && seq > newest && sc > to;
            let from = if goes_on { to } else { sc };
            self.sent = Sent { start, newest: seq, from, to: sc, ..self.sent };
        }
    }

    pub(super) fn server_began(&mut self, now: Time, config: &Config) {
        self.stated = (config.k, config.t_ka);
        self.sent = Sent { start: self.sent.start, ..Sent::default() };
        self.server.begin(now);
    }

    pub(super) fn client_switched(&mut self, now: Time, on: bool) {
        self.client.switch(now, on);
    }

    pub(super) fn server_switched(&mut self, now: Time, on: bool) {
        self.server.switch(now, on);
    }

    fn turn_second(&mut self, now: Time) {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            let t_ka = self.config.t_ka.min(self.stated.1);
            (self.second, self.fastest) = (second, [self.fastest[1], t_ka]);
            for end in [&mut self.client, &mut self.server] {
                (end.probes, end.disturbed) = (0, 0);
            }
        }
    }

    fn most_probes(&self, disturbed: u32) -> u32 {
        (1_000_000_000 / self.fastest[0].min(self.fastest[1]).0) as u32 + SPARE_PROBES + disturbed
    }

    pub(super) fn on_request(&mut self, now: Time, seq: u32) -> Result<(), Violation> {
        self.turn_second(now);
        self.client.on_probe(now, seq, "client")?;
        self.expect_no_storm()
    }

    pub(super) fn on_unsolicited(&mut self, now: Time, seq: u32) -> Result<(), Violation> {
        self.turn_second(now);
        self.server.on_probe(now, seq, "server")?;
        self.expect_no_storm()
    }

    fn expect_no_storm(&self) -> Result<(), Violation> {
        let ends = [&self.client, &self.server];
        let resumes = |end: &End| end.resumed.0 / 1_000_000_000 == self.second;
        let disturbed = ends.map(|end| end.disturbed + u32::from(resumes(end))).iter().sum();
        let most = self.most_probes(disturbed);
        for (who, end) in [("client", &self.client), ("server", &self.server)] {
            Violation::unless(end.probes <= most, "storm", || {
                format!("the {who} sends {} probes in a second, {most} at most", end.probes)
            })?;
        }
        Ok(())
    }

    pub(super) fn on_sample(
        &self,
        who: &str,
        sample: &Sample,
        up: (Span, Span),
        down: (Span, Span),
    ) -> Result<(), Violation> {
        if let Some(rtt) = sample.rtt {
            let (least, most) = (up.0 + down.0, up.1 + down.1);
            let possible = (least - STAMPS..=most + STAMPS).contains(&rtt);
            Violation::unless(possible, "round trips are possible", || {
                format!("the {who} measures {rtt}, the links give {least} to {most}")
            })?;
        }
        for loss in [sample.owl_up, sample.owl_down, sample.rtl].into_iter().flatten() {
            Violation::unless((0.0..=1.0).contains(&loss), "loss is a share", || {
                format!("the {who} measures a loss of {loss}")
            })?;
        }
        Ok(())
    }

    pub(super) fn check(
        &mut self,
        now: Time,
        client: &Client,
        server: &Server,
        up: &FaultyLink,
        down: &FaultyLink,
    ) -> Result<(), Violation> {
        self.client.expect_counters(client.estimates(), "client")?;
        self.server.expect_counters(server.estimates(), "server")?;
        for (who, estimates) in [("client", client.estimates()), ("server", server.estimates())] {
            expect_sense(who, estimates, up, down)?;
        }
        let sent = self.sent.before + u64::from(self.sent.to - self.sent.from);
        let counted = server.estimates().up.sent;
        let holds = counted <= sent || self.sent.blurred;
        Violation::unless(holds, "counts are of what was sent", || {
            format!("the server counts {counted} packets, the client sent {sent} since it began")
        })?;
        let in_force = server.in_force();
        let waits = now <= self.server.resumed;
        let newest = in_force == self.stated || self.sent.blurred || waits;
        Violation::unless(newest, "the newest settings", || {
            format!("the server has {in_force:?}, the newest request said {:?}", self.stated)
        })?;
        self.expect_put_off(now, client)?;
        self.expect_detection(now, client, server, up, down)?;
        self.expect_no_false_alarm(now, client, server, up, down)
    }

    /// Eq. 1 for the client's round trip, its downlink and the server's uplink.
    fn expect_detection(
        &self,
        now: Time,
        client: &Client,
        server: &Server,
        up: &FaultyLink,
        down: &FaultyLink,
    ) -> Result<(), Violation> {
        let rtt_max = up.delays().1 + down.delays().1;
        let bound = |(k, t_ka)| Config { k, t_ka, ..self.config.clone() }.t_r_max(rtt_max);
        // A client whose driver is always late excuses requests that it may have omitted within a round trip
        // before, and counts one period per request, however late.
        let late = |t_ka: Span| t_ka.max(self.late);
        let requests = 2 + self.late.0 / self.config.t_ka.0;
        let always = self.late > Span::ZERO;
        let more = if always { self.late * 2 + rtt_max * requests } else { Span::ZERO };
        let k = self.config.k;
        let overdue = |end: &End, dead: Option<Time>, bound: Span| {
            dead.is_some_and(|dead| {
                end.on && now > dead.max(end.since).max(end.resumed) + end.moved + bound
            })
        };
        let either = up.dead_since().into_iter().chain(down.dead_since()).min();
        let own = bound((k, late(self.config.t_ka))) + more;
        let hears = bound((k, late(self.slowest))) + more;
        let theirs = bound(self.stated);
        for (what, overdue, bound) in [
            ("client up", overdue(&self.client, either, own) && client.state() == State::Up, own),
            (
                "client hears",
                overdue(&self.client, down.dead_since(), hears) && client.heard(),
                hears,
            ),
            (
                "server up",
                overdue(&self.server, up.dead_since(), theirs) && server.state() == State::Up,
                theirs,
            ),
        ] {
            Violation::unless(!overdue, "detection within eq. 1", || {
                format!(
                    "{what} though up is dead since {:?}, down {:?}, bound {bound}",
                    up.dead_since(),
                    down.dead_since()
                )
            })?;
        }
        Ok(())
    }

    /// Time until a path is up after the cause of its outage is gone.
    fn settle(&self, rtt_max: Span) -> Span {
        let periods = u64::from(self.config.up_after) + 1;
        self.config.t_ka.max(self.late) * periods + self.late * 2 + rtt_max
    }

    /// Time from which the client must be up. After a cause is gone, a timeout may still expire until the next
    /// answer arrives: one period and a round trip. Then `up_after` answers to consecutive requests bring the
    /// path back. A restarted client may mistake answers to its predecessor's requests, which have the same
    /// numbers, for its own while they are in flight: one more round trip.
    fn well_from(&self, up: &FaultyLink, down: &FaultyLink) -> Option<Time> {
        let (up_clean, down_clean) = (up.clean_since()?, down.clean_since()?);
        let rtt_max = up.delays().1 + down.delays().1;
        let settle = self.settle(rtt_max);
        let began = (self.client.since + rtt_max).max(self.server.since);
        // A fault during a stall affects the client afterwards.
        let (clean, stalled) = (up_clean.max(down_clean), self.client.stalled);
        let clean = if clean < stalled { clean } else { clean.max(self.client.resumed) };
        Some(clean.max(began).max(self.excused) + settle)
    }

    /// A stall is the end's own fault: a stalled client stays up, but the server has to hear from it again.
    fn expect_no_false_alarm(
        &self,
        now: Time,
        client: &Client,
        server: &Server,
        up: &FaultyLink,
        down: &FaultyLink,
    ) -> Result<(), Violation> {
        let from = self.well_from(up, down).filter(|_| self.client.on && self.server.on);
        let Some(from) = from.filter(|from| now > *from) else { return Ok(()) };
        let settle = self.settle(up.delays().1 + down.delays().1);
        let resumed = self.client.resumed.max(self.server.resumed);
        // A client whose driver is always late sends too rarely for the server.
        let heard_again = self.late == Span::ZERO && now > resumed + settle;
        let well = (client.state(), client.heard(), server.state());
        let fine = (well.0, well.1) == (State::Up, true) && (well.2 == State::Up || !heard_again);
        Violation::unless(fine, "no false alarm", || {
            format!(
                "client {:?}, heard {}, server {:?} though all should have been well {} ago",
                well.0,
                well.1,
                well.2,
                now.since(from)
            )
        })
    }

    pub(super) fn finish(&self, client: &Client, server: &Server) -> Result<(), Violation> {
        for (who, e) in [("client", client.estimates()), ("server", server.estimates())] {
            for loss in [&e.owl_up, &e.owl_down, &e.rtl].into_iter().filter_map(|l| l.first()) {
                // An end that is always late has fewer intervals in that time.
                let forgotten = *loss < LOSS_FORGOTTEN || self.late > Span::ZERO;
                Violation::unless(forgotten, "recovered", || {
                    format!("the {who} still has an average loss of {loss}")
                })?;
            }
        }
        let hears = server.state() == State::Up || self.late > Span::ZERO;
        let well = client.state() == State::Up && client.heard() && hears;
        Violation::unless(well, "recovered", || {
            format!("client {:?}, server {:?}", client.state(), server.state())
        })
    }
}

fn expect_sense(
    who: &str,
    e: &Estimates,
    up: &FaultyLink,
    down: &FaultyLink,
) -> Result<(), Violation> {
    for loss in e.owl_up.iter().chain(&e.owl_down).chain(&e.rtl) {
        Violation::unless((0.0..=1.0).contains(loss), "loss is a share", || {
            format!("the {who} has an average loss of {loss}")
        })?;
    }
    let least = (up.delays().0 + down.delays().0 - STAMPS).as_secs_f64();
    let most = (up.delays().1 + down.delays().1 + STAMPS).as_secs_f64();
    let ordered = e.rtt_min <= e.rtt_last && e.rtt_last <= e.rtt_max;
    Violation::unless(ordered, "round trips are possible", || format!("the {who}: {e:?}"))?;
    for rtt in &e.rtt_ewma {
        Violation::unless((least..=most).contains(rtt), "round trips are possible", || {
            format!("the {who} has an average of {rtt} s, the links give {least} to {most}")
        })?;
    }
    Ok(())
}
