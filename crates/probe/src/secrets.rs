//! The operator's key files, and unpredictable numbers.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use segue_wire::ProbeKey;

/// Reads the key of compact probes.
pub(crate) fn read_key(path: &Path) -> anyhow::Result<ProbeKey> {
    let text = read_secret(path)?;
    parse_key(&text).with_context(|| {
        format!("key file {} must hold 32 hexadecimal digits and nothing else", path.display())
    })
}

/// Maximum length of a key file in bytes.
const LONGEST: u64 = 1_000;

/// Reads a key file, which must not be readable by other users.
pub fn read_secret(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let about = std::fs::metadata(path).with_context(|| format!("key file {name}"))?;
    // Opening a FIFO would wait for somebody who writes.
    if !about.is_file() {
        bail!("key file {name} is no regular file");
    }
    let file = File::open(path).with_context(|| format!("key file {name}"))?;
    let mode = file.metadata().with_context(|| format!("key file {name}"))?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("key file {name} can be read by others; run: chmod 600 {name}");
    }
    let mut text = String::new();
    // Limits reading, so that a wrong file cannot exhaust memory.
    let read = file.take(LONGEST + 1).read_to_string(&mut text);
    let read = read.with_context(|| format!("key file {name}"))?;
    if read as u64 > LONGEST {
        bail!("key file {name} has more than {LONGEST} bytes: is it the right one?");
    }
    Ok(text)
}

/// Parses the text of a key file: 32 hexadecimal digits, possibly surrounded by whitespace.
pub fn parse_key(text: &str) -> Option<ProbeKey> {
    let digits: Option<Vec<u32>> = text.trim().chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 32)?;
    Some(ProbeKey(std::array::from_fn(|i| (digits[2 * i] << 4 | digits[2 * i + 1]) as u8)))
}

/// Unpredictable bytes.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |length| {
            std::fs::write(&path, "s".repeat(length)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        write(1_000);
        assert_eq!(read_secret(&path).unwrap().len(), 1_000);
        write(1_001);
        let refused = read_secret(&path).unwrap_err().to_string();
        assert!(refused.contains("more than 1000 bytes"), "{refused}");
    }
}
