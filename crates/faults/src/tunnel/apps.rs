//! Applications on hosts and their correspondent, and an outdated copy of a host.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::Time;
use segue_ip::Prefix;
use segue_netem::LinkSpec;
use segue_sim::net::Hop;
use segue_sim::packet::UDP;
use segue_sim::tunnel::signal::{Datagram, HostSignal, HostSignalOutput, SIGNAL_PORT, Signalling};
use segue_sim::{Agent, AgentId, Io, Packet, Raw};
use segue_wire::signal::{FromAnchor, FromHost, SIGNAL_VERSION};

use super::tap::Tag;
use crate::stage::{CORE, Stage};

/// Receives the packets of all flows of its node.
#[derive(Default)]
pub(super) struct Apps {
    /// Packets received since the last check.
    pub arrived: Vec<Tag>,
}

impl Agent for Apps {
    fn receive(&mut self, _io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        self.arrived.extend(packet.value::<Tag>());
    }
}

/// A machine with a host's keys that registers with an outdated epoch, once per order.
pub(super) struct Copy {
    from: IpAddr,
    epoch: u64,
    signal: HostSignal,
    /// The anchor has accepted the registration.
    pub registered: bool,
}

impl Copy {
    pub(super) fn new(name: String, from: IpAddr, anchor: IpAddr, seed: u64) -> Copy {
        let anchors = Vec::from([SocketAddr::new(anchor, SIGNAL_PORT)]);
        let signal = HostSignal::new(name, anchors, seed);
        Copy { from, epoch: 0, signal, registered: false }
    }

    pub(super) fn register(&mut self, io: &mut Io<'_>, epoch: u64) {
        self.epoch = epoch;
        self.signal.connect(io.now, &[String::new()]);
        self.work(io);
    }

    fn work(&mut self, io: &mut Io<'_>) {
        while let Some(output) = self.signal.poll() {
            match output {
                HostSignalOutput::Transmit { to, datagram, .. } => {
                    let to = (to.ip(), to.port());
                    io.send(Packet::udp((self.from, SIGNAL_PORT), to, datagram.encode()));
                }
                HostSignalOutput::Up { .. } => {
                    let (version, epoch) = (SIGNAL_VERSION, self.epoch);
                    self.signal.send(io.now, &FromHost::Register { version, epoch });
                }
                HostSignalOutput::Message(reply) => {
                    self.registered |= matches!(reply, FromAnchor::Registered { .. });
                    self.signal.finish(io.now);
                }
                HostSignalOutput::Down => {}
            }
        }
    }
}

impl Agent for Copy {
    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let datagram = packet.value::<Raw>().and_then(|raw| Datagram::decode(&raw.bytes));
        if let Some(datagram) = datagram {
            let (from, to) = ((packet.src, packet.ports.0), (packet.dst, packet.ports.1));
            self.signal.receive(io.now, from.into(), to.into(), datagram);
            self.work(io);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.signal.tick(io.now);
        self.work(io);
    }

    fn deadline(&self) -> Option<Time> {
        self.signal.deadline()
    }
}

/// Connects a machine with a host's keys to the core.
pub(super) fn add_copy(stage: &mut Stage, host: usize, name: String) -> AgentId {
    let from = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 100 + host as u8));
    let seed = stage.network.seed_of(3, host as u32);
    let (net, core) = (&mut stage.network, stage.core);
    let node = net.add_node(format!("copy{host}"));
    net.node_mut(node).addresses.push(from);
    let (own, there) = (net.add_interface(node, "if0"), net.add_interface(core, "copy"));
    net.connect((node, own), (core, there), LinkSpec::default(), LinkSpec::default())
        .expect("a link without delay and rate is one");
    net.node_mut(node).routes.set(Prefix::host(CORE), Hop::Interface(own));
    net.node_mut(core).routes.set(Prefix::host(from), Hop::Interface(there));
    let agent = Box::new(Copy::new(name, from, CORE, seed));
    net.add_agent(node, "copy", &[(UDP, SIGNAL_PORT)], agent)
}
