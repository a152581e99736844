//! Reads captures (pcap and pcapng) leniently: it looks only at packets and at the interface fields that decoding them
//! requires, so that a fault elsewhere in the file does not stop it.

use std::io::{self, Read};

use anyhow::Context;
use flate2::read::MultiGzDecoder;

mod input;
mod ng;
mod old;

use input::{Input, PCAP, PCAPNG};
pub use input::{Packet, Time};

/// Magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The first four bytes of an input, and the whole input, decompressed if it is gzip.
///
/// # Errors
/// The input cannot be read.
pub fn unpacked<'a>(input: impl Read + 'a) -> io::Result<(Vec<u8>, Box<dyn Read + 'a>)> {
    let head = |input: &mut dyn Read| {
        let mut head = Vec::new();
        input.take(4).read_to_end(&mut head).map(|_| head)
    };
    let mut input: Box<dyn Read + 'a> = Box::new(input);
    let mut begin = head(&mut input)?;
    if begin.starts_with(&GZIP) {
        input = Box::new(MultiGzDecoder::new(io::Cursor::new(begin).chain(input)));
        begin = head(&mut input)?;
    }
    Ok((begin.clone(), Box::new(io::Cursor::new(begin).chain(input))))
}

/// A capture that is read packet by packet.
pub struct Capture<R> {
    input: Input<R>,
    form: Form,
    packets: u64,
}

enum Form {
    Old(old::Pcap),
    Ng(ng::Section),
}

impl<R: Read> Capture<R> {
    /// Whether `head` is the magic number of a capture.
    #[must_use]
    pub fn is(head: [u8; 4]) -> bool {
        let word = u32::from_be_bytes(head);
        word == PCAPNG || PCAP.contains(&word) || PCAP.contains(&word.swap_bytes())
    }

    /// Opens a capture that begins with `head`; `reader` still contains these bytes.
    ///
    /// # Errors
    /// The file is not a capture, or ends within its header.
    pub fn open(head: [u8; 4], reader: R) -> anyhow::Result<Capture<R>> {
        let mut input = Input { reader, is_little: false };
        let form = match u32::from_be_bytes(head) {
            PCAPNG => Form::Ng(ng::Section::default()),
            _ => Form::Old(old::Pcap::open(head, &mut input)?),
        };
        Ok(Capture { input, form, packets: 0 })
    }

    /// The next packet; `None` at the end of the file.
    ///
    /// # Errors
    /// The file ends within it, or is broken.
    pub fn next_packet(&mut self) -> anyhow::Result<Option<Packet>> {
        let number = self.packets + 1;
        let packet = match &mut self.form {
            Form::Old(pcap) => pcap.next_packet(number, &mut self.input),
            Form::Ng(section) => section.next_packet(number, &mut self.input),
        };
        let packet = packet.with_context(|| format!("packet {number}"))?;
        self.packets += u64::from(packet.is_some());
        Ok(packet)
    }
}
