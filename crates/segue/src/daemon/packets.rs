//! Which datapath a daemon uses, and the packets it holds for its machine.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use anyhow::Context;
use segue_datapath::ebpf::Ebpf;
use segue_datapath::user::User;
use segue_datapath::{
    Datapath, Event, EventSink, Kind, MissPacket, PathConfig, ProbeKind, ProbeOrder, Setup, Via,
};
use segue_tunnel::{PathSetup, ProbeIn, ProbeOut, Redirect, Ticket};
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Which datapath the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// eBPF where it is to be had, else user space.
    Auto,
    /// eBPF or nothing.
    Ebpf,
    /// User space.
    User,
}

/// Firewall mark of everything that a daemon sends outside the tunnel.
pub const MARK: u32 = 0x5e60;
/// Events that wait for the daemon; more are dropped.
const QUEUE: usize = 65_536;
/// Held packets of flows without a binding; more are dropped.
const HELD: usize = 1_024;

/// An open datapath.
pub struct Opened {
    /// The datapath.
    pub datapath: Box<dyn Datapath>,
    /// What it reports.
    pub events: mpsc::Receiver<Event>,
    /// Keeps the tunnels' port from other programs where the datapath has no socket on it.
    pub reserved: Option<UdpSocket>,
}

/// Opens the datapath in the current network namespace.
pub fn open(choice: Choice, setup: &Setup) -> anyhow::Result<Opened> {
    let reserved = reserve(setup.port)?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let sink: EventSink = std::sync::Arc::new(move |event| {
        let _ = sender.try_send(event);
    });
    if choice != Choice::User {
        match Ebpf::new(setup, sink.clone()) {
            Ok(ebpf) => {
                let datapath: Box<dyn Datapath> = Box::new(ebpf);
                info!("datapath: {}", kind_name(datapath.kind()));
                return Ok(Opened { datapath, events: receiver, reserved: Some(reserved) });
            }
            Err(error) if choice == Choice::Ebpf => {
                return Err(error).context("the eBPF datapath cannot be had here");
            }
            Err(error) => warn!("datapath: eBPF cannot be had ({error}), taking user space"),
        }
    }
    // The sockets of this datapath are bound to the port themselves, one for each path.
    drop(reserved);
    let user = User::new(setup, sink).context("the tunnel device cannot be set up")?;
    info!("datapath: user space");
    Ok(Opened { datapath: Box::new(user), events: receiver, reserved: None })
}

/// Binds the tunnels' port in both families, so that two programs never share it unknowingly.
fn reserve(port: u16) -> anyhow::Result<UdpSocket> {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }
    .with_context(|| format!("cannot use UDP port {port} for tunnels; set another port"))
}

/// The name of a datapath in output.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Ebpf { xdp: true } => "ebpf+xdp",
        Kind::Ebpf { xdp: false } => "ebpf",
        Kind::User => "user",
    }
}

/// Packets that wait for their machine's word.
#[derive(Default)]
pub struct Held {
    packets: BTreeMap<Ticket, MissPacket>,
    next: u64,
}

impl Held {
    /// Keeps a packet; the oldest gives way when there are too many.
    pub fn keep(&mut self, packet: MissPacket) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.packets.insert(ticket, packet);
        if self.packets.len() > HELD {
            self.packets.pop_first();
        }
        ticket
    }

    /// Gives a packet up.
    pub fn take(&mut self, ticket: Ticket) -> Option<MissPacket> {
        self.packets.remove(&ticket)
    }
}

/// The datapath's form of a path.
pub fn path_config(setup: &PathSetup) -> PathConfig {
    PathConfig {
        tx_index: setup.tx_index,
        tx_cookie: setup.tx_cookie,
        rx_cookie: setup.rx_cookie,
        key: setup.key,
        local: setup.local,
        remote: setup.remote,
        ifindex: setup.ifindex,
        gateway: setup.gateway,
        owner: setup.owner,
    }
}

/// The datapath's form of a redirection.
pub fn via(redirect: Option<Redirect>) -> Option<Via> {
    redirect.map(|Redirect { slot, one_way }| Via { slot, one_way })
}

/// The datapath's form of a probe to send.
pub fn order(probe: &ProbeOut, kind: ProbeKind) -> ProbeOrder {
    ProbeOrder {
        slot: probe.slot,
        kind,
        k: probe.k,
        probe: probe.probe,
        held_since: probe.held_since,
    }
}

/// The machines' form of a probe that arrived.
pub fn probe_in(event: &segue_datapath::ProbeEvent) -> ProbeIn {
    ProbeIn {
        slot: event.slot,
        kind: match event.kind {
            ProbeKind::Request => segue_tunnel::ProbeKind::Request,
            ProbeKind::Response => segue_tunnel::ProbeKind::Response,
            ProbeKind::Unsolicited => segue_tunnel::ProbeKind::Unsolicited,
        },
        k: event.k,
        arrival: segue_keepalive::Arrival {
            probe: event.probe,
            at: event.at,
            received: event.received,
            sent_at: event.sent_at,
        },
    }
}
