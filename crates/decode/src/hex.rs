//! Hexadecimal digits.

use std::fmt::Write;

/// Parses hexadecimal digits, which whitespace and colons may separate. `None` if the text holds any other character,
/// an odd number of digits or no digits.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().filter(|c| !c.is_whitespace() && *c != ':');
    let digits: Vec<u8> =
        digits.map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let whole = !digits.is_empty() && digits.len().is_multiple_of(2);
    whole.then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
