//! A machine over sockets whose tunnels a relay carries ([`segue_datapath::relay`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context;

use anyhow::Context as _;
use segue_clock::{Machine, Time};
use segue_datapath::MissPacket;
use segue_datapath::relay::{Carried, Counts, Relay, RelayEvent, RelayRoom, RelaySetup};
use segue_ip::{Datagram, FlowKey, Forward, Forwarding, Input, Output, Route, Traffic};
use segue_linux::clock::monotonic;
use segue_linux::monitor::Device;
use segue_wire::{DropReason, OuterTooBig};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::engine::{Engine, Queue, ToLoop};
use crate::fitted::Fitted;
use crate::packets::MARK;
use crate::routers;
use crate::settings::{self, Choice};
use crate::sockets::{Arrivals, Sockets};
use crate::trouble::Trouble;
use crate::turns;

/// First packets of flows that may be queued for the daemon; further ones are dropped.
const MISSES: usize = 16_384;
/// Most first packets that the daemon takes in a turn.
const MISSES_A_TURN: usize = 64;
/// Most packet-too-big messages taken in a turn.
const TOO_BIG_A_TURN: usize = 4;
/// Minimum MTU of IPv6 in bytes (RFC 8200, section 5).
const LEAST_IPV6: u32 = 1_280;

/// A machine that may be asked where a flow goes.
pub trait OfFlows {
    /// Its own input.
    type Own;

    /// The input that asks about a flow; `None` for a machine that never binds traffic in that way.
    fn flow(key: FlowKey, dscp: u8) -> Option<Self::Own>;

    /// The input that reports the largest packet that a tunnel takes, in bytes; `None` if the machine does not use it.
    fn size(_tunnel: u32, _bytes: Option<u32>) -> Option<Self::Own> {
        None
    }
}

/// The machine over its sockets, together with its relay.
pub struct Relayed<M> {
    /// The machine over its sockets.
    pub sockets: Sockets<M>,
    relay: Relay,
    /// First packets of flows that the machine has yet to place.
    waiting: BTreeMap<FlowKey, MissPacket>,
    /// Number of dropped first packets.
    shed: Arc<AtomicU64>,
    /// Interfaces on which tunnel packets are accepted.
    attached: BTreeSet<u32>,
    fitted: Fitted,
    /// Route changes for the loop.
    routes: VecDeque<(Forward, bool)>,
}

/// The queue of events: datagrams in the sockets, first packets of flows, and packet-too-big messages.
pub struct Below {
    arrivals: Arrivals,
    misses: mpsc::Receiver<MissPacket>,
    too_big: mpsc::Receiver<OuterTooBig>,
}

/// An event of the layer below.
pub enum Came {
    /// A datagram.
    Datagram(Datagram),
    /// The first packet of a flow.
    Miss(MissPacket),
    /// A router refused a packet of this machine because of its size.
    TooBig(OuterTooBig),
}

/// The queue of first packets of flows, and the number of dropped ones.
pub type Misses = (mpsc::Receiver<MissPacket>, Arc<AtomicU64>);

/// Opens a relay in the current network namespace. The daemon's own sockets hold the ports in `held`; `counts` selects
/// the traffic to count.
///
/// # Errors
/// Neither packet path is available, or the one that the operator chose is not.
pub fn open(
    own: &settings::Relay,
    held: &[u16],
    counts: Counts,
) -> anyhow::Result<(Relay, Misses)> {
    let settings::Relay { device, mtu, datapath: choice, tunnels, labels } = own.clone();
    let (room, held) = (RelayRoom { tunnels, ..RelayRoom::default() }, held.to_vec());
    let setup = RelaySetup { device, mtu_bytes: mtu, mark: MARK, room, held, labels, counts };
    let (sender, receiver) = mpsc::channel(MISSES);
    let shed = Arc::<AtomicU64>::default();
    let sink = Arc::new({
        let shed = Arc::clone(&shed);
        move |event| {
            if let RelayEvent::Miss(packet) = event
                && sender.try_send(packet).is_err()
            {
                shed.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let misses = (receiver, shed);
    if choice != Choice::User {
        match Relay::new(&setup, sink.clone()) {
            Ok(relay) => {
                info!("datapath: eBPF");
                return Ok((relay, misses));
            }
            Err(error) if choice == Choice::Ebpf => {
                return Err(error).context("the eBPF datapath cannot be had here");
            }
            Err(error) => warn!("datapath: eBPF cannot be had ({error}), taking user space"),
        }
    }
    let relay = Relay::in_user_space(&setup, sink).context("the relay cannot be set up")?;
    info!("datapath: user space");
    Ok((relay, misses))
}

impl<M> Relayed<M> {
    /// Nothing is attached yet. `mtu` is the MTU of the relay's device in bytes.
    pub fn new(
        sockets: Sockets<M>,
        (relay, mtu): (Relay, u32),
        arrivals: Arrivals,
        (misses, shed): Misses,
    ) -> (Relayed<M>, Below) {
        let (waiting, attached) = (BTreeMap::new(), BTreeSet::new());
        let (fitted, routes) = (Fitted::new(mtu), VecDeque::new());
        let too_big = routers::listen_for_relay();
        let relayed = Relayed { sockets, relay, waiting, shed, attached, fitted, routes };
        (relayed, Below { arrivals, misses, too_big })
    }

    /// Adds a route that leads into the relay.
    pub fn leads(&mut self, route: Route) {
        self.fitted.lead(route);
    }

    /// Forwards the queued packets of a flow to the flow's binding.
    pub fn release(&mut self, key: &FlowKey) {
        if let Some(packet) = self.waiting.remove(key) {
            self.relay.inject(packet);
        }
    }

    /// Drops the queued packets of a flow.
    pub fn refuse(&mut self, key: &FlowKey) {
        if let Some(packet) = self.waiting.remove(key) {
            self.relay.refuse(&packet);
        }
    }

    /// The traffic of a binding so far.
    pub fn traffic_carried(&self, traffic: &Traffic) -> Carried {
        self.relay.traffic_carried(traffic)
    }

    /// Index of the relay's device.
    pub fn device(&self) -> u32 {
        self.relay.tun_ifindex()
    }

    /// Attaches to every interface that is up and `named` (or any, if none is named), except loopback, the relay's
    /// device, accesses of any gateway on this machine and `but`. Tunnel packets are accepted on these interfaces only.
    /// Returns them.
    pub fn attach<'a>(
        &mut self,
        all: &'a [Device],
        named: &[String],
        but: impl Fn(&Device) -> bool,
        trouble: &mut Trouble,
    ) -> Vec<&'a Device> {
        self.sockets.find_hosts();
        let own = self.device();
        let over = |device: &&Device| {
            device.up
                && !device.loopback
                && device.interface.index != own
                && (named.is_empty() || named.contains(&device.interface.name))
                && !but(device)
                && !self.sockets.has_hosts(device.interface.index)
        };
        let over: Vec<&Device> = all.iter().filter(over).collect();
        let now = monotonic();
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
        over
    }

    /// The traffic of a tunnel so far.
    pub fn tunnel_carried(&self, number: u32) -> Carried {
        self.relay.tunnel_carried(number)
    }

    /// The largest inner packet that a tunnel carries, in bytes, as far as is known.
    pub fn tunnel_size(&self, number: u32) -> Option<u32> {
        self.relay.tunnel_size(number)
    }
}

impl<M, I, O, N, P> Relayed<M>
where
    M: Machine<Input = Input<I, P>, Output = Output<O, N, P>> + OfFlows<Own = I>,
{
    /// Adapts routes to tunnels whose size has changed.
    fn follow_sizes(&mut self) {
        for (tunnel, bytes) in self.relay.resized() {
            self.routes.extend(self.fitted.resize(tunnel.number, bytes));
            self.report_size(tunnel.number, bytes);
            let Some(bytes) = bytes else { continue };
            let (peer, device) = (tunnel.remote, self.fitted.device());
            if !self.fitted.is_news(peer, bytes) {
                continue;
            }
            if bytes >= device {
                info!("tunnels to {peer} take packets of {device} bytes again");
            } else if bytes >= LEAST_IPV6 {
                warn!(
                    "tunnels to {peer} take packets of {bytes} bytes at most, less than the {device} of the device: a \
                     link on the way is narrower; senders are told"
                );
            } else {
                warn!(
                    "tunnels to {peer} take packets of {bytes} bytes at most, and IPv6 needs {LEAST_IPV6}: larger ones \
                     are lost; raise the MTU of the links on the way"
                );
            }
        }
    }

    fn report_size(&mut self, tunnel: u32, bytes: Option<u32>) {
        if let Some(input) = M::size(tunnel, bytes) {
            self.sockets.handle(Input::Own(input));
        }
    }
}

impl<M, I, O, N, P> Engine for Relayed<M>
where
    M: Machine<Input = Input<I, P>, Output = Output<O, N, P>> + OfFlows<Own = I>,
{
    type Own = I;
    type Wish = O;
    type News = N;
    type Record = P;
    type Event = Came;
    type Queue = Below;
    type Turn = ();

    fn deadline(&self) -> Option<Time> {
        self.sockets.deadline()
    }

    fn handle(&mut self, input: Input<I, P>) {
        self.sockets.handle(input);
    }

    fn on_event(&mut self, came: Came) {
        match came {
            Came::Datagram(datagram) => self.sockets.on_event(datagram),
            Came::Miss(packet) => match M::flow(packet.key, packet.dscp) {
                Some(input) => {
                    let key = packet.key;
                    self.waiting.insert(key, packet);
                    self.sockets.handle(Input::Own(input));
                }
                None => self.relay.refuse(&packet),
            },
            Came::TooBig(said) => {
                self.relay.on_too_big(&said);
                self.follow_sizes();
            }
        }
    }

    fn at_deadline(&mut self, queue: &mut Below) {
        self.sockets.at_deadline(&mut queue.arrivals);
    }

    fn refresh(&mut self) {}

    fn send(&mut self, datagram: Datagram) {
        self.sockets.send(datagram);
    }

    fn poll(&mut self, turn: &mut ()) -> Option<ToLoop<Self>> {
        match self.routes.pop_front() {
            Some((route, true)) => Some(Output::Forward(route)),
            Some((route, false)) => Some(Output::Withdraw(route)),
            None => self.sockets.poll(turn),
        }
    }

    fn carry(&mut self, part: &Forward, given: bool) -> anyhow::Result<()> {
        let done = if given { self.relay.put(part) } else { self.relay.take_back(part) };
        done.with_context(|| format!("the relay refuses {part:?}"))?;
        self.routes.extend(self.fitted.carry(part, given));
        self.follow_sizes();
        if let (Forward::Tunnel(tunnel), false) = (part, given) {
            self.report_size(tunnel.number, None);
        }
        Ok(())
    }

    fn finish(&mut self, turn: (), trouble: &mut Trouble) {
        self.sockets.finish(turn, trouble);
    }

    fn heartbeat(&mut self) -> anyhow::Result<()> {
        self.sockets.heartbeat()?;
        // Another gateway may have started to serve hosts there.
        self.attached.retain(|access| {
            let has_hosts = self.sockets.has_hosts(*access);
            if has_hosts {
                self.relay.detach(*access);
            }
            !has_hosts
        });
        self.relay.heartbeat();
        self.follow_sizes();
        Ok(self.relay.carries()?)
    }

    fn drops(&mut self) -> BTreeMap<String, u64> {
        let mut drops = self.sockets.drops();
        let relay = self.relay.drops();
        drops.extend(relay.into_iter().map(|(why, count)| (why.name().to_owned(), count)));
        let shed = self.shed.load(Ordering::Relaxed);
        if shed > 0 {
            *drops.entry(DropReason::QueueFull.name().to_owned()).or_default() += shed;
        }
        drops
    }
}

impl Queue for Below {
    type Event = Came;

    fn take(&mut self, context: &mut Context<'_>, mut into: impl FnMut(Came)) {
        self.arrivals.take(context, |datagram| into(Came::Datagram(datagram)));
        turns::take(&mut self.misses, MISSES_A_TURN, context, |packet| into(Came::Miss(packet)));
        turns::take(&mut self.too_big, TOO_BIG_A_TURN, context, |said| into(Came::TooBig(said)));
    }
}
