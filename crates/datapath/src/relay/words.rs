//! How a relay is set up, and what it reports.

use std::sync::Arc;

use segue_clock::Time;
use segue_wire::DropReason;
use segue_wire::flow::Inner;

use crate::MissPacket;

/// How to set a relay up.
#[derive(Clone, Debug)]
pub struct RelaySetup {
    /// Name of the TUN device. Must begin with `segue`.
    pub device: String,
    /// MTU of the TUN device in bytes: that of the access to the tunnels, less the longest outer headers. Routes may have
    /// smaller ones.
    pub mtu_bytes: u32,
    /// Firewall mark that outer packets carry, so that the node's routing rules can tell them.
    pub mark: u32,
    /// Most entries of the tables.
    pub room: RelayRoom,
    /// UDP ports of tunnels at which the driver has sockets itself: what is no IP packet there is for them.
    pub held: Vec<u16>,
    /// Flows are told apart by their flow labels also where they have ports ([`segue_wire::flow::Inner::labelled`]).
    pub labels: bool,
    /// Whose packets are counted by prefix.
    pub counts: Counts,
}

/// Whose packets a relay counts by prefix ([`Counter`](super::Counter)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// Nobody's.
    #[default]
    Nothing,
    /// Those of hosts behind tunnels, as at an anchor.
    BehindTunnels,
    /// Those of hosts at links, as at a gateway.
    AtLinks,
}

/// What a host's prefix has carried through tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets from it, as they were cut for the wire.
    pub from_packets: u64,
    /// Bytes of these, inner headers included.
    pub from_bytes: u64,
    /// Packets to it.
    pub to_packets: u64,
    /// Bytes of these.
    pub to_bytes: u64,
}

/// Most entries of the relay's tables; only those in use take memory, except for tunnels.
#[derive(Clone, Copy, Debug)]
pub struct RelayRoom {
    /// Tunnels.
    pub tunnels: u32,
    /// Links that are checked.
    pub links: u32,
    /// Inner sources of tunnels and links.
    pub sources: u32,
    /// Bindings of flows.
    pub flows: u32,
    /// Bindings of prefixes.
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

/// What a tunnel, or bound traffic, has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets into a tunnel, or of the traffic, as they were cut for the wire.
    pub sent_packets: u64,
    /// Bytes of these, inner headers included.
    pub sent_bytes: u64,
    /// Packets out of a tunnel, or of the other direction of a flow.
    pub received_packets: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// When a packet of the traffic was last sent.
    pub last_sent: Option<Time>,
}

/// What the relay reports.
#[derive(Debug)]
pub enum RelayEvent {
    /// The first packet of a flow whose traffic is bound to [`segue_ip::Exit::Ask`]. The driver binds the flow and gives the packet
    /// back with [`inject`], or says [`refuse`].
    ///
    /// [`inject`]: super::Relay::inject
    /// [`refuse`]: super::Relay::refuse
    Miss(MissPacket),
    /// A packet that the kernel would refuse, from its IPv6 header on: a message with a Home Address option or a type 2
    /// routing header, or data with an option that no binding goes with.
    Message {
        /// Index of the interface that it came over.
        interface: u32,
        /// The packet.
        bytes: Vec<u8>,
    },
}

/// Takes the relay's events; called from its thread, must not block.
pub type RelaySink = Arc<dyn Fn(RelayEvent) + Send + Sync>;

/// Reads a packet whose flow is known by its label also where it has ports, if that is wanted.
///
/// # Errors
/// It is none.
pub(super) fn read_inner(packet: &[u8], labels: bool) -> Result<Inner, DropReason> {
    let inner = Inner::parse(packet)?;
    Ok(if labels { inner.labelled() } else { inner })
}
