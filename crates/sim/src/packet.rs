//! Packets in transit: the header fields that the network reads, and a [`Payload`] that is opaque to it.
//! Application data travel as values, protocol messages as bytes ([`Raw`]).

mod image;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::net::IpAddr;

use segue_clock::Time;

/// Initial hop limit (recommended by RFC 1700).
pub const TTL: u8 = 64;

/// Protocol number of IPv4-in-IP (RFC 2003).
pub const IPV4: u8 = 4;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of IPv6-in-IP (RFC 2473).
pub const IPV6: u8 = 41;

/// An IP packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Protocol number of the header that follows the IP header.
    pub protocol: u8,
    /// Source and destination port; zeros if the protocol has no ports.
    pub ports: (u16, u16),
    /// Length of the IP packet including headers, in bytes. Links serialise and queues count this length.
    pub bytes: u32,
    /// Remaining hops.
    pub ttl: u8,
    /// Differentiated services code point (RFC 2474).
    pub dscp: u8,
    /// IPv6 flow label; 0 for IPv4.
    pub label: u32,
    /// Time at which the original sender sent it.
    pub sent: Time,
    /// The content.
    pub payload: Box<dyn Payload>,
}

/// The content of a packet: a value whose type only the communicating agents know. The network just carries it.
pub trait Payload: Any + fmt::Debug {
    /// Returns a copy.
    fn copy(&self) -> Box<dyn Payload>;

    /// Appends the bytes that a capture shows after the IP header of `packet`: for UDP, the bytes after the UDP
    /// header; for TCP, including the TCP header, whose checksum may be left empty.
    fn write(&self, packet: &Packet, image: &mut Vec<u8>);
}

impl Clone for Box<dyn Payload> {
    fn clone(&self) -> Box<dyn Payload> {
        // Dereference twice to copy the payload and not the box.
        (**self).copy()
    }
}

/// Bytes as on the wire, optionally followed by a packet: a control message, IP-in-IP, or a tunnel header with
/// the tunnelled packet.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// The bytes after the IP header, or after the UDP header.
    pub bytes: Vec<u8>,
    /// The packet that follows the bytes.
    pub inner: Option<Packet>,
}

impl Packet {
    /// A packet with code point and flow label 0, sent at time 0 with its full hop limit. `bytes` is the total
    /// length.
    #[must_use]
    pub fn new(
        protocol: u8,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
        bytes: u32,
        payload: impl Payload,
    ) -> Packet {
        Packet::boxed(protocol, from, to, bytes, Box::new(payload))
    }

    /// Like [`Packet::new`], for a payload that already has its box.
    #[must_use]
    pub fn boxed(
        protocol: u8,
        (src, sport): (IpAddr, u16),
        (dst, dport): (IpAddr, u16),
        bytes: u32,
        payload: Box<dyn Payload>,
    ) -> Packet {
        Packet {
            src,
            dst,
            protocol,
            ports: (sport, dport),
            bytes,
            ttl: TTL,
            dscp: 0,
            label: 0,
            sent: Time::ZERO,
            payload,
        }
    }

    /// A UDP datagram with these bytes.
    #[must_use]
    pub fn udp(from: (IpAddr, u16), to: (IpAddr, u16), bytes: Vec<u8>) -> Packet {
        Packet::carrying(from, to, bytes, None)
    }

    /// A UDP datagram with these bytes, optionally followed by a packet.
    #[must_use]
    pub fn carrying(
        from: (IpAddr, u16),
        to: (IpAddr, u16),
        bytes: Vec<u8>,
        inner: Option<Packet>,
    ) -> Packet {
        let behind = inner.as_ref().map_or(0, |inner| inner.bytes);
        let length = ip_header_bytes(from.0) + 8 + bytes.len() as u32 + behind;
        Packet::new(UDP, from, to, length, Raw { bytes, inner })
    }

    /// The payload, if it has this type.
    #[must_use]
    pub fn value<T: Payload>(&self) -> Option<&T> {
        (&*self.payload as &dyn Any).downcast_ref()
    }

    /// The tunnelled packet, if this packet carries one.
    #[must_use]
    pub fn tunnelled(&self) -> Option<&Packet> {
        self.value::<Raw>()?.inner.as_ref()
    }

    /// The payload for modification, if it has this type.
    pub fn value_mut<T: Payload>(&mut self) -> Option<&mut T> {
        (&mut *self.payload as &mut dyn Any).downcast_mut()
    }

    /// Extracts the payload if it has this type.
    ///
    /// # Errors
    /// Returns the packet unchanged if the payload has another type.
    pub fn into_value<T: Payload>(self) -> Result<Box<T>, Packet> {
        if self.value::<T>().is_none() {
            return Err(self);
        }
        let payload: Box<dyn Any> = self.payload;
        Ok(payload.downcast().expect("its type was looked at"))
    }

    /// Sets both ports, as an address translator does. Does nothing for protocols without ports.
    pub fn set_ports(&mut self, sport: u16, dport: u16) {
        if matches!(self.protocol, TCP | UDP) {
            self.ports = (sport, dport);
        }
    }

    /// The whole packet as a capture shows it, whose length follows from the payload. The packet is atomic:
    /// "don't fragment" is set, and the identification is 0 (RFC 6864).
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut image = Vec::with_capacity(self.bytes as usize);
        image::append(self, &mut image);
        image
    }
}

/// Length of an IP header without options or extension headers, in bytes.
#[must_use]
pub const fn ip_header_bytes(address: IpAddr) -> u32 {
    if address.is_ipv4() { 20 } else { 40 }
}

/// Encapsulates a packet in IP-in-IP (RFC 2003, RFC 2473).
#[must_use]
pub fn encapsulate(src: IpAddr, dst: IpAddr, inner: Packet) -> Packet {
    let protocol = if inner.src.is_ipv4() { IPV4 } else { IPV6 };
    let bytes = inner.bytes + ip_header_bytes(src);
    let label = if src.is_ipv4() { 0 } else { inner.label };
    let (dscp, sent) = (inner.dscp, inner.sent);
    let raw = Raw { bytes: Vec::new(), inner: Some(inner) };
    Packet { dscp, label, sent, ..Packet::new(protocol, (src, 0), (dst, 0), bytes, raw) }
}

impl Payload for Raw {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(self.clone())
    }

    fn write(&self, _packet: &Packet, image: &mut Vec<u8>) {
        image.extend_from_slice(&self.bytes);
        if let Some(inner) = &self.inner {
            image::append(inner, image);
        }
    }
}
