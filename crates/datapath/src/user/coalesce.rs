//! Merges consecutive TCP segments of one flow into a super-packet, so that the kernel's stack processes them in
//! one pass. Pure. The rules are the same as for the kernel's own receive offload: segmenting the result restores
//! exactly the same packets.

use super::partial;
use super::segment::{ACK, CWR, FIN, PSH, TCP, VnetHeader};
use crate::checksum::{Sum, pseudo_header, set_ipv4};

/// Most segments in one super-packet.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// Longest super-packet in bytes: the limit of the length fields of both IP versions.
const MAX_LEN: usize = 65_535;
/// Offset of the checksum in a TCP header.
const CHECKSUM: usize = 16;
/// IPv6 and TCP with the maximum of options.
const MAX_HEADER: usize = 40 + 60;

/// How many packets of a path one packet represents, with a device of `mtu` bytes. The sender has counted a TCP
/// super-packet that no device segmented as the segments that it would have become.
pub(crate) fn packets_in(packet: &[u8], mtu: usize) -> u32 {
    let network = match packet {
        [0x45, ..] if packet.get(9) == Some(&TCP) => 20,
        [first, ..] if first >> 4 == 6 && packet.get(6) == Some(&TCP) => 40,
        _ => return 1,
    };
    let Some(offset) = packet.get(network + 12).filter(|_| packet.len() > mtu) else { return 1 };
    let headers = network + usize::from(offset >> 4) * 4;
    let payload = packet.len().saturating_sub(headers);
    payload.div_ceil(mtu.saturating_sub(headers).max(1)).max(1) as u32
}

/// Takes packets in order and emits packets for the TUN device: virtio header, inner headers, pieces of payload.
pub struct Coalescer<'a, W: FnMut(&VnetHeader, &[u8], &[&'a [u8]])> {
    write: W,
    /// MTU of the device in bytes.
    mtu: usize,
    pending: Option<Segment<'a>>,
    payloads: Vec<&'a [u8]>,
    payload_len: usize,
    next_seq: u32,
    last_flags: u8,
}

impl<'a, W: FnMut(&VnetHeader, &[u8], &[&'a [u8]])> Coalescer<'a, W> {
    /// A coalescer for a device of `mtu` bytes that passes its output to `write`.
    pub fn new(mtu: usize, write: W) -> Self {
        Coalescer {
            write,
            mtu,
            pending: None,
            payloads: Vec::with_capacity(MAX_SEGMENTS),
            payload_len: 0,
            next_seq: 0,
            last_flags: 0,
        }
    }

    /// Adds a packet.
    pub fn push(&mut self, packet: &'a [u8]) {
        let Some(segment) = Segment::read(packet) else {
            self.flush();
            (self.write)(&partial::left_open(packet).unwrap_or_default(), &[], &[packet]);
            return;
        };
        if segment.is_super(self.mtu) {
            self.flush();
            (self.write)(&segment.super_packet(self.mtu), segment.headers, &[segment.payload]);
            return;
        }
        if !self.fits(&segment) {
            self.flush();
            self.next_seq = segment.seq;
            self.payload_len = 0;
            self.pending = Some(segment);
        }
        self.payloads.push(segment.payload);
        self.payload_len += segment.payload.len();
        self.next_seq = self.next_seq.wrapping_add(segment.payload.len() as u32);
        self.last_flags = segment.flags();
    }

    /// Writes out the held segments.
    pub fn flush(&mut self) {
        let Some(first) = self.pending.take() else { return };
        if let [payload] = self.payloads[..] {
            let valid = VnetHeader { flags: VnetHeader::DATA_VALID, ..VnetHeader::default() };
            let vnet = if first.open { partial::open_at(first.network, CHECKSUM) } else { valid };
            (self.write)(&vnet, first.headers, &[payload]);
        } else {
            let mut headers = [0; MAX_HEADER];
            let headers = &mut headers[..first.headers.len()];
            headers.copy_from_slice(first.headers);
            let vnet = first.merge_into(headers, self.payload_len, self.last_flags);
            (self.write)(&vnet, headers, &self.payloads);
        }
        self.payloads.clear();
    }

    /// True if `next` continues the held segments.
    fn fits(&self, next: &Segment<'_>) -> bool {
        let Some(first) = &self.pending else { return false };
        let last_len = self.payloads.last().map_or(0, |p| p.len());
        self.payloads.len() < MAX_SEGMENTS
            && self.last_flags & (PSH | FIN) == 0
            && next.flags() & CWR == 0
            && last_len == first.payload.len()
            && next.payload.len() <= last_len
            && next.seq == self.next_seq
            && first.headers.len() + self.payload_len + next.payload.len() <= MAX_LEN
            && first.same_but_position(next, self.payloads.len())
    }
}

/// A TCP segment that may be merged: it has payload and correct checksums.
#[derive(Clone, Copy)]
struct Segment<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
    network: usize,
    seq: u32,
    /// The checksum was left to a device.
    open: bool,
}

impl<'a> Segment<'a> {
    fn read(packet: &'a [u8]) -> Option<Segment<'a>> {
        let (network, protocol, addresses) = match packet.first()? {
            0x45 if packet.len() >= 40 => (20, packet[9], 12..20),
            first if first >> 4 == 6 && packet.len() >= 60 => (40, packet[6], 8..40),
            _ => return None,
        };
        let (at, rest) = if network == 20 { (2, 0) } else { (4, 40) };
        let len = rest + usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        if protocol != TCP || len != packet.len() {
            return None;
        }
        if network == 20 {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
            if fragment || Sum::default().bytes(&packet[..20]).fold() != 0xffff {
                return None;
            }
        }
        let tcp = &packet[network..];
        let header_len = usize::from(tcp[12] >> 4) * 4;
        // SYN, RST and URG have a meaning for their own packet, so such packets are never merged.
        let plain = tcp[13] & 0x26 == 0 && tcp[13] & ACK != 0;
        if !plain || header_len < 20 || tcp.len() <= header_len {
            return None;
        }
        let pseudo = pseudo_header(&packet[addresses], TCP, tcp.len());
        let open = partial::is_open(&tcp[CHECKSUM..CHECKSUM + 2], pseudo);
        if !open && pseudo.bytes(tcp).fold() != 0xffff {
            return None;
        }
        let (headers, payload) = packet.split_at(network + header_len);
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        Some(Segment { headers, payload, network, seq, open })
    }

    fn flags(&self) -> u8 {
        self.headers[self.network + 13]
    }

    /// True if `next`, the `n`-th segment after this one, has the same headers except for fields that segmentation
    /// computes.
    fn same_but_position(&self, next: &Segment<'_>, n: usize) -> bool {
        let (a, b) = (self.headers, next.headers);
        if a.len() != b.len() || a[0] != b[0] {
            return false;
        }
        let network = if self.network == 20 {
            let id = |h: &[u8]| u16::from_be_bytes([h[4], h[5]]);
            // RFC 6864, section 4.1: the identification of a packet that may not be fragmented has no meaning, and
            // some senders leave it constant.
            let constant = a[6] & 0x40 != 0 && id(b) == id(a);
            a[1] == b[1]
                && a[6..10] == b[6..10]
                && a[12..20] == b[12..20]
                && (constant || id(b) == id(a).wrapping_add(n as u16))
        } else {
            a[..4] == b[..4] && a[6..40] == b[6..40]
        };
        let (a, b) = (&a[self.network..], &b[self.network..]);
        network
            && a[..4] == b[..4]
            && a[8..13] == b[8..13]
            && (a[13] ^ b[13]) & !(PSH | FIN | CWR) == 0
            && a[14..16] == b[14..16]
            && a[18..] == b[18..]
    }

    /// True for a super-packet of the sender's stack that no device segmented. The kernel passes it to a socket as
    /// one datagram and does not report the intended segment size.
    fn is_super(&self, mtu: usize) -> bool {
        self.open && self.headers.len() + self.payload.len() > mtu && mtu > self.headers.len()
    }

    /// Its virtio header, with segments that fit the device.
    fn super_packet(&self, mtu: usize) -> VnetHeader {
        let ecn = if self.flags() & CWR != 0 { VnetHeader::GSO_ECN } else { 0 };
        let gso_type =
            if self.network == 20 { VnetHeader::GSO_TCPV4 } else { VnetHeader::GSO_TCPV6 };
        VnetHeader {
            gso_type: gso_type | ecn,
            hdr_len: self.headers.len() as u16,
            gso_size: (mtu - self.headers.len()) as u16,
            ..partial::open_at(self.network, CHECKSUM)
        }
    }

    /// Turns `headers` into the headers of the super-packet that starts with this segment.
    fn merge_into(&self, headers: &mut [u8], payload_len: usize, last_flags: u8) -> VnetHeader {
        let total = headers.len() + payload_len;
        let (gso_type, addresses) = if self.network == 20 {
            headers[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            set_ipv4(&mut headers[..20]);
            (VnetHeader::GSO_TCPV4, 12..20)
        } else {
            headers[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            (VnetHeader::GSO_TCPV6, 8..40)
        };
        let sum = pseudo_header(&headers[addresses], TCP, total - self.network).fold();
        let tcp = &mut headers[self.network..];
        tcp[13] |= last_flags & (PSH | FIN);
        tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        let ecn = if tcp[13] & CWR != 0 { VnetHeader::GSO_ECN } else { 0 };
        VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: gso_type | ecn,
            hdr_len: self.headers.len() as u16,
            gso_size: self.payload.len() as u16,
            csum_start: self.network as u16,
            csum_offset: CHECKSUM as u16,
        }
    }
}

#[cfg(test)]
mod tests;
