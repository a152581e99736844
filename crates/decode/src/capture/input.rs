//! What both forms of captures have: packets, and bytes in an order.

use std::fmt;
use std::io::{self, Read};

use anyhow::{Context, bail};
use segue_text::units;

/// First bytes of pcap in network order: microseconds, nanoseconds, and microseconds with longer heads of packets
/// (Kuznetsov's).
pub(super) const PCAP: [u32; 3] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];
/// First bytes of pcapng, in either order.
pub(super) const PCAPNG: u32 = 0x0a0d_0d0a;
/// No packet is longer: a length above it is none.
pub(super) const PACKET_MAX: u32 = 16 << 20;

pub(super) const ENDS_EARLY: &str = "the capture ends too early";

/// A packet of a capture.
#[derive(Clone, Debug)]
pub struct Packet {
    /// From 1, as other programs count them.
    pub number: u64,
    /// When it was captured. None where the capture does not say.
    pub time: Option<Time>,
    /// Number of its interface's link type.
    pub link_type: u16,
    /// What was captured of it, without a frame check sequence.
    pub bytes: Vec<u8>,
    /// How many bytes it had: more, where the capture kept only its beginning.
    pub length: usize,
}

impl Packet {
    pub(super) fn new(
        number: u64,
        time: Option<Time>,
        link: LinkType,
        bytes: Vec<u8>,
        length: u32,
    ) -> Packet {
        let length = (length as usize).max(bytes.len());
        let check = if length > bytes.len() { 0 } else { link.check_octets.min(length) };
        let (mut bytes, length) = (bytes, length - check);
        bytes.truncate(length);
        Packet { number, time, link_type: link.number, bytes, length }
    }
}

/// A time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Since 1970.
    pub seconds: u64,
    /// Less than a second.
    pub nanoseconds: u32,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = units::date(self.seconds);
        let Some(date) = date.strip_suffix('Z') else { return f.write_str(&date) };
        match self.nanoseconds {
            ns if ns % 1_000 == 0 => write!(f, "{date}.{:06}Z", ns / 1_000),
            ns => write!(f, "{date}.{ns:09}Z"),
        }
    }
}

/// What an interface's packets begin with, and what ends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkType {
    pub(super) number: u16,
    /// Length of the frame check sequence behind each packet.
    pub(super) check_octets: usize,
}

/// Bytes with an order of bytes.
pub(super) struct Input<R> {
    pub(super) reader: R,
    pub(super) is_little: bool,
}

impl<R: Read> Input<R> {
    /// So many bytes. Takes memory for no more than there are.
    pub(super) fn take(&mut self, length: u32) -> anyhow::Result<Vec<u8>> {
        let bytes = self.at_most(length)?;
        if bytes.len() < length as usize {
            bail!(ENDS_EARLY);
        }
        Ok(bytes)
    }

    fn at_most(&mut self, length: u32) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.reader.by_ref().take(length.into()).read_to_end(&mut bytes) {
            // Of a compressed file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => bail!(ENDS_EARLY),
            read => read?,
        };
        Ok(bytes)
    }

    /// So many words, or none at the end of the file.
    pub(super) fn words<const N: usize>(&mut self) -> anyhow::Result<Option<[u32; N]>> {
        let bytes = self.at_most(4 * N as u32)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut words = [0; N];
        for (at, word) in words.iter_mut().enumerate() {
            *word = self.word(&bytes, 4 * at).context(ENDS_EARLY)?;
        }
        Ok(Some(words))
    }

    pub(super) fn skip(&mut self, length: u32) -> anyhow::Result<()> {
        let skipped = io::copy(&mut self.reader.by_ref().take(length.into()), &mut io::sink())?;
        if skipped < length.into() {
            bail!(ENDS_EARLY);
        }
        Ok(())
    }

    /// A number of four bytes at a place.
    pub(super) fn word(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// A number of two bytes at a place.
    pub(super) fn half(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }
}
