//! What every role takes from its driver and gives to it, beside what is its own.
//!
//! A driver that knows these words can drive any role: it brings what it has (`Input`), carries out what it can
//! (`Output`), and leaves the rest to the role's own few lines.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::{Forward, Interface, LinkEvent};

/// What happens to a role: `I` is its own input, `P` what it stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<I, P> {
    /// The interfaces that the role may use, all of them, best first. First at the start, again after each change.
    Interfaces(Vec<Interface>),
    /// Something happened to the link of an interface.
    Link(LinkEvent),
    /// A datagram arrived.
    Datagram(Datagram),
    /// What an earlier start stored. All of it comes before any other input.
    Record(P),
    /// Anything else.
    Own(I),
}

impl<I, P> From<I> for Input<I, P> {
    fn from(own: I) -> Input<I, P> {
        Input::Own(own)
    }
}

/// What a role asks of its driver: `O` is the role's own output, `R` its news, `P` what it stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<O, R, P> {
    /// Send this.
    Send(Datagram),
    /// Give the node this part of its forwarding.
    Forward(Forward),
    /// Take this part of its forwarding back.
    Withdraw(Forward),
    /// Store this. It is on disk before anything leaves that the role asks for later and that follows from it.
    Persist(P),
    /// News for a person, a log or a page.
    Report(R),
    /// Anything else.
    Own(O),
}

impl<O, R, P> Output<O, R, P> {
    /// The same, with the role's own in another form.
    pub fn map_own<T>(self, form: impl FnOnce(O) -> T) -> Output<T, R, P> {
        match self {
            Output::Send(datagram) => Output::Send(datagram),
            Output::Forward(part) => Output::Forward(part),
            Output::Withdraw(part) => Output::Withdraw(part),
            Output::Persist(record) => Output::Persist(record),
            Output::Report(report) => Output::Report(report),
            Output::Own(own) => Output::Own(form(own)),
        }
    }
}

/// A datagram of a protocol above IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Index of the interface that it came over, or that it must leave over; `None` for what the routes say.
    pub interface: Option<u32>,
    /// Source address and port; port 0 where the protocol has none.
    pub from: (IpAddr, u16),
    /// Destination address and port, likewise.
    pub to: (IpAddr, u16),
    /// Protocol number (IANA): 17 for UDP, 58 for ICMPv6, 135 for the Mobility Header.
    pub protocol: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// How long it has waited in queues of this machine since it arrived, in nanoseconds; zero for one that is sent.
    pub waited_ns: u64,
    /// What follows the IP header, of UDP what follows its header.
    pub bytes: Vec<u8>,
}
