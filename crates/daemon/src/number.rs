//! Several hosts on one machine: each has a routing table and rules of its own.
//!
//! They go by the number at the end of the tunnel device's name: 0 for `segue0`, 1 for `segue1`. Packets of every daemon have
//! the same mark, so that no daemon's packets go through the tunnel of another.

/// Numbers of daemons are below this.
const NUMBERS: u32 = 100;
/// Routing table of host number 0, and priority of its first rule.
const TABLE: u32 = 0x5e60;
const PRIORITY: u32 = 5_210;
/// Priorities that each host has.
const RULES: u32 = 5;

/// The number of a daemon on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u32);

impl Number {
    /// That of the daemon with this tunnel device. A name without a number, or with one that is too large, means 0.
    pub fn of(device: &str) -> Number {
        let name = device.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = device.strip_prefix(name).and_then(|digits| digits.parse().ok());
        Number(number.filter(|number| *number < NUMBERS).unwrap_or(0))
    }

    /// All that there can be.
    pub fn all() -> impl Iterator<Item = Number> {
        (0..NUMBERS).map(Number)
    }

    /// Routing table of a host's tunnel. The one after the first is the anchors' (`forwarding`).
    pub fn table(self) -> u32 {
        if self.0 == 0 { TABLE } else { TABLE + 1 + self.0 }
    }

    /// Priority of the first of a host's five rules.
    pub fn priority(self) -> u32 {
        PRIORITY + RULES * self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_has_a_table_and_rules_of_its_own_and_none_has_the_anchors() {
        assert_eq!((Number(0).table(), Number(0).priority()), (24_160, 5_210));
        let tables: BTreeSet<u32> = Number::all().map(Number::table).collect();
        assert_eq!(tables.len(), 100);
        assert!(!tables.contains(&0x5e61));
        for (one, next) in Number::all().zip(Number::all().skip(1)) {
            assert_eq!(next.priority() - one.priority(), 5);
        }
    }

    #[test]
    fn the_number_at_the_end_of_a_device_is_the_daemons() {
        let numbers =
            ["segue0", "segue1", "segue42", "segue-b", "segue100", "segue-b7", "segue007"];
        assert_eq!(numbers.map(|device| Number::of(device).0), [0, 1, 42, 0, 0, 7, 7]);
    }
}
