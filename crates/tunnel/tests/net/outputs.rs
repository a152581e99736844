//! What the machines order is carried out, and checked on the way.

use std::net::IpAddr;

use segue_clock::{Machine, Time};
use segue_tunnel::{AnchorInput, AnchorOutput, HostInput, HostOutput};

use super::datapath::Sent;
use super::{Event, Net};

/// More outputs than this for one input is a loop.
const MAX_OUTPUTS: usize = 10_000;

impl Net {
    /// Gives a host an input and carries out all that follows.
    pub fn tell_host(&mut self, host: usize, input: HostInput) {
        self.hosts[host].machine.handle(self.now, input);
        for count in 0.. {
            assert!(count < MAX_OUTPUTS, "a host does not come to an end");
            let Some(output) = self.hosts[host].machine.poll() else { break };
            self.host_output(host, output);
        }
        let node = &self.hosts[host];
        assert!(node.datapath.bindings_hold(), "a flow is bound to a path that is gone");
        let numbers: Vec<u8> = node.machine.paths().map(|(number, _)| number).collect();
        for (key, flow) in node.machine.flows() {
            assert!(numbers.contains(&flow.path), "{key} is bound to path {}", flow.path);
        }
    }

    /// Carries out what a host's machine has said at `now` to somebody else.
    pub fn carry_out(&mut self, host: usize, now: Time, outputs: Vec<HostOutput>) {
        self.now = now;
        for output in outputs {
            self.host_output(host, output);
        }
    }

    /// What the packet path has measured on the paths that are due, then the tick.
    pub fn tick_host(&mut self, host: usize) {
        for slot in self.hosts[host].machine.due(self.now) {
            if let Some(reading) = self.hosts[host].datapath.reading(self.now, slot) {
                self.tell_host(host, HostInput::Reading(slot, reading));
            }
        }
        self.tell_host(host, HostInput::Tick);
    }

    pub fn tick_anchor(&mut self) {
        for slot in self.anchor.due(self.now) {
            if let Some(reading) = self.anchor_datapath.reading(self.now, slot) {
                self.tell_anchor(AnchorInput::Reading(slot, reading));
            }
        }
        self.tell_anchor(AnchorInput::Tick);
    }

    fn host_output(&mut self, host: usize, output: HostOutput) {
        let datapath = &mut self.hosts[host].datapath;
        match output {
            HostOutput::Connect { interfaces } => self.connect(host, interfaces),
            HostOutput::MoveSignal { interface } => self.move_signal(host, interface),
            HostOutput::Signal(message) => self.message_from_host(host, message),
            HostOutput::Addresses { inner, .. } => datapath.set_own(&inner),
            HostOutput::SetPath(slot, setup) => {
                assert!(setup.local.is_some() && setup.remote.is_some() && setup.ifindex != 0);
                datapath.set_path(slot, setup);
            }
            HostOutput::RemovePath(slot) => datapath.remove_path(slot),
            HostOutput::SetVia(slot, via) => datapath.set_via(slot, via),
            HostOutput::SendProbe(order) => {
                let numbers = self.hosts[host].machine.paths().map(|(n, _)| 1u16 << n);
                let known = numbers.fold(0, |word, bit| word | bit);
                assert_eq!(order.probe.heard & !known, 0, "heard a path that is gone");
                let at = &mut self.hosts[host];
                let before = at.asked.insert(order.slot, order.probe.seq);
                let newer = before.is_none_or(|seq| order.probe.seq.wrapping_sub(seq) as i32 > 0);
                assert!(newer || order.probe.seq == 1, "{before:?} was asked before {order:?}");
                let datapath = &mut self.hosts[host].datapath;
                if let Some((outer, packet)) = datapath.send_probe(self.now, &order) {
                    self.transmit_up(host, outer, packet);
                }
            }
            HostOutput::Bind(key, slot) => datapath.bind(key, slot),
            HostOutput::Unbind(key) => datapath.unbind(&key),
            HostOutput::Inject(ticket) => {
                for data in datapath.take_held(ticket) {
                    match self.hosts[host].datapath.send(self.now, data) {
                        Sent::Out(outer, packet) => self.transmit_up(host, outer, packet),
                        Sent::Miss(again) => {
                            self.hosts[host].datapath.take_held(again);
                        }
                        Sent::Nothing => {}
                    }
                }
            }
            HostOutput::Discard(ticket) => {
                datapath.take_held(ticket);
            }
            HostOutput::SetQuiet(slot, quiet) => datapath.set_quiet(slot, quiet),
            HostOutput::Report(report) => self.hosts[host].reports.push((self.now, report)),
        }
    }

    /// Gives the anchor an input and carries out all that follows.
    pub fn tell_anchor(&mut self, input: AnchorInput) {
        self.anchor.handle(self.now, input);
        for count in 0.. {
            assert!(count < MAX_OUTPUTS, "the anchor does not come to an end");
            let Some(output) = self.anchor.poll() else { break };
            self.anchor_output(output);
        }
        self.expect_one_owner_per_address();
        self.expect_heard_words_of_paths();
    }

    fn anchor_output(&mut self, output: AnchorOutput) {
        let datapath = &mut self.anchor_datapath;
        match output {
            AnchorOutput::Signal(conn, message) => self.message_from_anchor(conn, message),
            AnchorOutput::Close(conn) => {
                self.close(conn);
                self.schedule(self.now, Event::Closed(conn));
            }
            AnchorOutput::SetPath(slot, setup) => {
                assert!(slot > 0 && slot < self.anchor_config.max_paths, "slot {slot}");
                datapath.set_path(slot, setup);
            }
            AnchorOutput::RemovePath(slot) => datapath.remove_path(slot),
            AnchorOutput::SetVia(slot, via) => datapath.set_via(slot, via),
            AnchorOutput::SetHeard(slots, word) => {
                datapath.set_heard(&slots, word);
            }
            AnchorOutput::SetInner(address, owner) => datapath.set_inner(address, owner),
            AnchorOutput::RemoveInner(address) => datapath.remove_inner(address),
            AnchorOutput::SendProbe(order) => {
                if let Some((outer, packet)) = datapath.send_probe(self.now, &order) {
                    self.transmit_down(outer.host_end, packet);
                }
            }
            AnchorOutput::Bind(key, slot) => datapath.bind(key, slot),
            AnchorOutput::Inject(ticket) => {
                for data in datapath.take_held(ticket) {
                    match self.anchor_datapath.send(self.now, data) {
                        Sent::Out(outer, packet) => self.transmit_down(outer.host_end, packet),
                        Sent::Miss(again) => {
                            self.anchor_datapath.take_held(again);
                        }
                        Sent::Nothing => {}
                    }
                }
            }
            AnchorOutput::Discard(ticket) => {
                datapath.take_held(ticket);
            }
            AnchorOutput::Persist(known) => {
                self.persisted.insert(known.name.clone(), known);
            }
            AnchorOutput::SetQuiet(slot, quiet) => datapath.set_quiet(slot, quiet),
            AnchorOutput::Report(report) => self.anchor_reports.push((self.now, report)),
        }
    }

    /// The answers on a path say of no path that is gone that it is heard.
    fn expect_heard_words_of_paths(&self) {
        for host in self.anchor.hosts() {
            let known = host.paths.keys().fold(0u16, |word, number| word | 1 << number);
            for slot in host.paths.values() {
                let word = self.anchor_datapath.heard(*slot).expect("the datapath has the path");
                assert_eq!(word & !known, 0, "the anchor hears a path that is gone");
            }
        }
    }

    fn expect_one_owner_per_address(&self) {
        let mut addresses: Vec<IpAddr> =
            self.anchor.hosts().flat_map(|host| host.inner.iter().copied()).collect();
        addresses.sort();
        assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "an address has two owners");
    }
}
