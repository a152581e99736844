//! A socket with its key, used by client, listener and peer.
//!
//! The timestamp inside a packet (t_Sc, t_Ss) is taken in user space just before sending; the kernel reports its
//! transmit timestamp only afterwards. From both, an end knows how long its recent packets were delayed before they
//! left. It states the longest of these delays in the bits of `heard` that a session of one path does not use. The
//! round-trip times at the other end may be too long by this delay.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_linux::clock;
use segue_linux::udp::{Datagram, IcmpError, Leave, TimestampedSocket, TxStamp};
use segue_wire::{DropReason, Header, Probe, ProbeKey};

use super::device::Device;

/// Number of recent packets whose delays are considered.
const REMEMBERED: usize = 16;
/// Maximum number of packets with a pending transmit timestamp.
const AWAITED_MAX: usize = 64;
/// The longest UDP payload in bytes.
pub(crate) const LENGTH_MAX: usize = 65_507;

/// Addressing of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// Destination.
    pub to: SocketAddr,
    /// Source address on this machine; `None` lets the kernel choose.
    pub from: Option<IpAddr>,
    /// Traffic class, if it differs from the socket's.
    pub class: Option<u8>,
    /// Bytes of UDP payload. Padding after the probe fills the rest.
    pub length: usize,
}

/// A packet that was passed to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The ID of its transmit timestamp.
    pub id: u32,
    /// Upper bound of the time from its timestamp until the kernel had it.
    pub within: Span,
}

/// A socket with its key.
pub struct Endpoint {
    socket: TimestampedSocket,
    key: ProbeKey,
    /// Packets with a pending transmit timestamp, and the timestamps inside them.
    awaited: VecDeque<(u32, Time)>,
    delays: Delays,
    packet: Vec<u8>,
}

impl Endpoint {
    /// Sends and receives packets of this socket, authenticated with this key and never fragmented.
    ///
    /// # Errors
    /// The kernel cannot forbid fragmentation.
    pub fn new(socket: TimestampedSocket, key: ProbeKey) -> io::Result<Endpoint> {
        socket.never_fragment()?;
        Ok(Endpoint {
            socket,
            key,
            awaited: VecDeque::new(),
            delays: Delays::default(),
            packet: Vec::new(),
        })
    }

    /// Reopens the socket on an interface that was created again. Forgets pending transmit timestamps of the old
    /// socket.
    pub(crate) fn reopen(&mut self, device: &mut Device) -> anyhow::Result<()> {
        self.awaited.clear();
        device.reopen(&mut self.socket)?;
        Ok(self.socket.never_fragment()?)
    }

    /// The socket.
    pub fn socket(&self) -> &TimestampedSocket {
        &self.socket
    }

    /// The field `heard` of a packet to send. Bit 0: the other end is heard. Other bits: the longest delay of this
    /// end's recent packets in microseconds, 0 if unknown.
    pub fn heard(&self, heard: bool) -> u16 {
        let delay_us = self.delays.longest().map_or(0, |delay| delay.0.div_ceil(1_000).max(1));
        (delay_us.min(0x7fff) as u16) << 1 | u16::from(heard)
    }

    /// Sends a probe with the timestamp `stamped`.
    ///
    /// # Errors
    /// The kernel refuses the packet.
    pub fn send(
        &mut self,
        header: &Header,
        probe: &Probe,
        stamped: Time,
        envelope: Envelope,
    ) -> io::Result<Given> {
        self.packet.clear();
        self.packet.extend_from_slice(&probe.seal(header, &self.key));
        self.packet.resize(envelope.length.max(Probe::PACKET_LEN), 0);
        let Envelope { to, from, class, .. } = envelope;
        let id = self.socket.send(&self.packet, to, Leave { from, class, ..Leave::default() })?;
        let within = clock::monotonic().since(stamped);
        if self.awaited.len() == AWAITED_MAX {
            self.awaited.pop_front();
        }
        self.awaited.push_back((id, stamped));
        Ok(Given { id, within })
    }

    /// Takes the next transmit timestamp.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn left(&mut self) -> io::Result<Option<TxStamp>> {
        let stamp = self.socket.tx_stamp()?;
        if let Some(stamp) = stamp
            && let Some(place) = self.awaited.iter().position(|(id, _)| *id == stamp.id)
            && let Some((_, stamped)) = self.awaited.remove(place)
        {
            self.delays.push(stamp.at.since(stamped) + stamp.error);
        }
        Ok(stamp)
    }

    /// Sets the traffic class of all packets.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.socket.set_traffic_class(class)
    }

    /// Requests ICMP errors ([`Endpoint::icmp_error`]).
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn receive_icmp(&mut self) -> io::Result<()> {
        self.socket.receive_icmp()
    }

    /// Takes the next ICMP error that [`Endpoint::left`] has read.
    pub fn icmp_error(&self) -> Option<IcmpError> {
        self.socket.icmp_error()
    }

    /// Takes the next datagram.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        self.socket.recv(buffer)
    }

    /// Parses and authenticates the probe in a datagram, ignoring padding.
    ///
    /// # Errors
    /// The reason why it is not a valid probe.
    pub fn open(&self, bytes: &[u8]) -> Result<(Header, Probe), DropReason> {
        let header = Header::parse(bytes)?;
        let probe = &bytes[..bytes.len().min(Probe::PACKET_LEN)];
        Ok((header, Probe::open(probe, &self.key)?))
    }
}

/// The delay of the far end's packets, as stated in `heard`; `None` if unknown.
pub(crate) fn far_delay(heard: u16) -> Option<Span> {
    (heard > 1).then(|| Span::from_micros(u64::from(heard >> 1)))
}

/// Recent delays between a packet's own timestamp and its departure.
#[derive(Debug, Default)]
struct Delays(VecDeque<Span>);

impl Delays {
    fn push(&mut self, delay: Span) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(delay);
    }

    fn longest(&self) -> Option<Span> {
        self.0.iter().max().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn endpoint() -> Endpoint {
        let socket = TimestampedSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        Endpoint::new(socket, ProbeKey::default()).unwrap()
    }

    #[test]
    fn the_longest_of_the_last_delays_is_stated_and_an_old_one_is_forgotten() {
        let mut end = endpoint();
        assert_eq!((end.heard(true), end.heard(false)), (1, 0));
        assert_eq!(far_delay(end.heard(true)), None);
        end.delays.push(Span::from_micros(300));
        end.delays.push(Span(2_100));
        assert_eq!(far_delay(end.heard(true)), Some(Span::from_micros(300)));
        for _ in 0..REMEMBERED {
            end.delays.push(Span(2_100));
        }
        assert_eq!(end.heard(true), 3 << 1 | 1, "rounded up");
        end.delays.push(Span::from_secs(1));
        assert_eq!(end.heard(false), 0xfffe, "as much as the field holds");
    }

    #[test]
    fn padding_follows_the_authenticator_and_does_not_count() {
        let header = Header::new(segue_wire::PacketType::Request, 3, 7, 9);
        let probe = Probe { seq: 5, ..Probe::default() };
        let (mut near, far) = (endpoint(), endpoint());
        let to = far.socket().local_addr().unwrap();
        let mut buffer = vec![0; LENGTH_MAX];
        for length in [0, 56, 57, 1_400, LENGTH_MAX] {
            let envelope = Envelope { to, from: None, class: None, length };
            near.send(&header, &probe, clock::monotonic(), envelope).unwrap();
            let datagram = far.take(&mut buffer).unwrap().unwrap();
            assert_eq!(datagram.len, length.max(56));
            assert_eq!(far.open(&buffer[..datagram.len]), Ok((header, probe)));
        }
        assert_eq!(far.open(&buffer[..55]), Err(DropReason::Truncated));
        while near.left().unwrap().is_some() {}
        assert!(far_delay(near.heard(true)).is_some(), "the loopback device stamps");
    }
}
