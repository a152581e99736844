//! A host at a Proxy Mobile IPv6 gateway forges messages from the anchor, or from the functions that report links.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segue_linux::netns::Netns;
use segue_linux::packet::PacketSocket;
use segue_wire::mih::codes::{
    LinkActionAttributes, LinkActionType, LinkDownReason, LinkType, RegisterRequestCode,
};
use segue_wire::mih::identity::{LinkAddress, LinkId, LinkTupleId};
use segue_wire::mih::link::LinkActionRequest;
use segue_wire::mih::{Frame, MessageId, OctetString, Tlv};
use segue_wire::mobility::body::{
    BindingRevocation, BindingRevocationIndication, UpdateNotification,
};
use segue_wire::mobility::option::{
    HomeNetworkPrefix, HomeNetworkPrefixFlags, MobileNodeIdentifier,
};
use segue_wire::mobility::{
    Body, Message, MobilityOption, NEXT_HEADER, NotificationReason, Profile, RevocationFlags,
    RevocationTrigger, UpdateNotificationFlags,
};
use serde_json::Value;

use crate::pmip::{Domain, FIRST, OTHER, cn, example};
use crate::traffic::Voice;
use crate::world::{Daemon, drops};

const ANCHOR: &str = "fd00:1::1";
/// The gateways of the victim's node; the victim uses the first.
const GATEWAYS: [&str; 2] = ["fd00:2::2", "fd00:2::3"];
/// The accesses that the forger tries: the victim's access, and the access of the node's other gateway.
const ACCESSES: [(&str, &str); 2] = [("wlan1", GATEWAYS[0]), ("lte1", GATEWAYS[1])];
/// The victim's access as the function of its node identifies it.
const LINK: [u8; 6] = [2, 0x5e, 0x67, 2, 0, 9];

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// A complete IPv6 packet with a message from the anchor to a gateway.
fn of_anchor(body: Body, options: Vec<MobilityOption>, gateway: &str) -> Vec<u8> {
    let (anchor, gateway) = (address(ANCHOR), address(gateway));
    let message = Message { body, options };
    let message = message.emit_with_checksum(anchor, gateway, &Profile::STRICT).unwrap();
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv6(anchor.octets(), gateway.octets(), 64);
    builder.write(&mut packet, etherparse::IpNumber(NEXT_HEADER), &message).unwrap();
    packet
}

/// Options that name a host and a prefix.
fn about(
    name: &str,
    flags: HomeNetworkPrefixFlags,
    (home_network_prefix, prefix_length): (Ipv6Addr, u8),
) -> Vec<MobilityOption> {
    let prefix = HomeNetworkPrefix { flags, prefix_length, home_network_prefix };
    vec![
        MobilityOption::MobileNodeIdentifier(MobileNodeIdentifier::nai(name)),
        MobilityOption::HomeNetworkPrefix(prefix),
    ]
}

/// The anchor revokes the victim's registration.
fn revocation(sequence: u16, prefix: Ipv6Addr, gateway: &str) -> Vec<u8> {
    let indication = BindingRevocationIndication {
        revocation_trigger: RevocationTrigger::ADMINISTRATIVE_REASON,
        sequence,
        flags: RevocationFlags::PROXY,
    };
    let body = Body::BindingRevocation(BindingRevocation::Indication(indication));
    of_anchor(body, about("alice@example.org", HomeNetworkPrefixFlags(0), (prefix, 64)), gateway)
}

/// The anchor reports that the forger has these addresses at another interface, which would divert their packets to the
/// forger.
fn notification(sequence: u16, prefix: (Ipv6Addr, u8), gateway: &str) -> Vec<u8> {
    let notification_reason = NotificationReason::FLOW_MOBILITY;
    let flags = UpdateNotificationFlags(0);
    let body = UpdateNotification { sequence, notification_reason, flags };
    let options = about("bob@example.org", HomeNetworkPrefixFlags::OFF_LINK, prefix);
    of_anchor(Body::UpdateNotification(body), options, gateway)
}

/// A socket for complete IPv6 packets.
fn whole_packets() -> socket2::Socket {
    // IPPROTO_RAW.
    let protocol = Some(socket2::Protocol::from(255));
    socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::RAW, protocol).unwrap()
}

/// Sends a packet to the address in its header.
fn send(socket: &socket2::Socket, packet: &[u8]) {
    let to: [u8; 16] = packet[24..40].try_into().unwrap();
    let _ = socket.send_to(packet, &SocketAddr::new(Ipv6Addr::from(to).into(), 0).into());
}

/// Stops threads when dropped, so also if a test fails.
pub(crate) struct AtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts packets for an address on a node's radio until `stop`.
pub(crate) fn seen(node: &Netns, address: Ipv6Addr, stop: &AtomicBool) -> usize {
    let mut socket = node.run(|| PacketSocket::open("wlan")).unwrap().unwrap();
    let (mut seen, mut frame) = (0, [0; 2_048]);
    while !stop.load(Ordering::Relaxed) {
        while socket.receive(&mut frame).unwrap().is_some() {
            seen += usize::from(frame[38..54] == address.octets());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    seen
}

/// The victim, which sends all the time, and the forger.
struct Stage {
    domain: Domain,
    victim: Ipv6Addr,
    access: &'static str,
}

impl Stage {
    /// Attaches the victim to the first access and the forger to this one.
    fn of(domain: Domain, (access, coa): (&'static str, &str)) -> Stage {
        domain.attach("host:wlan", "wlan1");
        domain.is_bound(FIRST, GATEWAYS[0]);
        let victim = domain.address("host", "wlan");
        domain.attach("other:wlan", access);
        domain.is_bound(OTHER, coa);
        domain.address("other", "wlan");
        Stage { domain, victim, access }
    }

    fn prefix(&self) -> Ipv6Addr {
        let mut segments = self.victim.segments();
        segments[4..].fill(0);
        Ipv6Addr::from(segments)
    }

    /// Sends the packets that `packets` makes of increasing numbers for four seconds while the victim sends. Returns
    /// the number of rounds.
    fn forge(&self, what: &str, packets: impl Fn(u16) -> Vec<Vec<u8>> + Sync) -> u64 {
        let voice = Voice::start(self.domain.node("host"), self.domain.node("cn"), cn());
        let stop = AtomicBool::new(false);
        let forger = self.domain.node("other");
        let (sent, seen) = std::thread::scope(|scope| {
            let _ends = AtEnd(&stop);
            let sends = || {
                let socket = whole_packets();
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    packets(sent).iter().for_each(|packet| send(&socket, packet));
                    sent += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                sent
            };
            let sends = scope.spawn(move || forger.run(sends).unwrap());
            let sees = scope.spawn(|| seen(forger, self.victim, &stop));
            std::thread::sleep(Duration::from_secs(4));
            stop.store(true, Ordering::Relaxed);
            (sends.join().unwrap(), sees.join().unwrap())
        });
        let heard = voice.finish();
        let access = self.access;
        println!(
            "{what} at {access}: {sent} forged, victim lost {:?} of {:?}, forger saw {seen}",
            heard.lost, heard.sent
        );
        assert!(sent > 50, "{sent}");
        assert_eq!(heard.lost, [0; 2], "{what} at {access}: of {:?}", heard.sent);
        assert_eq!(seen, 0, "{what} at {access}: packets for the victim");
        self.domain.is_bound(FIRST, GATEWAYS[0]);
        u64::from(sent)
    }

    /// Waits until a daemon has counted `sent` messages. Up to ten may be missing: the first few may be lost while the
    /// neighbour's address is resolved.
    fn counted(daemon: &Daemon, reason: &str, sent: u64) {
        daemon.wait("each forged message is counted", |status| drops(status, reason) + 10 >= sent);
    }
}

/// Forges from the victim's access, and from the access of the node's other gateway: revocations, and notifications
/// that the victim's prefix, or its address alone, belongs to the forger.
fn cannot_signal(datapath: &'static str) {
    let _turn = crate::among_others();
    for access in ACCESSES {
        let Some(domain) = Domain::new(datapath, &["wlan1", "lte1"]) else { return };
        let stage = Stage::of(domain, access);
        let (victim, prefix) = (stage.victim, stage.prefix());
        let sent = stage.forge("signalling", |number| {
            let to = |gateway| {
                [
                    revocation(number, prefix, gateway),
                    notification(2 * number, (prefix, 64), gateway),
                    notification(2 * number + 1, (victim, 128), gateway),
                ]
            };
            GATEWAYS.into_iter().flat_map(to).collect()
        });
        // Both gateways receive all packets that arrive at the node.
        for gateway in stage.domain.mags.values() {
            Stage::counted(gateway, "from_host", 6 * sent);
        }
    }
}

#[test]
fn no_host_signals_in_the_anchors_name() {
    cannot_signal("ebpf");
}

#[test]
fn no_host_signals_in_the_anchors_name_in_user_space() {
    cannot_signal("user");
}

/// Finds a client registered at a function: its name and its address.
fn registered(function: &Value, name: &str) -> Option<(String, SocketAddr)> {
    let mut all = function["registered"].as_array()?.iter();
    let found = all.find(|one| one["mihf_id"].as_str().unwrap().starts_with(name))?;
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    Some((text("mihf_id"), text("address").parse().unwrap()))
}

/// A complete IPv6 packet with a frame from one party to another.
fn frame(
    (from, at): (&str, SocketAddr),
    (to, there): (&str, SocketAddr),
    (message, number): (MessageId, u16),
    tlvs: Vec<Tlv>,
) -> Vec<u8> {
    let name = |name: &str| OctetString(name.as_bytes().to_vec());
    let names = [Tlv::SourceMihfId(name(from)), Tlv::DestinationMihfId(name(to))];
    let tlvs = names.into_iter().chain(tlvs).collect();
    let frame = Frame::new(message, number & 0xfff, tlvs);
    let frame = frame.emit(&segue_wire::mih::Profile::STRICT).unwrap();
    let (SocketAddr::V6(at), SocketAddr::V6(there)) = (at, there) else { panic!("of IPv6") };
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv6(at.ip().octets(), there.ip().octets(), 64);
    builder.udp(at.port(), there.port()).write(&mut packet, &frame).unwrap();
    packet
}

fn link() -> LinkId {
    LinkId { link_type: LinkType::ETHERNET, address: LinkAddress::mac(LINK) }
}

/// An order to switch off the victim's access.
fn order() -> Vec<Tlv> {
    let action = LinkActionRequest {
        link: link(),
        address: None,
        action: LinkActionType::POWER_DOWN,
        attributes: LinkActionAttributes(0),
        execution_time_ms: 0,
    };
    vec![Tlv::LinkActionsList(vec![action])]
}

/// A report that the victim has left.
fn left() -> Vec<Tlv> {
    let victim = [2, 0x5e, 0x67, 1, 0, 0];
    vec![
        Tlv::LinkIdentifier(LinkTupleId { link: link(), poa: None }),
        Tlv::OldAccessRouter(LinkAddress::mac(victim)),
        Tlv::LinkDownReason(LinkDownReason::EXPLICIT_DISCONNECT),
    ]
}

/// Starts the victim's node with a function that accepts orders for its accesses and reports hosts to the victim's
/// gateway and to the anchor. If `late`, the access appears only after all daemons run.
fn with_functions(datapath: &'static str, late: bool) -> Option<(Domain, [Daemon; 2])> {
    let mut domain = Domain::empty(datapath)?;
    if late {
        domain.rename("wlan1", "later");
    }
    let run = |domain: &Domain, what: &str, content: &str| {
        let config = domain.config(what, content);
        domain.run("left", what, &["mih", what, "-c", config.to_str().unwrap()])
    };
    let function = run(&domain, "function", "name = \"mihf@left\"\npeers = [\"fd00::/16\"]\n");
    let mac = LINK.map(|part| format!("{part:02x}")).join(":");
    let sap = run(
        &domain,
        "link-sap",
        &format!(
            "name = \"link-sap@left\"\n[[link]]\ninterface = \"wlan1\"\naddress = \"{mac}\"\norders = true\n"
        ),
    );
    let mih = format!("\n[mih]\nfunctions = [\"{}\"]\n", GATEWAYS[0]);
    let content = std::fs::read_to_string(example("lma.toml")).unwrap();
    domain.lma = Some(domain.start_with("lma", "lma", &(content + &mih)));
    let content = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let told = format!("attach = \"mih\"\nlink = \"{mac}\"\ntechnology");
    let content = content.replace("technology", &told) + &mih;
    let gateways = [domain.start_with("mag", "wlan1", &content), domain.start("mag", "lte1", "")];
    if late {
        gateways[0].wait("its interface is not there", |status| status["host_count"] == 0);
        domain.rename("later", "wlan1");
    }
    domain.mags = ["wlan1", "lte1"].into_iter().zip(gateways).collect();
    Some((domain, [function, sap]))
}

/// Forges orders and deregistrations from the anchor to the function, and reports from the function to the gateway and
/// the anchor.
fn cannot_tell(datapath: &'static str, accesses: &[(&'static str, &str)], late: bool) {
    let _turn = crate::among_others();
    for access in accesses.iter().copied() {
        let Some((domain, [function, _sap])) = with_functions(datapath, late) else { return };
        let mut known = Vec::new();
        function.wait("anchor and gateway are registered", |status| {
            let names = ["pmip-lma", "pmip-mag"];
            known = names.iter().filter_map(|name| registered(status, name)).collect();
            known.len() == 2
        });
        let [(lma, at_lma), (mag, at_mag)] = &known[..] else { panic!("{known:?}") };
        let stage = Stage::of(domain, access);
        let at_function: SocketAddr = format!("[{}]:4551", GATEWAYS[0]).parse().unwrap();
        let of_function = ("mihf@left", at_function);
        let newcomer = SocketAddr::new(at_lma.ip(), 4551);
        let registers = || {
            let code = Tlv::RegisterRequestCode(RegisterRequestCode::REGISTRATION);
            vec![Tlv::LinkIdentifierList(Vec::new()), code]
        };
        let sent = stage.forge("IEEE 802.21", |number| {
            let number = 16 * number;
            let to_function = |from, message, place, tlvs| {
                frame(from, of_function, (message, number + place), tlvs)
            };
            vec![
                to_function((lma, *at_lma), MessageId::LINK_ACTIONS, 0, order()),
                to_function((lma, *at_lma), MessageId::DEREGISTER, 1, Vec::new()),
                to_function(("new", newcomer), MessageId::REGISTER, 2, registers()),
                to_function(("new", newcomer), MessageId::LINK_ACTIONS, 3, order()),
                frame(of_function, (mag, *at_mag), (MessageId::LINK_DOWN, number + 4), left()),
                frame(of_function, (lma, *at_lma), (MessageId::LINK_DOWN, number + 5), left()),
            ]
        });
        Stage::counted(&function, "from_host", 4 * sent);
        Stage::counted(&stage.domain.mags["wlan1"], "from_host", sent);
        // The report to the anchor would have to leave by the forger's gateway.
        Stage::counted(&stage.domain.mags[access.0], "inner_source", sent);
        let status = function.status();
        assert!(registered(&status, lma).is_some(), "{status}");
        assert!(registered(&status, "new").is_none(), "{status}");
    }
}

#[test]
fn no_host_orders_links_or_tells_of_hosts_in_anothers_name() {
    cannot_tell("ebpf", &ACCESSES, false);
}

#[test]
fn no_host_orders_links_or_tells_of_hosts_in_anothers_name_in_user_space() {
    cannot_tell("user", &ACCESSES, false);
}

#[test]
fn an_access_that_comes_after_the_daemons_is_served_and_guarded() {
    cannot_tell("user", &ACCESSES[..1], true);
}
