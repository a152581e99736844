//! The relay's table in the kernel's packet filter (nftables). It checks the sources of packets from hosts, because the
//! TUN descriptor does not report the interface over which a packet came. It also drops tunnel packets of which the
//! relay's packet sockets already have copies: otherwise the kernel, or its own tunnels, would answer that nothing
//! listens there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use segue_ip::{Form, Prefix, Tunnel};
use segue_linux::netns::Netns;
use segue_linux::{LinuxError, nft};

use super::head::{GRE, IPV4, IPV6};
use crate::DatapathError;

/// Prefix of the table names; the device's name follows.
const PREFIX: &str = "segue_relay_";
/// Name of the counter of refused packets.
const REFUSED: &str = "refused";

/// Names of the tables of relays, running or left behind; empty if `nft` fails.
pub(in crate::relay) fn tables() -> Vec<String> {
    nft::tables(PREFIX).unwrap_or_default()
}

/// Removes the table that a killed relay with this device left behind.
pub(in crate::relay) fn remove_leftover(device: &str) {
    let _ = nft::remove_table(&nft::table_name(PREFIX, device));
}

/// Elements of the table's sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Known {
    /// A checked link's index, and a prefix allowed as the source of its packets.
    Source(u32, Prefix),
    /// A link that has sources.
    Checked(u32),
    /// A bound prefix: its packets arrive over checked links or out of tunnels.
    Bound(Prefix),
    /// An interface on which the relay decapsulates tunnel packets.
    Attached(u32),
    /// Packets of a protocol from a tunnel's remote end.
    Protocol { local: IpAddr, remote: IpAddr, protocol: u8 },
    /// UDP packets between two ports, from a tunnel's remote end.
    Udp { local: (IpAddr, u16), remote: (IpAddr, u16) },
}

impl Known {
    /// The packets of a tunnel to drop.
    pub(super) fn of(tunnel: &Tunnel) -> Vec<Known> {
        let Tunnel { local, remote, .. } = *tunnel;
        let of = |protocol| Known::Protocol { local, remote, protocol };
        match tunnel.form {
            Form::Ip => vec![of(IPV4), of(IPV6)],
            Form::Gre { .. } => vec![of(GRE)],
            Form::Udp { local: own, remote: others } => {
                vec![Known::Udp { local: (local, own), remote: (remote, others) }]
            }
            Form::Optimized { .. } => Vec::new(),
        }
    }
}

/// The table of one relay, removed on drop.
pub(super) struct Filter {
    table: String,
    /// Index of the relay's device.
    ifindex: u32,
    /// The namespace of the table.
    netns: Netns,
    /// Reference count of each element.
    known: BTreeMap<Known, usize>,
    /// The elements in the table's sets.
    installed: BTreeSet<Known>,
    /// The counter of refused packets when last read; `counted_before` is the sum of previous tables.
    counted: u64,
    counted_before: u64,
}

impl Filter {
    /// Creates the table of a relay with this device, in the calling thread's namespace.
    pub(super) fn new(device: &str, ifindex: u32) -> Result<Filter, DatapathError> {
        let table = nft::table_name(PREFIX, device);
        let (known, installed) = Default::default();
        let netns = Netns::current()?;
        let (counted, counted_before) = (0, 0);
        let mut filter =
            Filter { table, ifindex, netns, known, installed, counted, counted_before };
        filter.rebuild()?;
        Ok(filter)
    }

    /// The table without elements.
    fn empty(&self) -> String {
        let ifindex = self.ifindex;
        format!(
            "set checked {{ type iface_index; }}
             set attached {{ type iface_index; }}
             set sources4 {{ type iface_index . ipv4_addr; flags interval; }}
             set sources6 {{ type iface_index . ipv6_addr; flags interval; }}
             set bound4 {{ type ipv4_addr; flags interval; }}
             set bound6 {{ type ipv6_addr; flags interval; }}
             set taken4 {{ type ipv4_addr . ipv4_addr . inet_proto; }}
             set taken6 {{ type ipv6_addr . ipv6_addr . inet_proto; }}
             set ports4 {{ type ipv4_addr . inet_service . ipv4_addr . inet_service; }}
             set ports6 {{ type ipv6_addr . inet_service . ipv6_addr . inet_service; }}
             counter {REFUSED} {{ }}
             chain link {{
                 iif . ip saddr @sources4 accept
                 iif . ip6 saddr @sources6 accept
                 counter name {REFUSED} drop
             }}
             chain arriving {{
                 type filter hook prerouting priority -300;
                 iif != @attached accept
                 ip daddr . ip saddr . meta l4proto @taken4 drop
                 ip6 daddr . ip6 saddr . meta l4proto @taken6 drop
                 ip daddr . udp dport . ip saddr . udp sport @ports4 @th,64,4 {{ 4, 6 }} drop
                 ip6 daddr . udp dport . ip6 saddr . udp sport @ports6 @th,64,4 {{ 4, 6 }} drop
             }}
             chain forwarded {{
                 type filter hook forward priority -150;
                 oif != {ifindex} accept
                 iif {ifindex} accept
                 fib saddr type local counter name {REFUSED} drop
                 iif @checked goto link
                 ip saddr @bound4 counter name {REFUSED} drop
                 ip6 saddr @bound6 counter name {REFUSED} drop
             }}
            "
        )
    }

    /// Recreates the table with all elements in one transaction.
    fn rebuild(&mut self) -> Result<(), DatapathError> {
        let wanted = self.wanted();
        let (table, commands) = (&self.table, self.changes(&BTreeSet::new(), &wanted));
        let made = format!(
            "table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n{}}}\n{commands}",
            self.empty()
        );
        self.here(|| nft::apply(&made))?;
        self.installed = wanted;
        self.counted_before += std::mem::take(&mut self.counted);
        Ok(())
    }

    /// Recreates the table if another program has removed it; true if so.
    pub(super) fn keep(&mut self) -> Result<bool, DatapathError> {
        let tables = self.here(|| nft::tables(&self.table))?;
        let gone = !tables.contains(&self.table);
        if gone {
            self.rebuild()?;
        }
        Ok(gone)
    }

    /// Adds one reference to each element.
    pub(super) fn add(&mut self, all: &[Known]) -> Result<(), DatapathError> {
        for known in all {
            *self.known.entry(*known).or_default() += 1;
        }
        self.install().inspect_err(|_| self.forget(all))
    }

    /// Removes one reference from each element.
    pub(super) fn remove(&mut self, all: &[Known]) -> Result<(), DatapathError> {
        self.forget(all);
        self.install()
    }

    fn forget(&mut self, all: &[Known]) {
        for known in all {
            match self.known.get_mut(known) {
                Some(times) if *times > 1 => *times -= 1,
                _ => drop(self.known.remove(known)),
            }
        }
    }

    /// Packets refused so far.
    pub(super) fn refused(&mut self) -> u64 {
        match self.here(|| nft::counted(&self.table, REFUSED)) {
            Ok(counted) => self.counted = counted,
            Err(error) => tracing::warn!(%error, "packets with wrong sources are not counted"),
        }
        self.counted_before + self.counted
    }

    /// Runs in the table's namespace; the calling thread may be in another one.
    fn here<T: Send>(
        &self,
        ask: impl FnOnce() -> Result<T, LinuxError> + Send,
    ) -> Result<T, LinuxError> {
        self.netns.run(ask)?
    }

    /// Updates the table's sets in one transaction. If that fails because another program has changed the elements, the
    /// table is recreated.
    fn install(&mut self) -> Result<(), DatapathError> {
        let wanted = self.wanted();
        let commands = self.changes(&self.installed, &wanted);
        if commands.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.here(|| nft::apply(&commands)) {
            tracing::warn!(%error, table = self.table, "the packet filter's table is made anew");
            return self.rebuild();
        }
        self.installed = wanted;
        Ok(())
    }

    /// The elements that the sets should have.
    fn wanted(&self) -> BTreeSet<Known> {
        // A link with sources is checked, and a host behind it can be nowhere else.
        let also = |known: &Known| match *known {
            Known::Source(link, prefix) => vec![*known, Known::Checked(link), Known::Bound(prefix)],
            known => vec![known],
        };
        let all: BTreeSet<Known> = self.known.keys().flat_map(also).collect();
        cover(all.iter())
    }

    /// The commands that turn the elements `from` into `to`.
    fn changes(&self, from: &BTreeSet<Known>, to: &BTreeSet<Known>) -> String {
        // Deletions first, since the prefixes of a set may not overlap.
        let gone = from.difference(to).map(|known| ("delete", known));
        let new = to.difference(from).map(|known| ("add", known));
        let mut commands = String::new();
        for (verb, known) in gone.chain(new) {
            let _ = writeln!(commands, "{verb} element inet {} {}", self.table, element(known));
        }
        commands
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let _ = self.netns.run(|| nft::remove_table(&self.table));
    }
}

/// The elements without those that a wider prefix covers.
fn cover<'a>(known: impl Iterator<Item = &'a Known>) -> BTreeSet<Known> {
    let mut widest: Option<Known> = None;
    let covers = |wide: &Known, narrow: &Known| match (wide, narrow) {
        (Known::Source(one, wide), Known::Source(other, narrow)) => {
            one == other && wide.contains(narrow.addr)
        }
        (Known::Bound(wide), Known::Bound(narrow)) => wide.contains(narrow.addr),
        _ => false,
    };
    // In sort order a prefix precedes the prefixes it contains.
    let keep = |known: &&Known| {
        let new = !widest.is_some_and(|wide| covers(&wide, known));
        if new {
            widest = Some(**known);
        }
        new
    };
    known.filter(keep).copied().collect()
}

/// The set and the element in nft syntax.
fn element(known: &Known) -> String {
    let family = |address: &IpAddr| if address.is_ipv6() { 6 } else { 4 };
    match known {
        Known::Source(link, prefix) => {
            format!("sources{} {{ {link} . {prefix} }}", family(&prefix.addr))
        }
        Known::Checked(link) => format!("checked {{ {link} }}"),
        Known::Bound(prefix) => format!("bound{} {{ {prefix} }}", family(&prefix.addr)),
        Known::Attached(interface) => format!("attached {{ {interface} }}"),
        Known::Protocol { local, remote, protocol } => {
            format!("taken{} {{ {local} . {remote} . {protocol} }}", family(local))
        }
        Known::Udp { local: (local, own), remote: (remote, others) } => {
            format!("ports{} {{ {local} . {own} . {remote} . {others} }}", family(local))
        }
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
        let known = BTreeSet::from(all);
        assert_eq!(cover(known.iter()), kept.into());
    }
}
