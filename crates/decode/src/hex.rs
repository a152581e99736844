//! Hexadecimal digits.

use std::fmt::Write;

/// Bytes from their digits, between which there may be blanks, line breaks and colons. `None` if there is anything
/// else, half a byte or nothing.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().filter(|c| !c.is_whitespace() && *c != ':');
    let digits: Vec<u8> =
        digits.map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let whole = !digits.is_empty() && digits.len().is_multiple_of(2);
    whole.then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The digits of bytes.
pub(crate) fn of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
