//! Doubt: silence in place of an expected packet, and the questions that decide whether the path works.
//!
//! A *proof* shows that the path works: a response to a request, or data from the peer that state how long ago it heard
//! this end ([`Traffic::heard_back`]). Two kinds of packets can be expected.
//!
//! * **An answer.** After the first packet that is not proven to have arrived, a proof is due within a time that
//!   depends on the RTT. If no request has left since that packet, and the peer's data will not give a proof by
//!   themselves, the client sends a request, which gets the same time. If that time passes as well, the path is in
//!   doubt.
//! * **A stream.** If packets arrive regularly, the next one is expected. If it does not arrive, the path is in doubt
//!   immediately.
//!
//! In doubt, requests leave every [`Asking::spacing`]. Any proof ends doubt. If there is none by the end of the K-th
//! request's time, the path is down. Detection therefore follows use: a path with data is judged from its first packet,
//! an idle path from its next probe, and neither needs extra probes for it.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

use segue_clock::{Deadline, Span, Time, earlier};

use super::Client;
use super::lapses::{BURST_AT_MOST, Lapses};
use super::rate::Rate;
use super::stream::{STREAM, Stream};
use crate::config::Asking;
use crate::questions::MARGIN;
use crate::{ClientOutput, State, Traffic};

/// Maximum time allowed for an answer, and the time before any measurement.
const LONGEST: Span = Span::from_secs(3);
const UNMEASURED: Span = Span::from_secs(1);
/// Maximum rounding error of a stated age ([`segue_wire::age`]). Programs in the kernel have a coarser clock for data
/// and sometimes exceed it by a factor of two, which costs an unnecessary question.
const ROUNDED: Span = Span::from_millis(5);
/// A path is in use for this long after its last data packet.
const USED_FOR: Span = Span::from_secs(2);
/// A datapath calls its driver when data follow a silence longer than this, on a path whose [detection follows
/// use](crate::config::Probing::follows_use). While data follow sooner, the client looks as often by itself.
pub const SILENCE: Span = Span::from_millis(40);
/// Extra time for which the client looks: the datapath's clock for data may be up to 10 ms late at both ends of a
/// silence.
const TICKS: Span = Span::from_millis(20);
/// Validity of a reading.
const FRESH: Span = Span::from_millis(2);
/// Data that state an age above this are not a useful proof.
const TOLD: Span = Span::from_secs(1);
/// Maximum distance of the peer's data packets, in seconds, for which the client waits for them instead of asking.
const SELDOM: f64 = 0.1;
/// Allocated at first use: most of a million simulated hosts never need it.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Option<Box<Doubt>>);

static NOTHING: Doubt = Doubt::NEW;

impl Deref for Kept {
    type Target = Doubt;

    fn deref(&self) -> &Doubt {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Doubt {
        self.0.get_or_insert_with(|| Box::new(Doubt::NEW))
    }
}

/// Expected packets on a path, and the current questions.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    traffic: Traffic,
    rate: Rate,
    stream: Stream,
    /// Time of the latest information about data.
    looked: Time,
    /// When to look at data again. Until then the datapath does not report departures or arrivals.
    look_at: Option<Time>,
    /// When the first packet left that is not proven to have arrived.
    unproven: Option<Time>,
    /// When the first request after it left.
    question: Option<Time>,
    episode: Option<Episode>,
    /// Start of the last detected outage.
    lost_since: Option<Time>,
    /// When this end was last late to look. The silence may have been its own delay.
    stalled: Option<Time>,
    lapses: Lapses,
}

impl Doubt {
    const NEW: Doubt = Doubt {
        traffic: Traffic::NONE,
        rate: Rate::NEW,
        stream: Stream::NEW,
        looked: Time::ZERO,
        look_at: None,
        unproven: None,
        question: None,
        episode: None,
        lost_since: None,
        stalled: None,
        lapses: Lapses::NONE,
    };
}

/// The questions of one doubt.
#[derive(Clone, Copy, Debug)]
struct Episode {
    began: Time,
    /// When the packet that caused the doubt left or arrived.
    since: Time,
    /// When the last lost packet before the doubt left.
    lost: Time,
    /// True if it is about an answer, which may be a stated age; false if it is about a stream.
    unanswered: bool,
    asked: u8,
    /// When the next question, or the verdict, is due.
    due: Time,
    /// Whether the verdict was deferred, which happens once: if this end was late for it, or if the stream resumed.
    put_off: bool,
    /// When the stream resumed, if this end has noticed it.
    resumed: Option<Time>,
    /// Number of packets received when the doubt began.
    received: u32,
}

impl Episode {
    /// Start of the recorded silence. Earlier ones ended without causing doubt.
    fn lasting(&self, rtt: Span) -> Time {
        self.lost.max(self.began - rtt)
    }
}

impl Client {
    /// Whether an expected packet is missing and no proof has arrived yet.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        self.doubt.episode.is_some()
    }

    /// Packets that left before this time are proven to have arrived. No later packet is.
    #[must_use]
    pub fn proven_until(&self) -> Time {
        self.proof() - self.rtt().unwrap_or(Span::ZERO)
    }

    /// When probes or data last arrived.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        self.doubt.traffic.received_at.map_or(self.last_heard, |at| at.max(self.last_heard))
    }

    /// End of the path's current use, and its data rate in bytes per second.
    #[must_use]
    pub fn use_of_path(&self) -> (Time, f64) {
        let Traffic { sent_at, received_at, .. } = self.doubt.traffic;
        let last = sent_at.max(received_at);
        (last.map_or(Time::ZERO, |at| at + USED_FOR), self.doubt.rate.average)
    }

    /// Durations of silence on this path that ended, weighted by their age at `now`.
    #[must_use]
    pub fn lapses(&self, now: Time) -> Lapses {
        self.doubt.lapses.as_of(now)
    }

    /// Time allowed for an answer that does not wait for a ride: the RTT, four times its variation, and a margin.
    #[must_use]
    pub fn answer_within(&self) -> Span {
        let Some(rtt) = self.rtt() else { return UNMEASURED };
        let within = rtt + Span::from_secs_f64(4.0 * self.measure.estimates.rtt_jitter) + MARGIN;
        within.min(LONGEST)
    }

    /// The last round-trip time; zero before any.
    pub(super) fn last_rtt(&self) -> Span {
        self.measure.estimates.rtt_last.unwrap_or(Span::ZERO)
    }

    /// The average RTT, or the last one if it is longer.
    fn rtt(&self) -> Option<Span> {
        let e = &self.measure.estimates;
        let average = Span::from_secs_f64(*e.rtt_ewma.first()?);
        Some(e.rtt_last.map_or(average, |last| last.max(average)))
    }

    /// Like [`answer_within`](Client::answer_within), for an answer that may wait for a ride.
    fn held_answer_within(&self) -> Span {
        let waits = if self.config.rides { segue_wire::HELD_AT_MOST_MS } else { 0 };
        self.answer_within() + Span::from_millis(waits)
    }

    /// Maximum time until the path is down: from the first lost packet if it is in use, otherwise from the outage.
    #[must_use]
    pub fn detection_bound(&self, asking: Asking, in_use: bool) -> Span {
        let answer = self.answer_within();
        let t_d = asking.spacing * u64::from(asking.k.saturating_sub(1)) + answer;
        if !in_use {
            return self.config.t_ka + self.held_answer_within() + t_d;
        }
        let by_answer = answer + self.doubt.rate.longest_apart() + self.held_answer_within() + t_d;
        // A stream that resumes in the meantime defers the verdict.
        let silence = Span::from_secs_f64(self.doubt.stream.silence()).max(answer);
        let by_stream = if self.doubt.stream.flows() { silence + t_d + answer } else { Span::ZERO };
        by_answer.max(by_stream)
    }

    pub(super) fn on_traffic(&mut self, at: Time, traffic: Traffic) {
        if self.config.doubt.is_none() && traffic == self.doubt.traffic {
            return;
        }
        if self.config.doubt.is_some() {
            let last = traffic.sent_at.max(traffic.received_at).map(|last| last + SILENCE + TICKS);
            self.doubt.look_at = last.filter(|look_at| *look_at > at);
            self.doubt.looked = at;
            self.doubt.stream.observe(&traffic);
            self.doubt.rate.observe(at, traffic.bytes);
        }
        self.doubt.traffic = traffic;
    }

    /// Handles a tick. A preceding reading, if any, was the look.
    pub(super) fn have_looked(&mut self, now: Time) {
        if self.config.doubt.is_none() {
            return;
        }
        if self.doubt_deadline().is_some_and(|(due, _)| now.since(due) > MARGIN) {
            self.doubt.stalled = Some(now);
        }
        self.doubt.look_at.take_if(|at| *at <= now);
        self.doubt.looked = now;
    }

    /// Resets doubt after a change of state, or after a switch off or on.
    pub(super) fn forget_doubt(&mut self) {
        if let Some(doubt) = &mut self.doubt.0 {
            doubt.episode = None;
            (doubt.unproven, doubt.question) = (None, None);
            doubt.stream = Stream::NEW;
        }
    }

    /// Settings of questions if the client currently investigates silence.
    fn asks(&self) -> Option<Asking> {
        self.config.doubt.filter(|_| self.state == State::Up && self.on && self.answered)
    }

    /// Time of the newest proof that both directions work.
    #[must_use]
    pub fn proof(&self) -> Time {
        self.doubt.traffic.heard_back.map_or(self.alive, |at| at.max(self.alive))
    }

    /// Whether a packet that left at `sent` is proven to have arrived. Ages that the peer states within a round trip of
    /// it concern older packets.
    fn is_proven(&self, sent: Time) -> bool {
        let rtt = self.measure.estimates.rtt_min.unwrap_or(Span::ZERO);
        self.proof() + ROUNDED >= sent + rtt
    }

    /// Updates the unproven packet and its request.
    fn track(&mut self) {
        if self.doubt.unproven.is_some_and(|sent| self.is_proven(sent)) {
            (self.doubt.unproven, self.doubt.question) = (None, None);
        }
        let asked = self.schedule.last;
        if self.doubt.unproven.is_none() {
            let out = self.doubt.traffic.sent_at.max(asked);
            self.doubt.unproven = out.filter(|at| *at > self.proof() && !self.is_proven(*at));
        }
        if let Some(since) = self.doubt.unproven
            && self.doubt.question.is_none()
        {
            self.doubt.question = asked.filter(|at| *at >= since);
        }
    }

    /// When an answer is due.
    fn answer_due(&self) -> Option<Time> {
        let sent = self.doubt.unproven?;
        if let Some(asked) = self.doubt.question {
            return Some(asked + self.held_answer_within());
        }
        let due = sent + self.answer_within() + self.told_within().unwrap_or(Span::ZERO);
        Some(self.doubt.rate.may_ask_at(due))
    }

    /// How much later than a prompt answer the peer's data will give a proof. `None` if they will not give one by
    /// themselves: they must flow, state ages and arrive often. Rare data are not worth the wait, because a question is
    /// answered sooner.
    fn told_within(&self) -> Option<Span> {
        let Traffic { heard_back, received_at, .. } = self.doubt.traffic;
        let heard =
            heard_back.is_some_and(|at| received_at.is_some_and(|last| last.since(at) < TOLD));
        let Stream { gap, deviation, packets, .. } = self.doubt.stream;
        let next = 1.2 * gap + 2.0 * deviation;
        (heard && packets >= STREAM && next <= SELDOM).then(|| Span::from_secs_f64(next))
    }

    /// When doubt next requires an action, and which.
    pub(super) fn doubt_deadline(&self) -> Deadline {
        self.asks()?;
        if let Some(episode) = &self.doubt.episode {
            return Some((episode.due, "a question in doubt"));
        }
        let answer = self.answer_due().map(|at| (at, "an answer to what was sent"));
        let stream = self.doubt.stream.stops_at(self.answer_within());
        let stream = stream.map(|at| (at, "the next packet of a stream"));
        let look = self.doubt.look_at.map(|at| (at, "a look at what data did"));
        earlier(earlier(answer, stream), look)
    }

    /// Checks whether an expected packet is missing, and asks.
    pub(super) fn run_doubt(&mut self, now: Time) {
        let Some(asking) = self.asks() else { return };
        self.track();
        let received_at = self.doubt.traffic.received_at;
        if let Some(episode) = &mut self.doubt.episode
            && episode.resumed.is_none()
        {
            episode.resumed = received_at.filter(|at| *at > episode.began);
        }
        self.settle_doubt(now);
        // Begin only after a fresh reading: data may have brought the answer.
        if self.doubt.episode.is_none() && now.since(self.doubt.looked) < FRESH {
            self.begin_doubt(now);
        }
        self.ask_on(now, asking);
    }

    /// Ends doubt if a proof arrived.
    fn settle_doubt(&mut self, now: Time) {
        let Some(episode) = self.doubt.episode else { return };
        // Arriving data prove that one direction works. The questions concern both.
        let answered =
            self.proof() > episode.began || episode.unanswered && self.is_proven(episode.since);
        if !answered {
            return;
        }
        self.doubt.episode = None;
        (self.doubt.unproven, self.doubt.question) = (None, None);
        // A doubt about a stream that had only paused ends with the answer to its first question.
        let rtt = self.last_rtt();
        if episode.unanswered || now - rtt > episode.began + MARGIN {
            self.doubt.stream = Stream::NEW;
            let answered = now - rtt;
            let lasting = episode.lasting(rtt);
            // The question before the answered one was lost as well.
            let spacing = self.config.doubt.map_or(Span::ZERO, |asking| asking.spacing);
            let asked =
                if answered > episode.began + MARGIN { answered - spacing } else { lasting };
            self.note_lapse(now, lasting, asked.max(lasting));
        } else {
            self.doubt.stream.pauses(episode.since, episode.resumed);
        }
        self.outputs.push_back(ClientOutput::Doubt(false));
    }

    /// Records a silence. An answer arrived at `now` to a packet that left a round trip earlier, but none to packets
    /// since `since`; `lost` is when the last of these left.
    fn note_lapse(&mut self, now: Time, since: Time, lost: Time) {
        if self.doubt.stalled.is_some_and(|at| at >= since) {
            return;
        }
        let rtt = self.last_rtt();
        self.doubt.lapses.push(now, lost.since(since), (now - rtt).since(since));
    }

    /// Handles the first answer on a path that is down. The silence is over, even if the path does not come up yet.
    pub(super) fn on_sign_of_life(&mut self, now: Time) {
        let Some(since) = self.doubt.lost_since else { return };
        self.doubt.lost_since = None;
        if now.since(since) < BURST_AT_MOST {
            // Retries are one current T_KA apart.
            let rtt = self.last_rtt();
            self.note_lapse(now, since, now - rtt - self.config.t_ka);
        }
    }

    fn begin_doubt(&mut self, now: Time) {
        let answer = self.answer_due().filter(|at| *at <= now);
        let stream = self.doubt.stream.stops_at(self.answer_within()).filter(|at| *at <= now);
        let (unanswered, since) = match (answer, self.doubt.unproven, self.doubt.stream.last) {
            (Some(_), Some(sent), _)
                if self.doubt.question.is_some() || self.told_within().is_some() =>
            {
                (true, sent)
            }
            (_, _, Some((_, last))) if stream.is_some() => (false, last),
            (Some(_), ..) => {
                // The packet itself may not require an answer, but this request does.
                self.ask(now);
                self.doubt.rate.ask(now);
                self.doubt.question = Some(now);
                return;
            }
            _ => return,
        };
        self.doubt.lapses.doubts += 1;
        let (asked, put_off) = (0, false);
        let lost = self.doubt.question.filter(|_| unanswered).unwrap_or(since);
        let (due, resumed, received) = (now, None, self.doubt.traffic.received);
        let episode =
            Episode { began: now, since, lost, unanswered, asked, due, put_off, resumed, received };
        self.doubt.episode = Some(episode);
        self.outputs.push_back(ClientOutput::Doubt(true));
    }

    /// Sends the question that is due, or gives the verdict.
    fn ask_on(&mut self, now: Time, asking: Asking) {
        let Some(mut episode) = self.doubt.episode.filter(|episode| episode.due <= now) else {
            return;
        };
        let late = now.since(episode.due);
        if episode.asked < asking.k {
            episode.asked += 1;
            let last = episode.asked == asking.k;
            episode.due = now + if last { self.answer_within() } else { asking.spacing };
            self.doubt.episode = Some(episode);
            self.ask(now);
        } else if (late > MARGIN || self.is_flooded(&episode)) && !episode.put_off {
            // A late look is not a loss of the path. After a resumed stream, answers may be queued behind its data.
            let more = if late > MARGIN { MARGIN } else { self.answer_within() };
            (episode.put_off, episode.due) = (true, now + more);
            self.doubt.episode = Some(episode);
        } else if now.since(self.doubt.looked) < FRESH {
            self.give_up(now, episode);
        }
    }

    /// Whether the stopped stream resumed with so many packets that answers may be queued behind them.
    fn is_flooded(&self, episode: &Episode) -> bool {
        let came = self.doubt.traffic.received.wrapping_sub(episode.received);
        !episode.unanswered && came >= 2 * STREAM
    }

    fn give_up(&mut self, now: Time, episode: Episode) {
        let rtt = self.last_rtt();
        self.doubt.lost_since = Some(episode.lasting(rtt));
        if self.heard && self.last_heard < episode.began {
            let data = self.doubt.traffic.received_at;
            if data.is_none_or(|at| at < episode.began) {
                self.heard = false;
                self.outputs.push_back(ClientOutput::Heard(false));
            }
        }
        self.go_down(now);
    }

    /// Sends a question to obtain counters. In doubt, other questions already do.
    pub(super) fn on_recount(&mut self, now: Time) {
        if self.asks().is_some() && !self.in_doubt() {
            self.ask(now);
        }
    }

    /// Sends a request immediately that does not move the grid and that neither end counts as a packet.
    fn ask(&mut self, now: Time) {
        if self.schedule.last == Some(now) {
            return;
        }
        let next = self.schedule.next;
        self.send(now, true);
        if next > now {
            self.schedule.next = next;
        }
    }
}
