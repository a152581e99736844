//! Packets between the two tunnel ends, as the packet paths read them.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use segue_tunnel::ProbeKind;
use segue_wire::{FlowKey, Header, Probe, ProbeKey, Size};

/// Outer addresses and interface of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The interface (host); 0: according to the routes (anchor).
    pub ifindex: u32,
    /// Outer source.
    pub local: SocketAddr,
    /// Outer destination.
    pub remote: SocketAddr,
}

/// Length of the outer IP header (without options or extension headers) and UDP header, in bytes.
pub(super) const fn outer_bytes(v6: bool) -> u32 {
    8 + if v6 { 40 } else { 20 }
}

/// A packet that goes through a tunnel: the fields that packet paths read, and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner<P> {
    /// The flow, as this packet's sender sees it.
    pub key: FlowKey,
    /// Differentiated services code point (RFC 2474).
    pub dscp: u8,
    /// Length of the IP packet including headers, in bytes.
    pub bytes: u32,
    /// The packet.
    pub payload: P,
}

/// A packet between the two ends (`docs/wire/tunnel-and-probe.md`), without its outer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<P> {
    /// The receiver's index of the path.
    pub index: u32,
    /// The receiver's cookie of the path.
    pub cookie: u64,
    /// The content.
    pub body: Body<P>,
}

/// The part after the tunnel header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<P> {
    /// An inner packet.
    Data {
        /// The packet.
        inner: Inner<P>,
        /// Only this direction of the flow moved: the receiver must not learn the path from it.
        one_way: bool,
        /// Time since the sender last heard from the peer ([`segue_wire::age`]).
        age: u8,
    },
    /// A request or a response.
    Probe {
        /// Its kind.
        kind: ProbeKind,
        /// K from the header.
        k: u8,
        /// Flag REPORT.
        report: bool,
        /// Flag QUESTION of a request and of its response: neither counts as a packet.
        question: bool,
        /// In a request: time since the sender last heard on another path, which is in doubt
        /// ([`segue_wire::age`]).
        age: u8,
        /// The measurement data.
        probe: Probe,
        /// Key of the authenticator; valid if it equals the receiver's.
        key: ProbeKey,
    },
    /// An inner packet with a probe. Boxed, so that packets without rides are not larger.
    Ride(Box<Ride<P>>),
    /// A packet size probe, or its answer.
    Size {
        /// The fields of the probe.
        size: Size,
        /// Code point of the outer header.
        dscp: u8,
        /// Key of the authenticator, as for a probe.
        key: ProbeKey,
    },
}

/// An inner packet that carries a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ride<P> {
    /// The packet, as in `Data`.
    pub inner: Inner<P>,
    /// As in `Data`.
    pub one_way: bool,
    /// As in `Data`.
    pub age: u8,
    /// A request or a response.
    pub kind: ProbeKind,
    /// K from the header.
    pub k: u8,
    /// The measurement data.
    pub probe: Probe,
    /// Key of the authenticator, as for a probe.
    pub key: ProbeKey,
}

impl<P> Message<P> {
    /// Length of the whole outer IP packet with addresses of this family, in bytes.
    #[must_use]
    pub fn bytes(&self, outer: IpAddr) -> u32 {
        let payload = match &self.body {
            Body::Data { inner, .. } => Header::LEN as u32 + inner.bytes,
            Body::Probe { .. } => Probe::PACKET_LEN as u32,
            Body::Ride(ride) => Probe::PACKET_LEN as u32 + ride.inner.bytes,
            Body::Size { size, .. } => u32::from(size.size),
        };
        outer_bytes(outer.is_ipv6()) + payload
    }

    /// The inner packet, with or without a probe.
    #[must_use]
    pub fn inner(&self) -> Option<&Inner<P>> {
        match &self.body {
            Body::Data { inner, .. } => Some(inner),
            Body::Ride(ride) => Some(&ride.inner),
            Body::Probe { .. } | Body::Size { .. } => None,
        }
    }

    /// Code point of the outer header; data packets copy it from the inner packet (RFC 2983: uniform model).
    #[must_use]
    pub fn dscp(&self) -> u8 {
        match &self.body {
            Body::Data { inner, .. } => inner.dscp,
            Body::Ride(ride) => ride.inner.dscp,
            Body::Size { dscp, .. } => *dscp,
            Body::Probe { .. } => 0,
        }
    }

    /// Returns true for a probe without data.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        matches!(self.body, Body::Probe { .. })
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn lengths_are_those_of_the_wire() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        let probe = Body::Probe {
            kind: ProbeKind::Request,
            k: 3,
            report: false,
            question: false,
            age: 0,
            probe: Probe::default(),
            key: ProbeKey([0; 16]),
        };
        let probe = Message::<()> { index: 1, cookie: 2, body: probe };
        // 16 bytes of header, 32 of probe and 8 of authenticator, in UDP.
        assert_eq!((probe.bytes(v4), probe.bytes(v6)), (84, 104));
        let key = FlowKey { src: v4, dst: v4, sport: 1, dport: 2, protocol: 17, label: 0 };
        let inner = Inner { key, dscp: 0, bytes: 1_000, payload: () };
        let data =
            Message { index: 1, cookie: 2, body: Body::Data { inner, one_way: false, age: 0 } };
        assert_eq!((data.bytes(v4), data.bytes(v6)), (1_044, 1_064));
        let (kind, probe, key) = (ProbeKind::Request, Probe::default(), ProbeKey([0; 16]));
        let ride = Ride { inner, one_way: false, age: 0, kind, k: 3, probe, key };
        let ride = Message { index: 1, cookie: 2, body: Body::Ride(Box::new(ride)) };
        // 40 bytes more for the probe.
        assert_eq!((ride.bytes(v4), ride.bytes(v6)), (1_084, 1_104));
    }
}
