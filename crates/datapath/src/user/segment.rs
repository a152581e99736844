//! Packets from the TUN device, and their conversion to packets on the wire: the virtio network header, incomplete
//! checksums and super-packets (TCP and UDP segmentation offload). Pure.

use segue_wire::DropReason;

use crate::checksum::{Sum, pseudo_header, set_ipv4};

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// TCP flags (RFC 9293, 3.1), byte 13 of the header.
pub(super) const FIN: u8 = 1;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;
pub(super) const CWR: u8 = 128;

/// The header before each packet on the TUN descriptor: `struct virtio_net_hdr` in the machine's byte order
/// (Virtual I/O Device 1.2, section 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// State of the checksums: [`VnetHeader::NEEDS_CSUM`], [`VnetHeader::DATA_VALID`].
    pub flags: u8,
    /// How to segment the packet.
    pub gso_type: u8,
    /// Bytes of all headers, as a hint.
    pub hdr_len: u16,
    /// Bytes of payload in each segment.
    pub gso_size: u16,
    /// Start of the checksummed bytes, relative to the IP header.
    pub csum_start: u16,
    /// Offset of the checksum field from there.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Length in bytes.
    pub const LEN: usize = 10;
    /// The checksum at `csum_start + csum_offset` covers the rest of the packet and must be completed.
    pub(crate) const NEEDS_CSUM: u8 = 1;
    /// The checksums of the packet are known to be correct.
    pub(crate) const DATA_VALID: u8 = 2;
    /// A single packet.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub(crate) const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub(crate) const GSO_TCPV6: u8 = 4;
    /// UDP datagrams.
    pub(crate) const GSO_UDP_L4: u8 = 5;
    /// The first segment carries CWR; the others must not.
    pub(crate) const GSO_ECN: u8 = 0x80;

    /// Reads the header at the start of `bytes` and returns the rest.
    pub fn split(bytes: &[u8]) -> Option<(VnetHeader, &[u8])> {
        let (h, rest) = bytes.split_first_chunk::<{ VnetHeader::LEN }>()?;
        let word = |i: usize| u16::from_ne_bytes([h[i], h[i + 1]]);
        let header = VnetHeader {
            flags: h[0],
            gso_type: h[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        };
        Some((header, rest))
    }

    /// The header as bytes.
    pub fn emit(&self) -> [u8; VnetHeader::LEN] {
        let mut bytes = [0; VnetHeader::LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (chunk, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// How to segment a packet from the TUN device. All checks are done in [`Cut::new`], so [`Cut::apply`] cannot fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    kind: CutKind,
    /// Number of packets on the wire.
    pub count: u32,
    /// Total bytes of these packets.
    pub bytes: usize,
    /// Bytes of each packet; the last may be shorter.
    pub size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutKind {
    Whole,
    Finish { start: usize, at: usize },
    Super { transport: usize, header: usize, gso_size: usize, protocol: u8 },
}

impl Cut {
    /// Decides how to segment `packet`, an IP packet whose length field has been checked.
    ///
    /// # Errors
    /// [`DropReason::InnerPacket`] if the virtio header does not fit the packet.
    pub fn new(vnet: &VnetHeader, packet: &[u8]) -> Result<Cut, DropReason> {
        let bad = DropReason::InnerPacket;
        let whole = |kind| Cut { kind, count: 1, bytes: packet.len(), size: packet.len() };
        let start = usize::from(vnet.csum_start);
        let protocol = match vnet.gso_type & !VnetHeader::GSO_ECN {
            VnetHeader::GSO_NONE if vnet.flags & VnetHeader::NEEDS_CSUM == 0 => {
                return Ok(whole(CutKind::Whole));
            }
            VnetHeader::GSO_NONE => {
                let at = start + usize::from(vnet.csum_offset);
                if at + 2 > packet.len() {
                    return Err(bad);
                }
                return Ok(whole(CutKind::Finish { start, at }));
            }
            VnetHeader::GSO_TCPV4 | VnetHeader::GSO_TCPV6 => TCP,
            VnetHeader::GSO_UDP_L4 => UDP,
            _ => return Err(bad),
        };
        let network = match packet.first().ok_or(bad)? >> 4 {
            4 => usize::from(packet[0] & 15) * 4,
            _ => 40,
        };
        let transport = if vnet.flags & VnetHeader::NEEDS_CSUM == 0 { network } else { start };
        let header = match protocol {
            TCP => match packet.get(transport + 12) {
                Some(offset) if offset >> 4 >= 5 => transport + usize::from(offset >> 4) * 4,
                _ => return Err(bad),
            },
            _ => transport + 8,
        };
        let gso_size = usize::from(vnet.gso_size);
        let sane =
            network >= 20 && network <= transport && transport % 2 == 0 && header <= MAX_HEADER;
        if !sane || header >= packet.len() || gso_size == 0 {
            return Err(bad);
        }
        let count = (packet.len() - header).div_ceil(gso_size);
        Ok(Cut {
            kind: CutKind::Super { transport, header, gso_size, protocol },
            count: count as u32,
            bytes: packet.len() + (count - 1) * header,
            size: (header + gso_size).min(packet.len()),
        })
    }

    /// Calls `each` for every packet in order, with correct lengths and checksums: its completed headers and the
    /// range of `packet` that follows them.
    pub fn apply(&self, packet: &mut [u8], mut each: impl FnMut(&[u8], std::ops::Range<usize>)) {
        match self.kind {
            CutKind::Whole => each(&[], 0..packet.len()),
            CutKind::Finish { start, at } => {
                // The field holds the pseudo-header's sum, so the total includes it.
                let sum = !Sum::default().bytes(&packet[start..]).fold();
                let sum = if sum == 0 && at - start == 6 { 0xffff } else { sum };
                packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
                each(&[], 0..packet.len());
            }
            CutKind::Super { transport, header, gso_size, protocol } => {
                let (head, payload) = packet.split_at(header);
                let mut at = header;
                for (i, part) in payload.chunks(gso_size).enumerate() {
                    let mut h = [0; MAX_HEADER];
                    let h = &mut h[..header];
                    h.copy_from_slice(head);
                    let last = at + part.len() == packet.len();
                    finish_segment(h, transport, protocol, i, gso_size, part, last);
                    each(h, at..at + part.len());
                    at += part.len();
                }
            }
        }
    }
}

/// A packet from the TUN device as complete packets on the wire, each after an empty virtio header.
///
/// # Errors
/// As for [`Cut::new`].
pub(crate) fn complete(vnet: &VnetHeader, packet: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
    let cut = Cut::new(vnet, packet)?;
    let mut packet = packet.to_vec();
    let mut parts = Vec::new();
    cut.apply(&mut packet, |head, body| parts.push((head.to_vec(), body)));
    let whole = |(head, body): &(Vec<u8>, std::ops::Range<usize>)| {
        [&VnetHeader::default().emit()[..], head, &packet[body.clone()]].concat()
    };
    Ok(parts.iter().map(whole).collect())
}

/// Longest inner headers of a super-packet: IPv6 with extension headers, or IPv4 with options, and TCP.
const MAX_HEADER: usize = 256;

/// Turns the headers of a super-packet into those of its `i`-th segment.
fn finish_segment(
    h: &mut [u8],
    transport: usize,
    protocol: u8,
    i: usize,
    gso_size: usize,
    payload: &[u8],
    last: bool,
) {
    let total = h.len() + payload.len();
    let addresses = if h[0] >> 4 == 4 {
        h[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        let id = u16::from_be_bytes([h[4], h[5]]).wrapping_add(i as u16);
        h[4..6].copy_from_slice(&id.to_be_bytes());
        let network = usize::from(h[0] & 15) * 4;
        set_ipv4(&mut h[..network]);
        12..20
    } else {
        h[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        8..40
    };
    let (network, upper) = h.split_at_mut(transport);
    let check = if protocol == TCP {
        let seq = u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]);
        let seq = seq.wrapping_add((i * gso_size) as u32);
        upper[4..8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            upper[13] &= !(FIN | PSH);
        }
        if i > 0 {
            upper[13] &= !CWR;
        }
        16
    } else {
        upper[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
        6
    };
    upper[check..check + 2].fill(0);
    let sum = pseudo_header(&network[addresses], protocol, upper.len() + payload.len());
    let sum = !sum.bytes(upper).bytes(payload).fold();
    let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
    upper[check..check + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
pub(super) mod tests;
