//! A loss process in operation.

use segue_clock::{Rng, Span};

use crate::spec::{Loss, stationary_bad};

/// A [`Loss`] and its state.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    loss: Loss,
    bad: bool,
    /// Number of list entries passed, or index of the next trace entry.
    passed: usize,
    /// Remaining losses of the last `Armed` entry.
    armed: u32,
}

impl LossProcess {
    /// Draws the initial state, if the process has states.
    pub(crate) fn new(loss: Loss, rng: &mut Rng) -> LossProcess {
        let bad = match loss {
            Loss::GilbertElliott { p, r, .. } => rng.chance(stationary_bad(p, r)),
            _ => false,
        };
        LossProcess { loss, bad, passed: 0, armed: 0 }
    }

    /// Advances the process by one step. Returns true if the packet with this number is lost, whose serialisation
    /// starts at `at` after the start of the link.
    pub(crate) fn step(&mut self, number: u64, at: Span, rng: &mut Rng) -> bool {
        match &self.loss {
            Loss::None => false,
            Loss::Bernoulli(p) => rng.chance(*p),
            Loss::GilbertElliott { p, r, loss_good, loss_bad } => {
                let lost = rng.chance(if self.bad { *loss_bad } else { *loss_good });
                if rng.chance(if self.bad { *r } else { *p }) {
                    self.bad = !self.bad;
                }
                lost
            }
            Loss::Exact(list) => {
                while list.get(self.passed).is_some_and(|n| *n < number) {
                    self.passed += 1;
                }
                list.get(self.passed) == Some(&number)
            }
            Loss::Armed(list) => {
                while let Some((_, count)) = list.get(self.passed).filter(|entry| entry.0 <= at) {
                    self.armed = *count;
                    self.passed += 1;
                }
                let lost = self.armed > 0;
                self.armed -= u32::from(lost);
                lost
            }
            Loss::Trace(trace) => {
                let lost = trace.get(self.passed as u64);
                self.passed =
                    if self.passed as u64 + 1 < trace.len() { self.passed + 1 } else { 0 };
                lost
            }
        }
    }
}
