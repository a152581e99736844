//! Doubt: silence where something was due, and the questions that settle it.
//!
//! A *proof* shows that a path lives: a response to a request, or data of the other end that say how long ago it heard
//! this one ([`Traffic::heard_back`]). Two things can be due.
//!
//! * **An answer.** After the first packet that has not been shown to arrive, a proof is due within what the round-trip
//!   time allows. If no request left since that packet, and no data of the other end flow that would give a proof, the
//!   client sends a request, which gets the same time. If that passes as well, the path is in doubt.
//! * **A stream.** Where packets arrive regularly, the next is due. If it does not come, the path is in doubt at once.
//!
//! In doubt requests go every [`Asking::spacing`]. Any proof ends doubt; if the K-th request has had its time without
//! one, the path is down. So detection follows use: a path that carries data is judged from its first packet, an idle
//! one from its next probe, and neither needs more probes for it.

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

/// The longest time that an answer is given, and the time before anything was measured.
const LONGEST: Span = Span::from_secs(3);
const UNMEASURED: Span = Span::from_secs(1);
/// How far a stated age may be rounded up ([`segue_wire::age`]). Programs in the kernel have a coarser clock for data
/// and sometimes round up by twice as much: this costs an unnecessary question.
const ROUNDED: Span = Span::from_millis(5);
/// For how long after its last packet of data a path is in use.
const USED_FOR: Span = Span::from_secs(2);
/// A datapath calls its driver when data follow a silence longer than this, on a path that is [asked
/// about](crate::config::Probing::follows_use). While data follow sooner the client looks as often by itself.
pub const SILENCE: Span = Span::from_millis(40);
/// The client looks for this much longer, since that datapath's clock for data may be a tick of up to 10 ms behind at
/// both ends of a silence.
const TICKS: Span = Span::from_millis(20);
/// A reading holds for this long.
const FRESH: Span = Span::from_millis(2);
/// Data of the other end that state an age beyond this say little.
const TOLD: Span = Span::from_secs(1);
/// If data of the other end come further apart than this, in seconds, the client does not wait for them in place of an
/// answer.
const SELDOM: f64 = 0.1;
/// Doubt, allocated when it is first needed: most of a million simulated hosts ask nothing.
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

/// What is due on a path, and the questions that are under way.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    traffic: Traffic,
    rate: Rate,
    stream: Stream,
    /// The instant of the latest knowledge about data.
    looked: Time,
    /// When to look at data again: the datapath does not report what leaves or arrives before then.
    look_at: Option<Time>,
    /// When the first packet left that has not been shown to arrive.
    unproven: Option<Time>,
    /// When the first request left after it.
    question: Option<Time>,
    episode: Option<Episode>,
    /// The start of the outage that was found last.
    lost_since: Option<Time>,
    /// When this end was last late to look: apparent silence may have been its own lateness.
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
    /// When the packet that caused it left or arrived.
    since: Time,
    /// Sending time of the last packet lost before it.
    lost: Time,
    /// Whether it is about an answer, which may be a stated age; else it is about a stream.
    unanswered: bool,
    asked: u8,
    /// When the next question, or the verdict, is due.
    due: Time,
    /// The verdict was put off once, because this end was late for it or the stream came back.
    put_off: bool,
    /// When the stream came back, as far as this end has looked.
    resumed: Option<Time>,
    /// Packets that had arrived when it began.
    received: u32,
}

impl Episode {
    /// The instant from which it counts: silences that ended before then made no doubt.
    fn lasting(&self, rtt: Span) -> Time {
        self.lost.max(self.began - rtt)
    }
}

impl Client {
    /// Something was due, and no answer has come yet.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        self.doubt.episode.is_some()
    }

    /// What left before this has been shown to arrive; no later packet has for sure.
    #[must_use]
    pub fn proven_until(&self) -> Time {
        self.proof() - self.rtt().unwrap_or(Span::ZERO)
    }

    /// When probes or data last arrived.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        self.doubt.traffic.received_at.map_or(self.last_heard, |at| at.max(self.last_heard))
    }

    /// Until when the path counts as in use, and how many bytes of data per second it carries.
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

    /// How long an answer may take that is not held back: the round-trip time, four times its variation, and a margin.
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

    /// The average round-trip time, or the last one if that is longer.
    fn rtt(&self) -> Option<Span> {
        let e = &self.measure.estimates;
        let average = Span::from_secs_f64(*e.rtt_ewma.first()?);
        Some(e.rtt_last.map_or(average, |last| last.max(average)))
    }

    /// The same for an answer that may wait for a ride.
    fn held_answer_within(&self) -> Span {
        let waits = if self.config.rides { segue_wire::HELD_AT_MOST_MS } else { 0 };
        self.answer_within() + Span::from_millis(waits)
    }

    /// The longest time until the path is called down: from the first lost packet if it is in use, else from the
    /// outage.
    #[must_use]
    pub fn detection_bound(&self, asking: Asking, in_use: bool) -> Span {
        let answer = self.answer_within();
        let t_d = asking.spacing * u64::from(asking.k.saturating_sub(1)) + answer;
        if !in_use {
            return self.config.t_ka + self.held_answer_within() + t_d;
        }
        let by_answer = answer + self.doubt.rate.longest_apart() + self.held_answer_within() + t_d;
        // A stream that comes back meanwhile puts the verdict off.
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

    /// A tick: the reading before it was the look, if there was one.
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

    /// The path changed its state, or was switched off or on.
    pub(super) fn forget_doubt(&mut self) {
        if let Some(doubt) = &mut self.doubt.0 {
            doubt.episode = None;
            (doubt.unproven, doubt.question) = (None, None);
            doubt.stream = Stream::NEW;
        }
    }

    /// Whether the client looks into silence at present.
    fn asks(&self) -> Option<Asking> {
        self.config.doubt.filter(|_| self.state == State::Up && self.on && self.answered)
    }

    /// The newest sign that both directions work.
    #[must_use]
    pub fn proof(&self) -> Time {
        self.doubt.traffic.heard_back.map_or(self.alive, |at| at.max(self.alive))
    }

    /// Whether what left at `sent` has been shown to arrive. What the other end stated within a round trip of it
    /// concerns older packets.
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

    /// The latest time for an answer.
    fn answer_due(&self) -> Option<Time> {
        let sent = self.doubt.unproven?;
        if let Some(asked) = self.doubt.question {
            return Some(asked + self.held_answer_within());
        }
        let due = sent + self.answer_within() + self.told_within().unwrap_or(Span::ZERO);
        Some(self.doubt.rate.may_ask_at(due))
    }

    /// How much later than a prompt answer the other end's data give a proof, if they do so by themselves: they flow,
    /// state ages, and come often. Rare data are not worth the wait: a question is answered sooner.
    fn told_within(&self) -> Option<Span> {
        let Traffic { heard_back, received_at, .. } = self.doubt.traffic;
        let heard =
            heard_back.is_some_and(|at| received_at.is_some_and(|last| last.since(at) < TOLD));
        let Stream { gap, deviation, packets, .. } = self.doubt.stream;
        let next = 1.2 * gap + 2.0 * deviation;
        (heard && packets >= STREAM && next <= SELDOM).then(|| Span::from_secs_f64(next))
    }

    /// When doubt next has something to do, and what.
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

    /// Checks whether something is missing, and asks.
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
        // Data may have brought the answer meanwhile: a reading comes before the tick that is due.
        if self.doubt.episode.is_none() && now.since(self.doubt.looked) < FRESH {
            self.begin_doubt(now);
        }
        self.ask_on(now, asking);
    }

    /// Ends doubt if something came.
    fn settle_doubt(&mut self, now: Time) {
        let Some(episode) = self.doubt.episode else { return };
        // Arriving data show that their own direction lives; the questions are about both.
        let answered =
            self.proof() > episode.began || episode.unanswered && self.is_proven(episode.since);
        if !answered {
            return;
        }
        self.doubt.episode = None;
        (self.doubt.unproven, self.doubt.question) = (None, None);
        // A doubt about a stream that merely paused ends with the answer to its first question.
        let rtt = self.last_rtt();
        if episode.unanswered || now - rtt > episode.began + MARGIN {
            self.doubt.stream = Stream::NEW;
            let answered = now - rtt;
            let lasting = episode.lasting(rtt);
            // The question before the answered one was lost, too.
            let spacing = self.config.doubt.map_or(Span::ZERO, |asking| asking.spacing);
            let asked =
                if answered > episode.began + MARGIN { answered - spacing } else { lasting };
            self.note_lapse(now, lasting, asked.max(lasting));
        } else {
            self.doubt.stream.pauses(episode.since, episode.resumed);
        }
        self.outputs.push_back(ClientOutput::Doubt(false));
    }

    /// An answer came at `now` to what left a round trip before, and none to what left since `since`; `lost` is the
    /// last of those.
    fn note_lapse(&mut self, now: Time, since: Time, lost: Time) {
        if self.doubt.stalled.is_some_and(|at| at >= since) {
            return;
        }
        let rtt = self.last_rtt();
        self.doubt.lapses.push(now, lost.since(since), (now - rtt).since(since));
    }

    /// The first answer on a path that is down: the silence is over, whether or not the path is used again.
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
                // The packet itself may not have called for an answer: this request does.
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

    /// Sends the questions that are due, or gives the verdict.
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
            // A gap in this end's own looking is no loss of the path; and answers may wait behind data that come again.
            let more = if late > MARGIN { MARGIN } else { self.answer_within() };
            (episode.put_off, episode.due) = (true, now + more);
            self.doubt.episode = Some(episode);
        } else if now.since(self.doubt.looked) < FRESH {
            self.give_up(now, episode);
        }
    }

    /// Whether the stopped stream came back with so many packets that answers may be queued behind them.
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

    /// Sends a question for the counters; in doubt questions go anyway.
    pub(super) fn on_recount(&mut self, now: Time) {
        if self.asks().is_some() && !self.in_doubt() {
            self.ask(now);
        }
    }

    /// Sends a request at once, which leaves the grid as it is and which neither end counts as a packet.
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
