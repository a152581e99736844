//! Paths that carry less than 1500 bytes, in all combinations of cause, place and time. `make test` runs a subset in
//! which each pair of values of two columns occurs; `make soak` runs all.
//!
//! In each cell TCP flows in both directions over each family and stalls for less than three seconds. Datagrams that
//! are too large pass with DF (the sender is notified) and without. Connections that start later work even if the
//! server receives no ICMP.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::mtu::{STUCK, behind_the_host, deafen, narrow_ways, route_mtu, stands_still};
use crate::pmip::{FIRST, cn as far_of_domain};
use crate::pmip_sizes::{self, ip};
use crate::traffic::{Stream, UdpEcho, any, correspondents};
use crate::world::{World, inner};

/// Bytes that must be echoed before a flow counts as continuing.
const SOME: u64 = 200_000;
/// A datagram that exceeds every narrow path.
const LARGE: usize = 1_440;

/// The number of the value chosen in each column, in the order of the columns.
type Cell<const N: usize> = [usize; N];

/// Every cell.
fn all<const N: usize>(columns: [usize; N]) -> Vec<Cell<N>> {
    let cells = columns.iter().product();
    let cell = |mut number: usize| {
        columns.map(|values| {
            let value = number % values;
            number /= values;
            value
        })
    };
    (0..cells).map(cell).collect()
}

/// A set of cells in which each value of a column meets each value of every other column. Greedy: always adds the cell
/// with the most new pairs.
fn pairwise<const N: usize>(columns: [usize; N]) -> Vec<Cell<N>> {
    let pairs = |cell: &Cell<N>| {
        let cell = *cell;
        let of = move |a: usize| (a + 1..N).map(move |b| (a, cell[a], b, cell[b]));
        (0..N).flat_map(of).collect::<std::collections::BTreeSet<_>>()
    };
    let cells = all(columns);
    let mut left: std::collections::BTreeSet<_> = cells.iter().flat_map(pairs).collect();
    let mut chosen = Vec::new();
    while !left.is_empty() {
        let new = |cell: &&Cell<N>| pairs(cell).intersection(&left).count();
        // Among equals `max_by_key` returns the last, whose values differ most from the first one's.
        let best = *cells.iter().max_by_key(new).unwrap();
        left = left.difference(&pairs(&best)).copied().collect();
        chosen.push(best);
    }
    chosen
}

#[test]
fn every_two_values_meet_in_the_cover() {
    let columns = [2, 3, 2, 2];
    let cover = pairwise(columns);
    assert!(cover.len() < all(columns).len() / 2, "{cover:?}");
    for (a, b) in [(0, 1), (1, 2), (2, 3), (0, 3)] {
        for (of_a, of_b) in (0..columns[a]).flat_map(|x| (0..columns[b]).map(move |y| (x, y))) {
            assert!(cover.iter().any(|cell| (cell[a], cell[b]) == (of_a, of_b)), "{cover:?}");
        }
    }
}

const DATAPATHS: [&str; 2] = ["ebpf", "user"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Start,
    MidFlow,
    Handover,
}

const WHEN: [When; 3] = [When::Start, When::MidFlow, When::Handover];

/// Sends a large datagram repeatedly until it comes back.
fn passes(socket: &UdpSocket, to: SocketAddr, what: &str) {
    let begin = Instant::now();
    let mut buffer = [0; 2_048];
    let came = |socket: &UdpSocket| {
        // The kernel refuses the datagram until the sender fragments it.
        let _ = socket.send_to(&[7; LARGE], to);
        socket.recv(&mut buffer).is_ok_and(|len| len == LARGE)
    };
    if !std::iter::repeat_with(|| socket).map(came).take(30).any(|came| came) {
        panic!("{what}: no datagram comes back");
    }
    assert!(begin.elapsed() < STUCK, "{what}: a datagram comes back after {:?}", begin.elapsed());
}

/// Waits until the kernel's path MTU from a node to an address is at most `bytes`. It may be smaller, if the kernel was
/// notified while the size was being searched.
fn is_told(node: &Netns, to: IpAddr, bytes: u32, what: &str) {
    let begin = Instant::now();
    while route_mtu(node, to) > bytes {
        let known = route_mtu(node, to);
        assert!(
            begin.elapsed() < STUCK,
            "{what}: {known} bytes are said to fit to {to}, not {bytes}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A datagram socket with or without DF.
fn datagrams(node: &Netns, to: IpAddr, df: bool) -> UdpSocket {
    const KEY: &str = "net.ipv4.ip_no_pmtu_disc";
    let open = || {
        segue_linux::link::sysctl(KEY, if df { "0" } else { "1" }).unwrap();
        let socket = UdpSocket::bind(any(to)).unwrap();
        segue_linux::link::sysctl(KEY, "0").unwrap();
        socket
    };
    let socket = node.run(open).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket
}

/// The ends of a cell, and what they should learn.
struct Ends<'a> {
    client: &'a Netns,
    server: &'a Netns,
    /// Addresses of the server whose family fits through the path.
    to: Vec<IpAddr>,
    /// Addresses of the client that the server can reach.
    back: Vec<IpAddr>,
    /// The largest inner packets that the path carries, up and down.
    takes: [u32; 2],
}

impl Ends<'_> {
    /// Starts TCP, calls `change`, and checks everything.
    fn judge(&self, what: &str, change: impl FnOnce()) {
        let stream =
            |to: &IpAddr| Stream::start(self.client, self.server, *to, Duration::from_millis(5));
        // Open these sockets before there is traffic: opening them changes a system setting, and ICMP errors must not
        // arrive during that time.
        let sockets = |to: &IpAddr| [true, false].map(|df| datagrams(self.client, *to, df));
        let sockets: Vec<[UdpSocket; 2]> = self.to.iter().map(sockets).collect();
        let streams: Vec<Stream> = self.to.iter().map(stream).collect();
        streams.iter().for_each(|stream| _ = stream.flows_on(SOME / 10));
        change();
        go_on(&streams, what);
        for (to, sockets) in self.to.iter().zip(&sockets) {
            let echo = UdpEcho::start(self.server, *to);
            for (socket, df) in sockets.iter().zip([true, false]) {
                passes(socket, echo.address, &format!("{what}, DF {df}, {to}"));
            }
            is_told(self.client, *to, self.takes[0], what);
        }
        for back in &self.back {
            is_told(self.server, *back, self.takes[1], what);
        }
        drop(streams);
        deafen(self.server);
        for family in ["-4", "-6"] {
            ip(self.server, &format!("{family} route flush cache"));
        }
        let streams: Vec<Stream> = self.to.iter().map(stream).collect();
        go_on(&streams, &format!("{what}, no ICMP at the server"));
    }
}

fn go_on(streams: &[Stream], what: &str) {
    let longest = std::thread::scope(|scope| {
        let each = |stream| scope.spawn(move || stands_still(stream, SOME));
        let still: Vec<_> = streams.iter().map(each).collect();
        still.into_iter().map(|still| still.join().unwrap()).max().unwrap()
    });
    assert!(longest < STUCK, "{what}: {longest:?}");
}

/// Columns: bytes, when, access or backhaul, whether routers send ICMP, client, datapath, whether the anchor forwarded
/// before.
const TUNNEL: [usize; 7] = [2, 3, 2, 2, 2, 2, 2];

fn tunnel([bytes, when, place, says, behind, datapath, forwards]: Cell<7>) {
    let (bytes, when, datapath) = ([1_400, 1_280][bytes], WHEN[when], DATAPATHS[datapath]);
    let [backhaul, says, behind, forwards] = [place, says, behind, forwards].map(|is| is == 1);
    let what = format!(
        "{bytes} bytes, {when:?}, backhaul {backhaul}, ICMP {says}, container {behind}, {datapath}, forwarding {forwards}"
    );
    println!("tunnel: {what}");
    let Some(world) = World::new(datapath) else { return };
    if !forwards {
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            world.net.anchor().run(|| segue_linux::link::sysctl(key, "0").unwrap()).unwrap();
        }
    }
    let narrow = || narrow(&world, backhaul, says, bytes);
    if when == When::Start {
        narrow();
    }
    let (_anchor, host) = world.running();
    let first = if when == When::Handover { "lte" } else { "wifi" };
    // An access that is too narrow for IPv6 carries nothing while another is available.
    let order = host.cli(&["handover", "--to", first]);
    assert!(order.status.success() || when == When::Start, "{what}");
    let node = behind.then(|| behind_the_host(&world));
    let (v4, v6) = inner(&host.status());
    let alone = backhaul && bytes == 1_280;
    let family = |to: &IpAddr| !alone || to.is_ipv4();
    let ends = Ends {
        client: node.as_ref().unwrap_or(world.net.host()),
        server: world.net.cn(),
        to: correspondents().into_iter().filter(family).collect(),
        back: [IpAddr::from(v4), v6.into()].into_iter().filter(family).collect(),
        takes: match bytes - 44 {
            inner if inner >= 1_280 || alone => [inner; 2],
            _ => [1_436; 2],
        },
    };
    ends.judge(&what, || match when {
        When::Start => {}
        When::MidFlow => narrow(),
        When::Handover => {
            narrow();
            assert!(host.cli(&["handover", "--to", "wifi"]).status.success(), "{what}");
        }
    });
}

/// Limits packets over Wi-Fi, or over the link behind the router, to this size.
fn narrow(world: &World, backhaul: bool, says: bool, bytes: u32) {
    let (router, device) = (world.net.router(), if backhaul { "core" } else { DemoNet::WIFI });
    if !says {
        narrow_ways(world, device, bytes, &["iifname", "oifname"]);
        return;
    }
    // The router cannot send errors about packets that arrive from the narrow link, so it drops them.
    narrow_ways(world, device, bytes, &["iifname"]);
    let (v4, v6) = match backhaul {
        true => ("10.61.9.0/24", "fd61:9::/64"),
        false => ("10.61.1.0/24", "fd61:1::/64"),
    };
    for (family, to, metric) in [("-4", v4, "0"), ("-6", v6, "256")] {
        let line = format!("{family} route replace {to} dev {device} metric {metric} mtu {bytes}");
        ip(router, &line);
    }
}

/// Columns: bytes, when, access or backhaul, encapsulation, datapath. Without ICMP between its ends a relay cannot
/// learn a size.
const RELAY: [usize; 5] = [2, 3, 2, 3, 2];

fn relay([bytes, when, place, form, datapath]: Cell<5>) {
    let (form, overhead) = [("ip", 40), ("gre", 48), ("udp", 28)][form];
    let (bytes, when, datapath) = ([1_400, 1_330][bytes], WHEN[when], DATAPATHS[datapath]);
    let backhaul = place == 1;
    let what = format!("{bytes} bytes, {when:?}, backhaul {backhaul}, {form}, {datapath}");
    println!("relay: {what}");
    let first = if when == When::Handover { "wlan2" } else { "wlan1" };
    let Some(domain) = pmip_sizes::start_at(datapath, form, first) else { return };
    let narrow = || match backhaul {
        // Downlink only: a narrow uplink would affect the gateway that the host leaves, too.
        true if when == When::Handover => pmip_sizes::narrow_towards(&domain, &["left"], bytes),
        true => pmip_sizes::narrow_towards(&domain, &["lma", "left"], bytes),
        false => {
            for (node, device) in [("left", "core"), ("core", "left")] {
                ip(domain.node(node), &format!("link set {device} mtu {bytes}"));
            }
        }
    };
    if when != When::MidFlow {
        narrow();
    }
    let own: IpAddr = domain.address("host", "wlan").into();
    let inner = bytes - overhead;
    let ends = Ends {
        client: domain.node("host"),
        server: domain.node("cn"),
        to: vec![far_of_domain()],
        back: vec![own],
        takes: if backhaul && when == When::Handover { [1_452, inner] } else { [inner; 2] },
    };
    ends.judge(&what, || match when {
        When::Start => {}
        When::MidFlow => narrow(),
        When::Handover => {
            domain.attach("host:wlan", "wlan1");
            domain.is_bound(FIRST, pmip_sizes::coa_of(form));
        }
    });
}

/// Judges every cell, and continues after a failure.
fn each<const N: usize>(cells: Vec<Cell<N>>, judge: fn(Cell<N>)) {
    let fails = |cell: &Cell<N>| std::panic::catch_unwind(|| judge(*cell)).is_err();
    let failed: Vec<Cell<N>> = cells.into_iter().filter(fails).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn hosts_and_anchors_every_two_values() {
    let _turn = crate::among_others();
    each(pairwise(TUNNEL), tunnel);
}

#[test]
fn gateways_and_anchors_every_two_values() {
    let _turn = crate::among_others();
    each(pairwise(RELAY), relay);
}

#[test]
#[ignore = "half an hour: make soak"]
fn soak_hosts_and_anchors_in_all_combinations() {
    let _turn = crate::among_others();
    each(all(TUNNEL), tunnel);
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_gateways_and_anchors_in_all_combinations() {
    let _turn = crate::among_others();
    each(all(RELAY), relay);
}
