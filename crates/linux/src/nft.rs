//! Configures nftables through its program `nft`. It runs for the few tables of a daemon's start,
//! never per packet.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// A table's name: the prefix and the tunnel device's name. Table names allow fewer characters than
/// device names.
pub fn table_name(prefix: &str, device: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{prefix}{}", device.chars().map(plain).collect::<String>())
}

/// Atomically replaces the table of this name by one with this content.
pub fn replace_table(name: &str, content: &str) -> anyhow::Result<()> {
    let script =
        format!("table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n{content}}}\n");
    run(&["-f", "-"], &script).map(drop)
}

/// Removes a table; says whether there was one.
pub fn remove_table(name: &str) -> bool {
    run(&["delete", "table", "inet", name], "").is_ok()
}

/// The tables whose names begin with `prefix`.
pub fn tables(prefix: &str) -> anyhow::Result<Vec<String>> {
    let all = run(&["list", "tables"], "")?;
    let ours = all.lines().filter_map(|line| line.strip_prefix("table inet "));
    Ok(ours.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
}

/// Whether a daemon's table exists; `None` if `nft` cannot tell.
pub fn is_there(prefix: &str, device: &str) -> Option<bool> {
    Some(tables(prefix).ok()?.contains(&table_name(prefix, device)))
}

/// The version that `nft` reports.
pub fn version() -> anyhow::Result<String> {
    run(&["--version"], "").map(|said| said.trim().to_owned())
}

/// Runs `nft`; returns its output.
fn run(args: &[&str], input: &str) -> anyhow::Result<String> {
    let started = Command::new("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("nft is missing"),
        started => started.context("nft cannot be run")?,
    };
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).context("nft does not read")?;
    }
    let output = child.wait_with_output().context("nft does not end")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("nft: {}", text.lines().next().unwrap_or("no reason given"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
