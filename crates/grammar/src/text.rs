//! Reads text files.

use std::fs::File;
use std::io::{Error, Read};
use std::path::Path;

use anyhow::anyhow;

use crate::source::printable;

/// Maximum length in bytes of a file that people write.
const MOST: u64 = 8 << 20;

/// Reads a file that people write.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or is too long.
pub fn text(path: &Path) -> anyhow::Result<String> {
    text_up_to(path, MOST).map_err(|error| anyhow!("{}", printable(&error)))
}

/// Reads a text file of at most `most` bytes.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or is too long.
pub fn text_up_to(path: &Path, most: u64) -> Result<String, String> {
    let name = path.display();
    let wrong = |error: Error| format!("cannot read {name}: {error}");
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > most {
        return Err(format!("cannot read {name}: it has more than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|_| format!("cannot read {name}: it is no UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /dev/zero: it has more than 8 MiB");
    }
}
