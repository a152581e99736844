//! The contract between a protocol entity and its driver.

use crate::Time;

/// When the next action is due, and which one (for traces); `None` if none is.
pub type Deadline = Option<(Time, &'static str)>;

/// The earlier of two deadlines; `former` if both are at the same instant.
///
/// A simulator of many machines queries deadlines after each event. Iterator chains over a handful of deadlines took a
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

/// A protocol entity without sockets, clock, threads or randomness.
///
/// Call [`handle`](Machine::handle) or [`tick`](Machine::tick), then [`poll`](Machine::poll) until `None`, then arm
/// [`deadline`](Machine::deadline). Never call `handle` or `tick` twice without draining `poll` in between. `now` must
/// not go backwards.
pub trait Machine {
    /// An input: a message, a measurement, a command.
    type Input;
    /// An output: an order or a report.
    type Output;

    /// Handles one input at the instant `now`.
    fn handle(&mut self, now: Time, input: Self::Input);

    /// Performs the actions that are due. May be called at any time.
    fn tick(&mut self, now: Time);

    /// The next output, in order; `None` when there are no more.
    fn poll(&mut self) -> Option<Self::Output>;

    /// When to call `tick`, and why (for traces).
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
