//! Observes the packets on the links and decodes their bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use segue_clock::Time;
use segue_sim::net::Lost;
use segue_sim::tunnel::signal::{Datagram, Frame, SIGNAL_PORT};
use segue_sim::{ChannelId, NodeId, Observer, Packet, Raw};
use segue_wire::header::flags;
use segue_wire::signal::{FromAnchor, FromHost, decode};
use segue_wire::{Header, PacketType, Probe};

/// The observations, shared with the tap.
pub(super) type Tape = Rc<RefCell<Seen>>;

/// Observations of the links.
#[derive(Default)]
pub(super) struct Seen {
    /// The channel on which the last packet arrived.
    pub last: Option<ChannelId>,
    /// The sources of packets that hosts have sent since the last check. Uplink channels have even numbers.
    pub sources: Vec<(ChannelId, IpAddr)>,
    /// Requests that left since the last check, bare or riding on data.
    pub requests: Vec<(ChannelId, Header, Probe)>,
    /// All messages that the anchor has sent over connections of hosts.
    pub said: Vec<FromAnchor>,
    pub load: Load,
    /// By connection, and by sender (true for the host).
    streams: BTreeMap<(u64, bool), Stream>,
}

/// One direction of a connection.
#[derive(Default)]
struct Stream {
    read: u64,
    /// The bytes of an incomplete message.
    rest: Vec<u8>,
    /// The channel of its last datagram.
    over: Option<ChannelId>,
}

/// Numbers of signalling events and probes, in the current second and in the worst one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    second: u64,
    /// Attempts to connect, moves of a connection to another link, and messages.
    signals: u64,
    /// Bare requests and responses.
    probes: u64,
    pub worst_signals: u64,
    pub worst_probes: u64,
}

impl Load {
    fn count(&mut self, now: Time, signals: u64, probes: u64) {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.signals, self.probes) = (second, 0, 0);
        }
        self.signals += signals;
        self.probes += probes;
        self.worst_signals = self.worst_signals.max(self.signals);
        self.worst_probes = self.worst_probes.max(self.probes);
    }
}

/// Observes all links.
pub(super) struct Tap(pub Tape);

impl Observer for Tap {
    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet) {
        let mut seen = self.0.borrow_mut();
        seen.last = Some(channel);
        let alone = matches!(
            header(packet).map(|header| header.packet_type),
            Some(PacketType::Request | PacketType::Response)
        );
        seen.load.count(now, 0, alone.into());
    }

    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, _: Result<Time, Lost>) {
        let mut seen = self.0.borrow_mut();
        if is_up(channel) {
            seen.sources.push((channel, packet.src));
        }
        if packet.ports.1 == SIGNAL_PORT || packet.ports.0 == SIGNAL_PORT {
            let raw = packet.value::<Raw>();
            if let Some(datagram) = raw.and_then(|raw| Datagram::decode(&raw.bytes)) {
                seen.on_datagram(now, channel, &datagram);
            }
        } else if let Some(request) = request(packet) {
            seen.requests.push((channel, request.0, request.1));
        }
    }

    fn dropped(&mut self, _: Time, _: NodeId, _: &Packet, _: Lost) {}

    fn said(&mut self, _: Time, _: NodeId, _: &str) {}

    fn listens(&self) -> bool {
        false
    }
}

impl Seen {
    /// Handles a datagram that leaves its sender.
    fn on_datagram(&mut self, now: Time, channel: ChannelId, datagram: &Datagram) {
        let from_host = is_up(channel);
        let stream = self.streams.entry((datagram.conn, from_host)).or_default();
        // The first datagram, or the connection has moved.
        let elsewhere = stream.over.replace(channel) != Some(channel);
        let mut signals = u64::from(from_host && elsewhere);
        if let Frame::Stream { offset, bytes } = &datagram.frame {
            let known = stream.read.saturating_sub(*offset) as usize;
            let new = bytes.get(known..).unwrap_or_default();
            stream.read += new.len() as u64;
            stream.rest.extend_from_slice(new);
            if from_host {
                while let Ok(Some(_)) = decode::<FromHost>(&mut stream.rest) {
                    signals += 1;
                }
            } else {
                while let Ok(Some(message)) = decode(&mut stream.rest) {
                    self.said.push(message);
                    signals += 1;
                }
            }
        }
        self.load.count(now, signals, 0);
    }
}

fn is_up(channel: ChannelId) -> bool {
    channel.0.is_multiple_of(2)
}

fn header(packet: &Packet) -> Option<Header> {
    let is_signal = packet.ports.0 == SIGNAL_PORT || packet.ports.1 == SIGNAL_PORT;
    let raw = packet.value::<Raw>().filter(|_| !is_signal)?;
    Header::parse(&raw.bytes).ok()
}

/// The request in a packet, bare or riding.
fn request(packet: &Packet) -> Option<(Header, Probe)> {
    let header = header(packet)?;
    let is_request = match header.packet_type {
        PacketType::Request => true,
        PacketType::Ride => header.flags & flags::RIDE_RESPONSE == 0,
        _ => false,
    };
    let bytes = &packet.value::<Raw>()?.bytes;
    let probe = bytes.get(Header::LEN..)?.first_chunk().filter(|_| is_request)?;
    Some((header, Probe::parse(probe)))
}
