//! A TCP segment in transit.

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_sim::packet::{Packet, Payload, ip_header_bytes};

/// Maximum number of SACK blocks in a segment (RFC 2018: three with a timestamp, four without).
pub(crate) const MAX_SACK: usize = 4;

/// SACK blocks; the first one contains the newest arrival (RFC 2018, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    blocks: [(u64, u64); MAX_SACK],
    len: u8,
}

impl Sack {
    /// Adds a block with the bytes `start..end`. Blocks beyond the fourth are ignored.
    pub fn push(&mut self, start: u64, end: u64) {
        if usize::from(self.len) < MAX_SACK {
            self.blocks[usize::from(self.len)] = (start, end);
            self.len += 1;
        }
    }

    /// Removes the blocks for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(u64, u64) -> bool) {
        if self.len == 0 {
            return;
        }
        let blocks = *self;
        self.len = 0;
        for (start, end) in blocks.blocks().iter().filter(|block| keep(block.0, block.1)) {
            self.push(*start, *end);
        }
    }

    /// The blocks: the first byte, and the byte after the last.
    #[must_use]
    pub fn blocks(&self) -> &[(u64, u64)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// A TCP segment. Numbers count bytes of the stream from 0 and never wrap here; a trace shows their low 32 bits
/// relative to the initial sequence number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First byte of the payload.
    pub seq: u64,
    /// Payload length in bytes.
    pub len: u32,
    /// Next byte expected, if the ACK flag is set.
    pub ack: Option<u64>,
    /// Flag SYN.
    pub syn: bool,
    /// Flag FIN; follows the payload.
    pub fin: bool,
    /// Ranges that arrived out of order.
    pub sack: Sack,
    /// Timestamp value and echo (RFC 7323), each in the clock of the end that set it.
    pub timestamps: Option<(u64, u64)>,
    /// The data were sent before.
    pub retransmission: bool,
}

/// Window in every TCP header: the models do not transmit theirs.
const WINDOW: u16 = u16::MAX;
const HEADER: usize = 20;
const MOST_OPTIONS: usize = 40;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const NOP: u8 = 1;

/// A sequence number in the header. Streams begin at 0 with a SYN that the models may omit, so the first byte has
/// number 1.
fn number(byte: u64) -> u32 {
    (byte + 1) as u32
}

impl Payload for Segment {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(*self)
    }

    /// The payload consists of zeros. The image is as long as the packet claims, unless it has options that cost
    /// nothing in its model.
    fn write(&self, packet: &Packet, image: &mut Vec<u8>) {
        let room = packet.bytes.saturating_sub(ip_header_bytes(packet.src) + self.len) as usize;
        let options = self.options(room.saturating_sub(HEADER).min(MOST_OPTIONS));
        // Only the first segment of a connection acknowledges nothing; a one-way stream has implicitly received a
        // SYN.
        let acknowledges = self.ack.is_some() || !self.syn;
        let seq = if self.syn { 0 } else { number(self.seq) };
        let ack = self.ack.map_or(u32::from(acknowledges), number);
        let mark = |flag: u8, set: bool| if set { flag } else { 0 };
        let flags = mark(FIN, self.fin) | mark(SYN, self.syn) | mark(ACK, acknowledges);
        image.extend_from_slice(&packet.ports.0.to_be_bytes());
        image.extend_from_slice(&packet.ports.1.to_be_bytes());
        image.extend_from_slice(&seq.to_be_bytes());
        image.extend_from_slice(&ack.to_be_bytes());
        image.extend_from_slice(&[(((HEADER + options.len()) / 4) << 4) as u8, flags]);
        image.extend_from_slice(&WINDOW.to_be_bytes());
        image.extend_from_slice(&[0; 4]);
        image.extend_from_slice(&options);
        image.resize(image.len() + self.len as usize, 0);
    }
}

impl Segment {
    /// SACK blocks always, even if they cost nothing in the model; timestamps if there is room; then padding up
    /// to the model's length.
    fn options(&self, room: usize) -> Vec<u8> {
        let mut options = Vec::new();
        let blocks = self.sack.blocks();
        if !blocks.is_empty() {
            options.extend([NOP, NOP, 5, 2 + 8 * blocks.len() as u8]);
            let ends = blocks.iter().flat_map(|(start, end)| [*start, *end]);
            options.extend(ends.flat_map(|end| number(end).to_be_bytes()));
        }
        if let Some((value, echo)) = self.timestamps.filter(|_| options.len() + 12 <= room) {
            let ms = |ns: u64| ((ns / 1_000_000) as u32).to_be_bytes();
            options.extend([NOP, NOP, 8, 10]);
            options.extend(ms(value).into_iter().chain(ms(echo)));
        }
        options.resize(options.len().max(room / 4 * 4), NOP);
        options
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use etherparse::{SlicedPacket, TcpOptionElement, TransportSlice};

    use super::*;
    use segue_sim::packet::TCP;

    fn image(segment: Segment, options: u32) -> Vec<u8> {
        let [src, dst] = [1, 2].map(|n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n)));
        let length = 40 + options + segment.len;
        Packet::new(TCP, (src, 7), (dst, 8), length, segment).image()
    }

    #[test]
    fn another_parser_reads_numbers_flags_and_options() {
        let mut sack = Sack::default();
        (0..3).for_each(|n| sack.push(n * 10, n * 10 + 5));
        let timestamps = Some((5_000_000, 3_000_000));
        let (seq, len, ack, fin) = (99, 30, Some(49), true);
        let segment = Segment { seq, len, ack, fin, sack, timestamps, ..Segment::default() };
        // Room for no options, for the blocks only, and for both.
        for (options, header, stamped) in [(0, 48, false), (28, 48, false), (40, 60, true)] {
            let bytes = image(segment, options);
            let sliced = SlicedPacket::from_ip(&bytes).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("{sliced:?}") };
            assert_eq!((tcp.source_port(), tcp.destination_port()), (7, 8));
            assert_eq!((tcp.sequence_number(), tcp.acknowledgment_number()), (100, 50));
            assert_eq!((tcp.fin(), tcp.syn(), tcp.ack()), (true, false, true));
            assert_eq!(tcp.header_len(), header);
            assert_eq!((tcp.window_size(), tcp.payload()), (WINDOW, &[0; 30][..]));
            let read: Vec<_> = tcp.options_iterator().map(Result::unwrap).collect();
            let blocks = [Some((11, 16)), Some((21, 26)), None];
            let blocks = TcpOptionElement::SelectiveAcknowledgement((1, 6), blocks);
            assert!(read.contains(&blocks), "{read:?}");
            assert_eq!(read.contains(&TcpOptionElement::Timestamp(5, 3)), stamped, "{read:?}");
        }
    }

    #[test]
    fn only_a_first_segment_acknowledges_nothing() {
        for (syn, ack, expected) in
            [(true, None, (false, 0)), (false, None, (true, 1)), (true, Some(4), (true, 5))]
        {
            let bytes = image(Segment { syn, ack, seq: 6, ..Segment::default() }, 0);
            let sliced = SlicedPacket::from_ip(&bytes).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("{sliced:?}") };
            assert_eq!((tcp.ack(), tcp.acknowledgment_number()), expected);
            assert_eq!(tcp.sequence_number(), if syn { 0 } else { 7 });
        }
    }
}
