//! A machine that speaks over sockets and whose tunnels a relay carries ([`segue_datapath::relay`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context;
use segue_clock::{Machine, Time};
use segue_datapath::relay::{Relay, RelayRoom, RelaySetup};
use segue_ip::{Datagram, Forward, Forwarding, Input, Output};
use segue_linux::monitor::Device;
use tracing::{info, warn};

use crate::engine::{Engine, ToLoop};
use crate::events::Trouble;
use crate::packets::MARK;
use crate::settings::Choice;
use crate::sockets::{Arrivals, Sockets};

/// The machine over its sockets, beside its relay.
pub struct Relayed<M> {
    /// The machine over its sockets.
    pub sockets: Sockets<M>,
    relay: Relay,
    /// Interfaces over which packets of tunnels come.
    attached: BTreeSet<u32>,
}

/// Opens a relay with this device in the current network namespace.
///
/// # Errors
/// Neither packet path can be had, or not the one that the operator wants.
pub fn open(device: &str, mtu_bytes: u32, choice: Choice) -> anyhow::Result<Relay> {
    let room = RelayRoom::default();
    let setup = RelaySetup { device: device.to_owned(), mtu_bytes, mark: MARK, room };
    // Packets that are asked about have no flow that anyone asked for.
    let sink = Arc::new(|_| {});
    if choice != Choice::User {
        match Relay::new(&setup, sink.clone()) {
            Ok(relay) => {
                info!("datapath: eBPF");
                return Ok(relay);
            }
            Err(error) if choice == Choice::Ebpf => {
                return Err(error).context("the eBPF datapath cannot be had here");
            }
            Err(error) => warn!("datapath: eBPF cannot be had ({error}), taking user space"),
        }
    }
    let relay = Relay::in_user_space(&setup, sink).context("the relay cannot be set up")?;
    info!("datapath: user space");
    Ok(relay)
}

impl<M> Relayed<M> {
    /// Nothing is attached yet.
    pub fn new(sockets: Sockets<M>, relay: Relay) -> Relayed<M> {
        Relayed { sockets, relay, attached: BTreeSet::new() }
    }

    /// Index of the relay's device.
    pub fn device(&self) -> u32 {
        self.relay.tun_ifindex()
    }

    /// Takes packets out of tunnels that come over these interfaces, and no others.
    pub fn attach(&mut self, over: &[&Device], trouble: &mut Trouble, now: Time) {
        let wanted: BTreeSet<u32> = over.iter().map(|device| device.interface.index).collect();
        for gone in self.attached.difference(&wanted) {
            self.relay.detach(*gone);
        }
        let new = wanted.difference(&self.attached).copied().filter(|interface| {
            let attached = self.relay.attach(*interface);
            let done = attached.is_ok();
            trouble.note(now, attached);
            done
        });
        let new: Vec<u32> = new.collect();
        self.attached.retain(|interface| wanted.contains(interface));
        self.attached.extend(new);
    }

    /// What a tunnel has carried.
    pub fn tunnel_carried(&self, number: u32) -> segue_datapath::relay::Carried {
        self.relay.tunnel_carried(number)
    }
}

impl<M, I, O, N, P> Engine for Relayed<M>
where
    M: Machine<Input = Input<I, P>, Output = Output<O, N, P>>,
{
    type Own = I;
    type Wish = O;
    type News = N;
    type Record = P;
    type Event = Datagram;
    type Queue = Arrivals;
    type Turn = ();

    fn deadline(&self) -> Option<Time> {
        self.sockets.deadline()
    }

    fn handle(&mut self, input: Input<I, P>) {
        self.sockets.handle(input);
    }

    fn on_event(&mut self, datagram: Datagram) {
        self.sockets.on_event(datagram);
    }

    fn at_deadline(&mut self, queue: &mut Arrivals) {
        self.sockets.at_deadline(queue);
    }

    fn refresh(&mut self) {}

    fn send(&mut self, datagram: Datagram) {
        self.sockets.send(datagram);
    }

    fn poll(&mut self, turn: &mut ()) -> Option<ToLoop<Self>> {
        self.sockets.poll(turn)
    }

    fn carry(&mut self, part: &Forward, given: bool) -> anyhow::Result<()> {
        let done = if given { self.relay.put(part) } else { self.relay.take_back(part) };
        done.with_context(|| format!("the relay refuses {part:?}"))
    }

    fn finish(&mut self, turn: (), trouble: &mut Trouble) {
        self.sockets.finish(turn, trouble);
    }

    fn heartbeat(&mut self) -> anyhow::Result<()> {
        self.relay.heartbeat();
        Ok(self.relay.carries()?)
    }

    fn drops(&mut self) -> BTreeMap<String, u64> {
        let mut drops = self.sockets.drops();
        let relay = self.relay.drops();
        drops.extend(relay.into_iter().map(|(why, count)| (why.name().to_owned(), count)));
        drops
    }
}
