//! Configures nftables through the program `nft`. For tables that a daemon installs at its start, and for rare changes;
//! never per packet.

use std::io::{self, ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::error::{LinuxError, Result};

/// The name of a table: the prefix followed by the tunnel device's name, with characters replaced that table names do
/// not permit.
#[must_use]
pub fn table_name(prefix: &str, device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{prefix}{}", device.chars().map(plain).collect::<String>())
}

/// Atomically replaces the table `name` by one with this content.
///
/// # Errors
/// `nft` is missing or rejects the content; nothing has changed.
pub fn replace_table(name: &str, content: &str) -> Result<()> {
    apply(&format!(
        "table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n{content}}}\n"
    ))
}

/// Executes commands atomically.
///
/// # Errors
/// `nft` is missing or rejects a command; nothing has changed.
pub fn apply(commands: &str) -> Result<()> {
    run(&["-f", "-"], commands).map(drop)
}

/// Removes a table; returns whether it existed.
#[must_use]
pub fn remove_table(name: &str) -> bool {
    run(&["delete", "table", "inet", name], "").is_ok()
}

/// The packet count of a table's named counter.
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

/// The text of a table as `nft` lists it.
///
/// # Errors
/// `nft` is missing, or there is no such table.
pub fn listed(name: &str) -> Result<String> {
    run(&["list", "table", "inet", name], "")
}

/// The text of all tables as `nft` lists them.
///
/// # Errors
/// `nft` is missing, or has no permission to list them.
pub fn ruleset() -> Result<String> {
    run(&["list", "ruleset"], "")
}

/// The names of tables that begin with `prefix`.
///
/// # Errors
/// `nft` is missing, or has no permission to list them.
pub fn tables(prefix: &str) -> Result<Vec<String>> {
    let all = run(&["list", "tables"], "")?;
    let ours = all.lines().filter_map(|line| line.strip_prefix("table inet "));
    Ok(ours.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
}

/// Whether a daemon's table exists; `None` if `nft` fails.
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

/// Runs `nft` and returns its output.
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
    // If `nft` stopped reading early, its own error explains why.
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
