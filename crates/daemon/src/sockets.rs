//! A machine over sockets: the complete layer below it. UDP has one socket per port; ICMPv6 and the Mobility Header
//! have one each, directly above the IP stack; TCP has one connection per peer.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::Context;

use segue_clock::{Machine, Time};
use segue_ip::{Datagram, Input, Interface, Output, Prefix};
use segue_linux::admit;
use segue_linux::clock::monotonic;
use segue_linux::link::{self, Address};
use segue_linux::raw::{ICMPV6, RawSocket};
use segue_linux::udp::{Leave, TimestampedSocket};
use segue_pmip::FIXED_LINK_LOCAL;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tracing::debug;

use crate::engine::{Engine, Queue, ToLoop};
use crate::fair::{Dropped, Fair};
use crate::pmip::leading;
use crate::shield::Shield;
use crate::streams::{Allowed, Arrived, Length, Streams, TCP};
use crate::trouble::Trouble;

/// The protocol number of UDP.
const UDP: u8 = 17;
/// Most datagrams that the machine takes in a turn.
const A_TURN: usize = 64;
/// Most datagrams taken out of a socket in a turn, so that none waits in the kernel behind a flood.
const DRAINED: usize = 1_024;
/// Size of a socket's queue in the kernel: must hold what arrives during a turn.
const ROOM_BYTES: i32 = 4 << 20;
/// The longest datagram.
const LONGEST: usize = 65_535;

/// A machine over its sockets. A datagram leaves from the socket of its source port, or of its protocol.
pub struct Sockets<M> {
    /// The machine.
    pub machine: M,
    /// By bound address and port.
    sockets: BTreeMap<SocketAddr, Shared>,
    /// By protocol number.
    raw: BTreeMap<u8, Raw>,
    streams: Option<Streams>,
    /// Interfaces where hosts of gateways attach, if their datagrams are ignored.
    hosts: Option<Hosts>,
    /// Datagrams of hosts that were ignored.
    from_hosts: u64,
    /// Datagrams that could not be sent.
    unsent: u64,
    /// Datagrams dropped because their senders exceeded their share.
    dropped: Rc<Drops>,
    last_error: Option<anyhow::Error>,
}

type Shared = Rc<RefCell<TimestampedSocket>>;

/// Interfaces where hosts of gateways on this machine attach.
#[derive(Default)]
struct Hosts {
    at: BTreeSet<u32>,
    /// Interfaces that existed at the last search for accesses; for others, `at` is not yet known.
    looked: BTreeSet<u32>,
}

/// Dropped datagrams of peers and of strangers.
#[derive(Default)]
struct Drops {
    of_peers: Cell<u64>,
    of_strangers: Cell<u64>,
}

/// A protocol directly above IPv6.
struct Raw {
    socket: Rc<RefCell<RawSocket>>,
    /// Multicast groups to join on every interface.
    groups: Vec<Ipv6Addr>,
}

/// The queue of datagrams: in the sockets, and in the turns of their senders.
pub struct Arrivals {
    sockets: Vec<(Source, Readiness)>,
    streams: Option<Arrived>,
    buffer: Vec<u8>,
    fair: Fair,
    shield: Option<Shield>,
    dropped: Rc<Drops>,
}

/// A socket that receives datagrams.
enum Source {
    /// UDP, with its port.
    Udp(u16, Shared),
    Raw(Rc<RefCell<RawSocket>>),
}

impl Source {
    /// Returns whether hosts on the link send to this socket, and not peers.
    fn is_on_link(&self) -> bool {
        matches!(self, Source::Raw(socket) if socket.borrow().protocol() == ICMPV6)
    }
}

/// The runtime's view of a socket of any kind; reports when it is readable.
pub struct Readiness(UdpSocket);

impl Readiness {
    /// For a socket that never blocks.
    pub fn of(socket: &impl AsFd) -> io::Result<Readiness> {
        let own = std::net::UdpSocket::from(socket.as_fd().try_clone_to_owned()?);
        UdpSocket::from_std(own).map(Readiness)
    }

    /// Waits until something can be read.
    pub async fn ready(&self) {
        // Returns early if the socket has failed; the next read reports it.
        let _ = self.0.readable().await;
    }

    /// Reads something; if nothing is there, [`Readiness::ready`] waits again.
    pub fn take<T>(&self, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.0.try_io(Interest::READABLE, take)
    }
}

impl<M> Sockets<M> {
    /// Opens a socket of both families on each port. The system chooses ports that are only names
    /// ([`segue_node::is_chosen`]); the machine goes on to call them by these names.
    pub fn open(machine: M, ports: &[u16]) -> anyhow::Result<(Sockets<M>, Arrivals)> {
        let (sockets, raw) = (BTreeMap::new(), BTreeMap::new());
        let dropped = Rc::<Drops>::default();
        let mut end = Sockets {
            machine,
            sockets,
            raw,
            streams: None,
            hosts: None,
            from_hosts: 0,
            unsent: 0,
            dropped: Rc::clone(&dropped),
            last_error: None,
        };
        let mut arrivals = Arrivals {
            sockets: Vec::new(),
            streams: None,
            buffer: vec![0; LONGEST],
            fair: Fair::default(),
            shield: None,
            dropped,
        };
        for port in ports {
            end.bind(&mut arrivals, any(*port))?;
        }
        Ok((end, arrivals))
    }

    /// Opens a socket on a port of one address, on which no other socket may be bound.
    pub fn bind(&mut self, arrivals: &mut Arrivals, at: SocketAddr) -> anyhow::Result<()> {
        let port = if segue_node::is_chosen(at.port()) { 0 } else { at.port() };
        let mut socket = TimestampedSocket::bind(SocketAddr::new(at.ip(), port), None)?;
        socket.receive_stamps_only();
        socket.receive_ttl()?;
        let readiness = Readiness::of(&socket)?;
        admit::room(&readiness.0, ROOM_BYTES);
        let socket = Rc::new(RefCell::new(socket));
        arrivals.sockets.push((Source::Udp(at.port(), Rc::clone(&socket)), readiness));
        self.sockets.insert(at, socket);
        Ok(())
    }

    /// Lets the machine use TCP too, with messages delimited by `length`; listens on a port for the peers that are
    /// `allowed` to connect.
    pub fn stream(
        &mut self,
        arrivals: &mut Arrivals,
        listen: Option<u16>,
        length: Length,
        allowed: Allowed,
    ) -> io::Result<()> {
        let (streams, arrived) = Streams::open(listen, length, allowed)?;
        (self.streams, arrivals.streams) = (Some(streams), Some(arrived));
        Ok(())
    }

    /// Lets the machine use this protocol too, with one socket per protocol, and joins these groups on every interface
    /// that the machine is given.
    pub fn speak(
        &mut self,
        arrivals: &mut Arrivals,
        socket: RawSocket,
        groups: &[Ipv6Addr],
    ) -> io::Result<()> {
        let (protocol, readiness) = (socket.protocol(), Readiness::of(&socket)?);
        admit::room(&readiness.0, ROOM_BYTES);
        let socket = Rc::new(RefCell::new(socket));
        arrivals.sockets.push((Source::Raw(Rc::clone(&socket)), readiness));
        self.raw.insert(protocol, Raw { socket, groups: groups.to_vec() });
        Ok(())
    }

    /// Drops datagrams of hosts of any gateway on this machine, except ICMPv6. Anchors, gateways and IEEE 802.21
    /// functions identify each other by address alone, and a host can forge addresses on its own link.
    pub fn ignore_hosts(&mut self) {
        self.hosts = Some(Hosts::default());
        self.find_hosts();
    }

    /// Finds the interfaces where hosts attach. An access of any gateway on this machine has the link-local address
    /// that all gateways share. Accesses of Segue's gateways are also found by their rules, which exist before the
    /// address, or even before the interface.
    pub(crate) fn find_hosts(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        match link::addresses().and_then(|addresses| Ok((addresses, leading::all_accesses()?))) {
            Ok((addresses, named)) => {
                let of_gateway = |address: &&Address| address.prefix.addr == FIXED_LINK_LOCAL;
                let fixed = addresses.iter().filter(of_gateway).map(|address| address.index);
                let named = named.iter().filter_map(|name| link::index_of(name).ok());
                hosts.at = fixed.chain(named).collect();
                hosts.looked = addresses.iter().map(|address| address.index).collect();
            }
            Err(error) => self.last_error = Some(error.into()),
        }
    }

    /// Returns whether hosts of a gateway on this machine attach to an interface, and are ignored.
    #[must_use]
    pub fn has_hosts(&self, interface: u32) -> bool {
        self.hosts.as_ref().is_some_and(|hosts| hosts.at.contains(&interface))
    }

    /// Returns whether a host of a gateway on this machine sent it. Hosts and gateways exchange discovery messages
    /// only.
    fn is_from_host(&mut self, datagram: &Datagram) -> bool {
        let Some(at) = datagram.interface.filter(|_| datagram.protocol != ICMPV6) else {
            return false;
        };
        // The interface may be a new access.
        if self.hosts.as_ref().is_some_and(|hosts| !hosts.looked.contains(&at)) {
            self.find_hosts();
            self.hosts.as_mut().map(|hosts| hosts.looked.insert(at));
        }
        self.has_hosts(at)
    }

    /// The socket of this protocol, to join further groups or to send with extension headers.
    #[must_use]
    pub fn raw(&self, protocol: u8) -> Option<&RefCell<RawSocket>> {
        self.raw.get(&protocol).map(|raw| &*raw.socket)
    }

    /// Joins the groups on these interfaces.
    fn listen(&mut self, interfaces: &[Interface]) {
        let present: BTreeSet<u32> = interfaces.iter().map(|interface| interface.index).collect();
        for Raw { socket, groups } in self.raw.values() {
            let mut socket = socket.borrow_mut();
            socket.keep(&present);
            for (interface, group) in present.iter().flat_map(|i| groups.iter().map(|g| (*i, *g))) {
                if let Err(error) = socket.join(group, interface) {
                    self.last_error = Some(error.into());
                }
            }
        }
    }

    fn try_send(&self, datagram: &Datagram) -> anyhow::Result<()> {
        let Datagram { interface, from, to, hop_limit, .. } = *datagram;
        if let Some(raw) = self.raw.get(&datagram.protocol) {
            return Ok(raw.socket.borrow().send(datagram)?);
        }
        if let Some(streams) = self.streams.as_ref().filter(|_| datagram.protocol == TCP) {
            return Ok(streams.send(datagram)?);
        }
        let own = self.sockets.get(&from.into()).or_else(|| self.sockets.get(&any(from.1)));
        let socket = own.filter(|_| datagram.protocol == UDP);
        let Some(socket) = socket else {
            anyhow::bail!(
                "there is no socket for protocol {} from port {}",
                datagram.protocol,
                from.1
            )
        };
        let from = Some(from.0).filter(|from| !from.is_unspecified());
        let how = Leave { from, interface, class: None, hop_limit: Some(hop_limit) };
        socket.borrow_mut().send(&datagram.bytes, SocketAddr::new(to.0, to.1), how)?;
        Ok(())
    }
}

impl<M, I, O, N, P> Engine for Sockets<M>
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
        self.machine.deadline().map(|(at, _)| at)
    }

    fn handle(&mut self, input: Input<I, P>) {
        if let Input::Interfaces(all) = &input {
            self.listen(all);
            self.find_hosts();
        }
        self.machine.handle(monotonic(), input);
    }

    fn on_event(&mut self, datagram: Datagram) {
        if self.is_from_host(&datagram) {
            self.from_hosts += 1;
            return;
        }
        self.machine.handle(monotonic(), Input::Datagram(datagram));
    }

    fn at_deadline(&mut self, _: &mut Arrivals) {
        self.machine.tick(monotonic());
    }

    fn refresh(&mut self) {}

    fn send(&mut self, datagram: Datagram) {
        if let Err(error) = self.try_send(&datagram) {
            self.unsent += 1;
            let to = SocketAddr::new(datagram.to.0, datagram.to.1);
            self.last_error = Some(error.context(format!("cannot send to {to}")));
        }
    }

    fn poll(&mut self, (): &mut ()) -> Option<ToLoop<Self>> {
        self.machine.poll()
    }

    fn finish(&mut self, (): (), trouble: &mut Trouble) {
        if let Some(error) = self.last_error.take() {
            trouble.tell(monotonic(), &error);
        }
    }

    fn heartbeat(&mut self) -> anyhow::Result<()> {
        self.find_hosts();
        Ok(())
    }

    fn drops(&mut self) -> BTreeMap<String, u64> {
        let all = [
            ("unsent", self.unsent),
            ("from_host", self.from_hosts),
            ("peer_share", self.dropped.of_peers.get()),
            ("strangers_share", self.dropped.of_strangers.get()),
        ];
        let some = all.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(reason, count)| (reason.to_owned(), count)).collect()
    }
}

impl Arrivals {
    /// Sets the addresses of peers. All other senders share the quota of one peer, and while they send too much, the
    /// kernel drops their datagrams.
    pub fn know(&mut self, known: Vec<Prefix>) {
        self.shield = Some(Shield::new(known.clone()));
        self.fair.know(known);
    }

    /// Reads datagrams from the sockets, and queues them for their senders' turns. Returns whether more may be waiting.
    fn drain(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_more = false;
        let Arrivals { sockets, buffer, fair, shield, dropped, .. } = self;
        for (source, readiness) in sockets.iter() {
            let mut left = DRAINED;
            while left > 0 && readiness.0.poll_recv_ready(context).is_ready() {
                left -= 1;
                let take = || match source {
                    Source::Udp(port, socket) => receive(&socket.borrow(), *port, buffer),
                    Source::Raw(socket) => {
                        socket.borrow().receive(buffer)?.ok_or(ErrorKind::WouldBlock.into())
                    }
                };
                match readiness.take(take) {
                    Ok(datagram) => {
                        let now = monotonic();
                        let arrived = Time(now.0.saturating_sub(datagram.waited_ns));
                        let is_shielded = !source.is_on_link();
                        if let Some(shield) = shield.as_mut().filter(|_| is_shielded) {
                            shield.count(now, &datagram);
                        }
                        let count = match fair.push(arrived, datagram) {
                            Ok(()) => continue,
                            Err(Dropped::OfPeer) => &dropped.of_peers,
                            Err(Dropped::OfStranger) => &dropped.of_strangers,
                        };
                        count.set(count.get() + 1);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => match source {
                        Source::Udp(port, _) => debug!("nothing received on port {port}: {error}"),
                        Source::Raw(_) => debug!("nothing received: {error}"),
                    },
                }
            }
            is_more |= left == 0;
        }
        if let Some(shield) = shield {
            let shielded = sockets.iter().filter(|(source, _)| !source.is_on_link());
            shield.look(monotonic(), shielded.map(|(_, readiness)| &readiness.0));
        }
        is_more
    }
}

impl Queue for Arrivals {
    type Event = Datagram;

    fn take(&mut self, context: &mut Context<'_>, mut into: impl FnMut(Datagram)) {
        if let Some(streams) = &mut self.streams {
            streams.take(context, &mut into);
        }
        let is_more = self.drain(context);
        let now = monotonic();
        for _ in 0..A_TURN {
            let Some(datagram) = self.fair.pop(now) else { break };
            into(datagram);
        }
        if is_more || !self.fair.is_empty() {
            context.waker().wake_by_ref();
        }
    }
}

/// A port on all addresses.
fn any(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)
}

fn receive(socket: &TimestampedSocket, port: u16, buffer: &mut [u8]) -> io::Result<Datagram> {
    let came = socket.recv(buffer)?.ok_or(ErrorKind::WouldBlock)?;
    Ok(Datagram {
        waited_ns: came.seen.since(came.at).0,
        interface: came.interface,
        from: (came.source.ip(), came.source.port()),
        to: (came.local.unwrap_or(any(0).ip()), port),
        protocol: UDP,
        hop_limit: came.ttl.unwrap_or(0),
        bytes: buffer.get(..came.len).unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::net::IpAddr;
    use std::task::Poll;
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};
    use segue_ip::Prefix;
    use segue_linux::raw::MOBILITY;

    use super::*;
    use crate::kept::Kept;

    const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd61, 0x79, 0, 0, 0, 0, 0, 1);
    const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

    /// Sends the datagrams it is given, and keeps received ones.
    #[derive(Default)]
    struct Echo {
        came: Vec<Datagram>,
        outputs: VecDeque<Output<(), (), ()>>,
    }

    impl Machine for Echo {
        type Input = Input<Datagram, ()>;
        type Output = Output<(), (), ()>;

        fn handle(&mut self, _: Time, input: Self::Input) {
            match input {
                Input::Own(datagram) => self.outputs.push_back(Output::Send(datagram, None)),
                Input::Datagram(datagram) => {
                    self.came.push(Datagram { waited_ns: 0, ..datagram });
                }
                _ => {}
            }
        }

        fn tick(&mut self, _: Time) {}

        fn poll(&mut self) -> Option<Self::Output> {
            self.outputs.pop_front()
        }

        fn deadline(&self) -> segue_clock::Deadline {
            None
        }
    }

    fn joined(group: &str) -> bool {
        let groups = std::fs::read_to_string("/proc/thread-self/net/igmp6").unwrap();
        groups.lines().any(|line| line.contains("sgs0") && line.contains(group))
    }

    async fn scenario() {
        let (mut end, mut arrivals) = Sockets::open(Echo::default(), &[5009]).unwrap();
        let socket = RawSocket::mobility().unwrap();
        end.speak(&mut arrivals, socket, &[ALL_ROUTERS]).unwrap();
        let name = "sgs0".to_owned();
        let index = link::index_of(&name).unwrap();
        let all_routers = "ff020000000000000000000000000002";
        assert!(!joined(all_routers));
        end.handle(Input::Interfaces(vec![Interface { name, index, ..Interface::default() }]));
        assert!(joined(all_routers));
        end.handle(Input::Interfaces(Vec::new()));
        assert!(!joined(all_routers));

        let address = IpAddr::from(ADDRESS);
        let bytes = vec![59, 0, 1, 0, 0xbe, 0xef, 0, 0];
        let header = Datagram {
            waited_ns: 0,
            interface: Some(1),
            from: (address, 0),
            to: (address, 0),
            protocol: MOBILITY,
            hop_limit: 9,
            bytes,
        };
        let port = (address, 5009);
        let udp = Datagram { from: port, to: port, protocol: UDP, ..header.clone() };
        // The kernel delivers to a new address a moment after it was set.
        for _ in 0..400 {
            for datagram in [&header, &udp] {
                end.handle(Input::Own(datagram.clone()));
                while let Some(Output::Send(datagram, _)) = end.poll(&mut ()) {
                    end.send(datagram);
                }
            }
            let both = poll_fn(|context| {
                arrivals.take(context, |datagram| end.on_event(datagram));
                if end.machine.came.len() >= 2 { Poll::Ready(()) } else { Poll::Pending }
            });
            if tokio::time::timeout(Duration::from_millis(50), both).await.is_ok() {
                break;
            }
        }
        assert_eq!(end.drops(), BTreeMap::new(), "{:?}", end.last_error);
        end.machine.came.sort_by_key(|datagram| datagram.protocol);
        end.machine.came.dedup();
        assert_eq!(end.machine.came, [udp, header.clone()]);
        // No socket exists for this protocol.
        end.send(Datagram { protocol: 58, ..header });
        assert_eq!(end.drops(), [("unsent".to_owned(), 1)].into());
    }

    /// Messages that forge a peer's address, from accesses of any gateway.
    fn forged_by_a_host() {
        let access = link::index_of("sgs0").unwrap();
        let forged = |interface, protocol| Datagram {
            interface: Some(interface),
            from: (ADDRESS.into(), 0),
            to: (ADDRESS.into(), 0),
            protocol,
            hop_limit: 64,
            waited_ns: 0,
            bytes: vec![1],
        };
        let (mut end, _arrivals) = Sockets::open(Echo::default(), &[0]).unwrap();
        end.ignore_hosts();
        end.on_event(forged(access, MOBILITY));
        assert_eq!(end.machine.came.len(), 1, "it is no access yet");
        link::add_address("sgs0", Prefix { addr: FIXED_LINK_LOCAL.into(), len: 64 }).unwrap();
        end.heartbeat().unwrap();
        end.machine.came.clear();
        for protocol in [MOBILITY, UDP] {
            end.on_event(forged(access, protocol));
        }
        assert_eq!(end.machine.came, []);
        assert_eq!(end.drops(), [("from_host".to_owned(), 2)].into());
        // A later access is noticed at once.
        link::create_veth("sgs2", "sgs3", None).unwrap();
        link::set_up("sgs2", true).unwrap();
        link::add_address("sgs2", Prefix { addr: FIXED_LINK_LOCAL.into(), len: 64 }).unwrap();
        end.on_event(forged(link::index_of("sgs2").unwrap(), MOBILITY));
        assert_eq!(end.drops(), [("from_host".to_owned(), 3)].into());
        // So is an access that a gateway's rule names, before it has a gateway's address.
        link::create_veth("sgs4", "sgs5", None).unwrap();
        let mut kept = Kept::default();
        leading::lead(["sgs4"].into_iter(), ("segue0", 1), &mut kept).unwrap();
        end.on_event(forged(link::index_of("sgs4").unwrap(), MOBILITY));
        assert_eq!(end.drops(), [("from_host".to_owned(), 4)].into());
        // Discovery, and datagrams on another interface, pass.
        end.on_event(forged(access, ICMPV6));
        end.on_event(forged(1, MOBILITY));
        assert_eq!(end.machine.came.len(), 2);
    }

    /// With `lo` and `sgs0` up.
    fn in_a_namespace(test: impl AsyncFnOnce() + Send + 'static) {
        // The namespace lives and dies with this thread.
        let thread = std::thread::spawn(move || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                println!("skipped: a new network namespace needs root");
                return;
            }
            link::set_up("lo", true).unwrap();
            link::create_veth("sgs0", "sgs1", None).unwrap();
            link::set_up("sgs0", true).unwrap();
            link::add_address("lo", Prefix { addr: ADDRESS.into(), len: 128 }).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(test());
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_machine_speaks_over_udp_and_right_above_ipv6() {
        in_a_namespace(scenario);
    }

    #[test]
    fn what_hosts_of_a_gateway_send_in_a_peers_name_is_dropped_and_counted() {
        in_a_namespace(async || forged_by_a_host());
    }
}
