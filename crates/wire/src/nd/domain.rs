//! Domain names in the DNS Search List option (RFC 8106, 5.2): labels with length prefixes; a zero ends each name; no
//! compression; zeros pad the option.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::WireError;

/// The longest encoded name and the longest label, in bytes (RFC 1035, 2.3.4).
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// Reads all names. Bytes that are not valid in host names become `\DDD` (RFC 1035, 5.1).
///
/// # Errors
/// [`WireError::Field`] for a label that is too long or compressed, and for a name that is too long;
/// [`WireError::TooShort`] for a truncated name.
pub(super) fn read(mut bytes: &[u8]) -> Result<Vec<String>, WireError> {
    let mut names = Vec::new();
    while let [length, rest @ ..] = bytes {
        if *length == 0 {
            bytes = rest;
            continue;
        }
        let (name, behind) = read_name(bytes)?;
        names.push(name);
        bytes = behind;
    }
    Ok(names)
}

/// Reads a name of at least one label. Returns it with the bytes behind its final zero.
fn read_name(bytes: &[u8]) -> Result<(String, &[u8]), WireError> {
    let mut name = String::new();
    let mut at = 0;
    loop {
        let cut = |min| WireError::TooShort { what: "domain name", got: bytes.len(), min };
        let length = usize::from(*bytes.get(at).ok_or(cut(at + 1))?);
        at += 1;
        if length == 0 && at > NAME_MAX {
            return Err(WireError::Field { field: "domain name length", got: at as u32 });
        }
        if length == 0 {
            return Ok((name, &bytes[at..]));
        }
        if length > LABEL_MAX {
            return Err(WireError::Field { field: "label length", got: length as u32 });
        }
        let label = bytes.get(at..at + length).ok_or(cut(at + length))?;
        at += length;
        if !name.is_empty() {
            name.push('.');
        }
        for byte in label {
            match byte {
                b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                    name.push(char::from(*byte))
                }
                other => _ = write!(name, "\\{other:03}"),
            }
        }
    }
}

/// Encodes a name in the form that [`read`] returns. `None` for an empty or too long label, a too long name, and an
/// invalid escape.
pub(super) fn write(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        let at = bytes.len();
        bytes.push(0);
        let mut rest = label.as_bytes();
        while let [first, behind @ ..] = rest {
            rest = behind;
            let byte = match (first, rest) {
                (b'\\', [a, b, c, behind @ ..]) => {
                    rest = behind;
                    core::str::from_utf8(&[*a, *b, *c]).ok()?.parse().ok()?
                }
                (b'\\', _) => return None,
                _ => *first,
            };
            bytes.push(byte);
        }
        let length = bytes.len() - at - 1;
        bytes[at] = u8::try_from(length).ok().filter(|n| (1..=LABEL_MAX as u8).contains(n))?;
    }
    bytes.push(0);
    (bytes.len() <= NAME_MAX).then_some(bytes)
}
