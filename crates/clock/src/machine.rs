//! The contract between a protocol entity and its driver.

use crate::Time;

/// When something is due, and what (the reason goes into traces); `None`: nothing is.
pub type Deadline = Option<(Time, &'static str)>;

/// The deadline that comes first; the former of two at one instant.
///
/// A simulator of many machines asks for deadlines after each event: a chain of iterators over a handful of them took a
/// tenth of the processor time of a simulated host.
#[must_use]
#[inline]
pub fn earlier(former: Deadline, latter: Deadline) -> Deadline {
    match (former, latter) {
        (Some((first, _)), Some((second, _))) if second < first => latter,
        (None, _) => latter,
        _ => former,
    }
}

/// A protocol entity without sockets, clock, threads or randomness of its own.
///
/// Call [`handle`](Machine::handle) or [`tick`](Machine::tick), then [`poll`](Machine::poll) until `None`, then
/// arm [`deadline`](Machine::deadline). Never two of these calls without a drain between them. `now` never goes
/// backwards.
pub trait Machine {
    /// What happens to the entity: a message, a measurement, a command.
    type Input;
    /// What the entity orders or reports.
    type Output;

    /// Takes one input at the instant `now`.
    fn handle(&mut self, now: Time, input: Self::Input);

    /// Does what is due at the deadline. Calling it at any other instant does no more than that.
    fn tick(&mut self, now: Time);

    /// The next thing to do, in order; `None` when all is said.
    fn poll(&mut self) -> Option<Self::Output>;

    /// When to call `tick`, and why (the reason goes into traces).
    fn deadline(&self) -> Deadline;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_former_of_two_deadlines_at_one_instant_comes_first_and_none_is_no_deadline() {
        let at = |s, why| Some((Time(s), why));
        assert_eq!(earlier(at(1, "a"), at(2, "b")), at(1, "a"));
        assert_eq!(earlier(at(2, "a"), at(1, "b")), at(1, "b"));
        assert_eq!(earlier(at(1, "a"), at(1, "b")), at(1, "a"));
        assert_eq!(earlier(None, at(1, "b")), at(1, "b"));
        assert_eq!(earlier(at(1, "a"), None), at(1, "a"));
        assert_eq!(earlier(None, None), None);
    }
}
