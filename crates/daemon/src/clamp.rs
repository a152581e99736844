//! Limits the segment sizes of TCP connections that this machine forwards into or out of the tunnel to the tunnel's
//! MTU.
//!
//! The ends of such a connection announce segments that fit their own links. Without this, only ICMP reports that the
//! tunnel carries less, and many networks filter ICMP. The packet filter lowers the announced size in the handshake
//! packets to the smaller of the two routes' MTUs, so ordinary packets cost nothing in the packet path. The table
//! survives a crash; the next start replaces it, and `segue clean` removes it.

use segue_linux::nft;
use segue_text::errors::Told;
use tracing::info;

/// Prefix of the table names; the device's name follows.
const PREFIX: &str = "segue_clamp_";

/// The table of one daemon. Dropping this removes it.
pub struct Clamp {
    table: String,
}

impl Clamp {
    /// Fits connections forwarded over this tunnel device. Without `nft` the daemon runs all the same.
    pub fn start(device: &str) -> Clamp {
        let clamp = Clamp { table: table_of(device) };
        if let Err(error) = nft::replace_table(&clamp.table, &rules(device)) {
            info!(
                "TCP connections that this machine forwards into the tunnel depend on ICMP to fit: {}; install nftables",
                Told(&error.into())
            );
        }
        clamp
    }
}

impl Drop for Clamp {
    fn drop(&mut self) {
        // Without `nft` there is no table.
        let _ = nft::remove_table(&self.table);
    }
}

/// The tables of daemons, running or gone; none if `nft` cannot tell.
pub fn tables() -> Vec<String> {
    tables_or_none().unwrap_or_default()
}

/// The name of the table for a tunnel device.
#[must_use]
pub fn table_of(device: &str) -> String {
    nft::table_name(PREFIX, device)
}

/// Returns whether a daemon's table is there with all its rules; `None` if `nft` cannot tell.
#[must_use]
pub fn is_whole(device: &str) -> Option<bool> {
    let table = table_of(device);
    if !tables_or_none()?.contains(&table) {
        return Some(false);
    }
    let listed = nft::listed(&table).ok()?;
    let rules = ["oifname", "iifname"].map(|way| format!("{way} \"{device}\""));
    let has = |rule: &String| {
        listed.lines().any(|line| line.contains(rule) && line.contains("maxseg size set rt mtu"))
    };
    Some(listed.contains("hook forward") && rules.iter().all(has))
}

fn tables_or_none() -> Option<Vec<String>> {
    nft::tables(PREFIX).ok()
}

/// The kernel takes the smaller MTU of the routes to a packet's destination and back to its source, and never raises
/// the announced size.
fn rules(device: &str) -> String {
    let rule = |way| {
        format!("{way} \"{device}\" tcp flags syn / syn,rst tcp option maxseg size set rt mtu\n")
    };
    format!(
        "chain forwarded {{ type filter hook forward priority mangle;\n{}{}}}\n",
        rule("oifname"),
        rule("iifname")
    )
}
