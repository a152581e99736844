//! Translates an anchor's pools to its machine's own addresses, for outside networks that have no route back to the
//! pools.
//!
//! Inner packets of either datapath come out of the tunnel device and pass netfilter like any forwarded packets, so one
//! nftables table serves both. The table survives a crash; the next start replaces or removes it, and `segue clean`
//! removes it.

use std::net::IpAddr;

use anyhow::Context;
use segue_ip::Prefix;
use segue_linux::nft;
use tracing::info;

/// Prefix of the table names; the device's name follows.
const PREFIX: &str = "segue_nat_";

/// The table of one daemon. Dropping this removes it.
pub struct Nat {
    table: String,
}

impl Nat {
    /// If `wanted`, translates packets from these pools that leave by a device other than the
    /// tunnel's. If not, removes a table that a crash left. Logs which applies.
    pub fn start(device: &str, pools: &[Prefix], wanted: bool) -> anyhow::Result<Option<Nat>> {
        let nat = Nat { table: nft::table_name(PREFIX, device) };
        info!("{}", in_force(pools, wanted));
        let rules: String = pools
            .iter()
            .filter(|pool| wanted && is_private(pool.addr))
            .map(|pool| {
                let family = if pool.addr.is_ipv4() { "ip" } else { "ip6" };
                format!("oifname != \"{device}\" {family} saddr {pool} counter masquerade\n")
            })
            .collect();
        if rules.is_empty() {
            // Dropping it removes a leftover table.
            return Ok(None);
        }
        let chain = "chain leaving { type nat hook postrouting priority srcnat;\n";
        nft::replace_table(&nat.table, &format!("{chain}{rules}}}\n"))
            .context("nat = true: the pools cannot be translated (package nftables)")?;
        Ok(Some(nat))
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        let _ = nft::remove_table(&self.table);
    }
}

/// The tables of daemons, running or gone; none if `nft` cannot tell.
pub fn tables() -> Vec<String> {
    nft::tables(PREFIX).unwrap_or_default()
}

/// Returns whether the daemon with this tunnel device translates; `None` if `nft` cannot tell.
pub fn is_there(device: &str) -> Option<bool> {
    nft::is_there(PREFIX, device)
}

/// Returns whether outside networks cannot have a route to this address, so that only translation helps: private and
/// shared addresses (RFC 1918, RFC 6598), and unique local ones (RFC 4193).
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || matches!(v4.octets(), [100, 64..=127, ..]),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// Describes in one line how packets from the pools leave.
pub fn in_force(pools: &[Prefix], wanted: bool) -> String {
    let told = pools.iter().map(|pool| match (wanted, is_private(pool.addr), pool.addr) {
        (true, true, IpAddr::V4(_)) => format!("{pool} is translated to this machine's addresses"),
        (true, true, IpAddr::V6(_)) => {
            format!("{pool} is translated to this machine's addresses (NAT66)")
        }
        (true, false, _) => {
            format!("{pool} is public and stays as it is: networks outside must route it here")
        }
        (false, ..) => format!("{pool} stays as it is: networks outside must route it here"),
    });
    format!("nat: {}", told.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_networks_outside_can_route_is_not_translated() {
        let pools = ["10.77.0.0/16", "2001:db8:5::/48"].map(|text| text.parse().unwrap());
        let said = in_force(&pools, true);
        assert!(said.contains("10.77.0.0/16 is translated"), "{said}");
        assert!(said.contains("2001:db8:5::/48 is public and stays"), "{said}");
        let said = in_force(&pools, false);
        assert!(!said.contains("translated"), "{said}");
        for (text, private) in [
            ("100.63.0.1", false),
            ("100.64.0.1", true),
            ("100.127.0.1", true),
            ("100.128.0.1", false),
            ("172.31.0.1", true),
            ("192.0.2.1", false),
            ("fd5e:67e0::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(is_private(text.parse().unwrap()), private, "{text}");
        }
    }
}
