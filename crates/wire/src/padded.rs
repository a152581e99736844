//! Options with padding, as in the Mobility Header and the Hop-by-Hop and Destination Options headers (RFC 6275, 6.2.1;
//! RFC 8200, 4.2): type, length (without these two bytes) and data. Pad1 (0) is a single byte without a length; PadN
//! (1) is an option of zeros.
//!
//! Reading drops the padding. Emission uses the least padding that the alignments require: Pad1 for one byte and PadN
//! for more. Peers that follow the alignments emit the same bytes.

use alloc::vec::Vec;

use crate::WireError;

/// Type of a single octet of padding.
const PAD1: u8 = 0;
/// Type of more padding.
const PADN: u8 = 1;

/// The required position of an option's type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Any offset.
    None,
    /// `n * k + offset` octets from the start of the header (an RFC's "8n+4" is `At { n: 8, offset: 4 }`).
    At {
        /// The multiple.
        n: u8,
        /// The offset.
        offset: u8,
    },
    /// Behind all other options, so that its end is the end of the header.
    Last,
}

/// An option with its data and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Its type.
    pub kind: u8,
    /// The bytes behind its length.
    pub data: &'a [u8],
    /// Offset of its type byte from the start of the options.
    pub at: usize,
}

/// The options in some bytes, without padding. Ends after the first error.
#[derive(Clone, Debug)]
pub struct RawOptions<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RawOptions<'a> {
    /// `what` names the options in errors.
    #[must_use]
    pub fn new(what: &'static str, bytes: &'a [u8]) -> RawOptions<'a> {
        RawOptions { what, bytes, at: 0 }
    }

    /// Number of bytes from the next option or padding on.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn option(&mut self) -> Result<RawOption<'a>, WireError> {
        let at = self.at;
        let (what, got) = (self.what, self.bytes.len());
        let too_short = |min| WireError::TooShort { what, got, min };
        self.at = got;
        let head = self.bytes.get(at..at + 2).ok_or(too_short(at + 2))?;
        let end = at + 2 + usize::from(head[1]);
        let data = self.bytes.get(at + 2..end).ok_or(too_short(end))?;
        self.at = end;
        Ok(RawOption { kind: head[0], data, at })
    }
}

impl<'a> Iterator for RawOptions<'a> {
    type Item = Result<RawOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.bytes.get(self.at)? {
                PAD1 => self.at += 1,
                PADN => match self.option() {
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                },
                _ => return Some(self.option()),
            }
        }
    }
}

/// Appends an option with the padding that it needs. `out` starts with the header from which alignments count.
///
/// # Errors
/// [`WireError::Length`] if the data exceed the length field.
pub(crate) fn push(
    out: &mut Vec<u8>,
    what: &'static str,
    kind: u8,
    align: Alignment,
    data: &[u8],
) -> Result<(), WireError> {
    let length = u8::try_from(data.len());
    let length = length.map_err(|_| WireError::Length { what, got: data.len() })?;
    let gap = |n: usize, at: usize| (n - at % n) % n;
    pad(
        out,
        match align {
            Alignment::None => 0,
            Alignment::At { n, offset } => {
                let (n, offset) = (usize::from(n), usize::from(offset));
                gap(n, out.len() + n - offset)
            }
            Alignment::Last => gap(8, out.len() + 2 + data.len()),
        },
    );
    out.extend([kind, length]);
    out.extend(data);
    Ok(())
}

/// Pads to a multiple of `n` bytes.
pub(crate) fn pad_to(out: &mut Vec<u8>, n: usize) {
    pad(out, (n - out.len() % n) % n);
}

/// Appends fewer than eight bytes of padding.
fn pad(out: &mut Vec<u8>, octets: usize) {
    match octets {
        0 => {}
        1 => out.push(PAD1),
        _ => {
            out.extend([PADN, octets as u8 - 2]);
            out.resize(out.len() + octets - 2, 0);
        }
    }
}
