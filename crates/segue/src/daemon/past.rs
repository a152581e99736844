//! A guard against packets that go past the tunnel, for the user-space datapath: what the eBPF programs refuse on
//! the access interfaces, a table of nftables refuses here. The table outlives a crash; the next
//! start replaces or removes it, and `segue clean` removes it.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use segue_linux::link::Prefix;
use tracing::warn;

use crate::errors::Told;

/// What the names of these tables begin with; the device's follows.
const PREFIX: &str = "segue_past_";

/// The table of one daemon.
pub struct Guard {
    table: String,
    device: String,
}

impl Guard {
    /// No table yet.
    fn new(device: &str) -> Guard {
        // Names of tables have fewer characters than those of devices.
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let table = format!("{PREFIX}{}", device.chars().map(plain).collect::<String>());
        Guard { table, device: device.to_owned() }
    }

    /// The guard of a daemon, if its packet path has one `needed`. If not, this takes away the table that a crash
    /// with the other packet path has left.
    pub fn at_start(device: &str, needed: bool) -> Option<Guard> {
        let guard = Guard::new(device);
        // One that is dropped removes its table.
        needed.then_some(guard)
    }

    /// Refuses what comes to a host's inner addresses, but through the tunnel.
    pub fn set_host(&self, inner: &[IpAddr]) {
        self.install("daddr", inner.iter().map(|address| Prefix::host(*address)));
    }

    /// Refuses what comes from an anchor's pools, but through the tunnel.
    pub fn set_anchor(&self, pools: &[Prefix]) {
        self.install("saddr", pools.iter().copied());
    }

    fn install(&self, end: &str, refused: impl Iterator<Item = Prefix>) {
        let drops: String = refused
            .map(|prefix| {
                let family = if prefix.addr.is_ipv4() { "ip" } else { "ip6" };
                format!("{family} {end} {prefix} counter drop\n")
            })
            .collect();
        let Guard { table, device } = self;
        let script = format!(
            "table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n\
             chain arriving {{ type filter hook prerouting priority -300;\n\
             iifname {{ \"{device}\", \"lo\" }} accept\n{drops}}}\n}}\n"
        );
        if let Err(error) = nft(&["-f", "-"], &script) {
            warn!(
                "neighbours can send past the tunnel to and from inner addresses: {}; install nftables, \
                 or use the eBPF datapath",
                Told(&error)
            );
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Where there was no nft there is no table.
        let _ = nft(&["delete", "table", "inet", &self.table], "");
    }
}

/// Removes the tables of daemons that are gone; their names.
pub fn remove_tables() -> Vec<String> {
    let Ok(tables) = nft(&["list", "tables"], "") else { return Vec::new() };
    let ours = tables.lines().filter_map(|line| line.strip_prefix("table inet "));
    ours.filter(|name| name.starts_with(PREFIX))
        .filter(|name| nft(&["delete", "table", "inet", name], "").is_ok())
        .map(str::to_owned)
        .collect()
}

/// Runs `nft`; what it prints.
fn nft(args: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = Command::new("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("nft cannot be run")?;
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
