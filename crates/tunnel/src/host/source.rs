//! State of a path's outer source addresses.

use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::Interface;

/// State of a path's outer source addresses.
pub(super) struct Sources {
    /// The preferred address when the current one was chosen.
    pub(super) first: IpAddr,
    /// The last address that was answered.
    pub(super) answered: Option<IpAddr>,
    /// When to try another address; `None` while answers arrive or if there is no other.
    pub(super) next_at: Option<Time>,
}

/// Why a path has its outer source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChoice {
    /// The operator configured it.
    Configured,
    /// It is the first of the interface's addresses.
    Preferred,
    /// The addresses before it were not answered.
    Tried,
}

impl Sources {
    /// State of a path that sends from `local`.
    pub(super) fn of(interface: &Interface, local: IpAddr) -> Sources {
        let first = of_family(interface, local.is_ipv4()).next().unwrap_or(local);
        Sources { first, answered: None, next_at: None }
    }
}

pub(super) fn of_family(interface: &Interface, v4: bool) -> impl Iterator<Item = IpAddr> {
    interface.addresses.iter().copied().filter(move |a| a.is_ipv4() == v4)
}
