//! Configures nftables through its program `nft`: for the few tables of a daemon's start, and for what changes rarely,
//! never per packet.

use std::io::{self, ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::error::{LinuxError, Result};

/// A table's name: the prefix and the tunnel device's name. Table names allow fewer characters than
/// device names.
#[must_use]
pub fn table_name(prefix: &str, device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{prefix}{}", device.chars().map(plain).collect::<String>())
}

/// Atomically replaces the table of this name by one with this content.
///
/// # Errors
/// `nft` is missing, or refuses it; nothing has changed.
pub fn replace_table(name: &str, content: &str) -> Result<()> {
    apply(&format!(
        "table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n{content}}}\n"
    ))
}

/// Carries commands out, all of them or none.
///
/// # Errors
/// `nft` is missing, or refuses one.
pub fn apply(commands: &str) -> Result<()> {
    run(&["-f", "-"], commands).map(drop)
}

/// Removes a table; says whether there was one.
#[must_use]
pub fn remove_table(name: &str) -> bool {
    run(&["delete", "table", "inet", name], "").is_ok()
}

/// How many packets a named counter of a table has counted.
///
/// # Errors
/// `nft` is missing, or there is no such counter.
pub fn counted(table: &str, counter: &str) -> Result<u64> {
    let listed = run(&["list", "counter", "inet", table, counter], "")?;
    let mut words = listed.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|count| count.parse().ok()).ok_or_else(|| {
        failed(io::Error::new(ErrorKind::InvalidData, format!("{counter} shows no packets")))
    })
}

/// A table as `nft` shows it.
///
/// # Errors
/// `nft` is missing, or there is no such table.
pub fn listed(name: &str) -> Result<String> {
    run(&["list", "table", "inet", name], "")
}

/// All tables as `nft` shows them.
///
/// # Errors
/// `nft` is missing, or may not list them.
pub fn ruleset() -> Result<String> {
    run(&["list", "ruleset"], "")
}

/// The tables whose names begin with `prefix`.
///
/// # Errors
/// `nft` is missing, or may not list them.
pub fn tables(prefix: &str) -> Result<Vec<String>> {
    let all = run(&["list", "tables"], "")?;
    let ours = all.lines().filter_map(|line| line.strip_prefix("table inet "));
    Ok(ours.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
}

/// Whether a daemon's table exists; `None` if `nft` cannot tell.
#[must_use]
pub fn is_there(prefix: &str, device: &str) -> Option<bool> {
    Some(tables(prefix).ok()?.contains(&table_name(prefix, device)))
}

/// The version that `nft` reports.
///
/// # Errors
/// `nft` is missing.
pub fn version() -> Result<String> {
    run(&["--version"], "").map(|said| said.trim().to_owned())
}

/// Runs `nft`; returns its output.
fn run(args: &[&str], input: &str) -> Result<String> {
    let started = Command::new("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(failed(io::Error::new(e.kind(), "nft is missing")));
        }
        started => started.map_err(failed)?,
    };
    let mut stdin = child.stdin.take();
    let written = stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(input.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().map_err(failed)?;
    // If it has not read everything it has said why.
    if output.status.success() {
        written.map_err(failed)?;
    }
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let why = text.lines().next().unwrap_or("no reason given").to_owned();
        return Err(failed(io::Error::other(format!("nft: {why}"))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn failed(source: io::Error) -> LinuxError {
    LinuxError::refused("configure packet filters", source)
}
