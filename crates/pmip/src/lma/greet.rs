//! Announces a restart to gateways (RFC 5847), so that they register their hosts again. Until then these hosts have no
//! service.

use alloc::collections::BTreeSet;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Prefix};

use super::Lma;
use crate::peer::{DATA_PORT, UDP};
use crate::{PeerAddress, Refusal, heart};

/// IP protocols of tunnelled packets: IPv4 and IPv6 in IP, and GRE.
const IN_IP: [u8; 3] = [4, 41, 47];
/// Maximum number of gateways greeted per second because of stray packets, each at most once.
const GREETED_MAX: usize = 1_024;

/// Gateways greeted in the current second because of stray packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Greeted {
    since: Time,
    gateways: BTreeSet<IpAddr>,
}

/// Returns true for a tunnelled packet of a host. Packets in known tunnels take the packet path and never get here.
pub(super) fn is_of_tunnel(came: &Datagram) -> bool {
    let is_ip = || came.bytes.first().is_some_and(|first| matches!(first >> 4, 4 | 6));
    IN_IP.contains(&came.protocol) || came.protocol == UDP && came.to.1 == DATA_PORT && is_ip()
}

impl Lma {
    /// Called once all stored records are restored: greets the gateways of restored bindings, and the gateways that the
    /// configuration lists by address.
    pub(super) fn greet(&mut self, now: Time) {
        if core::mem::replace(&mut self.started, true) {
            return;
        }
        self.settle(now);
        let is_one = |prefix: &Prefix| *prefix == Prefix::host(prefix.addr);
        let named = self.config.gateways.iter().map(|allowed| allowed.prefix).filter(is_one);
        let named = named.map(|prefix| PeerAddress::from(prefix.addr));
        let gateways: BTreeSet<PeerAddress> = self.peers.keys().copied().chain(named).collect();
        gateways.into_iter().for_each(|gateway| self.show_itself(gateway));
    }

    /// Sends a gateway our restart counter in an unsolicited heartbeat.
    pub(super) fn show_itself(&mut self, gateway: PeerAddress) {
        let (ends, counter) = (self.ends_to(gateway), self.config.restart_counter);
        self.send(heart::response(None, counter, None, ends, false));
    }

    /// Handles a tunnelled packet from an unknown tunnel. A gateway without a binding may have registered its hosts at
    /// an earlier start whose state is lost, so it is greeted. The source may be forged, but the greeting is shorter
    /// than the packet.
    pub(super) fn stray(&mut self, now: Time, came: &Datagram) -> Result<(), Refusal> {
        let gateway = PeerAddress::from(came.from.0);
        if self.allowed(gateway.address).is_none() {
            return Err(Refusal::Stranger);
        }
        let mut here = self.peers.range(gateway..);
        let is_known = here.next().is_some_and(|(peer, _)| peer.address == gateway.address);
        let greeted = &mut self.greeted;
        if now >= greeted.since + Span::from_secs(1) {
            *greeted = Greeted { since: now, gateways: BTreeSet::new() };
        }
        if !is_known
            && greeted.gateways.len() < GREETED_MAX
            && greeted.gateways.insert(gateway.address)
        {
            self.show_itself(gateway);
        }
        Err(Refusal::NoBinding)
    }
}
