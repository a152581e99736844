//! A host at a gateway of Proxy Mobile IPv6 that speaks in the anchor's name.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segue_wire::mobility::body::{BindingRevocation, BindingRevocationIndication};
use segue_wire::mobility::option::{
    HomeNetworkPrefix, HomeNetworkPrefixFlags, MobileNodeIdentifier,
};
use segue_wire::mobility::{
    Body, Message, MobilityOption, NEXT_HEADER, Profile, RevocationFlags, RevocationTrigger,
};

use crate::pmip::{Domain, FIRST, OTHER, cn};
use crate::traffic::Voice;
use crate::world::drops;

const ANCHOR: &str = "fd00:1::1";

/// A whole packet in which the anchor ends a host's registration at a gateway.
fn revocation(sequence: u16, prefix: Ipv6Addr, gateway: Ipv6Addr) -> Vec<u8> {
    let anchor: Ipv6Addr = ANCHOR.parse().unwrap();
    let indication = BindingRevocationIndication {
        revocation_trigger: RevocationTrigger::ADMINISTRATIVE_REASON,
        sequence,
        flags: RevocationFlags::PROXY,
    };
    let options = vec![
        MobilityOption::MobileNodeIdentifier(MobileNodeIdentifier::nai("alice@example.org")),
        MobilityOption::HomeNetworkPrefix(HomeNetworkPrefix {
            flags: HomeNetworkPrefixFlags(0),
            prefix_length: 64,
            home_network_prefix: prefix,
        }),
    ];
    let body = Body::BindingRevocation(BindingRevocation::Indication(indication));
    let message = Message { body, options };
    let message = message.emit_with_checksum(anchor, gateway, &Profile::STRICT).unwrap();
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv6(anchor.octets(), gateway.octets(), 64);
    builder.write(&mut packet, etherparse::IpNumber(NEXT_HEADER), &message).unwrap();
    packet
}

/// Another host says so again and again, from the victim's access or another one of the same node, which is another
/// gateway's.
fn cannot_revoke(datapath: &'static str) {
    let _turn = crate::among_others();
    for (cell, coa) in [("wlan1", "fd00:2::2"), ("lte1", "fd00:2::3")] {
        let Some(domain) = Domain::new(datapath, &["wlan1", "lte1"]) else { return };
        domain.attach("host:wlan", "wlan1");
        domain.is_bound(FIRST, "fd00:2::2");
        let address = domain.address("host", "wlan");
        let mut segments = address.segments();
        segments[4..].fill(0);
        let prefix = Ipv6Addr::from(segments);
        domain.attach("other:wlan", cell);
        domain.is_bound(OTHER, coa);
        domain.address("other", "wlan");
        let voice = Voice::start(domain.node("host"), domain.node("cn"), cn());
        let stop = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let forge = scope.spawn(|| {
                let send = || {
                    let kind = socket2::Type::RAW;
                    // IPPROTO_RAW: whole packets.
                    let protocol = Some(socket2::Protocol::from(255));
                    let socket =
                        socket2::Socket::new(socket2::Domain::IPV6, kind, protocol).unwrap();
                    let mut sent = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for gateway in ["fd00:2::2", "fd00:2::3"] {
                            let gateway: Ipv6Addr = gateway.parse().unwrap();
                            let packet = revocation(sent, prefix, gateway);
                            let to = SocketAddr::new(gateway.into(), 0);
                            let _ = socket.send_to(&packet, &to.into());
                        }
                        sent += 1;
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    sent
                };
                domain.node("other").run(send).unwrap()
            });
            std::thread::sleep(Duration::from_secs(4));
            stop.store(true, Ordering::Relaxed);
            forge.join().unwrap()
        });
        let heard = voice.finish();
        println!("{datapath} {cell}: {sent} forged, lost {:?} of {:?}", heard.lost, heard.sent);
        assert!(sent > 50, "{sent}");
        assert_eq!(heard.lost, [0; 2], "{datapath} {cell}: of {:?}", heard.sent);
        domain.is_bound(FIRST, "fd00:2::2");
        let status = domain.mags[cell].status();
        // All of them, for this gateway and for the other one of the node.
        let refused = drops(&status, "from_host");
        assert!(refused >= 2 * u64::from(sent) - 10, "{datapath} {cell}: {refused} of {sent}");
    }
}

#[test]
fn no_host_ends_anothers_registration_in_the_anchors_name() {
    cannot_revoke("ebpf");
}

#[test]
fn no_host_ends_anothers_registration_in_the_anchors_name_in_user_space() {
    cannot_revoke("user");
}
