//! Cells and radios on the running kernel. Skipped without root.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_ip::LinkEvent;
use segue_lab::{Announcement, Direction, Lab, What, file, topology};
use segue_linux::clock::monotonic;
use segue_linux::link::{self, Link};
use segue_linux::monitor::{Change, Monitor};
use segue_linux::netns::{self, Netns};
use segue_linux::packet::PacketSocket;
use socket2::{Domain, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(20);
/// Time after which an expected packet would have arrived.
const A_WHILE: Duration = Duration::from_millis(200);

/// A router with the cells `east` and `west`, 10 ms away, and a server behind it. Each test adds its own parts.
const NETWORK: &str = "[[node]]\nname = \"router\"\nrouter = true\n[[node]]\nname = \"phone\"\n\
    [[node]]\nname = \"tablet\"\n[[node]]\nname = \"server\"\nroutes = [\"default via 10.61.8.1\"]\n\
    [[link]]\nname = \"wire\"\nends = [\"router:up0\", \"server:down0\"]\nsenses = true\n\
    addresses = [[\"10.61.8.1/24\"], [\"10.61.8.2/24\"]]\n\
    [[cell]]\nname = \"east\"\nrouter = \"router\"\nprefix = \"10.61.1.0/24\"\ngateway = \"10.61.1.1\"\ndelay = \"10ms\"\n\
    [[cell]]\nname = \"west\"\nrouter = \"router\"\nprefix = \"10.61.2.0/24\"\ngateway = \"10.61.2.1\"\ndelay = \"10ms\"\n";
const DELAY: Span = Span::from_millis(10);
const FIXED: [u8; 4] = [10, 61, 3, 7];
const SERVER: [u8; 4] = [10, 61, 8, 2];

fn lab(tag: &str, rest: &str) -> Option<Lab> {
    root().then(|| file::parse(&format!("{NETWORK}{rest}"), tag).unwrap().build(tag).unwrap())
}

/// True as root; otherwise prints that the tests are skipped.
fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// A radio without a walk.
fn still(node: &str, address: Option<[u8; 4]>) -> String {
    let addresses = address.map(|a| format!("addresses = [\"{}\"]\n", IpAddr::from(a)));
    format!("[[walk]]\nnode = \"{node}\"\ncells = []\n{}", addresses.unwrap_or_default())
}

fn bind(node: &Netns, addr: impl Into<IpAddr>, port: u16) -> UdpSocket {
    let addr = SocketAddr::new(addr.into(), port);
    let socket = node.run(|| UdpSocket::bind(addr).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A socket for packets on one device.
fn over(node: &Netns, device: &str, port: u16) -> UdpSocket {
    let any = SocketAddr::from(([0, 0, 0, 0], port));
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        socket.bind_device(Some(device.as_bytes())).unwrap();
        socket.bind(&any.into()).unwrap();
        UdpSocket::from(socket)
    };
    let socket = node.run(open).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn device(lab: &Lab, node: &str, name: &str) -> Link {
    let links = lab.node(node).unwrap().run(|| link::links().unwrap()).unwrap();
    links.into_iter().find(|link| link.name == name).unwrap()
}

/// Sends one datagram from a node to the server and one back. Returns the duration, and the source that the server saw.
fn ask(lab: &Lab, node: &str, server: &UdpSocket) -> (Span, IpAddr) {
    let socket = bind(lab.node(node).unwrap(), [0, 0, 0, 0], 0);
    let begin = monotonic();
    socket.send_to(b"?", (IpAddr::from(SERVER), 5005)).unwrap();
    let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
    server.send_to(b"!", from).unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 1);
    (monotonic().since(begin), from.ip())
}

/// Packets offered to the link between a radio and a cell, in one direction.
fn counted(lab: &Lab, radio: &str, cell: &str, way: Direction) -> u64 {
    let name = format!("{radio} in {cell}");
    let all = lab.air_counters();
    let found = all.iter().find(|(known, _)| *known == name);
    found.map_or(0, |(_, counters)| counters[way as usize].offered)
}

/// A listener to a lab's announcements.
struct Ear(BufReader<UnixStream>);

impl Ear {
    fn at(lab: &Lab) -> Ear {
        let stream = UnixStream::connect(lab.announcements().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Ear(BufReader::new(stream))
    }

    fn next(&mut self) -> Announcement {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// The link events of a node, as a daemon there receives them.
fn watch(node: &Netns) -> Receiver<LinkEvent> {
    let (tell, told) = channel();
    let (ready, is_ready) = channel();
    let node = Netns::open(node.name().unwrap()).unwrap();
    std::thread::spawn(move || {
        node.enter_thread().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut monitor = Monitor::new().await.unwrap();
            ready.send(()).unwrap();
            while let Ok(change) = monitor.changed().await {
                if let Change::Link(event) = change
                    && tell.send(event).is_err()
                {
                    return;
                }
            }
        });
    });
    is_ready.recv_timeout(PATIENCE).unwrap();
    told
}

#[test]
fn a_radio_that_moves_keeps_its_device_and_its_address_and_is_seen_in_its_cell() {
    let Some(lab) = lab("cmove", &still("phone", Some(FIXED))) else { return };
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    let before = device(&lab, "phone", "radio");
    assert!(before.up && !before.running, "{before:?}");
    for (cell, other) in [("east", "west"), ("west", "east"), ("east", "west")] {
        // The radio leaves the other cell automatically.
        lab.attach("phone:radio", cell).unwrap();
        let now = device(&lab, "phone", "radio");
        assert_eq!((now.index, now.mac), (before.index, before.mac));
        assert!(now.running && device(&lab, "router", cell).running);
        assert!(!device(&lab, "router", other).running);
        let (took, seen_from) = ask(&lab, "phone", &server);
        assert_eq!(seen_from, IpAddr::from(FIXED));
        // The first packet waits for the gateway's ARP reply, which is delayed as well.
        assert!(took >= DELAY * 4, "{took}");
        let (took, _) = ask(&lab, "phone", &server);
        println!("there and back: {took}");
        assert!(took >= DELAY * 2, "{took}");
        // The radio's packets arrive on the interface of its cell only.
        let router = lab.node("router").unwrap();
        let sockets = [cell, other].map(|device| over(router, device, 5006));
        sockets[1].set_nonblocking(true).unwrap();
        let phone = bind(lab.node("phone").unwrap(), FIXED, 0);
        phone.send_to(b"here", (Ipv4Addr::new(10, 61, 8, 1), 5006)).unwrap();
        assert_eq!(sockets[0].recv(&mut [0; 8]).unwrap(), 4);
        assert!(sockets[1].recv(&mut [0; 8]).is_err());
    }
    assert_eq!(before.mac, [0x02, 0x5e, 0x67, 1, 0, 0]);
}

#[test]
fn a_radio_without_an_address_gets_one_of_its_cell_and_gives_it_back() {
    let Some(lab) = lab("cgive", &still("phone", None)) else { return };
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    let addresses = || {
        let phone = lab.node("phone").unwrap();
        let all = phone.run(|| link::addresses().unwrap()).unwrap().into_iter();
        let v4 = all.filter(|a| a.prefix.addr.is_ipv4() && !a.link_local);
        v4.map(|a| a.prefix.to_string()).collect::<Vec<_>>()
    };
    for (cell, own) in [("east", "10.61.1.2"), ("west", "10.61.2.2")] {
        lab.attach("phone:radio", cell).unwrap();
        assert_eq!(addresses(), [format!("{own}/24")]);
        assert_eq!(ask(&lab, "phone", &server).1, own.parse::<IpAddr>().unwrap());
    }
    lab.detach("phone:radio", None).unwrap();
    assert_eq!(addresses(), Vec::<String>::new());
    let routes = lab.node("phone").unwrap().run(|| link::routes().unwrap()).unwrap();
    assert!(routes.iter().all(|route| route.destination.addr.is_ipv6()), "{routes:?}");
}

#[test]
fn a_detachment_takes_the_carrier_from_radio_and_cell_and_both_hear_of_it() {
    let Some(lab) = lab("cdown", &still("phone", Some(FIXED))) else { return };
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    lab.attach("phone:radio", "east").unwrap();
    ask(&lab, "phone", &server);
    let places = [("phone", "radio"), ("router", "east")];
    let ears = places.map(|(node, _)| watch(lab.node(node).unwrap()));
    let begin = monotonic();
    lab.detach("phone:radio", Some("east")).unwrap();
    println!("detached within {}", monotonic().since(begin));
    for ((node, name), ear) in places.into_iter().zip(&ears) {
        let link = device(&lab, node, name);
        assert!(link.up && !link.running, "{link:?}");
        let event = ear.recv_timeout(PATIENCE).unwrap();
        let down = matches!(event, LinkEvent::Down { interface, .. } if interface == link.index);
        assert!(down, "{node}: {event:?}");
    }
    let phone = bind(lab.node("phone").unwrap(), FIXED, 0);
    let _ = phone.send_to(b"lost", (IpAddr::from(SERVER), 5005));
    server.set_read_timeout(Some(A_WHILE)).unwrap();
    assert!(server.recv(&mut [0; 8]).is_err());
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    lab.attach("phone:radio", "east").unwrap();
    for (ear, (node, name)) in ears.iter().zip(places) {
        let index = device(&lab, node, name).index;
        let event = ear.recv_timeout(PATIENCE).unwrap();
        let up = matches!(event, LinkEvent::Up { interface, .. } if interface == index);
        assert!(up, "{node}: {event:?}");
    }
    ask(&lab, "phone", &server);
}

#[test]
fn a_handover_without_a_gap_is_a_link_that_goes_down_and_comes_back() {
    let Some(lab) = lab("chard", &still("phone", Some(FIXED))) else { return };
    lab.attach("phone:radio", "east").unwrap();
    let ear = watch(lab.node("phone").unwrap());
    for cell in ["west", "east", "west", "east"] {
        lab.attach("phone:radio", cell).unwrap();
        for up in [false, true] {
            let event = ear.recv_timeout(PATIENCE).unwrap();
            assert_eq!(matches!(event, LinkEvent::Up { .. }), up, "{event:?}");
        }
    }
}

#[test]
fn a_walk_is_announced_before_and_when_the_radio_leaves_and_when_it_comes() {
    let walk = "[[walk]]\nnode = \"phone:wlan0\"\ncells = [\"east\", \"west\"]\nbegin = \"300ms\"\n\
                period = \"500ms\"\ngap = \"100ms\"\nnotice = \"200ms\"\n";
    let Some(lab) = lab("cwalk", walk) else { return };
    let mut ear = Ear::at(&lab);
    let heard: Vec<Announcement> = (0..7).map(|_| ear.next()).collect();
    let expected = [
        (What::Attached, "east"),
        (What::Leaving { within_ms: 0 }, "east"),
        (What::Detached, "east"),
        (What::Attached, "west"),
        (What::Leaving { within_ms: 0 }, "west"),
        (What::Detached, "west"),
        (What::Attached, "east"),
    ];
    for (heard, (what, cell)) in heard.iter().zip(expected) {
        let kind = std::mem::discriminant::<What>;
        assert_eq!((kind(&heard.what), heard.cell.as_str()), (kind(&what), cell), "{heard:?}");
        assert_eq!((heard.node.as_str(), heard.interface.as_str()), ("phone", "wlan0"));
        assert_eq!((heard.router.as_str(), &heard.router_interface), ("router", &heard.cell));
        assert_eq!(heard.mac, "02:5e:67:01:00:00");
        let number = u8::from(cell == "west");
        assert_eq!(heard.router_mac, format!("02:5e:67:02:00:0{number}"));
    }
    let mac = device(&lab, "router", "west").mac.map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(heard[3].router_mac, mac);
    // Each departure follows its announcement, and the absence lasts for the gap. A busy machine may be late but never
    // early.
    let at = |number: usize| Time(heard[number].at_ns);
    for number in [1, 4] {
        let What::Leaving { within_ms } = heard[number].what else { panic!("{heard:?}") };
        assert!(within_ms <= 200, "{within_ms}");
        let leaves = at(number) + Span::from_millis(within_ms);
        let off = at(number + 1).since(leaves);
        println!("left {off} after what was said");
        assert!(at(number + 1) >= leaves && off < Span::from_millis(300), "{off}");
        assert!(at(number + 2) >= leaves + Span::from_millis(99), "{heard:?}");
    }
}

#[test]
fn a_frame_for_one_radio_reaches_only_that_one_and_a_frame_for_all_reaches_all() {
    let radios = still("phone", Some(FIXED)) + &still("tablet", Some([10, 61, 3, 8]));
    let Some(lab) = lab("cshare", &radios) else { return };
    for radio in ["phone:radio", "tablet:radio"] {
        lab.attach(radio, "east").unwrap();
    }
    let open =
        |node: &str| lab.node(node).unwrap().run(|| PacketSocket::open("radio").unwrap()).unwrap();
    let mut sockets = ["phone", "tablet"].map(open);
    let router = bind(lab.node("router").unwrap(), [0, 0, 0, 0], 0);
    router.set_broadcast(true).unwrap();
    for _ in 0..20 {
        router.send_to(b"mine", (IpAddr::from(FIXED), 5007)).unwrap();
    }
    std::thread::sleep(A_WHILE);
    router.send_to(b"all", (Ipv4Addr::new(10, 61, 1, 255), 5007)).unwrap();
    std::thread::sleep(A_WHILE);
    let macs = ["phone", "tablet"].map(|node| device(&lab, node, "radio").mac);
    let mut heard = [[0; 3]; 2];
    for (socket, heard) in sockets.iter_mut().zip(&mut heard) {
        let mut buffer = [0; 2_000];
        while let Some(got) = socket.receive(&mut buffer).unwrap() {
            let frame = &buffer[..got.len];
            let is_udp = frame[12..14] == [8, 0] && frame[23] == 17;
            let kinds = [&macs[0], &macs[1], &[0xff; 6]];
            for (count, kind) in heard.iter_mut().zip(kinds) {
                *count += usize::from(is_udp && frame.starts_with(kind));
            }
        }
    }
    assert_eq!(heard, [[20, 0, 1], [0, 0, 1]]);
    // The cell keeps its carrier while one of the two is attached.
    lab.detach("phone:radio", None).unwrap();
    assert!(device(&lab, "router", "east").running && !device(&lab, "phone", "radio").running);
    lab.detach("tablet:radio", None).unwrap();
    assert!(!device(&lab, "router", "east").running);
}

#[test]
fn a_radio_that_can_be_in_two_cells_hears_both_and_sends_to_the_newest() {
    let walk = "[[walk]]\nnode = \"phone\"\ncells = [\"east\", \"west\"]\nperiod = \"1h\"\n\
                overlap = \"1s\"\n";
    let Some(lab) = lab("cboth", walk) else { return };
    assert_eq!(Ear::at(&lab).next().what, What::Attached);
    lab.attach("phone:radio", "west").unwrap();
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    assert_eq!(ask(&lab, "phone", &server).1, IpAddr::from([10, 61, 2, 2]));
    let up = |cell: &str| counted(&lab, "phone:radio", cell, Direction::Up);
    for own in [[10, 61, 1, 2], [10, 61, 2, 2]] {
        let phone = bind(lab.node("phone").unwrap(), own, 5008);
        server.send_to(b"both", (IpAddr::from(own), 5008)).unwrap();
        assert_eq!(phone.recv(&mut [0; 8]).unwrap(), 4);
    }
    let before = ["east", "west"].map(up);
    let phone = bind(lab.node("phone").unwrap(), [0, 0, 0, 0], 0);
    for _ in 0..50 {
        phone.send_to(b"up", (IpAddr::from(SERVER), 5009)).unwrap();
    }
    wait_for(|| up("west") >= before[1] + 50);
    // Neighbours may send ARP requests in both.
    assert!(up("east") < before[0] + 10);
    lab.detach("phone:radio", Some("west")).unwrap();
    assert!(device(&lab, "phone", "radio").running);
    assert_eq!(ask(&lab, "phone", &server).1, IpAddr::from([10, 61, 1, 2]));
}

#[test]
fn an_address_that_a_radio_keeps_is_reached_over_the_newest_of_two_cells_of_a_router() {
    let walk = "[[walk]]\nnode = \"tablet\"\ncells = []\naddresses = [\"10.61.3.7\"]\n\
                overlap = \"1s\"\n";
    let Some(lab) = lab("cnewest", walk) else { return };
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    let down = |cell: &str| counted(&lab, "tablet:radio", cell, Direction::Down);
    lab.attach("tablet:radio", "east").unwrap();
    ask(&lab, "tablet", &server);
    lab.attach("tablet:radio", "west").unwrap();
    for (leave, newest, other) in [(None, "west", "east"), (Some("west"), "east", "west")] {
        if leave.is_some() {
            lab.detach("tablet:radio", leave).unwrap();
        }
        let before = [newest, other].map(down);
        for _ in 0..20 {
            assert_eq!(ask(&lab, "tablet", &server).1, IpAddr::from(FIXED));
        }
        // Neighbours may send ARP requests in both.
        assert!(down(newest) >= before[0] + 20 && down(other) < before[1] + 10, "{newest}");
    }
}

#[test]
fn what_waits_for_the_air_at_a_detachment_is_lost_and_the_air_is_free_afterwards() {
    // A datagram of 1000 bytes takes 100 ms.
    let slow = "[[cell]]\nname = \"slow\"\nrouter = \"router\"\ngateway = \"10.61.4.1\"\n\
                rate = \"80kbit\"\n";
    let Some(lab) = lab("cslow", &(still("phone", Some(FIXED)) + slow)) else { return };
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    lab.attach("phone:radio", "slow").unwrap();
    ask(&lab, "phone", &server);
    let phone = bind(lab.node("phone").unwrap(), FIXED, 0);
    for _ in 0..50 {
        phone.send_to(&[0; 972], (IpAddr::from(SERVER), 5010)).unwrap();
    }
    let up = || counted(&lab, "phone:radio", "slow", Direction::Up);
    wait_for(|| up() >= 50);
    let old = bind(lab.node("server").unwrap(), SERVER, 5010);
    lab.detach("phone:radio", None).unwrap();
    lab.attach("phone:radio", "slow").unwrap();
    let (took, _) = ask(&lab, "phone", &server);
    println!("there and back behind 50 datagrams that were lost: {took}");
    assert!(took < Span::from_secs(2), "{took}");
    old.set_nonblocking(true).unwrap();
    let came = std::iter::from_fn(|| old.recv(&mut [0; 1_000]).ok()).count();
    assert!(came < 25, "{came}");
}

#[test]
fn a_walk_that_is_faster_than_can_be_done_does_not_keep_the_lab_from_ending() {
    let walk = "[[walk]]\nnode = \"phone\"\ncells = [\"east\", \"west\"]\nperiod = \"1us\"\n";
    let Some(lab) = lab("cfast", walk) else { return };
    let mut ear = Ear::at(&lab);
    for _ in 0..10 {
        ear.next();
    }
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        drop(lab);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn events_attach_and_detach_and_a_cut_link_that_senses_loses_its_carrier_until_it_is_mended() {
    let events = "[[event]]\nat = \"1s\"\nattach = \"phone:radio\"\ncell = \"west\"\n\
                  [[event]]\nat = \"1200ms\"\ndetach = \"phone:radio\"\ncell = \"west\"\n\
                  [[event]]\nat = \"1s\"\ncut = \"wire\"\nfor = \"400ms\"\n";
    let Some(lab) = lab("cevent", &(still("phone", None) + events)) else { return };
    let ears = ["router", "server"].map(|node| watch(lab.node(node).unwrap()));
    let mut ear = Ear::at(&lab);
    assert_eq!([ear.next().what, ear.next().what], [What::Attached, What::Detached]);
    for (ear, (node, name)) in ears.iter().zip([("router", "up0"), ("server", "down0")]) {
        let index = device(&lab, node, name).index;
        let own = |event: &LinkEvent| match *event {
            LinkEvent::Up { interface, .. } => (interface == index).then_some(true),
            LinkEvent::Down { interface, .. } => (interface == index).then_some(false),
            LinkEvent::GoingDown { .. } => None,
        };
        let next = || ear.recv_timeout(PATIENCE).unwrap();
        let mut told = std::iter::repeat_with(next).filter_map(|event| own(&event));
        let events = [told.next(), told.next()].map(Option::unwrap);
        assert_eq!(events, [false, true], "{node}");
    }
    // If one direction is cut, only the end that receives nothing loses its carrier.
    lab.cut("wire", &[Direction::Up]).unwrap();
    wait_for(|| !device(&lab, "server", "down0").running);
    assert!(device(&lab, "router", "up0").running);
    lab.mend("wire", &[Direction::Up]).unwrap();
    wait_for(|| device(&lab, "server", "down0").running);
    // Manual silence is independent of cuts.
    let wire = lab.emulator("wire").unwrap();
    let router = bind(lab.node("router").unwrap(), [10, 61, 8, 1], 0);
    let silenced = || wire.counters(Direction::Up).silenced;
    let send = || router.send_to(b"lost", (IpAddr::from(SERVER), 5005)).unwrap();
    wire.set_silent(Direction::Up, true);
    lab.cut("wire", &Direction::ALL).unwrap();
    lab.mend("wire", &Direction::ALL).unwrap();
    wait_for(|| device(&lab, "router", "up0").running);
    let before = silenced();
    wait_for(|| send() > 0 && silenced() > before);
    wire.set_silent(Direction::Up, false);
    let delivered = wire.counters(Direction::Up).delivered;
    wait_for(|| send() > 0 && wire.counters(Direction::Up).delivered > delivered);
}

#[test]
fn who_comes_late_hears_where_radios_are_and_the_socket_goes_with_the_lab() {
    let Some(lab) = lab("clate", &still("phone", None)) else { return };
    let begin = monotonic();
    lab.attach("phone:radio", "east").unwrap();
    let attached = monotonic();
    let mut ears = [Ear::at(&lab), Ear::at(&lab)];
    for ear in &mut ears {
        let heard = ear.next();
        assert_eq!((heard.what, heard.cell.as_str()), (What::Attached, "east"));
        assert!((begin.0..attached.0).contains(&heard.at_ns));
    }
    lab.detach("phone:radio", None).unwrap();
    for ear in &mut ears {
        assert_eq!(ear.next().what, What::Detached);
    }
    let path = lab.announcements().unwrap().to_owned();
    let prefix = lab.prefix().to_owned();
    drop(lab);
    assert!(!path.exists() && netns::list_with_prefix(&prefix).is_empty());
}

#[test]
fn the_socket_of_a_dead_process_is_removed_and_that_of_a_living_one_is_not() {
    let Some(lab) = lab("cdead", &still("phone", None)) else { return };
    let living = lab.announcements().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = living.with_file_name(format!("segue-cdead{}.sock", child.id()));
    std::fs::write(&dead, "").unwrap();
    child.wait().unwrap();
    topology::clean();
    assert!(!dead.exists() && living.exists());
}

/// An operator has set the router's device down while a radio attaches.
#[test]
fn what_could_not_be_put_when_a_radio_came_is_put_by_the_next_attachment() {
    let Some(lab) = lab("cheal", &still("phone", None)) else { return };
    let west = |up| lab.node("router").unwrap().run(|| link::set_up("west", up)).unwrap().unwrap();
    lab.attach("phone:radio", "east").unwrap();
    west(false);
    assert!(lab.attach("phone:radio", "west").is_err(), "a route over a device that is down");
    west(true);
    assert!(lab.attach("phone:radio", "west").is_err(), "it is there");
    let routes = lab.node("router").unwrap().run(|| link::routes().unwrap()).unwrap();
    let to_phone = "10.61.2.2/32".parse().unwrap();
    assert!(routes.iter().any(|route| route.destination == to_phone), "{routes:?}");
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    assert_eq!(ask(&lab, "phone", &server).1, IpAddr::from([10, 61, 2, 2]));
    lab.detach("phone:radio", None).unwrap();
    lab.attach("phone:radio", "east").unwrap();
    assert_eq!(ask(&lab, "phone", &server).1, IpAddr::from([10, 61, 1, 2]));
}

#[test]
fn no_radio_gets_the_routers_address() {
    let network = NETWORK.replace("10.61.1.1\"\ndelay", "10.61.1.3\"\ndelay");
    let rest = [still("phone", None), still("tablet", None)].concat();
    let text = format!("{network}{rest}");
    let Some(lab) = root().then(|| file::parse(&text, "x").unwrap().build("cgate").unwrap()) else {
        return;
    };
    let server = bind(lab.node("server").unwrap(), SERVER, 5005);
    for (node, last) in [("phone", 2), ("tablet", 4)] {
        lab.attach(&format!("{node}:radio"), "east").unwrap();
        assert_eq!(ask(&lab, node, &server).1, IpAddr::from([10, 61, 1, last]));
    }
}

#[test]
fn what_has_gone_wrong_with_a_link_is_told() {
    let Some(lab) = lab("cwrong", "") else { return };
    assert!(lab.troubles().is_empty());
    lab.node("server").unwrap().run(|| link::delete("down0")).unwrap().unwrap();
    wait_for(|| !lab.troubles().is_empty());
    let (name, why) = &lab.troubles()[0];
    assert!(name == "wire" && why[0].starts_with("the emulator has ended: "), "{name}: {why:?}");
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let small = "[[cell]]\nname = \"small\"\nrouter = \"router\"\nprefix = \"10.61.5.0/30\"\n";
    let rest = still("phone", None) + &still("tablet", None) + small;
    let Some(lab) = lab("cwrong", &rest) else { return };
    lab.attach("tablet:radio", "small").unwrap();
    let error = lab.attach("phone:radio", "small").unwrap_err().to_string();
    assert_eq!(error, "the prefix of small has no address left");
    lab.attach("phone:radio", "east").unwrap();
    let errors = [
        (lab.attach("phone", "east"), "there is no radio phone (did you mean phone:radio?)"),
        (lab.attach("phone:radio", "est"), "there is no cell est (did you mean east?)"),
        (lab.attach("phone:radio", "east"), "phone:radio is in east already"),
        (lab.detach("phone:radio", Some("west")), "phone:radio is not in west"),
        (lab.cut("wier", &Direction::ALL), "there is no emulated link called wier"),
    ];
    for (result, expected) in errors {
        assert_eq!(result.unwrap_err().to_string(), expected);
    }
    lab.detach("phone:radio", None).unwrap();
    let error = lab.detach("phone:radio", None).unwrap_err().to_string();
    assert_eq!(error, "phone:radio is in no cell");
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let end = monotonic() + Span::from_secs(PATIENCE.as_secs());
    while !done() {
        assert!(monotonic() < end, "it did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
