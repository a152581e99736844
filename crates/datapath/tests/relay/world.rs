//! A mobile host behind an access router, an anchor router, and a correspondent, in separate namespaces. The routers
//! have a tunnel between them for the traffic from and to the host.

use std::net::{IpAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::sockopt::BindToDevice;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn6, sendto, setsockopt,
};
use segue_datapath::relay::{Counts, Relay, RelayEvent, RelayRoom, RelaySetup};
use segue_ip::{
    Binding, Exit, Form, Forward, Forwarding, Port, Prefix, Route, Rule, Source, Traffic, Tunnel,
};
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_linux::route::{add_route, add_rule};
use segue_wire::DropReason;

use crate::local::is_local;
pub(crate) use crate::stage::{Wire, eventually, may_run};

pub(crate) const TUNNEL: u32 = 7;
/// MTU of the relay's device: the MTU of the wires less IPv6, and GRE with a key or UDP.
const MTU: u32 = 1_500 - 40 - 8;
const UPLINK: u32 = 100;

/// What carries the relays' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Programs in the kernel.
    Kernel,
    /// User space.
    User,
}

/// Turns functions that take a datapath into tests for each datapath.
macro_rules! over_both {
    ($($name:ident)*) => {
        mod kernel {
            $(#[test] fn $name() { super::$name(crate::world::Path::Kernel); })*
        }
        mod user {
            $(#[test] fn $name() { super::$name(crate::world::Path::User); })*
        }
    };
}

pub(crate) use over_both;

/// A router: its relay, and the events that the relay reported.
pub(crate) struct Router {
    pub(crate) ns: Netns,
    pub(crate) relay: Arc<Mutex<Relay>>,
    pub(crate) events: Arc<Mutex<Vec<RelayEvent>>>,
    stop: Arc<AtomicBool>,
    heart: Option<JoinHandle<()>>,
}

pub(crate) struct World {
    pub(crate) host: Netns,
    pub(crate) access: Router,
    pub(crate) anchor: Router,
    pub(crate) correspondent: Netns,
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// The host's prefixes.
pub(crate) const HOME: [&str; 2] = ["fd0c::/64", "10.70.0.0/24"];
/// The host's addresses.
pub(crate) const HOST: [&str; 2] = ["fd0c::2", "10.70.0.2"];
pub(crate) const CORRESPONDENT: [&str; 2] = ["fd0d::2", "10.60.0.2"];
pub(crate) const ANCHOR_OUTER: [&str; 2] = ["fd00::1", "10.9.0.1"];
pub(crate) const ACCESS_OUTER: [&str; 2] = ["fd00::2", "10.9.0.2"];

pub(crate) fn wire_up(device: &str, addresses: [&str; 2], wire: Wire) {
    for (address, len) in addresses.iter().zip([64, 24]) {
        link::add_address(device, Prefix::new(ip(address), len)).unwrap();
    }
    wire.set_up(device);
}

pub(crate) fn namespace(name: &str) -> Netns {
    let ns = Netns::create(name).unwrap();
    ns.run(|| {
        for which in ["all", "default"] {
            link::sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0").unwrap();
            link::sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0").unwrap();
            link::sysctl(&format!("net.ipv6.conf.{which}.forwarding"), "1").unwrap();
        }
        link::sysctl("net.ipv4.ip_forward", "1").unwrap();
        link::set_up("lo", true).unwrap();
    })
    .unwrap();
    ns
}

pub(crate) fn pair(device: &str, from: &Netns, to: &Netns) {
    from.run(|| link::create_veth(device, device, Some(to))).unwrap().unwrap();
}

impl World {
    /// `core` is the wire between the routers, `access` the one between access router and host; the tunnel has this
    /// form.
    pub(crate) fn new(path: Path, core: Wire, access: Wire, form: Form, outer_v6: bool) -> World {
        World::over(path, [core, access], (form, outer_v6), false)
    }

    /// Like [`World::new`]; `labels` also distinguishes flows by their flow labels.
    pub(crate) fn over(
        path: Path,
        [core, access]: [Wire; 2],
        (form, outer_v6): (Form, bool),
        labels: bool,
    ) -> World {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = |node| format!("segue-r{}-{serial}{node}", std::process::id());
        let [host, mag, lma, correspondent] = ['h', 'm', 'l', 'c'].map(|n| namespace(&name(n)));
        pair("sga", &host, &mag);
        pair("sg0", &mag, &lma);
        pair("sgc", &lma, &correspondent);
        host.run(|| {
            wire_up("sga", HOST, access);
            defaults(&["fd0c::1", "10.70.0.1"]);
        })
        .unwrap();
        correspondent
            .run(|| {
                wire_up("sgc", CORRESPONDENT, Wire::Whole);
                defaults(&["fd0d::1", "10.60.0.1"]);
            })
            .unwrap();
        mag.run(|| {
            wire_up("sga", ["fd0c::1", "10.70.0.1"], access);
            wire_up("sg0", ACCESS_OUTER, core);
        })
        .unwrap();
        lma.run(|| {
            wire_up("sg0", ANCHOR_OUTER, core);
            wire_up("sgc", ["fd0d::1", "10.60.0.1"], Wire::Whole);
        })
        .unwrap();
        let [access, anchor] = [mag, lma].map(|ns| Router::with(path, ns, labels));
        let world = World { host, access, anchor, correspondent };
        world.set_tunnel(form, outer_v6);
        world.route_uplinks();
        world.serve("sga", HOME.map(prefix));
        world
    }

    /// Gives the tunnel this form at both ends.
    pub(crate) fn set_tunnel(&self, form: Form, outer_v6: bool) {
        let family = usize::from(!outer_v6);
        let (anchor, access) = (ip(ANCHOR_OUTER[family]), ip(ACCESS_OUTER[family]));
        let number = TUNNEL;
        let there = Tunnel { number, local: anchor, remote: access, interface: None, form };
        let here = Tunnel { local: access, remote: anchor, form: turned(form), ..there };
        self.anchor.put(Forward::Tunnel(there));
        self.access.put(Forward::Tunnel(here));
    }

    /// Routes packets from links to the access router's relay, through a table that rules select.
    fn route_uplinks(&self) {
        let relay = self.access.relay.lock().unwrap().tun_ifindex();
        self.access
            .ns
            .run(|| {
                for v6 in [true, false] {
                    // Packets to the access router itself stay there.
                    let local = Rule { v6, priority: 4_000, table: 255, ..Rule::default() };
                    add_rule(&local).unwrap();
                    let everything = Prefix::default_of(v6);
                    add_route(&Route::on(everything, relay).table(UPLINK)).unwrap();
                }
            })
            .unwrap();
    }

    /// Binds the traffic of a host behind a link to the tunnel and routes it to the relays.
    pub(crate) fn serve(&self, link: &str, homes: [Prefix; 2]) {
        let access_link = self.access.index(link);
        for home in homes {
            let into = |traffic| Forward::Bind(Binding { traffic, exit: Exit::Tunnel(TUNNEL) });
            let from = |port, prefix| Forward::Source(Source { port, prefix });
            self.access.put(into(Traffic::From(home)));
            self.access.put(from(Port::Link(access_link), home));
            let everything = Prefix::default_of(home.addr.is_ipv6());
            self.access.put(from(Port::Tunnel(TUNNEL), everything));
            self.anchor.put(into(Traffic::To(home)));
            self.anchor.put(from(Port::Tunnel(TUNNEL), home));
            let relay = self.anchor.relay.lock().unwrap().tun_ifindex();
            self.anchor.put(Forward::Route(Route::on(home, relay)));
            let v6 = home.addr.is_ipv6();
            let uplink = Rule {
                v6,
                priority: 5_000,
                table: UPLINK,
                iif: Some(link.into()),
                ..Rule::default()
            };
            self.access.ns.run(|| add_rule(&uplink)).unwrap().unwrap();
        }
    }
}

/// Waits until packets to an address in the calling thread's namespace are accepted.
pub(crate) fn takes_in(address: &str) {
    eventually("an address", || is_local(ip(address)));
}

/// The same form from the other end's point of view.
fn turned(form: Form) -> Form {
    match form {
        Form::Gre { send, receive } => Form::Gre { send: receive, receive: send },
        Form::Udp { local, remote } => Form::Udp { local: remote, remote: local },
        other => other,
    }
}

pub(crate) fn defaults(gateways: &[&str]) {
    for gateway in gateways {
        let gateway = ip(gateway);
        add_route(&Route::via(Prefix::default_of(gateway.is_ipv6()), gateway)).unwrap();
    }
}

impl Router {
    pub(crate) fn start(path: Path, ns: Netns) -> Router {
        Router::with(path, ns, false)
    }

    fn with(path: Path, ns: Netns, labels: bool) -> Router {
        let events = Arc::<Mutex<Vec<RelayEvent>>>::default();
        let sink = Arc::new({
            let events = Arc::clone(&events);
            move |event| events.lock().unwrap().push(event)
        });
        let setup = RelaySetup {
            device: "segue0".into(),
            mtu_bytes: MTU,
            mark: 0x5e6,
            room: RelayRoom::default(),
            held: vec![5_437],
            labels,
            counts: Counts::Nothing,
        };
        let start = match path {
            Path::Kernel => Relay::new,
            Path::User => Relay::in_user_space,
        };
        let relay = ns.run(|| start(&setup, sink)).unwrap().unwrap();
        let relay = Arc::new(Mutex::new(relay));
        let index = ns.run(|| link::index_of("sg0")).unwrap().unwrap();
        ns.run(|| relay.lock().unwrap().attach(index)).unwrap().unwrap();
        let stop = Arc::<AtomicBool>::default();
        let heart = std::thread::spawn({
            let (relay, stop) = (Arc::clone(&relay), Arc::clone(&stop));
            let ns = Netns::open(ns.name().unwrap()).unwrap();
            move || {
                ns.run(|| {
                    while !stop.load(Ordering::Relaxed) {
                        relay.lock().unwrap().heartbeat();
                        std::thread::sleep(Duration::from_millis(100));
                    }
                })
                .unwrap();
            }
        });
        Router { ns, relay, events, stop, heart: Some(heart) }
    }

    /// The tunnel over IPv6 without further headers.
    pub(crate) fn tunnel(&self, number: u32) -> Tunnel {
        let [local, remote] = match self.ns.name().unwrap().ends_with('l') {
            true => [ANCHOR_OUTER[0], ACCESS_OUTER[0]],
            false => [ACCESS_OUTER[0], ANCHOR_OUTER[0]],
        };
        Tunnel { number, local: ip(local), remote: ip(remote), interface: None, form: Form::Ip }
    }

    pub(crate) fn put(&self, part: Forward) {
        self.ns.run(|| self.relay.lock().unwrap().put(&part)).unwrap().unwrap();
    }

    pub(crate) fn take_back(&self, part: Forward) {
        self.ns.run(|| self.relay.lock().unwrap().take_back(&part)).unwrap().unwrap();
    }

    pub(crate) fn bind(&self, traffic: Traffic, exit: Exit) {
        self.put(Forward::Bind(Binding { traffic, exit }));
    }

    pub(crate) fn index(&self, device: &str) -> u32 {
        self.ns.run(|| link::index_of(device)).unwrap().unwrap()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.relay.lock().unwrap().drops().get(&reason).copied().unwrap_or(0)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(heart) = self.heart.take() {
            let _ = heart.join();
        }
    }
}

/// Sends a packet unchanged over IPv6, on the wire between the routers.
pub(crate) fn send_raw(node: &Router, to: &str, packet: &[u8]) {
    node.ns
        .run(|| {
            let (family, kind) = (AddressFamily::Inet6, SockType::Raw);
            let flags = SockFlag::SOCK_CLOEXEC;
            let protocol = libc::IPPROTO_RAW;
            // SAFETY: socket takes its arguments by value; the descriptor is owned from here on.
            let socket = unsafe {
                let fd = libc::socket(family as i32, kind as i32 | flags.bits(), protocol);
                assert!(fd >= 0, "{}", std::io::Error::last_os_error());
                OwnedFd::from_raw_fd(fd)
            };
            // Routes to the other node may lead to the relay.
            setsockopt(&socket, BindToDevice, &"sg0".into()).unwrap();
            let to = SockaddrIn6::from(SocketAddrV6::new(to.parse().unwrap(), 0, 0, 0));
            sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty()).unwrap();
        })
        .unwrap();
}
