//! Several hosts on one machine: each has a separate routing table and separate rules.
//!
//! A host's number is the number at the end of its tunnel device's name: 0 for `segue0`, 1 for `segue1`. Packets of all
//! daemons carry the same mark, so that no daemon's packets enter the tunnel of another.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, bail};
use segue_ip::{Prefix, Rule};

/// Upper limit (exclusive) of numbers.
const NUMBERS: u32 = 100;
/// Routing table of host number 0.
const TABLE: u32 = 0x5e60;
/// Priority of the first rule of host number 0: after Tailscale's rules, the last of which has 5270.
const PRIORITY: u32 = 5_280;
/// The same for a host that fails closed: before Tailscale's rules.
const CLOSED: u32 = 5_210;
/// Priority of the rules by source, before all other rules of hosts.
const SOURCES: u32 = CLOSED - 1;
/// Number of priorities reserved per host.
const RULES: u32 = 5;

/// A number that no other host of this network namespace can take until this is dropped.
pub struct Claim(#[expect(dead_code, reason = "it is bound")] UnixListener);

/// The number of a daemon on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u32);

impl Number {
    /// The number of the daemon with this tunnel device. A name without a number, or with one that is too large, means
    /// 0.
    pub fn of(device: &str) -> Number {
        let name = device.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = device.strip_prefix(name).and_then(|digits| digits.parse().ok());
        Number(number.filter(|number| *number < NUMBERS).unwrap_or(0))
    }

    /// The number as an integer.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Reserves the number for the host that is about to start, so that no other host uses its rules and table. An
    /// abstract socket address is released when the process ends, and belongs to the network namespace, as rules and
    /// tables do.
    pub fn claim(self) -> anyhow::Result<Claim> {
        let address = SocketAddr::from_abstract_name(format!("segue-host-{}", self.0))?;
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
                "a host runs here whose device ends in the number {0}, or in none if that is 0: give this one another \
                 `device`, such as segue{1}",
                self.0,
                self.0 + 1
            ),
            bound => bound.map(Claim).context("the number of the host cannot be claimed"),
        }
    }

    /// All possible numbers.
    pub fn all() -> impl Iterator<Item = Number> {
        (0..NUMBERS).map(Number)
    }

    /// Routing table of a host's tunnel. The table after host 0's is used by anchors (`forwarding`).
    pub fn table(self) -> u32 {
        if self.0 == 0 { TABLE } else { TABLE + 1 + self.0 }
    }

    /// The source rules of a host other than host 0: packets from its inner addresses use its table, even if host 0's
    /// table has a route for them.
    pub fn sources(self, inner: &[IpAddr]) -> impl Iterator<Item = Rule> {
        let inner = inner.iter().filter(move |_| self.0 > 0);
        inner.map(move |inner| Rule {
            v6: inner.is_ipv6(),
            priority: SOURCES,
            table: self.table(),
            from: Some(Prefix::host(*inner)),
            ..Rule::default()
        })
    }

    /// Returns whether a rule is one of this host's source rules.
    pub fn has_source(self, rule: &Rule) -> bool {
        rule.priority == SOURCES && rule.table == self.table()
    }

    /// Default priority of a host's first rule. The operator may choose another, and rules of other programs may move
    /// it back.
    pub fn priority(self) -> u32 {
        PRIORITY + RULES * self.0
    }

    /// Priority of the first of the five rules of a host that fails closed.
    pub fn closed_priority(self) -> u32 {
        CLOSED + RULES * self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_has_a_table_and_rules_of_its_own_and_none_has_the_anchors() {
        assert_eq!((Number(0).table(), Number(0).priority()), (24_160, 5_280));
        let tables: BTreeSet<u32> = Number::all().map(Number::table).collect();
        assert_eq!(tables.len(), 100);
        assert!(!tables.contains(&0x5e61));
        for (one, next) in Number::all().zip(Number::all().skip(1)) {
            assert_eq!(next.priority() - one.priority(), 5);
        }
    }

    #[test]
    fn a_number_is_one_hosts_until_that_ends() {
        // No host of another test has this number.
        let number = Number(97);
        let claim = number.claim().unwrap();
        let refused = number.claim().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("number 97") && refused.contains("segue98"), "{refused}");
        Number(96).claim().unwrap();
        drop(claim);
        number.claim().unwrap();
    }

    #[test]
    fn the_number_at_the_end_of_a_device_is_the_daemons() {
        let numbers =
            ["segue0", "segue1", "segue42", "segue-b", "segue100", "segue-b7", "segue007"];
        assert_eq!(numbers.map(|device| Number::of(device).0), [0, 1, 42, 0, 0, 7, 7]);
    }
}
