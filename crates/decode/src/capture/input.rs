//! Shared by both capture formats: packets, and reading numbers in either byte order.

use std::fmt;
use std::io::{self, Read};

use anyhow::{Context, bail};
use segue_text::units;

/// Magic numbers of pcap in network order: timestamps in microseconds, in nanoseconds, and in microseconds with longer
/// packet headers (Kuznetsov's variant).
pub(super) const PCAP: [u32; 3] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34];
/// Magic number of pcapng, the same in both byte orders.
pub(super) const PCAPNG: u32 = 0x0a0d_0d0a;
/// Longest packet in bytes; a larger length means that the file is broken.
pub(super) const PACKET_MAX: u32 = 16 << 20;

pub(super) const ENDS_EARLY: &str = "the capture ends too early";

/// A packet in a capture.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Counted from 1, as other programs do.
    pub number: u64,
    /// When it was captured; `None` if the capture has no timestamp for it.
    pub time: Option<Time>,
    /// Link type of its interface, by number.
    pub link_type: u16,
    /// The captured bytes, without a frame check sequence.
    pub bytes: Vec<u8>,
    /// Length on the wire in bytes; greater than `bytes.len()` if the capture truncated the packet.
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
    /// Seconds since 1970.
    pub seconds: u64,
    /// Less than one second.
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

/// The framing of an interface's packets: link type, and frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkType {
    pub(super) number: u16,
    /// Length of the frame check sequence that ends each packet.
    pub(super) check_octets: usize,
}

/// A reader with a byte order.
pub(super) struct Input<R> {
    pub(super) reader: R,
    pub(super) is_little: bool,
}

impl<R: Read> Input<R> {
    /// Reads exactly `length` bytes. Allocates only for bytes that exist.
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
            // A compressed file that ends early.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => bail!(ENDS_EARLY),
            read => read?,
        };
        Ok(bytes)
    }

    /// Reads `N` 32-bit words; `None` at the end of the file.
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

    /// The 32-bit number at an offset.
    pub(super) fn word(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// The 16-bit number at an offset.
    pub(super) fn half(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }
}
