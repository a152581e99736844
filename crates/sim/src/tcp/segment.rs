//! A TCP segment as it travels.

/// Most SACK blocks in a segment (RFC 2018: three beside a timestamp, four without).
pub const MAX_SACK: usize = 4;

/// SACK blocks, first the one that holds the newest arrival (RFC 2018, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    blocks: [(u64, u64); MAX_SACK],
    len: u8,
}

impl Sack {
    /// Adds a block of the bytes from `start` to before `end`; more than four are left out.
    pub fn push(&mut self, start: u64, end: u64) {
        if usize::from(self.len) < MAX_SACK {
            self.blocks[usize::from(self.len)] = (start, end);
            self.len += 1;
        }
    }

    /// Leaves out the blocks for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(u64, u64) -> bool) {
        let blocks = *self;
        self.len = 0;
        for (start, end) in blocks.blocks().iter().filter(|block| keep(block.0, block.1)) {
            self.push(*start, *end);
        }
    }

    /// The blocks: first byte, and the byte after the last.
    #[must_use]
    pub fn blocks(&self) -> &[(u64, u64)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// A TCP segment. Numbers count bytes of the stream from 0 and never wrap here; a trace shows their low 32
/// bits behind the initial sequence number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// First byte of the payload.
    pub seq: u64,
    /// Bytes of payload.
    pub len: u32,
    /// Next byte expected (flag ACK), if it acknowledges.
    pub ack: Option<u64>,
    /// Flag SYN.
    pub syn: bool,
    /// Flag FIN, behind the payload.
    pub fin: bool,
    /// What arrived out of order.
    pub sack: Sack,
    /// Timestamp value and echo (RFC 7323), each in the clock of the end that set it.
    pub timestamps: Option<(u64, u64)>,
    /// Sent before.
    pub retransmission: bool,
}
