//! Options with padding between them, as the Mobility Header and the Hop-by-Hop and Destination Options headers have
//! them (RFC 6275, 6.2.1; RFC 8200, 4.2): type, length without these two octets, data; Pad1 (0) is one octet without a
//! length, PadN (1) an option of zeros.
//!
//! Padding is not kept. What is written has the least padding that the alignments ask for, Pad1 for one octet and PadN
//! for more. Peers that follow the alignments send the same.

use alloc::vec::Vec;

use crate::WireError;

/// Type of a single octet of padding.
const PAD1: u8 = 0;
/// Type of more padding.
const PADN: u8 = 1;

/// Where an option's type octet has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// At any octet.
    None,
    /// `n * k + offset` octets from the start of the header (an RFC's "8n+4" is `At { n: 8, offset: 4 }`).
    At {
        /// The multiple.
        n: u8,
        /// What is added.
        offset: u8,
    },
    /// Behind all others, so that its end is that of the header.
    Last,
}

/// An option as it stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Its type.
    pub kind: u8,
    /// What follows its length.
    pub data: &'a [u8],
    /// Where its type octet is, in octets from the start of the options.
    pub at: usize,
}

/// The options in some bytes, without the padding. After an error there are no more.
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

    /// Octets from where the next option or padding begins.
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

/// Appends an option behind the padding that it needs. `out` begins with the header that alignments count from.
///
/// # Errors
/// [`WireError::Length`]: more data than an option holds.
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

/// Pads to a multiple of `n` octets.
pub(crate) fn pad_to(out: &mut Vec<u8>, n: usize) {
    pad(out, (n - out.len() % n) % n);
}

/// Appends fewer than eight octets of padding.
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
