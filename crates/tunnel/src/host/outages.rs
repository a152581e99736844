//! The share of outages in the averages of loss, so that steering does not hold it against a path for long.
//!
//! An estimator counts what was lost before a path was declared down as loss: on a lossy path that lives, such losses
//! are what made it look dead. Silence that goes on for half as long again or longer shows an outage. What it added to
//! an average is forgiven, and fades as the average forgets.

use alloc::boxed::Box;

use segue_clock::{Span, Time};
use segue_keepalive::ewma::step;
use segue_keepalive::{State, Tau};

use super::Path;

/// The outages in one average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outages {
    last: Option<Outage>,
    /// What they have added to it.
    added: f64,
    /// The last value of the average, and since when it holds.
    seen: f64,
    at: Time,
}

/// An outage that is not fully in the average yet.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Time,
    /// How long nothing had come when the path was declared down.
    silence: Span,
    /// What the average was then without earlier outages.
    before: f64,
    /// When the outage is over: until when to wait for the interval that has its losses.
    over: Option<Time>,
}

impl Outages {
    /// The path was declared down.
    pub(super) fn declare(&mut self, now: Time, silence: Span) {
        let before = self.counted(self.seen);
        self.last = Some(Outage { since: now - silence, silence, before, over: None });
    }

    /// It is up again after probes that took `proof`; an interval of loss that stood still ends within `t_l`.
    pub(super) fn over(&mut self, now: Time, proof: Span, t_l: Span) {
        let Some(mut last) = self.last.take() else { return };
        if now.since(last.since) >= last.silence + last.silence.half() + proof {
            last.over = Some(now + t_l + last.silence);
            self.last = Some(last);
            self.added = (self.seen - last.before).max(0.0);
        }
    }

    /// The average may have changed.
    pub(super) fn note(&mut self, now: Time, average: f64, tau: Tau) {
        let until = self.last.and_then(|last| last.over);
        if average.to_bits() == self.seen.to_bits() {
            self.last.take_if(|_| until.is_some_and(|until| now >= until));
            return;
        }
        self.added = step(self.added, 0.0, now.since(self.at), tau);
        (self.seen, self.at) = (average, now);
        if let Some(last) = self.last.take_if(|_| until.is_some()) {
            self.added = (average - last.before).max(0.0);
        }
    }

    /// The average without what outages have added.
    pub(super) fn counted(&self, average: f64) -> f64 {
        (average - self.added).max(0.0)
    }
}

impl Path {
    /// Follows the path's outages.
    pub(super) fn note_outage(&mut self, now: Time, state: State, silence: Span) {
        let keepalive = self.keepalive();
        let (proof, t_l) = (keepalive.t_ka * u64::from(keepalive.up_after), keepalive.t_l());
        if state == State::Down && self.outages.is_none() {
            self.outages = Some(Box::default());
            self.note_losses(now);
        }
        for outages in self.outages.iter_mut().flat_map(|all| all.iter_mut()) {
            match state {
                State::Down => outages.declare(now, silence),
                State::Up => outages.over(now, proof, t_l),
                State::Starting => {}
            }
        }
    }

    /// Follows the averages of loss.
    pub(super) fn note_losses(&mut self, now: Time) {
        if self.outages.is_none() {
            return;
        }
        let (losses, tau) = (self.losses(), self.longest().1);
        let outages = self.outages.iter_mut().flat_map(|all| all.iter_mut());
        for (outages, loss) in outages.zip(losses) {
            outages.note(now, loss.unwrap_or_default(), tau);
        }
    }

    /// An average of loss, up, down or round trip, without what outages have added.
    pub(super) fn without_outages(&self, which: usize, average: f64) -> f64 {
        self.outages.as_ref().map_or(average, |outages| outages[which].counted(average))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Tau = Tau::symmetric(Span::from_secs(30));

    /// What steering sees, and when, after an outage of this length that adds 3 % to an average of 1 %.
    fn after(whole_ms: u64) -> (Outages, Time) {
        let (silence, begun) = (Span::from_millis(600), Time(1_000_000_000));
        let mut outages = Outages::default();
        outages.note(begun, 0.01, TAU);
        outages.declare(begun + silence, silence);
        let end = begun + Span::from_millis(whole_ms);
        outages.over(end, Span::from_millis(300), Span::from_secs(2));
        let evaluated = end + Span::from_secs(1);
        outages.note(end, 0.01, TAU);
        outages.note(evaluated, 0.04, TAU);
        (outages, evaluated)
    }

    #[test]
    fn what_an_outage_adds_is_forgiven_and_fades_with_the_average() {
        let (mut outages, at) = after(5_000);
        assert!((outages.counted(0.04) - 0.01).abs() < 1e-12);
        // Later losses are not.
        outages.note(at + Span::from_secs(30), 0.05, TAU);
        let faded = 0.05 - 0.03 * (-1.0_f64).exp();
        assert!((outages.counted(0.05) - faded).abs() < 1e-12);
    }

    #[test]
    fn losses_of_a_path_that_lives_are_not_forgiven() {
        assert_eq!(after(1_100).0.counted(0.04), 0.04);
    }
}
