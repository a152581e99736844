//! An unmodified IPv6 host: handles router advertisements as its kernel would, without mobility support.
//!
//! ```text
//!   link comes up ──► router solicitation, until there is an answer
//!   router advertisement ──► an address of each prefix (RFC 4862), a default router with its preference (RFC 4191)
//!   neighbour solicitation ──► neighbour advertisement
//! ```
//!
//! The host has one default route, over the interface with the most preferred router; among equals, over the one
//! whose router has been known longest. As in Linux, a link that goes down does not change the default route:
//! only advertisements and expired lifetimes do. There is no duplicate address detection, and addresses stay on
//! their interface as long as they are valid.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{Span, Time};
use segue_ip::{Datagram, Forward, Forwarding, LinkEvent, Prefix, Route};
use segue_wire::nd::{
    self, Envelope, Message, NdOption, NeighborAdvertisementFlags, Preference, PrefixFlags,
    PrefixInformation, RouterAdvertisement,
};

use crate::role::{datagram, packet_of};
use crate::{Agent, Io, NodeId, Packet, Results};

/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = nd::NEXT_HEADER;
/// RTR_SOLICITATION_INTERVAL and MAX_RTR_SOLICITATIONS (RFC 4861, 10).
const INTERVAL: Span = Span::from_secs(4);
const SOLICITATIONS: u32 = 3;
/// An advertisement cannot reduce the remaining lifetime of an address below this (RFC 4862, 5.5.3).
const SHORTEST: Span = Span::from_secs(2 * 3_600);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The unique link-layer address of a node's interface.
#[must_use]
pub fn link_layer(node: NodeId, interface: u32) -> [u8; 6] {
    let [_, _, a, b] = node.0.to_be_bytes();
    let [_, _, c, d] = interface.to_be_bytes();
    [0x02, 0x5e, a, b, c, d]
}

/// The address that an interface forms from a 64-bit prefix: the lower half derives from its link-layer address
/// (RFC 4291, appendix A).
#[must_use]
pub fn address_in(prefix: Ipv6Addr, [a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let identifier = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(prefix.to_bits() >> 64 << 64 | u128::from(identifier))
}

/// The link-local address for a link-layer address.
#[must_use]
pub fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    address_in(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), mac)
}

/// A stock host as an agent that listens to ICMPv6.
pub struct StockHost {
    interfaces: BTreeMap<u32, Configured>,
    /// The interface of the default route.
    default: Option<u32>,
    /// Number of routers learned so far; orders routers by age.
    routers: u64,
    advertisements: u64,
    solicitations: u64,
    uplink_changes: u64,
}

/// Configuration that an interface received from its routers.
#[derive(Default)]
struct Configured {
    /// Time of the next solicitation, and number sent since the link came up.
    solicits: Option<(Time, u32)>,
    router: Option<Router>,
    /// End of validity of each address.
    addresses: BTreeMap<Ipv6Addr, Time>,
}

/// A default router.
struct Router {
    preference: u8,
    until: Time,
    number: u64,
}

impl StockHost {
    /// A host that configures these interfaces of its node.
    #[must_use]
    pub fn new(interfaces: impl IntoIterator<Item = u32>) -> StockHost {
        let interfaces = interfaces.into_iter().map(|index| (index, Configured::default()));
        StockHost {
            interfaces: interfaces.collect(),
            default: None,
            routers: 0,
            advertisements: 0,
            solicitations: 0,
            uplink_changes: 0,
        }
    }

    /// The interface of its default route.
    #[must_use]
    pub fn uplink(&self) -> Option<u32> {
        self.default
    }

    /// Sends router solicitations that are due.
    fn solicit(&mut self, io: &mut Io<'_>) {
        for (index, own) in &mut self.interfaces {
            let Some((at, count)) = own.solicits.filter(|(at, _)| *at <= io.now) else { continue };
            own.solicits = Some((at + INTERVAL, count + 1)).filter(|(_, n)| *n < SOLICITATIONS);
            let mac = link_layer(io.id, *index);
            let own = NdOption::SourceLinkLayerAddress { link_layer_address: mac.to_vec() };
            let message = Message::RouterSolicitation { options: Vec::from([own]) };
            self.solicitations += 1;
            send(io, *index, link_local(mac), ALL_ROUTERS, &message);
        }
    }

    fn advertised(&mut self, io: &mut Io<'_>, index: u32, said: &RouterAdvertisement) {
        let Some(own) = self.interfaces.get_mut(&index) else { return };
        self.advertisements += 1;
        own.solicits = None;
        let known = own.router.take().map(|router| router.number);
        let number = known.unwrap_or(self.routers);
        self.routers += u64::from(known.is_none());
        if said.router_lifetime > 0 {
            let until = io.now + Span::from_secs(said.router_lifetime.into());
            own.router = Some(Router { preference: rank(said.prf), until, number });
        }
        for option in &said.options {
            if let NdOption::PrefixInformation(information) = option {
                own.configure(io, index, information);
            }
        }
        self.choose(io);
    }

    /// Points the default route at the most preferred router.
    fn choose(&mut self, io: &mut Io<'_>) {
        let known = self.interfaces.iter().filter_map(|(index, own)| {
            let router = own.router.as_ref()?;
            Some((router.preference, Reverse(router.number), *index))
        });
        let best = known.max().map(|(.., index)| index);
        let before = core::mem::replace(&mut self.default, best);
        if before == best {
            return;
        }
        self.uplink_changes += u64::from(before.is_some() && best.is_some());
        let route = |index| Forward::Route(Route::on(Prefix::default_of(true), index));
        let done = match (before, best) {
            (_, Some(index)) => io.put(&route(index)),
            (Some(index), None) => io.take_back(&route(index)),
            (None, None) => Ok(()),
        };
        done.expect("it has these interfaces");
        let adapter = best.and_then(|index| io.node.adapter(index));
        let name = adapter.map_or("nothing", |adapter| adapter.interface.name.as_str());
        io.log(|| format!("default route over {name}"));
    }

    /// Removes expired routers and addresses.
    fn expire(&mut self, io: &mut Io<'_>) {
        for (index, own) in &mut self.interfaces {
            own.router.take_if(|router| router.until <= io.now);
            own.addresses.retain(|address, until| {
                let stays = *until > io.now;
                if !stays {
                    let gone = io.take_back(&at_interface(*index, *address));
                    gone.expect("it has this interface");
                }
                stays
            });
        }
        self.choose(io);
    }
}

impl Configured {
    /// Configures or updates the address for a prefix (RFC 4862, 5.5.3).
    fn configure(&mut self, io: &mut Io<'_>, index: u32, said: &PrefixInformation) {
        let usable = said.flags.contains(PrefixFlags::AUTONOMOUS)
            && said.prefix_length == 64
            && !said.prefix.is_unicast_link_local()
            && said.preferred_lifetime <= said.valid_lifetime;
        if !usable {
            return;
        }
        let address = address_in(said.prefix, link_layer(io.id, index));
        let wanted = io.now + Span::from_secs(said.valid_lifetime.into());
        match self.addresses.get_mut(&address) {
            Some(until) if wanted > io.now + SHORTEST || wanted > *until => *until = wanted,
            Some(until) => *until = (*until).min(io.now + SHORTEST),
            None if said.valid_lifetime == 0 => {}
            None => {
                self.addresses.insert(address, wanted);
                io.put(&at_interface(index, address)).expect("it has this interface");
                io.log(|| format!("has {address}"));
            }
        }
    }
}

impl Agent for StockHost {
    fn start(&mut self, io: &mut Io<'_>) {
        for (index, own) in &mut self.interfaces {
            let address = link_local(link_layer(io.id, *index));
            io.put(&at_interface(*index, address)).expect("it has this interface");
            own.solicits = io.has_carrier(*index).then_some((io.now, 0));
        }
        self.solicit(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        let Some(index) = over.filter(|index| self.interfaces.contains_key(index)) else { return };
        let Some(came) = datagram(over, packet) else { return };
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (came.from.0, came.to.0) else {
            return;
        };
        let envelope = Envelope { source, destination, hop_limit: came.hop_limit };
        match nd::check(&came.bytes, &envelope) {
            Ok(Message::RouterAdvertisement(said)) => self.advertised(io, index, &said),
            Ok(Message::NeighborSolicitation { target_address, .. })
                if io.node.owns(target_address.into()) && !source.is_unspecified() =>
            {
                let flags =
                    NeighborAdvertisementFlags::SOLICITED | NeighborAdvertisementFlags::OVERRIDE;
                let link_layer_address = link_layer(io.id, index).to_vec();
                let own = NdOption::TargetLinkLayerAddress { link_layer_address };
                let options = Vec::from([own]);
                let message = Message::NeighborAdvertisement { flags, target_address, options };
                send(io, index, target_address, source, &message);
            }
            _ => {}
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.expire(io);
        self.solicit(io);
    }

    fn deadline(&self) -> Option<Time> {
        let due = self.interfaces.values().flat_map(|own| {
            let solicits = own.solicits.map(|(at, _)| at);
            let router = own.router.as_ref().map(|router| router.until);
            solicits.into_iter().chain(router).chain(own.addresses.values().copied())
        });
        due.min()
    }

    fn link_changed(&mut self, io: &mut Io<'_>, event: LinkEvent) {
        let (index, solicits) = match event {
            LinkEvent::Up { interface, .. } => (interface, Some((io.now, 0))),
            LinkEvent::Down { interface, .. } => (interface, None),
            LinkEvent::GoingDown { .. } => return,
        };
        if let Some(own) = self.interfaces.get_mut(&index) {
            own.solicits = solicits;
            self.solicit(io);
        }
    }

    fn report(&self, name: &str, _now: Time, results: &mut Results) {
        let addresses = self.interfaces.values().flat_map(|own| own.addresses.keys());
        let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
        results.text(format!("{name}.addresses"), addresses.join(" "));
        results.int(format!("{name}.solicitations"), self.solicitations);
        results.int(format!("{name}.advertisements"), self.advertisements);
        results.int(format!("{name}.uplink_changes"), self.uplink_changes);
    }
}

/// Rank of a router preference (RFC 4191, 2.1); higher is better.
fn rank(preference: Preference) -> u8 {
    match preference {
        Preference::High => 2,
        Preference::Medium | Preference::Reserved => 1,
        Preference::Low => 0,
    }
}

fn at_interface(interface: u32, address: Ipv6Addr) -> Forward {
    Forward::Address { interface, prefix: Prefix::new(address, 64) }
}

/// Sends a neighbour discovery message over an interface.
pub(crate) fn send(
    io: &mut Io<'_>,
    interface: u32,
    from: Ipv6Addr,
    to: Ipv6Addr,
    message: &Message,
) {
    let bytes = message.emit_with_checksum(from, to);
    let (from, to) = ((from.into(), 0), (to.into(), 0));
    let (protocol, hop_limit) = (ICMPV6, 255);
    let said = Datagram { waited_ns: 0, interface: None, from, to, protocol, hop_limit, bytes };
    let (_, packet) = packet_of(io.now, said);
    io.send_alone(interface, packet);
}
