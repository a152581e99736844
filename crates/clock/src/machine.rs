//! The contract between a protocol entity and whoever drives it.

use crate::Time;

/// A protocol entity without sockets, clock, threads or randomness of its own.
///
/// Call [`handle`](Machine::handle), then [`poll`](Machine::poll) until `None`, then arm
/// [`deadline`](Machine::deadline). Never two `handle`s without a drain between them. `now` never
/// goes backwards.
pub trait Machine {
    /// What happens to the entity: a message, a measurement, a command, a tick.
    type Input;
    /// What the entity wants done or known.
    type Output;

    /// Takes one input at the instant `now`.
    fn handle(&mut self, now: Time, input: Self::Input);

    /// The next thing to do, in order; `None` when all is said.
    fn poll(&mut self) -> Option<Self::Output>;

    /// When to call `handle` with a tick, and why (the reason goes into traces).
    fn deadline(&self) -> Option<(Time, &'static str)>;
}
