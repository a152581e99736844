//! Traces of a run: `PREFIX.pcapng` contains every packet at every interface that it passes, and `PREFIX.log` has a
//! line for each event.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use segue_clock::Time;
use segue_netem::DropCause;
use segue_sim::net::Lost;
use segue_sim::packet::UDP;
use segue_sim::tunnel::signal;
use segue_sim::{ChannelId, Network, NodeId, Observer, Packet, Raw};
use segue_traffic::apps::Datagram;
use segue_traffic::tcp::Segment;
use segue_wire::header::flags::{RESPONSE_UNSOLICITED, RIDE_RESPONSE};
use segue_wire::mobility::{self, MobilityHeader, Profile};
use segue_wire::{Header, PacketType, Probe, SIGNAL_PORT, nd};

use super::file::Built;

/// Nanoseconds, as a power of ten.
const RESOLUTION: u8 = 9;
/// Directions of a packet in a block's flags (pcapng, section 4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Options of a trace.
pub struct Options {
    /// Prefix of `.pcapng` and `.log`.
    pub prefix: PathBuf,
    /// Maximum bytes stored per packet.
    pub snaplen: u32,
    /// `NODE` or `NODE:INTERFACE`; if empty, all interfaces.
    pub only: Vec<String>,
}

/// A trace being written.
#[derive(Clone)]
pub struct Trace(Rc<RefCell<Files>>);

struct Files {
    packets: PcapNgWriter<BufWriter<File>>,
    log: BufWriter<File>,
    snaplen: u32,
    nodes: Vec<String>,
    /// Sending and receiving interface of a channel, if traced, and the channel's name.
    channels: BTreeMap<ChannelId, Places>,
    /// The first error; nothing is written after it.
    failed: Option<anyhow::Error>,
}

struct Places {
    from: Option<u32>,
    to: Option<u32>,
    /// The sender.
    node: NodeId,
    name: String,
}

impl Trace {
    /// Starts a trace of a network that has not run yet.
    ///
    /// # Errors
    /// A file cannot be written, or an interface is unknown.
    pub fn begin(built: &Built, options: &Options) -> anyhow::Result<Trace> {
        let create = |end: &str| -> anyhow::Result<BufWriter<File>> {
            let mut path = options.prefix.clone().into_os_string();
            path.push(end);
            let path = Path::new(&path);
            let file = File::create(path);
            Ok(BufWriter::new(file.with_context(|| format!("cannot write {}", path.display()))?))
        };
        let network = &built.network;
        let interfaces = Interfaces::chosen(network, &options.only)?;
        let mut packets = PcapNgWriter::new(create(".pcapng")?)?;
        for (name, _) in &interfaces.0 {
            packets.write_pcapng_block(interface(name, options.snaplen))?;
        }
        let places = |(id, channel): (ChannelId, &segue_sim::net::Channel)| {
            let (from, to) = (interfaces.find(channel.from), interfaces.find(channel.to));
            (id, Places { from, to, node: channel.from.0, name: built.channel_name(id) })
        };
        Ok(Trace(Rc::new(RefCell::new(Files {
            packets,
            log: create(".log")?,
            snaplen: options.snaplen,
            nodes: network.nodes().map(|(_, node)| node.name.clone()).collect(),
            channels: network.channels().map(places).collect(),
            failed: None,
        }))))
    }

    /// The observer for the run.
    #[must_use]
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(self.clone())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The first write error.
    pub fn end(&self) -> anyhow::Result<()> {
        let mut files = self.0.borrow_mut();
        if let Some(error) = files.failed.take() {
            return Err(error.context("cannot write the trace"));
        }
        files.packets.get_mut().flush().context("cannot write the trace")?;
        files.log.flush().context("cannot write the event log")
    }
}

/// The traced interfaces; their position is their number in the file.
struct Interfaces(Vec<(String, (NodeId, u32))>);

impl Interfaces {
    fn chosen(network: &Network, only: &[String]) -> anyhow::Result<Interfaces> {
        let mut all = Vec::new();
        for (id, node) in network.nodes() {
            for interface in node.interfaces() {
                all.push((format!("{}:{}", node.name, interface.name), (id, interface.index)));
            }
        }
        let of = |name: &str, wanted: &str| {
            name == wanted || name.split(':').next().is_some_and(|node| node == wanted)
        };
        for wanted in only {
            if !all.iter().any(|(name, _)| of(name, wanted)) {
                anyhow::bail!("--trace-at {wanted}: there is no such node or NODE:INTERFACE");
            }
        }
        if !only.is_empty() {
            all.retain(|(name, _)| only.iter().any(|wanted| of(name, wanted)));
        }
        Ok(Interfaces(all))
    }

    fn find(&self, place: (NodeId, u32)) -> Option<u32> {
        self.0.iter().position(|(_, known)| *known == place).map(|i| i as u32)
    }
}

fn interface(name: &str, snaplen: u32) -> InterfaceDescriptionBlock<'static> {
    InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        snaplen,
        options: vec![
            InterfaceDescriptionOption::IfName(Cow::Owned(name.to_owned())),
            InterfaceDescriptionOption::IfTsResol(RESOLUTION),
        ],
    }
}

impl Files {
    /// Runs `what` on the files, unless an earlier call failed.
    fn attempt(&mut self, what: impl FnOnce(&mut Files) -> anyhow::Result<()>) {
        if self.failed.is_none() {
            self.failed = what(self).err();
        }
    }

    fn packet(
        &mut self,
        now: Time,
        interface: u32,
        packet: &Packet,
        direction: u32,
        comment: Option<String>,
    ) -> anyhow::Result<()> {
        let image = packet.image();
        let captured = image.len().min(self.snaplen as usize);
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        options.extend(comment.map(|text| EnhancedPacketOption::Comment(Cow::Owned(text))));
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: Duration::from_nanos(now.0),
            original_len: image.len() as u32,
            data: Cow::Borrowed(&image[..captured]),
            options,
        };
        self.packets.write_block(&block.into_block())?;
        Ok(())
    }

    fn line(&mut self, now: Time, node: &str, what: &str) -> anyhow::Result<()> {
        let (s, ns) = (now.0 / 1_000_000_000, now.0 % 1_000_000_000);
        writeln!(self.log, "{s}.{ns:09} {node} {what}")?;
        Ok(())
    }
}

impl Observer for Trace {
    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>) {
        let mut files = self.0.borrow_mut();
        let Some(Places { from, name, node, .. }) = files.channels.get(&channel) else { return };
        let lost = at.err().map(|why| format!("lost on {name}, {}", reason(why)));
        let (from, node) = (*from, files.nodes[node.0 as usize].clone());
        files.attempt(|files| {
            if let Some(lost) = &lost {
                files.line(now, &node, &format!("{lost}: {}", describe(packet)))?;
            }
            from.map_or(Ok(()), |from| files.packet(now, from, packet, OUTBOUND, lost))
        });
    }

    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet) {
        let mut files = self.0.borrow_mut();
        let Some(to) = files.channels.get(&channel).and_then(|places| places.to) else { return };
        files.attempt(|files| files.packet(now, to, packet, INBOUND, None));
    }

    fn dropped(&mut self, now: Time, node: NodeId, packet: &Packet, why: Lost) {
        let mut files = self.0.borrow_mut();
        let node = files.nodes[node.0 as usize].clone();
        let line = format!("dropped, {}: {}", reason(why), describe(packet));
        files.attempt(|files| files.line(now, &node, &line));
    }

    fn said(&mut self, now: Time, node: NodeId, line: &str) {
        let mut files = self.0.borrow_mut();
        let node = files.nodes[node.0 as usize].clone();
        files.attempt(|files| files.line(now, &node, line));
    }
}

/// The reason for a packet's loss, as text.
fn reason(why: Lost) -> &'static str {
    match why {
        Lost::Link(DropCause::Loss) => "loss of the link",
        Lost::Link(DropCause::Queue) => "queue full",
        Lost::Link(DropCause::Silent) => "link silent",
        Lost::TooLarge => "too large for the link",
        Lost::Filtered => "filtered by the link",
        Lost::NoRoute => "no route",
        Lost::NoListener => "no listener",
        Lost::Ttl => "too many routers",
        Lost::Detached => "interface not attached",
        Lost::NotForwarded => "node does not forward",
        Lost::Loop => "passed round within the node",
        Lost::Nat(_) => "refused by the NAT",
        Lost::Relay(_) => "refused by the tunnels of the node",
    }
}

/// A short description of a packet.
fn describe(packet: &Packet) -> String {
    let Packet { src, dst, bytes, ports: (sport, dport), .. } = packet;
    if let Some(segment) = packet.value::<Segment>() {
        let end = segment.seq + u64::from(segment.len);
        let ack = segment.ack.map_or_else(String::new, |ack| format!(" ack {ack}"));
        let again = if segment.retransmission { " again" } else { "" };
        return format!(
            "TCP {src}:{sport} to {dst}:{dport} bytes {}-{end}{ack}{again}",
            segment.seq
        );
    }
    if let Some(datagram) = packet.value::<Datagram>() {
        let number = datagram.seq;
        return format!("UDP {src}:{sport} to {dst}:{dport} number {number} of {bytes} bytes");
    }
    match packet.value::<Raw>() {
        Some(raw) if packet.protocol == UDP => control(packet, raw),
        Some(Raw { inner: Some(inner), .. }) => {
            format!("IP {src} to {dst} with {}", describe(inner))
        }
        Some(raw) if packet.protocol == mobility::NEXT_HEADER => {
            let header = MobilityHeader::parse(&raw.bytes, &Profile::STRICT).ok();
            let name = header.and_then(|header| header.message_type().name());
            format!("{} {src} to {dst}", name.unwrap_or("Mobility Header"))
        }
        Some(raw) if packet.protocol == nd::NEXT_HEADER => {
            let name = nd::View::new(&raw.bytes).map_or("ICMPv6", |view| view.kind().name());
            format!("{name} {src} to {dst}")
        }
        _ => format!("protocol {} {src} to {dst} of {bytes} bytes", packet.protocol),
    }
}

/// A short description of a tunnel or signalling datagram.
fn control(packet: &Packet, raw: &Raw) -> String {
    let (sport, dport) = packet.ports;
    let ends = format!("{}:{sport} to {}:{dport}", packet.src, packet.dst);
    if [sport, dport].contains(&SIGNAL_PORT)
        && let Some(datagram) = signal::Datagram::decode(&raw.bytes)
    {
        return format!("signalling {ends} number {}", datagram.number);
    }
    let words = raw.bytes.get(Header::LEN..).and_then(|rest| rest.first_chunk()).map(Probe::parse);
    match (Header::parse(&raw.bytes), words, &raw.inner) {
        (Ok(Header { packet_type: PacketType::Data, .. }), _, Some(inner)) => {
            format!("tunnel {ends} with {}", describe(inner))
        }
        (Ok(Header { packet_type: PacketType::Ride, flags, .. }), Some(probe), Some(inner)) => {
            let kind = if flags & RIDE_RESPONSE == 0 { "request" } else { "response" };
            format!("tunnel {ends} with {kind} {} and {}", probe.seq, describe(inner))
        }
        (Ok(Header { packet_type: PacketType::Size, .. }), Some(words), _) => {
            format!("test of {} bytes {ends} {}", words.t_sc >> 16, words.seq)
        }
        (Ok(Header { packet_type, flags, .. }), Some(probe), _) => {
            let kind = match packet_type {
                PacketType::Request => "request",
                _ if flags & RESPONSE_UNSOLICITED == 0 => "response",
                _ => "unsolicited",
            };
            format!("probe {ends} {kind} {}", probe.seq)
        }
        _ => format!("UDP {ends} of {} bytes", packet.bytes),
    }
}
