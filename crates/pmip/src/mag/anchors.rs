//! Anchors of hosts that are here: the tunnels to them, and whether they live (RFC 5847).

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::Time;
use segue_ip::{Form, Forward, Output, Port, Prefix, Source, Tunnel};
use segue_wire::mobility::body::Heartbeat;
use segue_wire::mobility::{HeartbeatFlags, MobilityOption};

use super::Mag;
use super::station::Place;
use crate::heart::{self, Pulse};
use crate::{Refusal, Report};

impl Mag {
    /// Tells anchors of hosts from before that this is another start: what they said of other accesses is forgotten.
    pub(super) fn greet(&mut self) {
        let counter = self.config.restart_counter;
        let ends = self
            .anchors
            .iter()
            .flat_map(|(anchor, known)| known.tunnels.keys().map(move |own| (*own, *anchor)));
        let ends: Vec<(Ipv6Addr, Ipv6Addr)> = ends.collect();
        for (own, anchor) in ends {
            self.send(heart::response(None, counter, own, anchor));
        }
    }

    pub(super) fn on_beat(
        &mut self,
        now: Time,
        beat: &Heartbeat,
        options: &[MobilityOption],
        from: Ipv6Addr,
        to: Ipv6Addr,
    ) -> Result<(), Refusal> {
        if !beat.flags.contains(HeartbeatFlags::RESPONSE) {
            // It may ask for hosts that this start does not know.
            if from != self.config.anchor && !self.anchors.contains_key(&from) {
                return Err(Refusal::Stranger);
            }
            let counter = self.config.restart_counter;
            self.send(heart::response(Some(beat.sequence), counter, to, from));
            return Ok(());
        }
        if !self.anchors.contains_key(&from) {
            return Err(Refusal::Stranger);
        }
        let pulse = self.hearts.on_response(now, from, beat, options);
        self.beat(now);
        match pulse.ok_or(Refusal::Stale)? {
            Some(Pulse::Restarted) => {
                self.report(Report::Restarted { peer: from });
                self.register_again(now, from);
            }
            Some(Pulse::Back) => self.report(Report::Answers { peer: from }),
            Some(Pulse::Silent) | None => {}
        }
        Ok(())
    }

    pub(super) fn beat(&mut self, now: Time) {
        while let Some((address, ask, silent)) = self.hearts.beat(now) {
            let known = self.anchors.get(&address);
            let own = known.and_then(|anchor| anchor.tunnels.keys().next().copied());
            let request = ask.zip(own).and_then(|(n, own)| heart::request(n, own, address));
            self.send(request);
            if silent {
                self.report(Report::Silent { peer: address });
            }
        }
    }

    /// There is a host of this anchor here: counts it, and listens to the anchor.
    pub(super) fn reach(&mut self, now: Time, place: &Place) {
        let Some((anchor, coa)) = self.tunnel_ends(place) else { return };
        if !self.anchors.contains_key(&anchor) {
            let seed = self.config.seed ^ u64::from(self.config.restart_counter);
            self.hearts.listen(now, anchor, seed);
        }
        let known = self.anchors.entry(anchor).or_default();
        if let Some((_, stations)) = known.tunnels.get_mut(&coa) {
            *stations += 1;
            return;
        }
        self.tunnel = self.tunnel.wrapping_add(1) % (1 << 31);
        let number = self.tunnel;
        known.tunnels.insert(coa, (number, 1));
        let tunnel = tunnel(number, coa, anchor);
        // An anchor says itself whose packets it lets through.
        let source = Source { port: Port::Tunnel(number), prefix: Prefix::default_of(true) };
        self.out.push_back(Output::Forward(Forward::Tunnel(tunnel)));
        self.out.push_back(Output::Forward(Forward::Source(source)));
    }

    pub(super) fn leave_anchor(&mut self, coa: Ipv6Addr, anchor: Ipv6Addr) {
        let Some(known) = self.anchors.get_mut(&anchor) else { return };
        let Some((number, stations)) = known.tunnels.get_mut(&coa) else { return };
        *stations -= 1;
        if *stations > 0 {
            return;
        }
        let part = Forward::Tunnel(tunnel(*number, coa, anchor));
        known.tunnels.remove(&coa);
        if known.tunnels.is_empty() {
            self.hearts.forget(anchor);
            self.anchors.remove(&anchor);
        }
        self.out.push_back(Output::Withdraw(part));
    }

    /// The anchor of a station, and the address that it is registered at.
    fn tunnel_ends(&self, place: &Place) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let at = self.stations.get(place)?;
        let (identity, coa) = (at.identity.as_ref()?, self.config.accesses[at.access].proxy_coa);
        Some((identity.anchor.unwrap_or(self.config.anchor), coa))
    }

    pub(super) fn tunnel_of(&self, place: &Place) -> Option<u32> {
        let (anchor, coa) = self.tunnel_ends(place)?;
        self.anchors.get(&anchor)?.tunnels.get(&coa).map(|(number, _)| *number)
    }
}

fn tunnel(number: u32, local: Ipv6Addr, remote: Ipv6Addr) -> Tunnel {
    let (local, remote) = (local.into(), remote.into());
    Tunnel { number, local, remote, interface: None, form: Form::Ip }
}
