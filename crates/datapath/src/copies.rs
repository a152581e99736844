//! Turns copies of sent packets into packets that can be sent again.

use crate::checksum::pseudo_header;
use segue_wire::DropReason;

use crate::user::segment::{VnetHeader, complete};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Longest headers of a super-packet.
const MAX_HEADERS: usize = 256;
/// TCP flags (RFC 9293, 3.1), byte 13 of the header.
const FIN_PSH: u8 = 1 | 8;

/// A copied packet, complete or truncated, with a virtio header and complete checksums. For a super-packet with
/// segments of `gso_size` bytes, its first segment; `gso_size` is 0 for any other packet.
///
/// # Errors
/// [`DropReason::InnerPacket`] if the copy cannot be sent on its own.
pub(crate) fn again(kept: &[u8], gso_size: u16) -> Result<Vec<u8>, DropReason> {
    let bad = DropReason::InnerPacket;
    let most = if gso_size == 0 { kept.len() } else { MAX_HEADERS + usize::from(gso_size) };
    let mut packet = kept[..kept.len().min(most)].to_vec();
    let Some((protocol, transport)) = transport(&packet) else {
        let whole = || complete(&VnetHeader::default(), &packet)?.pop().ok_or(bad);
        return if gso_size == 0 { whole() } else { Err(bad) };
    };
    let mut vnet = VnetHeader { csum_start: transport as u16, ..VnetHeader::default() };
    vnet.csum_offset = if protocol == TCP { 16 } else { 6 };
    if gso_size > 0 {
        let header = match (protocol, packet.get(transport + 12)) {
            // A packet from a guest of this machine has not been validated: its header length may be too short.
            (TCP, Some(offset)) => transport + usize::from(offset >> 4).max(5) * 4,
            _ => transport + 8,
        };
        let end = header + usize::from(gso_size);
        if end > packet.len() {
            return Err(bad);
        }
        packet.truncate(end);
        if protocol == TCP {
            packet[transport + 13] &= !FIN_PSH;
        }
        (vnet.flags, vnet.gso_size) = (VnetHeader::NEEDS_CSUM, gso_size);
        vnet.gso_type = match (protocol, packet[0] >> 4) {
            (TCP, 4) => VnetHeader::GSO_TCPV4,
            (TCP, _) => VnetHeader::GSO_TCPV6,
            _ => VnetHeader::GSO_UDP_L4,
        };
    } else if is_open(&packet, protocol, transport, usize::from(vnet.csum_offset)) {
        vnet.flags = VnetHeader::NEEDS_CSUM;
    }
    complete(&vnet, &packet)?.pop().ok_or(bad)
}

/// Protocol and offset of a TCP or UDP header that follows the IP header of an unfragmented packet.
fn transport(packet: &[u8]) -> Option<(u8, usize)> {
    let (protocol, at) = match packet.first()? >> 4 {
        4 => {
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
            if fragment != 0 {
                return None;
            }
            (*packet.get(9)?, usize::from(packet[0] & 15) * 4)
        }
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let least = match protocol {
        TCP => 20,
        UDP => 8,
        _ => return None,
    };
    (packet.len() >= at + least).then_some((protocol, at))
}

/// True if the checksum was left for the device to complete: the field then holds the sum of the pseudo-header.
fn is_open(packet: &[u8], protocol: u8, transport: usize, offset: usize) -> bool {
    let addresses = if packet[0] >> 4 == 4 { 12..20 } else { 8..40 };
    let sum = pseudo_header(&packet[addresses], protocol, packet.len() - transport);
    let at = transport + offset;
    sum.fold() == u16::from_be_bytes([packet[at], packet[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP segment with `payload` bytes between documentation addresses, with an incomplete checksum.
    fn tcp(payload: usize) -> Vec<u8> {
        let mut packet = vec![0u8; 40 + payload];
        let total = (packet.len() as u16).to_be_bytes();
        packet[..4].copy_from_slice(&[0x45, 0, total[0], total[1]]);
        (packet[8], packet[9]) = (64, TCP);
        packet[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
        (packet[32], packet[33]) = (0x50, 0x18 | 1);
        packet[40..].iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        let sum = pseudo_header(&packet[12..20], TCP, 20 + payload).fold();
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// RFC 9293, 3.1: the sum over a segment, including a correct checksum, folds to all ones.
    fn is_right(packet: &[u8]) -> bool {
        let sum = pseudo_header(&packet[12..20], TCP, packet.len() - 20);
        sum.bytes(&packet[20..]).fold() == 0xffff
    }

    #[test]
    fn an_open_checksum_is_finished_and_a_finished_one_is_kept() {
        let packet = tcp(101);
        let whole = again(&packet, 0).unwrap();
        assert!(is_right(&whole[VnetHeader::LEN..]));
        assert_eq!(whole[VnetHeader::LEN + 40..], packet[40..]);
        let finished = whole[VnetHeader::LEN..].to_vec();
        assert_eq!(again(&finished, 0).unwrap(), whole);
        // A wrong checksum stays wrong.
        let mut spoilt = finished;
        spoilt[60] ^= 1;
        assert_eq!(again(&spoilt, 0).unwrap()[VnetHeader::LEN..], spoilt);
    }

    #[test]
    fn of_a_super_packet_the_first_segment_is_left() {
        let packet = tcp(5_000);
        let whole = again(&packet[..1_536], 1_200).unwrap();
        let segment = &whole[VnetHeader::LEN..];
        assert_eq!(whole[..VnetHeader::LEN], VnetHeader::default().emit());
        assert_eq!(segment.len(), 40 + 1_200);
        assert_eq!(u16::from_be_bytes([segment[2], segment[3]]), 1_240);
        assert_eq!(segment[33] & FIN_PSH, 0, "what ends the stream comes later");
        assert!(is_right(segment));
        assert_eq!(segment[40..], packet[40..1_240]);
        assert!(again(&packet[..1_000], 1_200).is_err(), "not enough of it");
    }

    #[test]
    fn a_header_that_says_it_has_no_length_is_no_end() {
        for offset in 0..16u8 {
            let mut packet = tcp(60);
            packet[32] = offset << 4;
            for gso_size in 1..40 {
                let _ = again(&packet, gso_size);
            }
        }
    }

    #[test]
    fn what_is_neither_tcp_nor_udp_leaves_as_it_is() {
        let mut icmp = tcp(30);
        icmp[9] = 1;
        assert_eq!(again(&icmp, 0).unwrap()[VnetHeader::LEN..], icmp);
        let mut fragment = tcp(30);
        fragment[6] = 0x20;
        assert_eq!(again(&fragment, 0).unwrap()[VnetHeader::LEN..], fragment);
    }
}
