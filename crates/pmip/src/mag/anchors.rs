//! Anchors of the hosts that are here: their tunnels, and heartbeats (RFC 5847).

use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::{Form, Forward, Output, Port, Prefix, Source, Tunnel};
use segue_wire::Probe;
use segue_wire::mobility::body::Heartbeat;
use segue_wire::mobility::option::NatDetection;
use segue_wire::mobility::{HeartbeatFlags, MobilityOption};

use super::Mag;
use super::station::{Gre, Nat, Place, Way};
use crate::heart::{self, Pulse};
use crate::message::Registration;
use crate::peer::{DATA_PORT, Ends};
use crate::{Refusal, Report, keepalive};

/// Initial timeout of a NAT keepalive; it doubles after each one.
const AGAIN: Span = Span::from_secs(1);

impl Mag {
    /// Announces a restart to the anchors of restored hosts: their notifications about other accesses are lost.
    pub(super) fn greet(&mut self) {
        let ends = self
            .anchors
            .iter()
            .flat_map(|(anchor, known)| known.tunnels.keys().map(move |own| (*own, *anchor)));
        let ends: Vec<(IpAddr, IpAddr)> = ends.collect();
        ends.into_iter().for_each(|(own, anchor)| self.show_itself(own, anchor));
    }

    /// Sends an anchor our restart counter in an unsolicited heartbeat.
    fn show_itself(&mut self, own: IpAddr, anchor: IpAddr) {
        let (ends, counter) = (Ends::between(own, anchor), self.config.restart_counter);
        self.send(heart::response(None, counter, None, ends, true));
    }

    pub(super) fn on_beat(
        &mut self,
        now: Time,
        beat: &Heartbeat,
        told: &Registration,
        ends: Ends,
    ) -> Result<(), Refusal> {
        let (from, _) = ends.peer;
        if !beat.flags.contains(HeartbeatFlags::RESPONSE) {
            // The configured anchor is always answered: it may still have hosts from before our restart.
            if from != self.config.anchor && !self.anchors.contains_key(&from) {
                return Err(Refusal::Stranger);
            }
            let counter = self.config.restart_counter;
            let answer = told.probe.map(|probe| self.answer(now, probe, ends));
            self.send(heart::response(Some(beat.sequence), counter, answer, ends, true));
            return Ok(());
        }
        if ends.own.1 == DATA_PORT {
            return self.is_open(now, ends, beat.sequence);
        }
        if self.nat(ends).is_some_and(|nat| nat.sequence == beat.sequence) {
            // A NAT keepalive was answered on the signalling port.
            return Ok(());
        }
        if !self.anchors.contains_key(&from) {
            // A restarted anchor also greets gateways without hosts.
            return if from == self.config.anchor { Ok(()) } else { Err(Refusal::Stranger) };
        }
        let pulse = self.hearts.on_response(now, from, beat, told.restart_counter);
        self.beat(now);
        match pulse.ok_or(Refusal::Stale)? {
            Some(Pulse::Restarted) => {
                self.report(Report::Restarted { peer: from.into() });
                self.open_again(now, from);
                self.register_again(now, from);
            }
            Some(Pulse::Back) => self.report(Report::Answers { peer: from.into() }),
            Some(Pulse::Silent) | None => {}
        }
        Ok(())
    }

    /// The option that answers an anchor's probe.
    fn answer(&mut self, now: Time, probe: Probe, ends: Ends) -> MobilityOption {
        let answers = self.answers.entry((ends.peer.0, ends.own.0)).or_default();
        keepalive::option(&answers.answer(now, probe))
    }

    pub(super) fn beat(&mut self, now: Time) {
        while let Some((address, ask, silent)) = self.hearts.beat(now) {
            let known = self.anchors.get(&address);
            let own = known.and_then(|anchor| anchor.tunnels.keys().next().copied());
            let request = ask.zip(own).and_then(|(sequence, own)| {
                heart::request(sequence, None, Ends::between(own, address), true)
            });
            self.send(request);
            if silent {
                self.report(Report::Silent { peer: address.into() });
            }
        }
    }

    /// Counts a station on the tunnel to its anchor. For the first one, creates the tunnel and starts monitoring the
    /// anchor.
    pub(super) fn reach(&mut self, now: Time, place: &Place) {
        let Some((anchor, coa)) = self.tunnel_ends(place) else { return };
        if !self.anchors.contains_key(&anchor) {
            let seed = self.config.seed ^ u64::from(self.config.restart_counter);
            self.hearts.listen(now, anchor, seed);
        }
        let known = self.anchors.entry(anchor).or_default();
        if let Some(way) = known.tunnels.get_mut(&coa) {
            way.stations += 1;
            return;
        }
        self.tunnel = self.tunnel.wrapping_add(1) % (1 << 31);
        let way = Way { number: self.tunnel, stations: 1, nat: None };
        let tunnel = way.tunnel(coa, anchor);
        known.tunnels.insert(coa, way);
        self.open_tunnel(tunnel);
    }

    /// Installs a tunnel. Any source may come out of it, because the anchor does the filtering.
    fn open_tunnel(&mut self, tunnel: Tunnel) {
        let port = Port::Tunnel(tunnel.number);
        let source = Source { port, prefix: Prefix::default_of(true) };
        self.out.push_back(Output::Forward(Forward::Tunnel(tunnel)));
        self.out.push_back(Output::Forward(Forward::Source(source)));
    }

    pub(super) fn leave_anchor(&mut self, coa: IpAddr, anchor: IpAddr) {
        let Some(known) = self.anchors.get_mut(&anchor) else { return };
        let Some(way) = known.tunnels.get_mut(&coa) else { return };
        way.stations -= 1;
        if way.stations > 0 {
            return;
        }
        let part = Forward::Tunnel(way.tunnel(coa, anchor));
        known.tunnels.remove(&coa);
        self.keepalives.cancel(&(coa, anchor));
        if known.tunnels.is_empty() {
            self.hearts.forget(anchor);
            self.anchors.remove(&anchor);
            self.answers.retain(|(of, _), _| *of != anchor);
        }
        self.out.push_back(Output::Withdraw(part));
    }

    /// The anchor of a station, and its Proxy-CoA.
    fn tunnel_ends(&self, place: &Place) -> Option<(IpAddr, IpAddr)> {
        let at = self.stations.get(place)?;
        let (identity, coa) = (at.identity.as_ref()?, self.config.accesses[at.access].proxy_coa);
        Some((identity.anchor.unwrap_or(self.config.anchor), coa))
    }

    /// Number of the tunnel of a station: its own, or the shared one.
    pub(super) fn tunnel_of(&self, place: &Place) -> Option<u32> {
        let own = self.stations.get(place)?.gre.filter(|gre| gre.send.is_some());
        let (anchor, coa) = self.tunnel_ends(place)?;
        let shared = || Some(self.anchors.get(&anchor)?.tunnels.get(&coa)?.number);
        own.map(|gre| gre.number).or_else(shared)
    }

    /// The GRE key that a station's update requests; allocated on first use.
    pub(super) fn key_of(&mut self, place: &Place) -> Option<u32> {
        let at = self.stations.get_mut(place)?;
        if at.gre.is_none() {
            self.tunnel = self.tunnel.wrapping_add(1) % (1 << 31);
        }
        let number = self.tunnel;
        Some(at.gre.get_or_insert(Gre { number, receive: number, send: None }).receive)
    }

    /// Restores the GRE tunnel of a station: keys to send with, and to receive with.
    pub(super) fn restore_key(&mut self, place: &Place, keys: Option<[u32; 2]>) {
        let Some([send, receive]) = keys else { return };
        self.tunnel = self.tunnel.wrapping_add(1) % (1 << 31);
        let number = self.tunnel;
        // New keys must be above the restored ones.
        self.tunnel = number.max(receive);
        let Some(at) = self.stations.get_mut(place) else { return };
        at.gre = Some(Gre { number, receive, send: None });
        self.key_granted(place, Some(send));
    }

    /// Records the GRE key that the anchor granted a station, or that it granted none. In the latter case returns the
    /// station's own tunnel, if it had one: the caller withdraws it once no traffic is routed there.
    pub(super) fn key_granted(&mut self, place: &Place, send: Option<u32>) -> Option<Tunnel> {
        let (anchor, coa) = self.tunnel_ends(place)?;
        let gre = self.stations.get_mut(place)?.gre.as_mut()?;
        let before = *gre;
        gre.send = send;
        let after = *gre;
        if before.send != after.send {
            let tunnel = after.tunnel(coa, anchor);
            tunnel.into_iter().for_each(|tunnel| self.open_tunnel(tunnel));
        }
        before.tunnel(coa, anchor).filter(|_| send.is_none())
    }

    /// Withdraws the GRE tunnel of a station.
    pub(super) fn end_key(&mut self, place: &Place) {
        let former = self.key_granted(place, None);
        self.out.extend(former.map(Forward::Tunnel).map(Output::Withdraw));
    }

    /// Handles an acknowledgement's report on whether a NAT lies between gateway and anchor.
    pub(super) fn on_nat(
        &mut self,
        now: Time,
        coa: IpAddr,
        anchor: IpAddr,
        nat: Option<&NatDetection>,
    ) {
        let Some(known) = self.anchors.get_mut(&anchor) else { return };
        let Some(way) = known.tunnels.get_mut(&coa).filter(|_| coa.is_ipv4()) else { return };
        let refresh = nat.map(|nat| {
            let seconds = Some(nat.refresh_time_s).filter(|seconds| *seconds < u32::MAX);
            seconds.map(|seconds| Span::from_secs(seconds.max(1).into()))
        });
        match (&mut way.nat, refresh) {
            (Some(known), Some(refresh)) => {
                known.refresh = refresh;
                return;
            }
            (None, None) => return,
            (None, Some(refresh)) => {
                way.nat = Some(Nat { refresh, wait: AGAIN, sequence: 0 });
                self.keepalives.set((coa, anchor), now);
            }
            (Some(_), None) => {
                way.nat = None;
                self.keepalives.cancel(&(coa, anchor));
            }
        }
        let tunnel = way.tunnel(coa, anchor);
        self.out.push_back(Output::Forward(Forward::Tunnel(tunnel)));
        self.keep_alive(now);
    }

    /// A restarted anchor has forgotten the NATs' ports: send keepalives at once.
    fn open_again(&mut self, now: Time, anchor: IpAddr) {
        let ways = self.anchors.get(&anchor).into_iter().flat_map(|known| &known.tunnels);
        let kept = ways.filter(|(_, way)| way.nat.is_some());
        kept.for_each(|(coa, _)| self.keepalives.set((*coa, anchor), now));
        self.keep_alive(now);
    }

    /// Sends NAT keepalives from both ports, so that NATs keep their mappings and the anchor learns them.
    pub(super) fn keep_alive(&mut self, now: Time) {
        while let Some((coa, anchor)) = self.keepalives.pop_due(now) {
            let way = self.anchors.get_mut(&anchor).and_then(|known| known.tunnels.get_mut(&coa));
            let Some(nat) = way.and_then(|way| way.nat.as_mut()) else { continue };
            nat.sequence = nat.sequence.wrapping_add(1);
            let (sequence, wait) = (nat.sequence, nat.wait);
            let most = nat.refresh.unwrap_or(AGAIN * 64);
            nat.wait = (nat.wait * 2).min(most);
            self.keepalives.set((coa, anchor), now + wait.min(most));
            let of_packets = Ends { own: (coa, DATA_PORT), peer: (anchor, DATA_PORT) };
            for ends in [of_packets, Ends::between(coa, anchor)] {
                self.send(heart::request(sequence, None, ends, true));
            }
        }
    }

    /// NAT state between these ends.
    fn nat(&mut self, ends: Ends) -> Option<&mut Nat> {
        let known = self.anchors.get_mut(&ends.peer.0)?;
        known.tunnels.get_mut(&ends.own.0)?.nat.as_mut()
    }

    /// Handles a response on the data port: the NAT passes hosts' packets.
    fn is_open(&mut self, now: Time, ends: Ends, sequence: u32) -> Result<(), Refusal> {
        let (coa, anchor) = (ends.own.0, ends.peer.0);
        if !self.anchors.contains_key(&anchor) {
            return Err(Refusal::Stranger);
        }
        let nat = self.nat(ends).filter(|nat| nat.sequence == sequence).ok_or(Refusal::Stale)?;
        nat.wait = AGAIN;
        match nat.refresh {
            Some(refresh) => self.keepalives.set((coa, anchor), now + refresh),
            None => self.keepalives.cancel(&(coa, anchor)),
        }
        Ok(())
    }
}

impl Way {
    fn tunnel(&self, local: IpAddr, remote: IpAddr) -> Tunnel {
        let form = match self.nat {
            Some(_) => Form::Udp { local: DATA_PORT, remote: DATA_PORT },
            None => Form::Ip,
        };
        Tunnel { number: self.number, local, remote, interface: None, form }
    }
}

impl Gre {
    fn tunnel(&self, local: IpAddr, remote: IpAddr) -> Option<Tunnel> {
        let Gre { number, receive, send } = *self;
        let form = Form::Gre { send: Some(send?), receive: Some(receive) };
        Some(Tunnel { number, local, remote, interface: None, form })
    }
}
