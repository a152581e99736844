//! Captures: pcap and pcapng.

use std::io::{self, Read};

use anyhow::{Context, bail};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

use crate::Link;

/// First bytes of pcap (microseconds, nanoseconds, in either byte order) and of pcapng.
const PCAP: [[u8; 4]; 4] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A packet of a capture.
#[derive(Clone, Debug)]
pub struct Packet {
    /// From 1, as other programs count them.
    pub number: u64,
    /// Link type of its interface.
    pub data_link: DataLink,
    /// What was captured of it.
    pub bytes: Vec<u8>,
    /// The capture kept only its beginning.
    pub cut: bool,
}

enum Reader<R: Read> {
    Pcap(PcapReader<R>),
    PcapNg(PcapNgReader<R>),
}

/// A capture that is read packet by packet.
pub struct Capture<R: Read> {
    reader: Reader<R>,
    packets: u64,
}

impl<R: Read> Capture<R> {
    /// Whether these are the first bytes of a capture.
    #[must_use]
    pub fn is(head: [u8; 4]) -> bool {
        PCAP.contains(&head) || head == PCAPNG
    }

    /// Opens a capture that begins with `head`, which stands in `reader` too.
    ///
    /// # Errors
    /// It is none, or of a link type that is not decoded.
    pub fn open(head: [u8; 4], reader: R) -> anyhow::Result<Capture<R>> {
        let reader = if head == PCAPNG {
            Reader::PcapNg(PcapNgReader::new(reader).map_err(said)?)
        } else {
            let reader = PcapReader::new(reader).map_err(said)?;
            let data_link = reader.header().datalink;
            if Link::of(data_link).is_none() {
                bail!("link type {} is not decoded", u32::from(data_link));
            }
            Reader::Pcap(reader)
        };
        Ok(Capture { reader, packets: 0 })
    }

    /// The next packet.
    ///
    /// # Errors
    /// The file ends within it, or is broken.
    pub fn next_packet(&mut self) -> anyhow::Result<Option<Packet>> {
        let number = self.packets + 1;
        let packet = self.read(number).with_context(|| format!("packet {number}"))?;
        self.packets = number;
        Ok(packet)
    }

    fn read(&mut self, number: u64) -> anyhow::Result<Option<Packet>> {
        let packet = |data_link, bytes: &[u8], length: u32| {
            let (bytes, cut) = (bytes.to_vec(), bytes.len() < length as usize);
            Ok(Some(Packet { number, data_link, bytes, cut }))
        };
        match &mut self.reader {
            Reader::Pcap(reader) => {
                let data_link = reader.header().datalink;
                // Raw, since the library refuses packets that were cut to the snapshot length otherwise.
                let Some(raw) = reader.next_raw_packet() else { return Ok(None) };
                let raw = raw.map_err(said)?;
                packet(data_link, &raw.data, raw.orig_len)
            }
            Reader::PcapNg(reader) => loop {
                let Some(block) = reader.next_block() else { return Ok(None) };
                let (interface, bytes, length) = match block.map_err(said)? {
                    Block::EnhancedPacket(block) => {
                        (block.interface_id, block.data.into_owned(), block.original_len)
                    }
                    Block::SimplePacket(block) => {
                        // Padded to a multiple of four.
                        let mut data = block.data.into_owned();
                        data.truncate(block.original_len as usize);
                        (0, data, block.original_len)
                    }
                    _ => continue,
                };
                let Some(interface) = reader.interfaces().get(interface as usize) else {
                    bail!("the capture describes no interface {interface}");
                };
                return packet(interface.linktype, &bytes, length);
            },
        }
    }
}

/// The library's error in a user's words.
fn said(error: PcapError) -> anyhow::Error {
    match error {
        PcapError::IncompleteBuffer => anyhow::anyhow!("the capture ends too early"),
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            anyhow::anyhow!("the capture ends too early")
        }
        PcapError::IoError(error) => error.into(),
        error => anyhow::anyhow!("the capture is broken: {error}"),
    }
}
