//! The inputs and outputs that all roles have in common.
//!
//! A driver that implements these can drive any role: it supplies inputs, carries out outputs, and leaves only
//! [`Input::Own`] and [`Output::Own`] to code of the role.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::{Forward, Interface, LinkEvent};

/// An input of a role: `I` is the role's own input, `P` its stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<I, P> {
    /// All interfaces that the role may use, best first. Given at the start and after each change.
    Interfaces(Vec<Interface>),
    /// An event of an interface's link.
    Link(LinkEvent),
    /// A datagram arrived.
    Datagram(Datagram),
    /// A record that an earlier start stored. All records come before any other input.
    Record(P),
    /// The role's own input.
    Own(I),
}

impl<I, P> From<I> for Input<I, P> {
    fn from(own: I) -> Input<I, P> {
        Input::Own(own)
    }
}

/// An output of a role: `O` is the role's own output, `R` its report, `P` its stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<O, R, P> {
    /// Send a datagram, after the records of this subject are on disk.
    Send(Datagram, After),
    /// Add this to the node's forwarding.
    Forward(Forward),
    /// Remove this from the node's forwarding.
    Withdraw(Forward),
    /// Store this record. Later outputs that name its subject wait until it is on disk.
    Persist(P),
    /// A report for a person, a log or a status page.
    Report(R),
    /// The role's own output.
    Own(O),
}

impl<O, R, P> Output<O, R, P> {
    /// Converts the role's own output.
    pub fn map_own<T>(self, form: impl FnOnce(O) -> T) -> Output<T, R, P> {
        match self {
            Output::Send(datagram, after) => Output::Send(datagram, after),
            Output::Forward(part) => Output::Forward(part),
            Output::Withdraw(part) => Output::Withdraw(part),
            Output::Persist(record) => Output::Persist(record),
            Output::Report(report) => Output::Report(report),
            Output::Own(own) => Output::Own(form(own)),
        }
    }
}

/// What records are about, such as a host. An output that follows from records names their subject, so that it leaves
/// the node only when they are on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject(pub Vec<u8>);

impl From<&str> for Subject {
    fn from(name: &str) -> Subject {
        Subject(name.into())
    }
}

/// The subject whose records an output waits for; `None` if it depends on no record.
pub type After = Option<Subject>;

/// A datagram of a protocol above IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Index of the interface that it arrived on, or must leave by; `None`: chosen by the routes.
    pub interface: Option<u32>,
    /// Source address and port; the port is 0 if the protocol has none.
    pub from: (IpAddr, u16),
    /// Destination address and port; the port is 0 if the protocol has none.
    pub to: (IpAddr, u16),
    /// IP protocol number: 17 for UDP, 58 for ICMPv6, 135 for the Mobility Header.
    pub protocol: u8,
    /// Hop limit or time to live.
    pub hop_limit: u8,
    /// Time spent in queues of this node since arrival, in nanoseconds; 0 for a datagram to send.
    pub waited_ns: u64,
    /// Payload after the IP header, for UDP after the UDP header.
    pub bytes: Vec<u8>,
}
