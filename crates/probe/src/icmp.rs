//! ICMP errors about requests, counted by kind and sender. They are reported but have no effect, because anyone could
//! forge them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_linux::udp::{IcmpError, IcmpReason};
use serde::Serialize;

/// Maximum number of distinct errors; further ones are neither reported nor counted.
const SAID_MAX: usize = 64;

/// The origin of the datagram that an error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// A request of this run.
    Ours,
    /// The quotation is too short to tell.
    Short,
    /// Not a request of this run.
    Foreign,
}

/// An error and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Said {
    reason: IcmpReason,
    from: Option<IpAddr>,
    quoted: bool,
}

/// The number of times that an error was received, for JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    from: Option<String>,
    /// True if the error quotes a request of this run; false if the quotation is too short to tell.
    quoted: bool,
    count: u64,
}

/// All errors about the requests to one target.
#[derive(Debug, Default)]
pub struct Icmp {
    counts: BTreeMap<Said, u64>,
    last: Option<Said>,
}

impl Icmp {
    /// Counts an error. Returns it if it is new.
    pub fn note(&mut self, error: &IcmpError, quote: Quote) -> Option<Said> {
        let said = Said { reason: error.reason, from: error.from, quoted: quote == Quote::Ours };
        self.last = Some(said);
        if let Some(count) = self.counts.get_mut(&said) {
            *count += 1;
            return None;
        }
        (self.counts.len() < SAID_MAX).then(|| {
            self.counts.insert(said, 1);
            said
        })
    }

    /// Notes that an answer was received.
    pub fn answered(&mut self) {
        self.last = None;
    }

    /// The last error since the last answer.
    pub fn last(&self) -> Option<Said> {
        self.last
    }

    /// True if an error reports that the port is closed.
    pub(crate) fn port_closed(&self) -> bool {
        self.counts.keys().any(|said| said.reason == IcmpReason::PortUnreachable)
    }

    /// The counts, for JSON.
    pub fn counts(&self) -> Vec<Count> {
        self.counts.iter().map(|(said, count)| said.count(*count)).collect()
    }

    /// The counts as text, one line each.
    pub fn text(&self) -> String {
        let line = |(said, count): (&Said, &u64)| match count {
            1 => format!("\nICMP: {} (once)", said.text()),
            _ => format!("\nICMP: {} ({count} times)", said.text()),
        };
        self.counts.iter().map(line).collect()
    }
}

impl Said {
    /// The error as text.
    pub fn text(self) -> String {
        let from = self.from.map_or(String::new(), |from| format!(", says {from}"));
        let doubt = if self.quoted { "" } else { ", perhaps of somebody else's packets" };
        format!("{}{from}{doubt}", self.reason)
    }

    /// One entry of [`Icmp::counts`], with this `count`.
    pub fn count(self, count: u64) -> Count {
        let mtu = match self.reason {
            IcmpReason::TooBig(mtu) => Some(mtu),
            _ => None,
        };
        let from = self.from.map(|from| from.to_string());
        Count { reason: self.reason.name(), mtu, from, quoted: self.quoted, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_told_once_and_counted_by_who_says_it() {
        let mut icmp = Icmp::default();
        let error = |reason, from: [u8; 4]| IcmpError {
            to: ([192, 0, 2, 1], 5005).into(),
            from: Some(from.into()),
            reason,
            quote: Vec::new(),
        };
        let closed = error(IcmpReason::PortUnreachable, [192, 0, 2, 1]);
        let told = icmp.note(&closed, Quote::Ours).unwrap();
        assert_eq!(told.text(), "port unreachable, says 192.0.2.1");
        assert_eq!(icmp.note(&closed, Quote::Ours), None);
        let big = error(IcmpReason::TooBig(1_280), [10, 0, 0, 1]);
        let told = icmp.note(&big, Quote::Short).unwrap();
        assert_eq!(
            told.text(),
            "packet too big (MTU 1280), says 10.0.0.1, perhaps of somebody else's packets"
        );
        let counts = icmp.counts();
        assert_eq!(
            (counts[0].reason, counts[0].count, counts[0].quoted),
            ("port_unreachable", 2, true)
        );
        assert_eq!((counts[1].reason, counts[1].mtu), ("too_big", Some(1_280)));
        assert!(icmp.text().starts_with("\nICMP: port unreachable, says 192.0.2.1 (2 times)\n"));
        assert!(icmp.text().ends_with(" packets (once)"));
        for n in 0..=255 {
            icmp.note(&error(IcmpReason::Other(n, 0), [10, 0, 0, 1]), Quote::Short);
        }
        assert_eq!(icmp.counts().len(), SAID_MAX);
        assert!(icmp.last().is_some() && icmp.port_closed());
        icmp.answered();
        assert_eq!(icmp.last(), None);
    }
}
