//! How gateways are reached: tunnels, over IPv6 or IPv4 (RFC 5844), and those of single bindings (RFC 5845).

use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Form, Forward, Output, Tunnel};
use segue_wire::mobility::{BindingUpdateFlags, Body, MobilityOption, Profile, Status};

use super::Lma;
use super::config::GreUse;
use super::register::Denial;
use super::state::{Gre, Peer, TUNNEL, Way};
use crate::PeerAddress;
use crate::message::{Registration, Update, datagram};
use crate::peer::{DATA_PORT, Ends, SIGNALLING_PORT};

impl Way {
    /// That of a gateway that sends this. Its packets are in UDP behind a NAT, and where it wishes so.
    pub(super) fn of(update: &Update) -> Way {
        Way { port: update.ends.peer.1, data: update.wants_udp().then_some(DATA_PORT) }
    }
}

impl Update {
    fn wants_udp(&self) -> bool {
        self.ends.peer.0.is_ipv4()
            && (self.proxy_coa().behind.is_some()
                || self.flags.contains(BindingUpdateFlags::FORCE_UDP))
    }

    /// The key of what the gateway gets, if its binding is to have a tunnel of its own. In UDP there is none, and GRE without
    /// keys tells nothing apart.
    pub(super) fn wants_gre(&self) -> Option<u32> {
        self.asked.gre.flatten().filter(|_| !self.wants_udp())
    }
}

impl Lma {
    /// Who has sent a message. A gateway behind a NAT says which it is, or is known by the port that it registers hosts from.
    pub(super) fn peer_of(&self, ends: Ends, told: &Registration) -> PeerAddress {
        let (address, port) = ends.peer;
        let first = PeerAddress::from(address);
        if address.is_ipv6() {
            return first;
        }
        if let Some(own) = told.care_of {
            return PeerAddress { behind: Some(own).filter(|own| address != *own), ..first };
        }
        let here = self.peers.range(first..).take_while(|(peer, _)| peer.address == address);
        let found = here.filter(|(_, known)| known.way.port == port).map(|(peer, _)| *peer);
        { found }.next().unwrap_or(first)
    }

    /// The two ends of a message to a gateway.
    pub(super) fn ends_to(&self, to: PeerAddress) -> Ends {
        let usual = Ends::between(self.config.own(to.address), to.address);
        let port = self.peers.get(&to).map_or(usual.peer.1, |peer| peer.way.port);
        Ends { peer: (to.address, port), ..usual }
    }

    /// Sends a message to a gateway.
    pub(super) fn say(&mut self, body: Body, options: Vec<MobilityOption>, to: PeerAddress) {
        let ends = self.ends_to(to);
        self.send(datagram(body, options, ends, &Profile::STRICT));
    }

    /// The tunnel of a binding: its own, or that to its gateway.
    pub(super) fn tunnel_of(&self, number: u32) -> Option<u32> {
        let at = self.sessions.get(&number)?;
        let shared = || self.peers.get(&at.peer).map(|peer| peer.tunnel);
        at.value.gre.map(|gre| gre.tunnel).or_else(shared)
    }

    /// Whether an update may have the tunnel that it needs.
    pub(super) fn check_tunnel(&self, update: &Update, number: Option<u32>) -> Result<(), Denial> {
        let config = &self.config;
        if config.gre == GreUse::Required && update.asked.gre.flatten().is_none() {
            return Err(Status::GRE_KEY_OPTION_REQUIRED.into());
        }
        let forced = update.flags.contains(BindingUpdateFlags::FORCE_UDP);
        let behind_nat = update.proxy_coa().behind.is_some();
        if forced && update.ends.peer.0.is_ipv4() && !behind_nat && !config.accept_udp
            || update.wants_udp() && config.gre == GreUse::Required
        {
            return Err(Status::ADMINISTRATIVELY_PROHIBITED.into());
        }
        let of_peer = !self.peers.contains_key(&update.proxy_coa());
        let has_own = number.and_then(|number| self.sessions.get(&number)?.value.gre).is_some();
        let own = config.gre != GreUse::Off && update.wants_gre().is_some() && !has_own;
        let needed = usize::from(of_peer) + usize::from(own);
        if needed > 0 && self.tunnels_used.len() + needed > config.max_tunnels {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        Ok(())
    }

    /// Their numbers come round after more tunnels than there can be at a time.
    fn new_tunnel(&mut self) -> u32 {
        loop {
            let number = (self.number(TUNNEL) % (1 << 31)) as u32;
            if self.tunnels_used.insert(number) {
                return number;
            }
        }
    }

    /// There is a binding at this gateway: makes the tunnel to it, or has it go where the gateway is reached now.
    pub(super) fn reach(&mut self, now: Time, gateway: PeerAddress, way: Way) {
        if let Some(peer) = self.peers.get_mut(&gateway) {
            // What keepalives have told of its packets' port holds.
            let data = way.data.map(|usual| peer.way.data.unwrap_or(usual));
            let before = core::mem::replace(&mut peer.way, Way { data, ..way });
            if before.data.is_some() != data.is_some() {
                self.set_data(gateway, data, false);
            }
            return;
        }
        let tunnel = self.new_tunnel();
        self.hearts.listen(now, gateway, self.rng.next_u64());
        let keepalive = self.keepalive(now, gateway);
        let peer = Peer { tunnel, way, keepalive, unreachable: false, since: now };
        self.peers.insert(gateway, peer);
        self.set_data(gateway, way.data, false);
    }

    /// A gateway sends hosts' packets from this port, or not in UDP. Of two gateways behind one NAT, only one can have the usual
    /// port: what is for the other goes to the port of its messages until a keepalive has `shown` another. Who has shown a port
    /// has it, whoever was thought to.
    fn set_data(&mut self, gateway: PeerAddress, data: Option<u16>, shown: bool) {
        let first = PeerAddress::from(gateway.address);
        let here =
            self.peers.range(first..).take_while(|(peer, _)| peer.address == gateway.address);
        let has = |(peer, known): &(&PeerAddress, &Peer)| {
            **peer != gateway && data.is_some() && known.way.data == data
        };
        let other = { here }.find(has).map(|(peer, _)| *peer);
        let Some(peer) = self.peers.get_mut(&gateway) else { return };
        peer.way.data = data;
        match (other, data) {
            (Some(_), _) if !shown => peer.way.data = Some(peer.way.port),
            (Some(other), _) => {
                if let Some(other) = self.peers.get_mut(&other) {
                    other.way.data = Some(other.way.port);
                }
                self.put_tunnel(other);
            }
            (None, _) => {}
        }
        self.put_tunnel(gateway);
    }

    fn put_tunnel(&mut self, gateway: PeerAddress) {
        let tunnel = self.tunnel_to(gateway);
        self.out.extend(tunnel.map(Forward::Tunnel).map(Output::Forward));
    }

    /// A gateway has shown the port that its packets come from.
    pub(super) fn learn(&mut self, gateway: PeerAddress, ends: Ends) {
        let Some(peer) = self.peers.get_mut(&gateway) else { return };
        let (_, port) = ends.peer;
        match ends.own.1 {
            SIGNALLING_PORT => peer.way.port = port,
            DATA_PORT if peer.way.data.is_some_and(|data| data != port) => {
                self.set_data(gateway, Some(port), true);
            }
            _ => {}
        }
    }

    /// Takes back the tunnel to a gateway that has no binding any more.
    pub(super) fn leave_gateway(&mut self, gateway: PeerAddress) {
        if self.sessions.of(&gateway).next().is_some() {
            return;
        }
        let tunnel = self.tunnel_to(gateway);
        if self.peers.remove(&gateway).is_none() {
            return;
        }
        self.hearts.forget(gateway);
        self.take_back(tunnel);
    }

    pub(super) fn tunnel_to(&self, gateway: PeerAddress) -> Option<Tunnel> {
        let Peer { tunnel: number, way, .. } = self.peers.get(&gateway)?;
        let form = match way.data {
            Some(remote) => Form::Udp { local: DATA_PORT, remote },
            None => Form::Ip,
        };
        Some(self.tunnel(*number, gateway.address, form))
    }

    /// The tunnel of a binding at this gateway.
    pub(super) fn keyed(&self, gateway: PeerAddress, gre: Gre) -> Tunnel {
        let Gre { tunnel, send, receive } = gre;
        self.tunnel(tunnel, gateway.address, Form::Gre { send: Some(send), receive: Some(receive) })
    }

    fn tunnel(&self, number: u32, remote: IpAddr, form: Form) -> Tunnel {
        Tunnel { number, local: self.config.own(remote), remote, interface: None, form }
    }

    /// Gives a binding its own tunnel if its gateway asks for one. What it sends there has the number of the binding as its key,
    /// wherever the host goes.
    pub(super) fn encapsulate(&mut self, number: u32, send: Option<u32>) {
        let send = send.filter(|_| self.config.gre != GreUse::Off);
        let Some(before) = self.sessions.get(&number).map(|at| at.value.gre) else { return };
        let number_of = |lma: &mut Lma| before.map_or_else(|| lma.new_tunnel(), |gre| gre.tunnel);
        let gre = send.map(|send| Gre { tunnel: number_of(self), send, receive: number });
        if let Some(session) = self.sessions.value_mut(&number) {
            session.gre = gre;
        }
        let gateway = self.sessions.get(&number).map(|at| at.peer);
        let tunnel = gateway.zip(gre).map(|(gateway, gre)| self.keyed(gateway, gre));
        self.out.extend(tunnel.map(Forward::Tunnel).map(Output::Forward));
    }

    /// Takes back a tunnel to which nothing leads any more.
    pub(super) fn take_back(&mut self, tunnel: Option<Tunnel>) {
        let Some(tunnel) = tunnel else { return };
        self.tunnels_used.remove(&tunnel.number);
        self.out.push_back(Output::Withdraw(Forward::Tunnel(tunnel)));
    }
}
