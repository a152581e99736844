//! Doubt: silence where something was due, and the questions that settle it.
//!
//! What shows that a path lives is a *proof*: a response to a request, or data of the other end that say how
//! long ago it heard this one ([`Traffic::heard_back`]). Two things are due.
//!
//! * **An answer.** After the first packet of which nothing shows yet that it arrived, a proof is due within what
//!   the round-trip time allows. Where no request left since that packet, and no data of the other end flow that
//!   would say so, a request is sent then, which has the same time. If that passes as well, the path is in doubt.
//! * **A stream.** Where packets arrive regularly, the next is due. If none comes, the path is in doubt at once.
//!
//! In doubt requests go every [`Asking::spacing`]. Any proof ends doubt; if the K-th has had its time and
//! none came, the path is down. So detection follows use: a path that carries data is judged from its first
//! packet, one that carries nothing from its next probe, and neither needs more probes for it.

use segue_clock::{Span, Time};

use super::Client;
use crate::config::Asking;
use crate::{ClientOutput, State, Traffic};

/// What an answer may be late beside what the round-trip times vary: the other end's queue and timers.
const MARGIN: Span = Span::from_millis(10);
/// The longest time that an answer is given, whatever was measured, and the one before anything was.
const LONGEST: Span = Span::from_secs(3);
const UNMEASURED: Span = Span::from_secs(1);
/// How far a stated age may be rounded up ([`segue_wire::age`]).
const ROUNDED: Span = Span::from_millis(5);
/// Bytes of a question and its answer: IPv4, UDP and a probe packet, twice.
const QUESTION: f64 = (2 * (20 + 8 + segue_wire::Probe::PACKET_LEN)) as f64;
/// What questions about unanswered data may cost of its bytes, how many may come at once, how far apart they are
/// at least, and how far where data do not pay for them.
const QUESTION_SHARE: f64 = 0.3;
const QUESTION_CREDIT: f64 = 5.0;
const QUESTION_GAP: Span = Span::from_millis(60);
const QUESTION_RARE: Span = Span::from_secs(1);
/// Over how many seconds the rate is averaged.
const RATE_OVER: f64 = 1.0;
/// For how long after its last packet of data a path is in use.
const USED_FOR: Span = Span::from_secs(2);
/// A datapath calls its driver when data follow a silence longer than this, on a path that is
/// [asked about](crate::config::Probing::follows_use). While they follow sooner the client looks as often by itself.
pub const SILENCE: Span = Span::from_millis(40);
/// What a reading says is taken to be so for this long.
const FRESH: Span = Span::from_millis(2);
/// Data of the other end that state an age beyond this do not say much.
const TOLD: Span = Span::from_secs(1);
/// Packets that make a stream.
const STREAM: u32 = 8;
/// No stream is expected after a silence longer than this.
const SLOWEST: f64 = 1.0;
/// What ends so soon after it began was a burst of losses, though it was called an outage. Longer ones applications
/// feel: flows had better leave.
const BURST_AT_MOST: Span = Span::from_millis(400);

/// What is due on a path, and the questions that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt {
    traffic: Traffic,
    rate: Rate,
    stream: Stream,
    /// What is known of data is as of then.
    looked: Time,
    /// When to look at data again: what leaves or arrives until then, the datapath does not tell.
    look_at: Option<Time>,
    /// When the first packet left of which nothing shows yet that it arrived.
    unproven: Option<Time>,
    /// When the first request left after it.
    question: Option<Time>,
    episode: Option<Episode>,
    /// When the path was silent first, in the outage that was found last.
    lost_since: Option<Time>,
    /// When this end was last late to look: what seemed to be silence may have been its own.
    stalled: Option<Time>,
    lapses: Lapses,
}

/// The questions of one doubt.
#[derive(Clone, Copy, Debug)]
struct Episode {
    began: Time,
    /// When what gave rise to it left or arrived.
    since: Time,
    /// It is about an answer, which a stated age may be; else about a stream.
    unanswered: bool,
    asked: u8,
    /// When the next question, or the verdict, is due.
    due: Time,
    /// The verdict was put off once, since this end was late for it.
    put_off: bool,
}

/// What a path carries, and what may be spent on questions about it.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    last: Option<(u64, Time)>,
    /// Bytes in a second.
    average: f64,
    /// Bytes that questions may still cost.
    credit: f64,
    /// When the last was asked for want of an answer.
    asked: Option<Time>,
}

impl Rate {
    fn observe(&mut self, now: Time, bytes: u64) {
        let last = self.last.replace((bytes, now));
        let Some((before, at)) = last else { return };
        let more = bytes.saturating_sub(before) as f64;
        let seconds = now.since(at).as_secs_f64();
        self.credit = (self.credit + more * QUESTION_SHARE).min(QUESTION * QUESTION_CREDIT);
        let keep = libm::exp(-seconds / RATE_OVER);
        let now_is = if seconds > 0.0 { more / seconds } else { self.average };
        self.average = now_is * (1.0 - keep) + self.average * keep;
    }

    /// When a question may be asked for want of an answer: at once for little, by what the path carries for much.
    fn may_ask_at(&self, due: Time) -> Time {
        let apart = if self.credit >= QUESTION { QUESTION_GAP } else { QUESTION_RARE };
        self.asked.map_or(due, |asked| due.max(asked + apart))
    }

    fn ask(&mut self, now: Time) {
        self.asked = Some(now);
        self.credit = (self.credit - QUESTION).max(0.0);
    }
}

/// How packets arrive.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    last: Option<(u32, Time)>,
    /// Packets since the last longer silence.
    packets: u32,
    /// Mean distance in seconds, and how far distances are from it.
    gap: f64,
    deviation: f64,
}

/// Silences that ended: how long they last, the later the more weight, and how often they come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lapses {
    /// How many doubts there were.
    pub doubts: u64,
    /// Sum of the weights of those in which something was lost.
    pub weight: f64,
    /// Weighted sum of how long those lasted, in seconds.
    pub lasted: f64,
    /// The longest of late, in seconds: it fades.
    pub longest: f64,
    /// When the last one ended.
    pub at: Time,
}

impl Lapses {
    /// What an older lapse counts beside the next.
    const KEEP: f64 = 0.98;
    /// Over how many seconds without any they are forgotten.
    const FADES: f64 = 180.0;
    /// Of fewer a mean says nothing.
    const FEW: f64 = 3.5;

    fn push(&mut self, now: Time, lasted: Span) {
        let lasted = lasted.min(BURST_AT_MOST).as_secs_f64();
        let Lapses { doubts, weight, lasted: sum, longest, .. } = self.as_of(now);
        *self = Lapses {
            doubts,
            weight: weight * Self::KEEP + 1.0,
            lasted: sum * Self::KEEP + lasted,
            longest: (longest * Self::KEEP).max(lasted),
            at: now,
        };
    }

    /// What of them still counts.
    fn as_of(&self, now: Time) -> Lapses {
        let keep = libm::exp(-now.since(self.at).as_secs_f64() / Self::FADES);
        let Lapses { weight, lasted, longest, .. } = *self;
        Lapses { weight: weight * keep, lasted: lasted * keep, longest: longest * keep, ..*self }
    }

    /// The mean length in seconds, a standard deviation of it on top, since false alarms are exponential in it; `None`
    /// while there were few.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let spread = 1.0 + 1.0 / libm::sqrt(self.weight.max(1.0));
        (self.weight >= Self::FEW).then(|| self.lasted / self.weight * spread)
    }
}

impl Stream {
    fn observe(&mut self, traffic: &Traffic) {
        let Some(at) = traffic.received_at else { return };
        let last = self.last.replace((traffic.received, at));
        let Some((count, before)) = last else { return };
        let new = traffic.received.wrapping_sub(count);
        if new == 0 || new > 1 << 31 || at <= before {
            self.last = last;
            return;
        }
        let distance = at.since(before).as_secs_f64() / f64::from(new);
        if self.packets > 0 && distance > self.silence() {
            *self = Stream { last: self.last, ..Stream::default() };
            return;
        }
        let gain = if self.packets < STREAM { 0.5 } else { 0.25 };
        if self.packets == 0 {
            self.gap = distance;
        }
        self.deviation += gain * (libm::fabs(distance - self.gap) - self.deviation);
        self.gap += gain * (distance - self.gap);
        self.packets = self.packets.saturating_add(new);
    }

    /// How long no packet may come until the stream has stopped, in seconds. Of a fast one two may be lost; of a
    /// slow one the next is missed at once, since the questions cost little beside it.
    fn silence(&self) -> f64 {
        let spare = (1.2 * self.gap).min(0.015).max(0.5 * self.gap);
        self.gap + spare + 4.0 * self.deviation + 0.005
    }

    /// When it has stopped unless a packet comes before; a silence of `least` is none.
    fn stops_at(&self, least: Span) -> Option<Time> {
        let (_, last) = self.last?;
        let silence = self.silence();
        let flows = self.packets >= STREAM && silence < SLOWEST;
        flows.then(|| last + Span::from_secs_f64(silence).max(least))
    }
}

impl Client {
    /// Silence where something was due, and no answer yet.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        self.doubt.episode.is_some()
    }

    /// What left before has been shown to arrive, and no later packet has for sure.
    #[must_use]
    pub fn proven_until(&self) -> Time {
        self.proof() - self.rtt().unwrap_or(Span::ZERO)
    }

    /// When anything arrived last, probes or data.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        self.doubt.traffic.received_at.map_or(self.last_heard, |at| at.max(self.last_heard))
    }

    /// Until when the path counts as in use, and how many bytes of data in a second it carries.
    #[must_use]
    pub fn use_of_path(&self) -> (Time, f64) {
        let Traffic { sent_at, received_at, .. } = self.doubt.traffic;
        let last = sent_at.max(received_at);
        (last.map_or(Time::ZERO, |at| at + USED_FOR), self.doubt.rate.average)
    }

    /// How long this path is silent without being dead, as far as that still counts at `now`.
    #[must_use]
    pub fn lapses(&self, now: Time) -> Lapses {
        self.doubt.lapses.as_of(now)
    }

    /// How long an answer may take that is not held back: the round-trip time, four times what it varies, and
    /// a margin.
    #[must_use]
    pub fn answer_within(&self) -> Span {
        let Some(rtt) = self.rtt() else { return UNMEASURED };
        let within = rtt + Span::from_secs_f64(4.0 * self.measure.estimates.rtt_jitter) + MARGIN;
        within.min(LONGEST)
    }

    /// The round-trip time on average, or the last if that is longer.
    fn rtt(&self) -> Option<Span> {
        let e = &self.measure.estimates;
        let average = Span::from_secs_f64(*e.rtt_ewma.first()?);
        Some(e.rtt_last.map_or(average, |last| last.max(average)))
    }

    /// The same for one that may wait for a ride.
    fn held_answer_within(&self) -> Span {
        let waits = if self.config.rides { segue_wire::HELD_AT_MOST_MS } else { 0 };
        self.answer_within() + Span::from_millis(waits)
    }

    /// How long it may take until the path is called down: from the first packet that is lost if it is in use, from
    /// the outage if not.
    #[must_use]
    pub fn detection_bound(&self, asking: Asking, in_use: bool) -> Span {
        let answer = self.answer_within();
        let t_d = asking.spacing * u64::from(asking.k.saturating_sub(1)) + answer;
        let until_asked = if in_use { answer + QUESTION_GAP } else { self.config.t_ka };
        until_asked + self.held_answer_within() + t_d
    }

    pub(super) fn on_traffic(&mut self, at: Time, traffic: Traffic) {
        if self.config.doubt.is_some() {
            let last = traffic.sent_at.max(traffic.received_at).map(|last| last + SILENCE);
            self.doubt.look_at = last.filter(|look_at| *look_at > at);
            self.doubt.looked = at;
            self.doubt.stream.observe(&traffic);
            self.doubt.rate.observe(at, traffic.bytes);
        }
        self.doubt.traffic = traffic;
    }

    /// A tick: the reading before it was the look, if there was one.
    pub(super) fn have_looked(&mut self, now: Time) {
        if self.doubt_deadline().is_some_and(|(due, _)| now.since(due) > MARGIN) {
            self.doubt.stalled = Some(now);
        }
        self.doubt.look_at.take_if(|at| *at <= now);
        self.doubt.looked = now;
    }

    /// The path changed its state, or was switched off or on.
    pub(super) fn forget_doubt(&mut self) {
        self.doubt.episode = None;
        (self.doubt.unproven, self.doubt.question) = (None, None);
        self.doubt.stream = Stream::default();
    }

    /// Whether silence is looked into at present.
    fn asks(&self) -> Option<Asking> {
        self.config.doubt.filter(|_| self.state == State::Up && self.on && self.answered)
    }

    /// The newest sign that both directions work.
    fn proof(&self) -> Time {
        self.doubt.traffic.heard_back.map_or(self.alive, |at| at.max(self.alive))
    }

    /// Whether what left at `sent` has been shown to arrive. What the other end said before a round trip had
    /// passed is of something older.
    fn is_proven(&self, sent: Time) -> bool {
        let rtt = self.measure.estimates.rtt_min.unwrap_or(Span::ZERO);
        self.proof() + ROUNDED >= sent + rtt
    }

    /// Takes into account what left and what came.
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

    /// When an answer must have come.
    fn answer_due(&self) -> Option<Time> {
        let sent = self.doubt.unproven?;
        if let Some(asked) = self.doubt.question {
            return Some(asked + self.held_answer_within());
        }
        // Data of the other end is the answer where it comes anyway.
        let Stream { gap, deviation, .. } = self.doubt.stream;
        let next = if self.is_told() { 1.2 * gap + 2.0 * deviation } else { 0.0 };
        let due = sent + self.answer_within() + Span::from_secs_f64(next.min(0.1));
        Some(self.doubt.rate.may_ask_at(due))
    }

    /// Whether the other end's data answer by themselves: they flow, and state ages.
    fn is_told(&self) -> bool {
        let Traffic { heard_back, received_at, .. } = self.doubt.traffic;
        let heard =
            heard_back.is_some_and(|at| received_at.is_some_and(|last| last.since(at) < TOLD));
        heard && self.doubt.stream.packets >= STREAM
    }

    /// When something is due that has to do with doubt, and what.
    pub(super) fn doubt_deadline(&self) -> Option<(Time, &'static str)> {
        self.asks()?;
        if let Some(episode) = &self.doubt.episode {
            return Some((episode.due, "a question in doubt"));
        }
        let answer = self.answer_due().map(|at| (at, "an answer to what was sent"));
        let stream = self.doubt.stream.stops_at(self.answer_within());
        let stream = stream.map(|at| (at, "the next packet of a stream"));
        let look = self.doubt.look_at.map(|at| (at, "a look at what data did"));
        [answer, stream, look].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Looks whether something is missing, and asks.
    pub(super) fn run_doubt(&mut self, now: Time) {
        let Some(asking) = self.asks() else { return };
        self.track();
        self.settle_doubt(now);
        // What data did meanwhile may be the answer: a reading comes before the tick that is due.
        if self.doubt.episode.is_none() && now.since(self.doubt.looked) < FRESH {
            self.begin_doubt(now);
        }
        self.ask_on(now, asking);
    }

    /// Ends doubt if something came.
    fn settle_doubt(&mut self, now: Time) {
        let Some(episode) = self.doubt.episode else { return };
        let resumed = self.doubt.traffic.received_at.is_some_and(|at| at > episode.began);
        let answered =
            self.alive > episode.began || episode.unanswered && self.is_proven(episode.since);
        if !answered && (episode.unanswered || !resumed) {
            return;
        }
        self.doubt.episode = None;
        // A stream that flows again shows that its own direction lives. What left is as unanswered as before.
        if answered {
            (self.doubt.unproven, self.doubt.question) = (None, None);
        }
        // A stream that paused has to flow again before it is missed.
        self.doubt.stream = Stream::default();
        // One about a stream that merely paused ends with the answer to its first question.
        let rtt = self.measure.estimates.rtt_last.unwrap_or(Span::ZERO);
        if episode.unanswered || now - rtt > episode.began + MARGIN {
            self.note_lapse(now, episode.since);
        }
        self.outputs.push_back(ClientOutput::Doubt(false));
    }

    /// An answer came at `now` to what left a round trip before; nothing had since `since`.
    fn note_lapse(&mut self, now: Time, since: Time) {
        if self.doubt.stalled.is_some_and(|at| at >= since) {
            return;
        }
        let rtt = self.measure.estimates.rtt_last.unwrap_or(Span::ZERO);
        self.doubt.lapses.push(now, (now - rtt).since(since));
    }

    /// The first answer of a path that is down: the silence is over, whether the path is used again or not.
    pub(super) fn on_sign_of_life(&mut self, now: Time) {
        if let Some(since) = self.doubt.lost_since.take()
            && now.since(since) < BURST_AT_MOST
        {
            self.note_lapse(now, since);
        }
    }

    fn begin_doubt(&mut self, now: Time) {
        let answer = self.answer_due().filter(|at| *at <= now);
        let stream = self.doubt.stream.stops_at(self.answer_within()).filter(|at| *at <= now);
        let (unanswered, since) = match (answer, self.doubt.unproven, self.doubt.stream.last) {
            (Some(_), Some(sent), _) if self.doubt.question.is_some() || self.is_told() => {
                (true, sent)
            }
            (_, _, Some((_, last))) if stream.is_some() => (false, last),
            (Some(_), ..) => {
                // The packet itself may not have asked for anything: this one does.
                self.ask(now);
                self.doubt.rate.ask(now);
                self.doubt.question = Some(now);
                return;
            }
            _ => return,
        };
        self.doubt.lapses.doubts += 1;
        let (asked, put_off) = (0, false);
        let episode = Episode { began: now, since, unanswered, asked, due: now, put_off };
        self.doubt.episode = Some(episode);
        self.outputs.push_back(ClientOutput::Doubt(true));
    }

    /// Sends what is due of the questions, or the verdict.
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
        } else if late > MARGIN && !episode.put_off {
            // What this end did not look at, the path did not lose.
            (episode.put_off, episode.due) = (true, now + MARGIN);
            self.doubt.episode = Some(episode);
        } else if now.since(self.doubt.looked) < FRESH {
            self.give_up(now, episode);
        }
    }

    fn give_up(&mut self, now: Time, episode: Episode) {
        self.doubt.lost_since = Some(episode.since);
        if self.heard && self.last_heard < episode.began {
            let data = self.doubt.traffic.received_at;
            if data.is_none_or(|at| at < episode.began) {
                self.heard = false;
                self.outputs.push_back(ClientOutput::Heard(false));
            }
        }
        self.go_down(now);
    }

    /// A request at once, which leaves the grid as it is.
    fn ask(&mut self, now: Time) {
        if self.schedule.last == Some(now) {
            return;
        }
        let next = self.schedule.next;
        self.send(now);
        if next > now {
            self.schedule.next = next;
        }
    }
}
