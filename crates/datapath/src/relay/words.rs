//! A relay's settings, and its reports.

use std::sync::Arc;

use segue_clock::Time;
use segue_wire::DropReason;
use segue_wire::flow::Inner;

use crate::MissPacket;

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct RelaySetup {
    /// Name of the TUN device. Must begin with `segue`.
    pub device: String,
    /// MTU of the TUN device in bytes: the MTU of the access network less the longest outer headers. Routes may have
    /// smaller MTUs.
    pub mtu_bytes: u32,
    /// Firewall mark of outer packets, by which the node's routing rules recognise them.
    pub mark: u32,
    /// Most entries of the tables.
    pub room: RelayRoom,
    /// UDP ports of tunnels at which the driver itself has sockets: datagrams that contain no IP packet are left to
    /// these sockets.
    pub held: Vec<u16>,
    /// Distinguish flows by their flow labels even if they have ports ([`segue_wire::flow::Inner::labelled`]).
    pub labels: bool,
    /// The hosts whose packets are counted by prefix.
    pub counts: Counts,
}

/// The hosts whose packets a relay counts by prefix ([`Counter`](super::Counter)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// No hosts.
    #[default]
    Nothing,
    /// Hosts behind tunnels, as at an anchor.
    BehindTunnels,
    /// Hosts on links, as at a gateway.
    AtLinks,
}

/// Packets and bytes that a host's prefix has sent and received through tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets from the prefix, after segmentation.
    pub from_packets: u64,
    /// Bytes of these packets, including inner headers.
    pub from_bytes: u64,
    /// Packets to the prefix, after segmentation.
    pub to_packets: u64,
    /// Bytes of these packets, including inner headers.
    pub to_bytes: u64,
}

/// Most entries of the relay's tables. Except for tunnels, only used entries take memory.
#[derive(Clone, Copy, Debug)]
pub struct RelayRoom {
    /// Most tunnels.
    pub tunnels: u32,
    /// Most checked links.
    pub links: u32,
    /// Most inner sources of tunnels and links.
    pub sources: u32,
    /// Most bindings of flows.
    pub flows: u32,
    /// Most bindings of prefixes.
    pub prefixes: u32,
}

impl Default for RelayRoom {
    fn default() -> RelayRoom {
        RelayRoom {
            tunnels: 4_096,
            links: 4_096,
            sources: 1 << 18,
            flows: 1 << 18,
            prefixes: 1 << 18,
        }
    }
}

/// Packets and bytes that a tunnel, or bound traffic, has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets sent into the tunnel, or sent by the traffic, after segmentation.
    pub sent_packets: u64,
    /// Bytes of these packets, including inner headers.
    pub sent_bytes: u64,
    /// Packets received through the tunnel, or in the opposite direction of a flow.
    pub received_packets: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// When a packet of the traffic was last sent.
    pub last_sent: Option<Time>,
}

/// Events that the relay reports.
#[derive(Debug)]
pub enum RelayEvent {
    /// The first packet of a flow whose traffic is bound to [`segue_ip::Exit::Ask`]. The driver binds the flow and
    /// gives the packet back with [`inject`], or calls [`refuse`].
    ///
    /// [`inject`]: super::Relay::inject
    /// [`refuse`]: super::Relay::refuse
    Miss(MissPacket),
    /// A packet that the kernel would refuse, from its IPv6 header on: a message with a Home Address option or a type 2
    /// routing header, or data with an option for which there is no binding.
    Message {
        /// Index of the interface on which it arrived.
        interface: u32,
        /// The packet.
        bytes: Vec<u8>,
    },
}

/// Receives the relay's events. It is called from the relay's thread and must not block.
pub type RelaySink = Arc<dyn Fn(RelayEvent) + Send + Sync>;

/// Parses an inner packet. With `labels`, its flow is distinguished by the flow label even if it has ports.
///
/// # Errors
/// When the packet is malformed.
pub(super) fn read_inner(packet: &[u8], labels: bool) -> Result<Inner, DropReason> {
    let inner = Inner::parse(packet)?;
    Ok(if labels { inner.labelled() } else { inner })
}
