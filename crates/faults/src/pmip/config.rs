//! The configuration of a domain: mobile nodes, gateways, anchor and RADIUS server.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_aaa::{AaaConfig, Server, Side};
use segue_clock::{DayClock, Span};
use segue_ip::Prefix;
use segue_keepalive::Config as Keepalive;
use segue_mobility::Pool;
use segue_pmip::{
    Access, Allowed, DATA_PORT, Identities, Identity, Lifetimes, LinkLayer, LmaConfig, MOBILITY,
    MagConfig, NodeId, PeerAddress, SIGNALLING_PORT, Schedule as Placing,
};
use segue_sim::packet::UDP;
use segue_sim::pmip::no_clock;
use segue_sim::radius::{self, RadiusConfig, RadiusRole};
use segue_sim::{AgentId, RoleAgent};
use segue_wire::mobility::Profile;
use segue_wire::radius::Secret;

use crate::Stage;
use crate::fault::{Node, PathRef};
use crate::stage::{CORE, CORE_V6, outside};

/// Number of mobile nodes, and of interfaces per node.
pub(super) const NODES: u8 = 4;
pub(super) const INTERFACES: u8 = 2;
/// Registrations are short, so that many are renewed within a run.
pub(super) const LIFETIME: Span = Span::from_secs(16);
/// Time within which a former gateway drops a host if nothing is lost: four times the time it takes to retransmit
/// the notification.
pub(super) const FORMER: Span = Span::from_secs(4);
/// Time within which an interface that is present shows itself.
pub(super) const HEARD: Span = Span::from_secs(2);
/// Keepalive settings for measuring gateways if flows are placed by quality.
pub(super) fn keepalive() -> Keepalive {
    Keepalive { k: 3, t_ka: Span::from_millis(100), up_after: 3, ..Keepalive::default() }
}
/// Time that an anchor has to react to a change.
pub(super) const SLACK: Span = Span::from_millis(1);
/// Ports of the machines: mobility messages over IPv6, and both ports over IPv4.
pub(super) const PORTS: [(u8, u16); 3] = [(MOBILITY, 0), (UDP, SIGNALLING_PORT), (UDP, DATA_PORT)];
/// The gateway's interface to the anchor.
pub(super) const UPLINK: u32 = 1;
/// The gateway's access interface. Data of mobile nodes do not pass there.
pub(super) const LINK: u32 = 2;

pub(super) const SECRET: &[u8] = b"of the domain";
/// After this time clients ask again about a host in service.
pub(super) const SESSION: Span = Span::from_secs(5);
/// Before clients ask again about a host in service, if no server has answered.
pub(super) const HOLD_OFF: Span = Span::from_secs(2);
pub(super) type RadiusAgent = RoleAgent<RadiusRole>;

/// An interface of a mobile node.
pub(super) type Place = (u8, u8);

pub(super) fn node(n: u8) -> NodeId {
    NodeId::nai(&format!("node{n}@test"))
}

pub(super) fn station((n, interface): Place) -> LinkLayer {
    LinkLayer::mac([2, 0, 0, 0, n, interface])
}

pub(super) fn every() -> impl Iterator<Item = Place> {
    (0..NODES).flat_map(|n| (0..INTERFACES).map(move |interface| (n, interface)))
}

/// Configuration of a gateway with this access that knows all mobile nodes.
pub(super) fn mag_config(access: Access, clock: DayClock) -> MagConfig {
    let known = every().map(|place| {
        let (anchor, prefixes) = (None, Vec::new());
        (station(place), Identity { node: node(place.0), anchor, prefixes })
    });
    let identities = Some(Identities { known: known.collect(), realm: None });
    let lifetime = Lifetimes { shortest: LIFETIME, first: LIFETIME, longest: LIFETIME };
    let anchor = if access.proxy_coa.is_ipv6() { CORE_V6 } else { CORE };
    let config = MagConfig::new(anchor, Vec::from([access]), clock);
    MagConfig { identities, lifetime, ..config }
}

/// A gateway's address as seen by the anchor; IPv4 gateways are behind NATs.
pub(super) fn seen_at(gateway: usize, proxy_coa: IpAddr) -> PeerAddress {
    match proxy_coa {
        IpAddr::V6(_) => proxy_coa.into(),
        IpAddr::V4(own) => {
            let address = outside(PathRef { host: gateway, path: 0 }, 0);
            PeerAddress { address, behind: Some(own) }
        }
    }
}

/// The anchor's configuration for the settings of a schedule.
pub(super) fn lma_config(has: &impl Fn(&str) -> bool, clock: DayClock) -> LmaConfig {
    let IpAddr::V4(anchor_v4) = CORE else { unreachable!("it is of IPv4") };
    let network = Prefix::new(Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 0), 60);
    let pool = Pool::prefixes(network, 64, 0).expect("the network has parts of this length");
    let everybody = [true, false].map(Prefix::default_of);
    let allowed = |prefix| Allowed { prefix, profile: Profile::STRICT };
    LmaConfig {
        gateways: everybody.map(allowed).to_vec(),
        address_v4: Some(anchor_v4),
        flow_mobility: !has("flows off"),
        schedule: match () {
            () if has("flows random") => Placing::Random,
            () if has("flows quality") => Placing::Quality,
            () => Placing::Static,
        },
        keepalive: has("flows quality").then(keepalive),
        ..LmaConfig::new(CORE_V6, pool, clock)
    }
}

/// The client of a gateway or an anchor.
pub(super) fn client(identifier: String, is_v6: bool) -> AaaConfig {
    let address: IpAddr = if is_v6 { CORE_V6 } else { CORE };
    let server = |port| Server { address, port, secret: Secret::new(SECRET) };
    let [authentication, accounting] = radius::PORTS.map(server);
    AaaConfig {
        accounting: Vec::from([accounting]),
        identifier: Some(identifier),
        dead_time: HOLD_OFF,
        hold_off: HOLD_OFF,
        counts: true,
        // Each start sets side and clock.
        ..AaaConfig::new(Vec::from([authentication]), Side::Gateway, no_clock())
    }
}

/// Adds the server, which knows all mobile nodes. It never restarts.
pub(super) fn add_server(stage: &mut Stage) -> AgentId {
    let hosts = every().map(|place| (station(place).0, name(place.0)));
    let (secret, hosts) = (Secret::new(SECRET), hosts.collect());
    let config = RadiusConfig { secret, hosts, session: Some(SESSION) };
    let agent = RadiusAgent::of(RadiusRole(config), stage.network.seed_of(3, 0));
    stage.add_agent(Node::Fixed(1), &radius::PORTS.map(|port| (UDP, port)), agent)
}

/// The identity of a mobile node, as servers write it.
pub(super) fn name(n: u8) -> Vec<u8> {
    node(n).parts().1.to_vec()
}

/// NAS-Identifier of a gateway.
pub(super) fn gateway_name(gateway: usize) -> String {
    format!("gateway{gateway}")
}
