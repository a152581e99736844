//! Tunnels to gateways: over IPv6 or IPv4 (RFC 5844), and with GRE keys for single bindings (RFC 5845).

use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Form, Forward, Output, Tunnel};
use segue_wire::mobility::{BindingUpdateFlags, Status};

use super::Lma;
use super::config::GreUse;
use super::register::Denial;
use super::state::{Gre, Peer, TUNNEL, Way};
use crate::PeerAddress;
use crate::message::{Registration, Update};
use crate::peer::{DATA_PORT, Ends, SIGNALLING_PORT};

impl Way {
    /// The way to the gateway that sent an update. Data is in UDP behind a NAT, or if the gateway forces UDP.
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

    /// The gateway's GRE key, if it requests a separate tunnel for the binding. UDP encapsulation excludes GRE, and GRE
    /// without keys could not separate bindings.
    pub(super) fn wants_gre(&self) -> Option<u32> {
        self.asked.gre.flatten().filter(|_| !self.wants_udp())
    }
}

impl Lma {
    /// The gateway that sent a message. Behind a NAT, it names its own address or is recognized by its signalling port.
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

    /// The local and remote address for a message to a gateway.
    pub(super) fn ends_to(&self, to: PeerAddress) -> Ends {
        let usual = Ends::between(self.config.own(to.address), to.address);
        let port = self.peers.get(&to).map_or(usual.peer.1, |peer| peer.way.port);
        Ends { peer: (to.address, port), ..usual }
    }

    /// Number of the tunnel of a binding: its own, or the shared one to its gateway.
    pub(super) fn tunnel_of(&self, number: u32) -> Option<u32> {
        let at = self.sessions.get(&number)?;
        let shared = || self.peers.get(&at.peer).map(|peer| peer.tunnel);
        at.value.gre.map(|gre| gre.tunnel).or_else(shared)
    }

    /// Checks that an update may have the encapsulation that it requests, and that there is room for another tunnel.
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

    /// Allocates a tunnel number. Numbers wrap after more tunnels than can exist at the same time.
    fn new_tunnel(&mut self) -> u32 {
        loop {
            let number = (self.number(TUNNEL) % (1 << 31)) as u32;
            if self.tunnels_used.insert(number) {
                return number;
            }
        }
    }

    /// Creates the tunnel to a gateway with a binding, or updates its endpoint.
    pub(super) fn reach(&mut self, now: Time, gateway: PeerAddress, way: Way) {
        if let Some(peer) = self.peers.get_mut(&gateway) {
            // A data port that keepalives have shown takes precedence over the usual one.
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

    /// Sets the UDP port that a gateway sends hosts' packets from; `None` without UDP encapsulation. Among several
    /// gateways behind one NAT, only one can have the usual port: traffic to another goes to its signalling port until
    /// a keepalive has `shown` its data port. A shown port takes precedence over an assumed one.
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

    /// Learns a gateway's source port from a received message.
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

    /// Withdraws the tunnel to a gateway if it has no binding left.
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

    /// The GRE tunnel of a binding at this gateway.
    pub(super) fn keyed(&self, gateway: PeerAddress, gre: Gre) -> Tunnel {
        let Gre { tunnel, send, receive } = gre;
        self.tunnel(tunnel, gateway.address, Form::Gre { send: Some(send), receive: Some(receive) })
    }

    fn tunnel(&self, number: u32, remote: IpAddr, form: Form) -> Tunnel {
        Tunnel { number, local: self.config.own(remote), remote, interface: None, form }
    }

    /// Creates the GRE tunnel of a binding if its gateway requests one. The gateway sends with the binding's number as
    /// key, which stays the same when the host moves.
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

    /// Withdraws a tunnel that carries no traffic any more.
    pub(super) fn take_back(&mut self, tunnel: Option<Tunnel>) {
        let Some(tunnel) = tunnel else { return };
        self.tunnels_used.remove(&tunnel.number);
        self.out.push_back(Output::Withdraw(Forward::Tunnel(tunnel)));
    }
}
