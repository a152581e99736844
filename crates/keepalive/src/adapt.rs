//! K and T_KA while the path is in use: the planner on the live loss, burst length and RTT.
//!
//! [`Adaptive`] is asked now and then, for a path that is up, and says when other settings are due, and
//! why. Two targets hold, one while latency-sensitive flows are active and one while none is.
//!
//! **What is promised, in this order.** The probe budget and the shortest period are never broken. Then
//! T_fp: where the targets cannot all be met, responsiveness is given up first, and detection takes longer.
//! Only if no K allowed makes false positives rare enough within the budget T_fp is given up too, and
//! [`Why`] says so.
//!
//! **Smoothness.** Faster settings are taken at once: when flows become active, or when the settings in
//! force would break the promised T_fp or the target by more than a tenth. Slower ones are taken only
//! [`Aims::dwell`] after the last change, in steps of at most half as much again, and only if they would
//! still be slower by a tenth on a path that loses a fifth more.
//!
//! **Loss** of each direction is estimated from the counts of all its packets over two windows, of about
//! 500 packets and of about 50. The long one is taken with a standard deviation on top, the short one less
//! one, and the worse of the two: a rise shows after some dozen packets, a single loss in the short window
//! does not.
//!
//! **Round trips.** What the planner needs is how often a probe fails. As long as nothing else is known the
//! directions are taken as independent. A fault of the radio hits both at once, and then that counts each
//! loss twice: so the client's own counts of requests and answers, over windows of as many probes, bound the
//! value from both sides, each with a standard deviation allowed for. It is never below the loss of the worse
//! direction.

use core::fmt;

use segue_clock::{Span, Time};

use crate::planner::{Responsiveness, Targets, evaluate, false_positive, plan};
use crate::{Counted, Estimates, Plan};

/// What the user asks for. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aims {
    /// How soon a fault must be found while latency-sensitive flows are active.
    pub active: Responsiveness,
    /// And while none is.
    pub idle: Responsiveness,
    /// T_fp^min: the least mean time between two false positives, by eq. 4.
    pub fp_interval: f64,
    /// The most probes per second on this path.
    pub probes_per_s: f64,
    /// The largest K.
    pub k_max: u8,
    /// The shortest T_KA.
    pub t_ka_min: f64,
    /// The least loss planned for, in each direction: some minutes without loss must not lead to K = 1.
    pub least_loss: f64,
    /// How long settings stay before slower ones follow.
    pub dwell: Span,
}

impl Default for Aims {
    /// 150 ms and 2 s on average (eq. 2), T_fp of 10⁵ s, 50 probes per second, K up to 20, T_KA from 10 ms,
    /// a loss of 0.1 %, ten seconds.
    fn default() -> Aims {
        Aims {
            active: Responsiveness::Avg(0.150),
            idle: Responsiveness::Avg(2.0),
            fp_interval: 1e5,
            probes_per_s: 50.0,
            k_max: 20,
            t_ka_min: 0.010,
            least_loss: 0.001,
            dwell: Span::from_secs(10),
        }
    }
}

/// What was known when settings were chosen. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Latency-sensitive flows are active.
    pub active: bool,
    /// RTT_avg, the main average.
    pub rtt_avg: f64,
    /// The largest RTT seen.
    pub rtt_max: f64,
    /// Loss from client to server, as planned for.
    pub loss_up: f64,
    /// Loss from server to client.
    pub loss_down: f64,
    /// Share of probes whose request or response is lost, as planned for.
    pub loss: f64,
    /// Probes may ride on data.
    pub rides: bool,
    /// Mean burst length in probes of the period chosen; `None`: as with independent losses.
    pub burst: Option<f64>,
}

/// A path as it is when [`Adaptive::update`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What its client knows.
    pub estimates: &'a Estimates,
    /// Requests up to the last one answered, and answers ([`Client::round_trips`](crate::Client::round_trips)).
    pub round_trips: Counted,
    /// Mean burst length in probes of the period in force ([`crate::bursts`]).
    pub burst: Option<f64>,
    /// Latency-sensitive flows are active.
    pub active: bool,
    /// Answers come. Nothing is learned or changed while they do not.
    pub is_up: bool,
    /// Probes may ride on data.
    pub rides: bool,
}

/// What sets the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The target for detection.
    Responsiveness,
    /// The probe budget.
    Budget,
    /// The shortest period allowed.
    Period,
    /// T_fp: bursts last so long that a shorter one would not keep it.
    FalsePositives,
}

/// What cannot be met, and what it is instead, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GivenUp {
    /// Nothing.
    Nothing,
    /// Detection takes longer.
    Responsiveness {
        /// What was asked.
        asked: f64,
        /// What it is.
        got: f64,
    },
    /// Detection takes longer, and false positives are more frequent.
    FalsePositives {
        /// What was asked.
        asked: f64,
        /// What it is.
        got: f64,
    },
}

/// What made the settings change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first choice.
    Start,
    /// Flows became active.
    Flows,
    /// The settings before would have broken the promised T_fp.
    Loss,
    /// The settings before would have missed the target for detection.
    Late,
    /// Fewer probes will do.
    Spare,
}

/// Why settings are as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// What made them change.
    pub cause: Cause,
    /// What was known.
    pub known: Known,
    /// The target that holds.
    pub target: Responsiveness,
    /// What sets the period.
    pub binding: Binding,
    /// What cannot be met.
    pub given_up: GivenUp,
    /// The settings, and what they give.
    pub plan: Plan,
}

/// The settings of one path over time.
#[derive(Clone, Debug)]
pub struct Adaptive {
    aims: Aims,
    up: Losses,
    down: Losses,
    round_trips: Losses,
    was_up: bool,
    was_active: bool,
    changed: Time,
    in_force: Option<Why>,
}

struct Choice {
    plan: Plan,
    binding: Binding,
    given_up: GivenUp,
}

impl Adaptive {
    /// Nothing is in force yet: the first call chooses.
    #[must_use]
    pub fn new(aims: Aims) -> Adaptive {
        Adaptive {
            aims,
            up: Losses::default(),
            down: Losses::default(),
            round_trips: Losses::default(),
            was_up: false,
            was_active: false,
            changed: Time(0),
            in_force: None,
        }
    }

    /// Why the settings in force are as they are; `None` before the first.
    #[must_use]
    pub fn why(&self) -> Option<&Why> {
        self.in_force.as_ref()
    }

    /// What the user asks for.
    #[must_use]
    pub fn aims(&self) -> &Aims {
        &self.aims
    }

    /// To be called now and then, once a second or so. Returns the reason for new settings if they change;
    /// they stand in [`Why::plan`].
    pub fn update(&mut self, now: Time, look: Look<'_>) -> Option<&Why> {
        // What was lost while it was down is an outage.
        let learns = look.is_up && self.was_up;
        self.was_up = look.is_up;
        let (up, down) = counts(look.estimates);
        self.up.observe(up, learns);
        self.down.observe(down, learns);
        self.round_trips.observe(look.round_trips, learns);
        if !look.is_up {
            return None;
        }
        let known = self.known(look);
        let became_active = look.active && !self.was_active;
        self.was_active = look.active;
        let why = self.decide(now, known, became_active)?;
        self.changed = now;
        self.in_force = Some(why);
        self.in_force.as_ref()
    }

    fn known(&self, look: Look<'_>) -> Known {
        let Look { estimates, burst, active, rides, .. } = look;
        let rtt_avg = estimates.rtt_ewma.first().copied().unwrap_or(0.0).max(0.0);
        let rtt_max = estimates.rtt_max.map_or(rtt_avg, Span::as_secs_f64).max(rtt_avg);
        let least = self.aims.least_loss;
        let (loss_up, loss_down) = (self.up.loss(least), self.down.loss(least));
        let loss = self.round_trip_loss(loss_up, loss_down);
        Known { active, rtt_avg, rtt_max, loss_up, loss_down, loss, rides, burst }
    }

    /// See "Round trips" in the module's description.
    fn round_trip_loss(&self, up: f64, down: f64) -> f64 {
        let independent = 1.0 - (1.0 - up) * (1.0 - down);
        let (least, most) = self.round_trips.bounds();
        independent.min(most).max(least).max(up).max(down)
    }

    fn decide(&self, now: Time, known: Known, became_active: bool) -> Option<Why> {
        let Some(before) = &self.in_force else {
            return Some(self.why_of(Cause::Start, known, self.choose(&known, None)));
        };
        let (k, t_ka) = (before.plan.k, before.plan.t_ka);
        let choice = self.choose(&known, Some(t_ka));
        let stays = evaluate(k, t_ka, &self.targets(&known, t_ka, t_ka));
        let late = detection(&stays, self.target(&known))
            > 1.1 * detection(&choice.plan, self.target(&known)).max(asked(self.target(&known)));
        let breaks = stays.t_fp < 0.9 * choice.plan.t_fp.min(self.aims.fp_interval);
        let faster = choice.plan.t_ka < t_ka;
        if late && faster {
            let cause = if became_active { Cause::Flows } else { Cause::Late };
            return Some(self.why_of(cause, known, choice));
        }
        // What is given up must be said, even if the settings stay nearly as they are.
        let hopeless = |given_up: GivenUp| matches!(given_up, GivenUp::FalsePositives { .. });
        if breaks || (hopeless(choice.given_up) && !hopeless(before.given_up)) {
            let choice = self.at_once(&known, t_ka, choice);
            return Some(self.why_of(Cause::Loss, known, choice));
        }
        if now.since(self.changed) < self.aims.dwell {
            return None;
        }
        self.slower(known, t_ka).map(|choice| self.why_of(Cause::Spare, known, choice))
    }

    /// A larger K at the period `t_ka` in force in place of a longer period, if that detects as soon.
    fn at_once(&self, known: &Known, t_ka: f64, choice: Choice) -> Choice {
        let target = self.target(known);
        let targets = self.targets(known, t_ka, t_ka);
        let k = self.smallest_k(t_ka, &targets).filter(|_| choice.plan.t_ka > t_ka);
        let plan = k.map(|k| evaluate(k, t_ka, &targets));
        let most = asked(target).max(detection(&choice.plan, target));
        match plan.filter(|plan| detection(plan, target) <= most) {
            Some(plan) => Choice { given_up: missed(&plan, target), plan, ..choice },
            None => choice,
        }
    }

    /// The next step towards fewer probes, if it is worth one.
    fn slower(&self, known: Known, t_ka: f64) -> Option<Choice> {
        let worse = |loss: f64| (loss * 1.2).min(MOST_LOSS).max(loss);
        let careful = Known {
            loss_up: worse(known.loss_up),
            loss_down: worse(known.loss_down),
            loss: worse(known.loss),
            ..known
        };
        let mut choice = self.choose(&careful, Some(t_ka));
        if choice.plan.t_ka <= 1.1 * t_ka {
            return None;
        }
        let step = choice.plan.t_ka.min(1.5 * t_ka);
        let targets = self.targets(&careful, t_ka, step);
        let target = self.target(&known);
        let k = self.smallest_k(step, &targets).unwrap_or(choice.plan.k);
        // On the way there is time for one loss more, so that a little more loss does not break T_fp.
        let spare = evaluate(k.saturating_add(1).min(self.aims.k_max), step, &targets);
        let fits = step < choice.plan.t_ka && detection(&spare, target) <= asked(target);
        choice.plan = if fits { spare } else { evaluate(k, step, &targets) };
        // A larger K at a shorter period than the choice must not be slower to detect than asked.
        (detection(&choice.plan, target) <= asked(target) || choice.given_up != GivenUp::Nothing)
            .then_some(choice)
    }

    fn why_of(&self, cause: Cause, known: Known, choice: Choice) -> Why {
        let Choice { plan, binding, given_up } = choice;
        let burst = self
            .in_force
            .as_ref()
            .and_then(|why| self.targets(&known, why.plan.t_ka, plan.t_ka).burst);
        let known = Known { burst, ..known };
        Why { cause, known, target: self.target(&known), binding, given_up, plan }
    }

    fn target(&self, known: &Known) -> Responsiveness {
        if known.active { self.aims.active } else { self.aims.idle }
    }

    /// The planner's input for the period `t_ka`. Bursts last as long at any period: where a loss makes a loss
    /// one period later more likely by x·(1 − q), it does after y periods by x^y·(1 − q). They count only if
    /// they are longer than chance makes them.
    fn targets(&self, known: &Known, measured_at: f64, t_ka: f64) -> Targets {
        let q = known.loss;
        let by_chance = 1.0 / (1.0 - q);
        let burst = known.burst.filter(|burst| *burst > 1.3 * by_chance);
        let more = burst.map(|burst| (1.0 - 1.0 / burst - q) / (1.0 - q));
        let there = more.map(|x| by_chance / (1.0 - libm::pow(x, t_ka / measured_at)));
        Targets {
            rtt_avg: known.rtt_avg,
            rtt_max: Some(known.rtt_max),
            loss_up: known.loss_up,
            loss_down: known.loss_down,
            loss: Some(q),
            burst: there.map(|burst| burst.max(q / (1.0 - q))),
            rides: known.rides,
            responsiveness: self.target(known),
            fp_interval: self.aims.fp_interval,
            t_ka_min: self.aims.t_ka_min.max(1.0 / self.aims.probes_per_s),
            k_max: self.aims.k_max,
        }
    }

    /// The planner's choice, with the length that bursts have at the period that results; where there is
    /// none the best that can be had.
    fn choose(&self, known: &Known, in_force: Option<f64>) -> Choice {
        let measured_at = in_force.unwrap_or(1.0);
        let at = |t_ka: f64| self.targets(known, measured_at, t_ka);
        let planned = plan(&at(measured_at)).and_then(|first| plan(&at(first.t_ka)));
        if let Ok(found) = planned {
            let found = evaluate(found.k, found.t_ka, &at(found.t_ka));
            if found.t_fp > self.aims.fp_interval {
                let (binding, given_up) = (Binding::Responsiveness, GivenUp::Nothing);
                return Choice { plan: found, binding, given_up };
            }
        }
        self.make_do(known, at)
    }

    /// The soonest detection that keeps T_fp within the budget, at any period; failing that the rarest
    /// false positives at the shortest.
    fn make_do(&self, known: &Known, at: impl Fn(f64) -> Targets) -> Choice {
        let target = self.target(known);
        let shortest = at(1.0).t_ka_min;
        let periods = (0..).map(|n| shortest * libm::pow(1.25, f64::from(n)));
        let soonest = periods
            .take_while(|t_ka| *t_ka < LONGEST)
            .filter_map(|t_ka| {
                let targets = at(t_ka);
                self.smallest_k(t_ka, &targets).map(|k| evaluate(k, t_ka, &targets))
            })
            .min_by(|a, b| detection(a, target).total_cmp(&detection(b, target)));
        let by_budget = 1.0 / self.aims.probes_per_s > self.aims.t_ka_min;
        let binding = match &soonest {
            Some(plan) if plan.t_ka > shortest => Binding::FalsePositives,
            _ if by_budget => Binding::Budget,
            _ => Binding::Period,
        };
        let Some(plan) = soonest else {
            let plan = evaluate(self.aims.k_max, shortest, &at(shortest));
            let (asked, got) = (self.aims.fp_interval, plan.t_fp);
            return Choice { plan, binding, given_up: GivenUp::FalsePositives { asked, got } };
        };
        Choice { given_up: missed(&plan, target), plan, binding }
    }

    fn smallest_k(&self, t_ka: f64, targets: &Targets) -> Option<u8> {
        (1..=self.aims.k_max).find(|k| t_ka > targets.fp_interval * false_positive(*k, targets))
    }
}

fn asked(target: Responsiveness) -> f64 {
    let (Responsiveness::Avg(asked) | Responsiveness::Max(asked)) = target;
    asked
}

/// What of the target is given up.
fn missed(plan: &Plan, target: Responsiveness) -> GivenUp {
    let (asked, got) = (asked(target), detection(plan, target));
    if got > asked { GivenUp::Responsiveness { asked, got } } else { GivenUp::Nothing }
}

fn detection(plan: &Plan, target: Responsiveness) -> f64 {
    match target {
        Responsiveness::Avg(_) => plan.t_r_avg,
        Responsiveness::Max(_) => plan.t_r_max,
    }
}

/// Counts of each direction; where only the round trip is known, its own in place of the uplink's.
fn counts(e: &Estimates) -> (Counted, Counted) {
    if e.up.sent == 0 && e.down.sent == 0 {
        // The last request may still be under way.
        return (Counted { sent: e.sent, received: e.received }, Counted::default());
    }
    (e.up, e.down)
}

/// The longest period that is tried where bursts are long, in seconds.
const LONGEST: f64 = 2.0;

/// No loss beyond it is planned for: a path that loses more is of no use.
const MOST_LOSS: f64 = 0.9;

/// Packets and losses of one direction in two windows.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    last: Counted,
    long: Window,
    short: Window,
}

/// The last `size` packets or so: older ones weigh less.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    sent: f64,
    lost: f64,
}

impl Losses {
    const LONG: f64 = 500.0;
    const SHORT: f64 = 50.0;

    fn observe(&mut self, total: Counted, learns: bool) {
        let sent = total.sent.saturating_sub(self.last.sent) as f64;
        let received = total.received.saturating_sub(self.last.received) as f64;
        self.last = total;
        if learns && sent > 0.0 {
            self.long.push(sent, sent - received, Self::LONG);
            self.short.push(sent, sent - received, Self::SHORT);
        }
    }

    fn loss(&self, least: f64) -> f64 {
        let long = self.long.share(1.0);
        long.max(self.short.share(-1.0)).clamp(least.min(MOST_LOSS), MOST_LOSS)
    }

    /// The least and the most that the true share is taken to be, one standard deviation either way.
    fn bounds(&self) -> (f64, f64) {
        // Where none is lost of n, it may be one of n.
        let lost = self.long.lost.max(0.0);
        let most = (lost + libm::sqrt(lost + 1.0)) / self.long.sent.max(1.0);
        // The short window shows a rise before the long one does.
        (self.long.share(-1.0).min(MOST_LOSS), most.max(self.short.share(-1.0)))
    }
}

impl Window {
    fn push(&mut self, sent: f64, lost: f64, size: f64) {
        let keep = libm::exp(-sent / size);
        self.sent = self.sent * keep + sent;
        self.lost = self.lost * keep + lost;
    }

    /// The share lost, and so many standard deviations.
    fn share(&self, deviations: f64) -> f64 {
        // Packets that arrive after an update has counted them as lost can make it negative.
        let lost = self.lost.max(0.0);
        (lost + deviations * libm::sqrt(lost)) / self.sent.max(Losses::SHORT / 2.0)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Start => "first choice",
            Cause::Flows => "latency-sensitive flows became active",
            Cause::Loss => "false positives would have come too often",
            Cause::Late => "detection would have taken too long",
            Cause::Spare => "fewer probes will do",
        };
        let binding = match self.binding {
            Binding::Responsiveness => "detection",
            Binding::Budget => "the probe budget",
            Binding::Period => "the shortest period",
            Binding::FalsePositives => "T_fp",
        };
        let known = &self.known;
        write!(
            f,
            "{cause}: K {}, T_KA {:.0} ms for {:.0} ms ({}); RTT {:.1} ms, loss {:.2} % up {:.2} % down \
             {:.2} % round trip; T_fp {:.3e} s; {binding} sets the period",
            self.plan.k,
            self.plan.t_ka * 1e3,
            asked(self.target) * 1e3,
            if known.active { "flows active" } else { "idle" },
            known.rtt_avg * 1e3,
            known.loss_up * 1e2,
            known.loss_down * 1e2,
            known.loss * 1e2,
            self.plan.t_fp,
        )?;
        match self.given_up {
            GivenUp::Nothing => Ok(()),
            GivenUp::Responsiveness { got, .. } => {
                write!(f, "; detection given up for T_fp: {:.0} ms", got * 1e3)
            }
            GivenUp::FalsePositives { asked, got } => {
                write!(f, "; T_fp given up: {got:.3e} s, {asked:.3e} s asked")
            }
        }
    }
}
