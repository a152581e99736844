//! Messages to hosts: router advertisements to single hosts (RFC 6085), and neighbour solicitations that check whether
//! a host is still there.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Output, Prefix};
use segue_wire::nd::{
    self, Envelope, Message, NdOption, Preference, PrefixFlags, PrefixInformation,
    RouterAdvertisement, RouterAdvertisementFlags,
};

use super::Mag;
use super::config::{AttachBy, FIXED_LINK_LOCAL};
use super::io::Wish;
use super::station::{Place, Task};
use crate::news::Why;
use crate::{LinkLayer, Refusal};

/// IP protocol number of ICMPv6.
const ICMPV6: u8 = nd::NEXT_HEADER;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Minimum MTU of an IPv6 link (RFC 8200, section 5).
const LEAST_IPV6: u32 = 1_280;
/// Time between solicitations of a host (RetransTimer, RFC 4861, section 10), and their maximum number
/// (MAX_UNICAST_SOLICIT).
const RETRANS: Span = Span::from_secs(1);
const SOLICITATIONS: u32 = 3;
/// Preferred and valid lifetime of advertised prefixes, in seconds.
const PREFERRED_S: u32 = 14_400;
const VALID_S: u32 = 86_400;

impl Mag {
    /// Handles a neighbour discovery message.
    pub(super) fn discover(&mut self, now: Time, came: &Datagram) -> Result<(), Refusal> {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (came.from.0, came.to.0) else {
            return Err(Refusal::Malformed);
        };
        let interface = came.interface.ok_or(Refusal::Malformed)?;
        if self.access(interface).is_none() {
            return Ok(());
        }
        let envelope = Envelope { source, destination, hop_limit: came.hop_limit };
        match nd::check(&came.bytes, &envelope).map_err(|_| Refusal::Malformed)? {
            Message::RouterSolicitation { options } => {
                let own =
                    |option: &&NdOption| matches!(option, NdOption::SourceLinkLayerAddress { .. });
                // Without the option, the driver reads the address from the frame: `MagInput::Solicited`.
                let Some(own) = options.iter().find(own) else { return Ok(()) };
                let station = link_layer(own).ok_or(Refusal::NoStation)?;
                let link_local = Some(source).filter(Ipv6Addr::is_unicast_link_local);
                self.solicited(now, (interface, station), link_local);
            }
            Message::NeighborAdvertisement { target_address, .. } => {
                let here = self.stations.iter().filter(|((i, _), at)| {
                    *i == interface && at.link_local == Some(target_address)
                });
                let here: Vec<Place> = here.map(|(place, _)| place.clone()).collect();
                here.iter().for_each(|place| self.answered(now, place));
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a router solicitation.
    pub(super) fn solicited(&mut self, now: Time, place: Place, link_local: Option<Ipv6Addr>) {
        let Some(access) = self.access(place.0) else { return };
        if access.by == AttachBy::Solicitation || self.stations.contains_key(&place) {
            self.heard(now, place.clone(), link_local);
        }
        if self.stations.get(&place).is_some_and(|at| at.state.is_served()) {
            self.advertise(now, &place);
        }
    }

    /// The MTU to advertise to a station, in bytes.
    fn mtu_of(&self, place: &Place) -> u32 {
        let tunnel = self.tunnel_of(place);
        let size = tunnel.and_then(|tunnel| self.sizes.get(&tunnel)).copied();
        size.map_or(self.config.mtu_bytes, |size| size.clamp(LEAST_IPV6, self.config.mtu_bytes))
    }

    /// Records a tunnel's packet size and advertises the new MTU to the stations behind it.
    pub(super) fn resized(&mut self, now: Time, tunnel: u32, bytes: Option<u32>) {
        let behind = |place: &&Place| self.tunnel_of(place) == Some(tunnel);
        let behind: Vec<Place> = self.stations.keys().filter(behind).cloned().collect();
        let before: Vec<u32> = behind.iter().map(|place| self.mtu_of(place)).collect();
        match bytes {
            Some(bytes) => self.sizes.insert(tunnel, bytes),
            None => self.sizes.remove(&tunnel),
        };
        for (place, before) in behind.iter().zip(before) {
            if self.mtu_of(place) != before {
                self.advertise(now, place);
            }
        }
    }

    /// Sends a router advertisement to a station and schedules the next one.
    pub(super) fn advertise(&mut self, now: Time, place: &Place) {
        let Some(at) = self.stations.get(place).filter(|at| at.state.is_served()) else { return };
        let config = &self.config;
        let mut options: Vec<NdOption> = own_link_layer(config.mac).collect();
        options.push(NdOption::Mtu { mtu: self.mtu_of(place) });
        let own = at.prefixes.iter().map(|prefix| (prefix, VALID_S, PREFERRED_S));
        let former = at.former.iter().map(|prefix| (prefix, 0, 0));
        let all = own.chain(former);
        options.extend(all.filter_map(|(prefix, valid, preferred)| match prefix.addr {
            IpAddr::V6(addr) => Some(NdOption::PrefixInformation(PrefixInformation {
                prefix_length: prefix.len,
                // Not on-link: traffic to other addresses of the prefix goes to the gateway too.
                flags: PrefixFlags::AUTONOMOUS,
                valid_lifetime: valid,
                preferred_lifetime: preferred,
                prefix: addr,
            })),
            IpAddr::V4(_) => None,
        }));
        // A stock host re-evaluates the routes of open sockets only when it learns an additional route. A higher
        // preference alone leaves them unchanged until neighbour unreachability detection fails, three seconds later.
        // The host therefore gets an additional route, to the gateway itself, while it should prefer this access.
        let marker = at.prefixes.first().filter(|_| at.was_preferred).and_then(marker);
        options.extend(marker.map(|prefix| {
            let lifetime = if at.preferred { VALID_S } else { 0 };
            NdOption::PrefixInformation(PrefixInformation {
                prefix_length: 128,
                flags: PrefixFlags::ON_LINK,
                valid_lifetime: lifetime,
                preferred_lifetime: lifetime,
                prefix,
            })
        }));
        let lifetime_s = (config.advertise_every.as_micros() / 1_000_000 * 3).clamp(1, 9_000);
        if !config.name_servers.is_empty() {
            options.push(NdOption::RecursiveDnsServer {
                lifetime: lifetime_s as u32,
                addresses: config.name_servers.clone(),
            });
        }
        let message = Message::RouterAdvertisement(RouterAdvertisement {
            cur_hop_limit: 64,
            flags: RouterAdvertisementFlags(0),
            prf: if at.preferred { Preference::High } else { Preference::Medium },
            router_lifetime: lifetime_s as u16,
            reachable_time: 0,
            retrans_timer: 0,
            options,
        });
        let next = now + config.advertise_every;
        if let Some(at) = self.stations.get_mut(place) {
            at.advertised.get_or_insert(now);
        }
        self.send_to_station(place, &message, ALL_NODES);
        self.timers.set((place.clone(), Task::Advertise), next);
    }

    /// Solicits a host. Detaches it if the last solicitations were not answered.
    pub(super) fn probe(&mut self, now: Time, place: &Place) {
        let Some(at) = self.stations.get_mut(place) else { return };
        if at.probes >= SOLICITATIONS {
            self.detach(now, place, Why::Unreachable);
            return;
        }
        at.probes += 1;
        self.timers.set((place.clone(), Task::Probe), now + RETRANS);
        let Some(target_address) = at.link_local else {
            self.out.push_back(Output::Own(Wish::Ask { interface: place.0 }));
            return;
        };
        let options = own_link_layer(self.config.mac).collect();
        let message = Message::NeighborSolicitation { target_address, options };
        self.send_to_station(place, &message, target_address);
    }

    fn send_to_station(&mut self, place: &Place, message: &Message, to: Ipv6Addr) {
        let Ok(mac) = <[u8; 6]>::try_from(&place.1.0[..]) else { return };
        let datagram = Datagram {
            waited_ns: 0,
            interface: Some(place.0),
            from: (FIXED_LINK_LOCAL.into(), 0),
            to: (to.into(), 0),
            protocol: ICMPV6,
            hop_limit: 255,
            bytes: message.emit_with_checksum(FIXED_LINK_LOCAL, to),
        };
        self.out.push_back(Output::Own(Wish::ToStation { mac, datagram }));
    }
}

/// The gateway's address in a host's prefix, with the interface identifier that all gateways share (RFC 6543).
fn marker(prefix: &Prefix) -> Option<Ipv6Addr> {
    let IpAddr::V6(network) = prefix.addr else { return None };
    let host = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
    Some(Ipv6Addr::from_bits(network.to_bits() | FIXED_LINK_LOCAL.to_bits() & host))
}

/// The Source Link-Layer Address option of the gateway.
fn own_link_layer(mac: Option<[u8; 6]>) -> impl Iterator<Item = NdOption> {
    let option =
        |mac: [u8; 6]| NdOption::SourceLinkLayerAddress { link_layer_address: mac.to_vec() };
    mac.map(option).into_iter()
}

/// The link-layer address of a solicitation's sender.
fn link_layer(option: &NdOption) -> Option<LinkLayer> {
    match option {
        NdOption::SourceLinkLayerAddress { link_layer_address } => {
            // Only Ethernet addresses, without trailing bytes.
            <[u8; 6]>::try_from(&link_layer_address[..]).ok().map(LinkLayer::mac)
        }
        _ => None,
    }
}
