//! Carries out what the ends order, and checks it on the way.

use std::convert::Infallible;
use std::net::IpAddr;

use segue_clock::{Machine, Time};
use segue_ip::Input;
use segue_sim::tunnel::{AnchorEffect, AnchorEnd, Body, HostEffect, HostEnd};
use segue_tunnel::{AnchorInput, AnchorOutput, HostInput, HostOutput, Output};

use super::{Data, Event, Net, Packet};

impl Net {
    /// Gives a host an input and carries out all that follows.
    pub(crate) fn tell_host(
        &mut self,
        host: usize,
        input: impl Into<Input<HostInput, Infallible>>,
    ) {
        self.at_host(host, |end, now, effects| end.handle(now, input, effects));
        self.check_host(host);
    }

    /// Carries out outputs that the caller took from a host's machine at `now`.
    pub(crate) fn carry_out(
        &mut self,
        host: usize,
        now: Time,
        outputs: Vec<Output<HostOutput, Infallible>>,
    ) {
        self.now = now;
        for output in outputs {
            self.at_host(host, |end, now, effects| end.carry_out(now, output, effects));
        }
    }

    pub(crate) fn tick_host(&mut self, host: usize) {
        self.at_host(host, HostEnd::tick);
        self.check_host(host);
    }

    pub(crate) fn tick_anchor(&mut self) {
        self.at_anchor(AnchorEnd::tick);
        self.check_anchor();
    }

    /// A tick at any time, with no reading before it.
    pub(crate) fn tick_host_unread(&mut self, host: usize) {
        self.at_host(host, |end, now, effects| {
            end.machine.tick(now);
            while let Some(output) = end.machine.poll() {
                end.carry_out(now, output, effects);
            }
        });
        self.check_host(host);
    }

    /// As [`Net::tick_host_unread`], at the anchor.
    pub(crate) fn tick_anchor_unread(&mut self) {
        self.at_anchor(|end, now, effects| {
            end.machine.tick(now);
            while let Some(output) = end.machine.poll() {
                end.carry_out(now, output, effects);
            }
        });
        self.check_anchor();
    }

    /// Lets something happen at a host's end, and does what follows.
    pub(super) fn at_host<R>(
        &mut self,
        host: usize,
        happen: impl FnOnce(&mut HostEnd<Data>, Time, &mut Vec<HostEffect<Data>>) -> R,
    ) -> R {
        let mut effects = Vec::new();
        let result = happen(&mut self.hosts[host].end, self.now, &mut effects);
        for effect in effects {
            self.host_effect(host, effect);
        }
        result
    }

    /// After everything that a host's machine is told.
    pub(super) fn check_host(&self, host: usize) {
        let end = &self.hosts[host].end;
        assert_eq!(end.wrong(), None, "host {host}");
        assert!(end.datapath.bindings_hold(), "a flow is bound to a path that is gone");
        let numbers: Vec<u8> = end.machine.paths().map(|(number, _)| number).collect();
        for (key, flow) in end.machine.flows() {
            assert!(numbers.contains(&flow.path), "{key} is bound to path {}", flow.path);
        }
    }

    fn host_effect(&mut self, host: usize, effect: HostEffect<Data>) {
        match effect {
            HostEffect::Transmit(outer, packet) => {
                self.expect_sensible_request(host, &packet);
                self.transmit_up(host, &outer, packet);
            }
            HostEffect::Deliver(inner, slot) => {
                let machine = &self.hosts[host].end.machine;
                let path = machine.paths().find(|(n, _)| u32::from(*n) == slot);
                let name = path.expect("a path of the datapath").1.name().to_string();
                let Some(app) = self.apps.get_mut(inner.payload.app) else { return };
                app.down.arrived(self.now, &name, inner.payload.round == app.round);
            }
            HostEffect::Own(HostOutput::Connect { interfaces }) => self.connect(host, interfaces),
            HostEffect::Own(HostOutput::MoveSignal { interface }) => {
                self.move_signal(host, interface)
            }
            HostEffect::Own(HostOutput::Signal(message)) => self.message_from_host(host, message),
            HostEffect::Own(HostOutput::Addresses { .. } | HostOutput::SetMtu(_))
            | HostEffect::Send(_)
            | HostEffect::Forward(..) => {}
            HostEffect::Report(report) => self.hosts[host].reports.push((self.now, report)),
        }
    }

    /// A request hears no path that is gone and is newer than those before on its path.
    fn expect_sensible_request(&mut self, host: usize, packet: &Packet) {
        let probe = match &packet.body {
            Body::Probe { probe, .. } => probe,
            Body::Ride(ride) => &ride.probe,
            Body::Data { .. } | Body::Size { .. } => return,
        };
        let at = &mut self.hosts[host];
        let known = at.end.machine.paths().fold(0u16, |word, (number, _)| word | 1 << number);
        assert_eq!(probe.heard & !known, 0, "heard a path that is gone");
        let before = at.asked.insert((packet.index, packet.cookie), probe.seq);
        let newer = before.is_none_or(|seq| probe.seq.wrapping_sub(seq) as i32 > 0);
        assert!(newer || probe.seq == 1, "{before:?} was asked before {probe:?}");
    }

    /// Gives the anchor an input and carries out all that follows.
    pub(crate) fn tell_anchor(&mut self, input: AnchorInput) {
        self.at_anchor(|end, now, effects| end.handle(now, input, effects));
        self.check_anchor();
    }

    /// Lets something happen at the anchor's end, and does what follows.
    pub(super) fn at_anchor<R>(
        &mut self,
        happen: impl FnOnce(&mut AnchorEnd<Data>, Time, &mut Vec<AnchorEffect<Data>>) -> R,
    ) -> R {
        let mut effects = Vec::new();
        let result = happen(&mut self.anchor, self.now, &mut effects);
        for effect in effects {
            self.anchor_effect(effect);
        }
        result
    }

    /// After everything that the anchor's machine is told.
    pub(super) fn check_anchor(&self) {
        assert_eq!(self.anchor.wrong(), None);
        let own = self.anchor.datapath.flows_reach_their_hosts();
        assert!(own, "a flow goes over a path of another host than its destination's");
        self.expect_one_owner_per_address();
        self.expect_heard_words_of_paths();
    }

    fn anchor_effect(&mut self, effect: AnchorEffect<Data>) {
        match effect {
            AnchorEffect::Transmit(outer, packet) => self.transmit_down(outer.remote, packet),
            AnchorEffect::Deliver(inner, slot) => {
                let path = self.anchor.machine.path(slot);
                let name = path.expect("a path of the datapath").name.clone();
                let Some(app) = self.apps.get_mut(inner.payload.app) else { return };
                app.up.arrived(self.now, &name, inner.payload.round == app.round);
            }
            AnchorEffect::Own(AnchorOutput::Signal(conn, message)) => {
                self.message_from_anchor(conn, message)
            }
            AnchorEffect::Own(AnchorOutput::Close(conn)) => {
                self.close(conn);
                self.schedule(self.now, Event::Closed(conn));
            }
            AnchorEffect::Persist(known) => {
                self.persisted.insert(known.name.clone(), known);
            }
            AnchorEffect::Own(AnchorOutput::SetMtu(..))
            | AnchorEffect::Send(_)
            | AnchorEffect::Forward(..) => {}
            AnchorEffect::Report(report) => self.anchor_reports.push((self.now, report)),
        }
    }

    /// The answers on a path never report a path as heard that is gone.
    fn expect_heard_words_of_paths(&self) {
        let slots = 1..self.anchor_config.max_paths;
        assert!(self.anchor.datapath.slots().all(|slot| slots.contains(&slot)));
        for host in self.anchor.machine.hosts() {
            let known = host.paths.keys().fold(0u16, |word, number| word | 1 << number);
            for slot in host.paths.values() {
                let word = self.anchor.datapath.heard(*slot).expect("the datapath has the path");
                assert_eq!(word & !known, 0, "the anchor hears a path that is gone");
            }
        }
    }

    fn expect_one_owner_per_address(&self) {
        let mut addresses: Vec<IpAddr> =
            self.anchor.machine.hosts().flat_map(|host| host.inner.iter().copied()).collect();
        addresses.sort();
        assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]), "an address has two owners");
    }
}
