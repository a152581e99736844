//! Whether what hosts send may have its source. The TUN descriptor does not tell over which interface a packet came, so
//! the kernel's packet filter decides before it gets there.

use std::collections::BTreeSet;
use std::fmt::Write;

use segue_ip::Prefix;
use segue_linux::netns::Netns;
use segue_linux::{LinuxError, nft};

use crate::DatapathError;

/// Prefix of the table names; the device's name follows.
const PREFIX: &str = "segue_relay_";
/// The counter of what was refused.
const REFUSED: &str = "refused";

/// The tables of relays, running or gone; none if `nft` cannot tell.
pub(in crate::relay) fn tables() -> Vec<String> {
    nft::tables(PREFIX).unwrap_or_default()
}

/// What the filter goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Known {
    /// A checked link's index, and a prefix from which it may bring packets.
    Source(u32, Prefix),
    /// A prefix that has been bound: its packets come over checked links or out of tunnels.
    Bound(Prefix),
}

/// The table of one relay; removed when this is dropped.
pub(super) struct Links {
    table: String,
    /// The namespace that it is in.
    netns: Netns,
    known: BTreeSet<Known>,
    checked: BTreeSet<u32>,
    /// What the sets of the table have.
    installed: BTreeSet<Known>,
}

impl Links {
    /// Makes the table of a relay with this device, in the calling thread's namespace.
    pub(super) fn new(device: &str, ifindex: u32) -> Result<Links, DatapathError> {
        let table = nft::table_name(PREFIX, device);
        let content = format!(
            "set checked {{ type iface_index; }}
             set sources4 {{ type iface_index . ipv4_addr; flags interval; }}
             set sources6 {{ type iface_index . ipv6_addr; flags interval; }}
             set bound4 {{ type ipv4_addr; flags interval; }}
             set bound6 {{ type ipv6_addr; flags interval; }}
             counter {REFUSED} {{ }}
             chain link {{
                 iif . ip saddr @sources4 accept
                 iif . ip6 saddr @sources6 accept
                 counter name {REFUSED} drop
             }}
             chain forwarded {{
                 type filter hook forward priority -150;
                 oif != {ifindex} accept
                 iif {ifindex} accept
                 iif @checked goto link
                 ip saddr @bound4 counter name {REFUSED} drop
                 ip6 saddr @bound6 counter name {REFUSED} drop
             }}
            "
        );
        nft::replace_table(&table, &content)?;
        let (known, checked, installed) = Default::default();
        Ok(Links { table, netns: Netns::current()?, known, checked, installed })
    }

    /// Lets the filter know this.
    pub(super) fn add(&mut self, known: Known) -> Result<(), DatapathError> {
        if !self.known.insert(known) {
            return Ok(());
        }
        self.install().inspect_err(|_| {
            self.known.remove(&known);
        })
    }

    /// Has it forget that.
    pub(super) fn remove(&mut self, known: &Known) -> Result<(), DatapathError> {
        if self.known.remove(known) { self.install() } else { Ok(()) }
    }

    /// Packets refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.here(|| nft::counted(&self.table, REFUSED)).unwrap_or_else(|error| {
            tracing::warn!(%error, "packets with wrong sources are not counted");
            0
        })
    }

    /// Whoever asks may be in another namespace.
    fn here<T: Send>(
        &self,
        ask: impl FnOnce() -> Result<T, LinuxError> + Send,
    ) -> Result<T, LinuxError> {
        self.netns.run(ask)?
    }

    /// Brings the table's sets up to date, in one step.
    fn install(&mut self) -> Result<(), DatapathError> {
        let wanted = cover(&self.known);
        let link = |known: &Known| match known {
            Known::Source(link, _) => Some(*link),
            Known::Bound(_) => None,
        };
        let checked: BTreeSet<u32> = wanted.iter().filter_map(link).collect();
        let mut commands = String::new();
        // Deletions first, since the prefixes of a set may not overlap.
        let change = |commands: &mut String, verb: &str, what: &str| {
            let _ = writeln!(commands, "{verb} element inet {} {what}", self.table);
        };
        for gone in self.installed.difference(&wanted) {
            change(&mut commands, "delete", &element(gone));
        }
        for new in wanted.difference(&self.installed) {
            change(&mut commands, "add", &element(new));
        }
        for gone in self.checked.difference(&checked) {
            change(&mut commands, "delete", &format!("checked {{ {gone} }}"));
        }
        for new in checked.difference(&self.checked) {
            change(&mut commands, "add", &format!("checked {{ {new} }}"));
        }
        if !commands.is_empty() {
            self.here(|| nft::apply(&commands))?;
        }
        (self.installed, self.checked) = (wanted, checked);
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let _ = self.netns.run(|| nft::remove_table(&self.table));
    }
}

/// The same without what is in a wider prefix.
fn cover(known: &BTreeSet<Known>) -> BTreeSet<Known> {
    let mut widest: Option<Known> = None;
    let covers = |wide: &Known, narrow: &Known| match (wide, narrow) {
        (Known::Source(one, wide), Known::Source(other, narrow)) => {
            one == other && wide.contains(narrow.addr)
        }
        (Known::Bound(wide), Known::Bound(narrow)) => wide.contains(narrow.addr),
        _ => false,
    };
    // In their order a prefix stands before those that are in it.
    let keep = |known: &&Known| {
        let new = !widest.is_some_and(|wide| covers(&wide, known));
        if new {
            widest = Some(**known);
        }
        new
    };
    known.iter().filter(keep).copied().collect()
}

/// The set and the element, as nft has them.
fn element(known: &Known) -> String {
    let family = |prefix: &Prefix| if prefix.addr.is_ipv6() { 6 } else { 4 };
    match known {
        Known::Source(link, prefix) => {
            format!("sources{} {{ {link} . {prefix} }}", family(prefix))
        }
        Known::Bound(prefix) => format!("bound{} {{ {prefix} }}", family(prefix)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_widest_prefixes_of_each_link_are_in_the_sets() {
        let prefix = |text: &str| text.parse().unwrap();
        let all = [
            Known::Source(3, prefix("10.0.0.0/8")),
            Known::Source(3, prefix("10.0.0.0/16")),
            Known::Source(3, prefix("10.255.0.0/16")),
            Known::Source(3, prefix("11.0.0.0/16")),
            Known::Source(4, prefix("10.0.0.0/16")),
            Known::Bound(prefix("10.0.0.0/16")),
            Known::Bound(prefix("::/0")),
            Known::Bound(prefix("fd00::/64")),
        ];
        let kept = [0, 3, 4, 5, 6].map(|n| all[n]);
        assert_eq!(cover(&all.into()), kept.into());
    }
}
