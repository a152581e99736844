//! Parsing of frames by the emulator.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use segue_lab::frame::{Ports, ports, stays_on_link};

/// An Ethernet frame: if another parser finds a whole UDP or TCP packet, the ports agree. Packets between link-local
/// addresses stay on the link. A truncated frame may give less information than the whole one, but never different
/// information.
pub(crate) fn frame(data: &[u8]) {
    let (whole, stays) = (ports(data), stays_on_link(data));
    for n in 0..data.len().min(128) {
        let cut = ports(&data[..n]);
        assert!(cut.is_none() || cut == whole);
        assert!(stays || !stays_on_link(&data[..n]));
    }
    let Ok(packet) = SlicedPacket::from_ethernet(data) else { return };
    if !packet.link_exts.is_empty() {
        assert!(whole.is_none() && !stays, "tagged frames are left alone");
        return;
    }
    let (bare, local) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let to = ip.header().destination_addr().octets();
            (!ip.is_payload_fragmented() && ip.extensions().is_empty(), to[..3] == [224, 0, 0])
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let ends = [header.source_addr(), header.destination_addr()];
            let multicast = ends[1].octets()[..2] == [0xff, 2];
            let local = multicast || ends.iter().any(|end| end.is_unicast_link_local());
            (ip.extensions().is_empty(), local)
        }
        Some(NetSlice::Arp(_)) => (false, true),
        None => (false, false),
    };
    assert!(stays || !local);
    let theirs = match &packet.transport {
        Some(TransportSlice::Udp(udp)) if bare => {
            Some((17, udp.source_port(), udp.destination_port()))
        }
        Some(TransportSlice::Tcp(tcp)) if bare => {
            Some((6, tcp.source_port(), tcp.destination_port()))
        }
        _ => None,
    };
    if let Some((protocol, source, destination)) = theirs {
        assert_eq!(whole, Some(Ports { protocol, source, destination }));
    }
}
