//! The traffic class of inner packets: copied to the outer header on departure; congestion marks
//! from the path are copied to the inner packet on arrival (RFC 6040, normal mode). Pure.

use segue_wire::flow::Inner;
use segue_wire::upmt::Form;
use segue_wire::{Header, PacketType, Probe};

use crate::checksum::set_ipv4;

/// The bits of explicit congestion notification; both set means CE (RFC 3168, section 5).
const ECN: u8 = 3;

/// DSCP and ECN of a validated IP packet.
#[must_use]
pub(crate) fn class_of(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 4 => *second,
        [first, second, ..] => first << 4 | second >> 4,
        _ => 0,
    }
}

/// True if an outer class reports congestion on the path.
#[must_use]
pub(crate) fn congested(class: u8) -> bool {
    class & ECN == ECN
}

/// The DSCP without the ECN bits.
#[must_use]
pub(super) fn without_congestion(class: u8) -> u8 {
    class & !ECN
}

/// True if a packet's ends support ECN; otherwise congestion must drop the packet (RFC 6040, 4.2).
#[must_use]
pub(crate) fn capable(class: u8) -> bool {
    class & ECN != 0
}

/// Sets CE in the inner packet of a tunnel packet, if it has one whose ends support ECN.
pub(super) fn mark(tunnel_packet: &mut [u8]) {
    let at = match Header::parse(tunnel_packet).map(|header| header.packet_type) {
        _ if Form::of(tunnel_packet) == Form::Inner => 0,
        Ok(PacketType::Data) => Header::LEN,
        Ok(PacketType::Ride) => Probe::PACKET_LEN,
        _ => return,
    };
    if let Some(packet) = tunnel_packet.get_mut(at..) {
        mark_inner(packet);
    }
}

/// Sets CE in an inner packet whose ends support ECN.
pub(crate) fn mark_inner(packet: &mut [u8]) {
    if Inner::parse(packet).is_err() || !capable(class_of(packet)) {
        return;
    }
    if packet[0] >> 4 == 4 {
        packet[1] |= ECN;
        let len = usize::from(packet[0] & 15) * 4;
        set_ipv4(&mut packet[..len]);
    } else {
        packet[1] |= ECN << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Sum;

    fn data(inner: &[u8]) -> Vec<u8> {
        let header = Header::new(PacketType::Data, 0, 1, 2);
        [&header.emit()[..], inner].concat()
    }

    fn v4(class: u8) -> Vec<u8> {
        let mut packet =
            vec![0x45, class, 0, 24, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        set_ipv4(&mut packet);
        packet.extend([0, 1, 0, 2]);
        packet
    }

    fn v6(class: u8) -> Vec<u8> {
        let mut packet = vec![0; 44];
        packet[0] = 0x60 | class >> 4;
        packet[1] = class << 4 | 9;
        packet[5] = 4;
        packet
    }

    #[test]
    fn capable_packets_are_marked_with_a_right_checksum_and_others_left_alone() {
        for class in 0..=255u8 {
            for inner in [v4(class), v6(class)] {
                assert_eq!(class_of(&inner), class);
                let mut packet = data(&inner);
                mark(&mut packet);
                let marked = &packet[Header::LEN..];
                let expected = if class & 3 == 0 { class } else { class | 3 };
                assert_eq!(class_of(marked), expected);
                assert_eq!(marked[2..10], inner[2..10]);
                let mut ride = [&[0x11][..], &[0; 55], &inner].concat();
                mark(&mut ride);
                assert_eq!(&ride[56..], marked);
                if inner[0] >> 4 == 4 {
                    assert_eq!(Sum::default().bytes(&marked[..20]).fold(), 0xffff);
                } else {
                    assert_eq!(marked[1] & 15, 9, "the flow label");
                }
            }
        }
    }

    #[test]
    fn what_is_no_data_is_left_alone() {
        let good = data(&v4(1));
        for n in 0..good.len() {
            let mut cut = good[..n].to_vec();
            mark(&mut cut);
            assert_eq!(cut, good[..n]);
        }
        let mut request = good;
        request[0] = 0x12;
        let before = request.clone();
        mark(&mut request);
        assert_eq!(request, before);
    }
}
