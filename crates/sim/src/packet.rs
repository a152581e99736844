//! Packets as they travel: the IP header fields that the simulator reads, and the message itself. They become bytes
//! only for a trace.

use alloc::boxed::Box;
use core::net::IpAddr;

use segue_clock::Time;

use crate::tcp::Segment;
use crate::tunnel::{self, signal};

/// Hops that a packet may take (RFC 1700's recommendation).
pub const TTL: u8 = 64;

/// An IP packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Length of the IP packet with its headers: what links serialise and queues count.
    pub bytes: u32,
    /// Routers it may still pass.
    pub ttl: u8,
    /// Code point (RFC 2474).
    pub dscp: u8,
    /// IPv6 flow label; 0 for IPv4.
    pub label: u32,
    /// When its first sender sent it.
    pub sent: Time,
    /// What it carries.
    pub body: Body,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A datagram of an application.
    Udp(Datagram),
    /// IP in IP (RFC 2003, RFC 2473): `bytes` of the outer packet count both headers.
    Encapsulated(Box<Packet>),
    /// Between the ends of Segue's tunnels.
    Tunnel(Box<tunnel::Datagram>),
    /// Of a signalling connection between those ends.
    Signal(Box<signal::Datagram>),
}

/// A UDP datagram of an application. Its content is what a receiver needs for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Number of the datagram in its stream, from 0.
    pub seq: u64,
    /// The application's tag, for instance the number of a video frame.
    pub tag: u32,
}

impl Packet {
    /// Protocol number of the header directly behind the IP header.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        match &self.body {
            Body::Tcp(_) => 6,
            Body::Udp(_) | Body::Tunnel(_) | Body::Signal(_) => 17,
            Body::Encapsulated(inner) if inner.src.is_ipv4() => 4,
            Body::Encapsulated(_) => 41,
        }
    }

    /// Source and destination port; zeros where there are none.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        match &self.body {
            Body::Tcp(segment) => (segment.sport, segment.dport),
            Body::Udp(datagram) => (datagram.sport, datagram.dport),
            Body::Encapsulated(_) => (0, 0),
            Body::Tunnel(datagram) => (datagram.sport, datagram.dport),
            Body::Signal(datagram) => (datagram.sport, datagram.dport),
        }
    }

    /// Sets both ports, as an address translator does; nothing where there are none.
    pub fn set_ports(&mut self, sport: u16, dport: u16) {
        match &mut self.body {
            Body::Tcp(segment) => (segment.sport, segment.dport) = (sport, dport),
            Body::Udp(datagram) => (datagram.sport, datagram.dport) = (sport, dport),
            Body::Encapsulated(_) => {}
            Body::Tunnel(datagram) => (datagram.sport, datagram.dport) = (sport, dport),
            Body::Signal(datagram) => (datagram.sport, datagram.dport) = (sport, dport),
        }
    }
}
