//! Kinds of routing rules that daemons leave in the system when they crash.

use segue_daemon::number::Number;
use segue_daemon::pmip::leading;
use segue_daemon::routing;

/// A kind of routing rules, and the routes that go with them.
pub(crate) struct Rules {
    /// The numbers of the daemons that have such rules, those that run included.
    pub(crate) numbers: fn() -> Vec<Number>,
    /// How many rules a daemon has.
    pub(crate) count: fn(Number) -> usize,
    /// Removes a daemon's rules and unreachable routes. Returns how many there were.
    pub(crate) remove: fn(Number) -> (usize, usize),
}

/// They lead packets into a host's tunnel.
pub(crate) static OF_HOSTS: Rules = Rules {
    numbers: routing::numbers,
    count: routing::count_rules,
    remove: |number| (routing::remove_rules(number), routing::remove_unreachable(number)),
};

/// They lead packets into and out of a relay.
pub(crate) static OF_RELAYS: Rules =
    Rules { numbers: leading::numbers, count: leading::count_rules, remove: leading::remove };
