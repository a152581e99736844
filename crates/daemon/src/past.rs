//! Guards against packets that bypass the tunnel, for the user-space datapath: an nftables table refuses the packets
//! that the eBPF programs refuse on the access interfaces. The table survives a crash; the next start replaces or
//! removes it, and `segue clean` removes it.

use std::net::IpAddr;

use segue_ip::Prefix;
use segue_linux::nft;
use segue_text::errors::Told;
use tracing::warn;

/// Prefix of the table names; the device's name follows.
const PREFIX: &str = "segue_past_";

/// The table of one daemon.
pub struct Guard {
    table: String,
    device: String,
}

impl Guard {
    /// A guard without a table yet.
    fn new(device: &str) -> Guard {
        let table = nft::table_name(PREFIX, device);
        Guard { table, device: device.to_owned() }
    }

    /// The guard of a daemon, if its packet path needs one (`needed`). Otherwise removes a table that a crash with the
    /// other packet path left.
    pub fn at_start(device: &str, needed: bool) -> Option<Guard> {
        let guard = Guard::new(device);
        // A dropped guard removes its table.
        needed.then_some(guard)
    }

    /// Refuses packets to a host's inner addresses that do not come through the tunnel.
    pub fn set_host(&self, inner: &[IpAddr]) {
        self.install("daddr", inner.iter().map(|address| Prefix::host(*address)));
    }

    /// Refuses packets from an anchor's pools that do not come through the tunnel.
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
        let content = format!(
            "chain arriving {{ type filter hook prerouting priority -300;\n\
             iifname {{ \"{device}\", \"lo\" }} accept\n{drops}}}\n"
        );
        if let Err(error) = nft::replace_table(table, &content) {
            warn!(
                "neighbours can send past the tunnel to and from inner addresses: {}; install nftables, \
                 or use the eBPF datapath",
                Told(&error.into())
            );
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without `nft` there is no table.
        let _ = nft::remove_table(&self.table);
    }
}

/// The tables of daemons, running or gone; none if `nft` cannot tell.
pub fn tables() -> Vec<String> {
    nft::tables(PREFIX).unwrap_or_default()
}

/// Returns whether the daemon with this tunnel device is guarded; `None` if `nft` cannot tell.
pub fn is_there(device: &str) -> Option<bool> {
    nft::is_there(PREFIX, device)
}
