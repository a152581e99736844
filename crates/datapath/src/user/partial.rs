//! Checksums that a sender's stack left to a device, when no device completed them. Over veth, and between virtual
//! machines, a packet of the eBPF datapath arrives as it left: its checksum field holds only the sum of the
//! pseudo-header (CHECKSUM_PARTIAL in the kernel). The kernel marks such packets, but a socket does not see the mark,
//! so the value must decide. One in 65 536 correct checksums has this value too, and is recomputed. Pure.

use super::segment::{TCP, UDP, VnetHeader};
use crate::checksum::{Sum, pseudo_header};

/// The virtio header of a TCP or UDP packet whose checksum the kernel must complete.
pub fn left_open(packet: &[u8]) -> Option<VnetHeader> {
    let (network, protocol, addresses) = match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
            (usize::from(packet[0] & 15) * 4, packet[9], (!fragment).then_some(12..20)?)
        }
        6 if packet.len() >= 40 => (40, packet[6], 8..40),
        _ => return None,
    };
    let offset = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let upper = packet.get(network..)?;
    let field = upper.get(offset..offset + 2)?;
    let pseudo = pseudo_header(&packet[addresses], protocol, upper.len());
    is_open(field, pseudo).then(|| open_at(network, offset))
}

/// True if a checksum field holds only the sum of the pseudo-header.
pub(crate) fn is_open(field: &[u8], pseudo: Sum) -> bool {
    field == pseudo.fold().to_be_bytes()
}

/// The virtio header of a single packet whose checksum must be completed.
pub(crate) fn open_at(network: usize, offset: usize) -> VnetHeader {
    VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: network as u16,
        csum_offset: offset as u16,
        ..VnetHeader::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::segment::Cut;
    use etherparse::PacketBuilder;

    fn packet(v6: bool, tcp: bool, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = if v6 {
            PacketBuilder::ipv6([3; 16], [5; 16], 64)
        } else {
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        if tcp {
            builder.tcp(1, 2, 3, 4).write(&mut packet, payload).unwrap();
        } else {
            builder.udp(1, 2).write(&mut packet, payload).unwrap();
        }
        packet
    }

    #[test]
    fn what_was_left_open_is_finished_to_what_an_independent_builder_writes() {
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let whole = packet(v6, tcp, b"odd");
            assert_eq!(left_open(&whole), None, "{v6} {tcp}");
            let network = if v6 { 40 } else { 20 };
            let at = network + if tcp { 16 } else { 6 };
            let mut open = whole.clone();
            let addresses = if v6 { 8..40 } else { 12..20 };
            let protocol = if tcp { TCP } else { UDP };
            let sum = pseudo_header(&open[addresses], protocol, open.len() - network).fold();
            open[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            let vnet = left_open(&open).expect("left open");
            Cut::new(&vnet, &open).unwrap().apply(&mut open, |_, _| {});
            assert_eq!(open, whole, "{v6} {tcp}");
        }
    }

    #[test]
    fn fragments_other_protocols_and_what_is_cut_short_are_left_as_they_are() {
        let mut open = packet(false, false, b"data");
        let sum = pseudo_header(&open[12..20], UDP, open.len() - 20).fold();
        open[26..28].copy_from_slice(&sum.to_be_bytes());
        assert!(left_open(&open).is_some());
        let changed = |at: usize, byte: u8| {
            let mut packet = open.clone();
            packet[at] = byte;
            packet
        };
        assert_eq!(left_open(&changed(6, 0x20)), None, "the first fragment");
        assert_eq!(left_open(&changed(7, 1)), None, "a later one");
        assert_eq!(left_open(&changed(9, 1)), None, "ICMP");
        assert_eq!(left_open(&changed(0, 0x4f)), None, "options longer than the packet");
        assert_eq!(left_open(&changed(26, !open[26])), None, "another value");
        (0..28).for_each(|len| assert_eq!(left_open(&open[..len]), None, "{len}"));
    }
}
