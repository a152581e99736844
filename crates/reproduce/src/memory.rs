//! Measures the memory of processes and of their BPF maps.

use std::collections::BTreeMap;

use anyhow::Context;

/// Bytes that the kernel accounts to each BPF map that a process has open, by map ID. `process` is a process ID or
/// `self`.
///
/// # Errors
/// The process does not exist.
pub(crate) fn maps(process: &str) -> anyhow::Result<BTreeMap<u64, u64>> {
    let directory = format!("/proc/{process}/fdinfo");
    let descriptors = std::fs::read_dir(&directory).with_context(|| directory.clone())?;
    let mut maps = BTreeMap::new();
    for descriptor in descriptors {
        // The descriptor may have been closed in the meantime.
        let Ok(text) = std::fs::read_to_string(descriptor?.path()) else { continue };
        if let (Some(id), Some(bytes)) = (number(&text, "map_id:"), number(&text, "memlock:")) {
            maps.insert(id, bytes);
        }
    }
    Ok(maps)
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Memory that only this process uses.
    pub own: u64,
    /// Pages of files, mostly the program's code, which all processes of a program share.
    pub shared: u64,
}

/// Reads the resident memory of a process.
///
/// # Errors
/// The process does not exist.
pub(crate) fn resident(process: u32) -> anyhow::Result<Resident> {
    let file = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    let bytes = |key| {
        let kilobytes = number(&text, key).with_context(|| format!("{file} has no {key}"))?;
        anyhow::Ok(kilobytes * 1024)
    };
    Ok(Resident { own: bytes("RssAnon:")?, shared: bytes("RssFile:")? })
}

/// The number after a key at the start of a line.
fn number(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_whitespace().next()?.parse().ok()
}
