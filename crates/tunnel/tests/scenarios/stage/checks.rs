//! Invariants checked after each step, and checks that many scenarios share.

use std::net::IpAddr;

use segue_tunnel::{Cause, Report};

use super::Stage;

impl Stage {
    /// Checks the invariants that hold at every instant.
    pub(super) fn check(&mut self) {
        self.expect_own_sources();
        self.expect_sensible_requests();
        for host in 0..self.hosts.len() {
            self.check_host(host);
        }
        let anchor = self.anchor().end();
        assert_eq!(anchor.wrong(), None);
        let own = anchor.datapath.flows_reach_their_hosts();
        assert!(own, "a flow goes over a path of another host than its destination's");
        self.expect_one_owner_per_address();
        self.expect_heard_words_of_paths();
    }

    fn check_host(&self, host: usize) {
        let end = self.host(host).end();
        assert_eq!(end.wrong(), None, "host {host}");
        assert!(end.datapath.bindings_hold(), "a flow is bound to a path that is gone");
        let numbers: Vec<u8> = end.machine.paths().map(|(number, _)| number).collect();
        for (key, flow) in end.machine.flows() {
            assert!(numbers.contains(&flow.path), "{key} is bound to path {}", flow.path);
        }
    }

    /// Packets of a host have a source address of their interface, unless the host was given false interfaces.
    fn expect_own_sources(&mut self) {
        let sources = std::mem::take(&mut self.tape.borrow_mut().sources);
        for (channel, source) in sources {
            let (node, index) = self.network.channel(channel).from;
            let adapter = self.network.node(node).adapter(index).unwrap();
            let own = adapter.interface.addresses.contains(&source);
            assert!(own || self.lied, "{source} sends over {}", adapter.interface.name);
        }
    }

    /// Requests report no removed path as heard, and each is newer than earlier ones on its path.
    fn expect_sensible_requests(&mut self) {
        let requests = std::mem::take(&mut self.tape.borrow_mut().requests);
        for (channel, header, probe) in requests {
            let own = |host: &super::HostNode| host.links.iter().any(|link| link.up == channel);
            let host = self.hosts.iter().position(own).expect("hosts alone ask");
            let paths = self.host(host).end().machine.paths();
            let known = paths.fold(0u16, |word, (number, _)| word | 1 << number);
            assert_eq!(probe.heard & !known, 0, "host {host} heard a path that is gone");
            let asked = &mut self.hosts[host].asked;
            let before = asked.insert((header.index, header.cookie), probe.seq);
            let newer = before.is_none_or(|seq| probe.seq.wrapping_sub(seq) as i32 > 0);
            assert!(newer || probe.seq == 1, "{before:?} was asked before {probe:?}");
        }
    }

    /// The answers on a path never report a removed path as heard.
    fn expect_heard_words_of_paths(&self) {
        let anchor = self.anchor().end();
        let slots = 1..self.max_paths;
        assert!(anchor.datapath.slots().all(|slot| slots.contains(&slot)));
        for host in anchor.machine.hosts() {
            let known = host.paths.keys().fold(0u16, |word, number| word | 1 << number);
            for slot in host.paths.values() {
                let word = anchor.datapath.heard(*slot).expect("the datapath has the path");
                assert_eq!(word & !known, 0, "the anchor hears a path that is gone");
            }
        }
    }

    fn expect_one_owner_per_address(&self) {
        let hosts = self.anchor().end().machine.hosts();
        let mut addresses: Vec<IpAddr> =
            hosts.flat_map(|host| host.inner.iter().copied()).collect();
        addresses.sort();
        assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "an address has two owners");
    }

    /// No path of either end is redirected.
    pub(crate) fn expect_no_redirections(&self) {
        for host in 0..self.hosts.len() {
            for (number, path) in self.host(host).end().machine.paths() {
                assert_eq!(path.via(), None, "host {host}, path {number}");
            }
        }
        for (slot, path) in self.anchor().end().machine.paths() {
            assert_eq!(path.via(), None, "anchor, path {slot}");
        }
    }

    /// The causes of a host's handovers, in order.
    pub(crate) fn causes(&self, host: usize) -> Vec<Cause> {
        let cause = |report: &Report| match report {
            Report::Handover { cause, flows, .. } if *flows > 0 => Some(*cause),
            _ => None,
        };
        self.host(host).reports().iter().filter_map(|(_, report)| cause(report)).collect()
    }

    /// Number of packets that the host's paths have received since they were set up.
    pub(crate) fn probes_heard(&self, host: usize) -> u32 {
        self.host(host).end().datapath.received()
    }
}
