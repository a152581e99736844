//! Updates and acknowledgements of proxies, with the options that both sides look at.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::{Time, UnixTime};
use segue_ip::{Datagram, Prefix};
use segue_mobility::Lifetime;
use segue_wire::Probe;
use segue_wire::mobility::option::{
    AccessTechnology, AccessTechnologyType, GreKey, Handoff, HandoffIndicator, HomeNetworkPrefix,
    HomeNetworkPrefixFlags, Ipv4CareOfAddress, MobileNodeLinkLayerIdentifier, NatDetection,
    Timestamp,
};
use segue_wire::mobility::{
    BindingUpdateFlags, Body, Message, MobilityOption, Profile, verify_checksum,
};

use crate::peer::{Ends, UDP};
use crate::{HOPS, LinkLayer, MOBILITY, NodeId, PREFERENCE, PROBE, PeerAddress, Refusal, VENDOR};

/// What an update asks for, and an acknowledgement repeats or grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) node: Option<NodeId>,
    /// An unspecified one asks for any.
    pub(crate) prefixes: Vec<Prefix>,
    /// Not to be advertised (RFC 7864).
    pub(crate) off_link: Vec<Prefix>,
    pub(crate) handoff: Option<Handoff>,
    pub(crate) access: Option<AccessTechnology>,
    pub(crate) link_layer: LinkLayer,
    pub(crate) link_local: Option<Ipv6Addr>,
    pub(crate) timestamp: Option<UnixTime>,
    pub(crate) alternate: Option<Ipv6Addr>,
    /// Over IPv4: the address that the gateway has itself.
    pub(crate) care_of: Option<Ipv4Addr>,
    /// GRE is asked for, or granted: the key that the sender expects in what it gets.
    pub(crate) gre: Option<Option<u32>>,
    /// There is a NAT between the ends, or they are to act as if there were.
    pub(crate) nat: Option<NatDetection>,
    pub(crate) restart_counter: Option<u32>,
    /// The sender wishes that the host prefers this gateway.
    pub(crate) prefer: bool,
    pub(crate) probe: Option<Probe>,
}

impl Registration {
    pub(crate) fn of(options: &[MobilityOption]) -> Registration {
        let mut all = Registration::default();
        for option in options {
            match option {
                MobilityOption::MobileNodeIdentifier(id) => all.node = NodeId::of(id),
                MobilityOption::HomeNetworkPrefix(home) => {
                    let prefix = Prefix::new(home.home_network_prefix, home.prefix_length);
                    if home.flags.contains(HomeNetworkPrefixFlags::OFF_LINK) {
                        all.off_link.push(prefix);
                    } else if !all.prefixes.contains(&prefix) {
                        all.prefixes.push(prefix);
                    }
                }
                MobilityOption::HandoffIndicator(handoff) => {
                    all.handoff = Some(handoff.handoff_indicator);
                }
                MobilityOption::AccessTechnologyType(access) => {
                    all.access = Some(access.access_technology_type);
                }
                MobilityOption::MobileNodeLinkLayerIdentifier(id) => {
                    all.link_layer = LinkLayer(id.link_layer_identifier.clone());
                }
                MobilityOption::LinkLocalAddress(address) => {
                    all.link_local = Some(address.link_local_address);
                }
                MobilityOption::Timestamp(Timestamp { seconds, fraction_65536ths }) => {
                    all.timestamp = Some(UnixTime::from_timestamp(*seconds, *fraction_65536ths));
                }
                MobilityOption::AlternateCareOfAddress(address) => {
                    all.alternate = Some(address.alternate_care_of_address);
                }
                MobilityOption::Ipv4CareOfAddress(address) => {
                    all.care_of = Some(address.ipv4_care_of_address);
                }
                MobilityOption::GreKey(key) => all.gre = Some(key.gre_key_identifier),
                MobilityOption::NatDetection(nat) => all.nat = Some(nat.clone()),
                MobilityOption::RestartCounter(counter) => {
                    all.restart_counter = Some(counter.restart_counter);
                }
                MobilityOption::VendorSpecific(own)
                    if (own.vendor_id, own.sub_type) == (VENDOR, PREFERENCE) =>
                {
                    all.prefer = own.data.first() == Some(&1);
                }
                MobilityOption::VendorSpecific(own)
                    if (own.vendor_id, own.sub_type) == (VENDOR, PROBE) =>
                {
                    all.probe = own.data.as_slice().try_into().ok().map(Probe::parse);
                }
                _ => {}
            }
        }
        all
    }

    /// Its options, in an order that needs little padding.
    pub(crate) fn options(&self) -> Vec<MobilityOption> {
        let mut options = Vec::new();
        options
            .extend(self.node.iter().map(|id| MobilityOption::MobileNodeIdentifier(id.option())));
        options.extend(self.prefixes.iter().map(|prefix| home_network_prefix(*prefix)));
        options.extend(self.handoff.map(|handoff_indicator| {
            MobilityOption::HandoffIndicator(HandoffIndicator { handoff_indicator })
        }));
        options.extend(self.access.map(|access_technology_type| {
            MobilityOption::AccessTechnologyType(AccessTechnologyType { access_technology_type })
        }));
        if self.link_layer.is_known() {
            let link_layer_identifier = self.link_layer.0.clone();
            let id = MobileNodeLinkLayerIdentifier { link_layer_identifier };
            options.push(MobilityOption::MobileNodeLinkLayerIdentifier(id));
        }
        options.extend(self.timestamp.map(timestamp));
        options.extend(self.care_of.map(ipv4_care_of_address));
        options.extend(self.gre.map(gre_key));
        options
    }
}

/// A Home Network Prefix option.
pub(crate) fn home_network_prefix(prefix: Prefix) -> MobilityOption {
    let home_network_prefix = match prefix.addr {
        IpAddr::V6(address) => address,
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
    };
    let (flags, prefix_length) = (HomeNetworkPrefixFlags(0), prefix.len);
    let home = HomeNetworkPrefix { flags, prefix_length, home_network_prefix };
    MobilityOption::HomeNetworkPrefix(home)
}

/// The same of a prefix that is not to be advertised (RFC 7864).
pub(crate) fn off_link_prefix(prefix: Prefix) -> MobilityOption {
    match home_network_prefix(prefix) {
        MobilityOption::HomeNetworkPrefix(home) => {
            let flags = HomeNetworkPrefixFlags::OFF_LINK;
            MobilityOption::HomeNetworkPrefix(HomeNetworkPrefix { flags, ..home })
        }
        other => other,
    }
}

/// A Timestamp option.
pub(crate) fn timestamp(time: UnixTime) -> MobilityOption {
    let (seconds, fraction_65536ths) = time.to_timestamp();
    MobilityOption::Timestamp(Timestamp { seconds, fraction_65536ths })
}

/// An IPv4 Care-of Address option.
pub(crate) fn ipv4_care_of_address(ipv4_care_of_address: Ipv4Addr) -> MobilityOption {
    MobilityOption::Ipv4CareOfAddress(Ipv4CareOfAddress { ipv4_care_of_address })
}

/// A GRE Key option.
pub(crate) fn gre_key(gre_key_identifier: Option<u32>) -> MobilityOption {
    MobilityOption::GreKey(GreKey { gre_key_identifier })
}

/// Asks for any prefix.
pub(crate) const ANY_PREFIX: Prefix = Prefix { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

/// A Proxy Binding Update as it came.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// When it arrived: before it waited for the machine.
    pub(crate) arrived: Time,
    pub(crate) sequence: u16,
    pub(crate) flags: BindingUpdateFlags,
    pub(crate) lifetime: Lifetime,
    pub(crate) asked: Registration,
    /// As it came, to be repeated.
    pub(crate) options: Vec<MobilityOption>,
    /// Whom to answer, and from where.
    pub(crate) ends: Ends,
    pub(crate) profile: Profile,
}

impl Update {
    /// The address to register. A gateway that sends from another address than it has is behind a NAT.
    pub(crate) fn proxy_coa(&self) -> PeerAddress {
        match self.ends.peer.0 {
            IpAddr::V6(from) => self.asked.alternate.unwrap_or(from).into(),
            IpAddr::V4(from) => {
                let behind = self.asked.care_of.filter(|own| *own != from);
                PeerAddress { address: from.into(), behind }
            }
        }
    }

    /// Whether another update is about the same interface at the same gateway.
    pub(crate) fn is_repeated_by(&self, other: &Update) -> bool {
        let who = |update: &Update| (update.asked.node.clone(), update.asked.link_layer.clone());
        self.proxy_coa() == other.proxy_coa() && who(self) == who(other)
    }

    /// Whether it is about the same interface.
    pub(crate) fn is_of_same(&self, other: &Update) -> bool {
        let (one, other) = (&self.asked, &other.asked);
        one.link_layer.is_known()
            && (&one.node, &one.link_layer) == (&other.node, &other.link_layer)
    }

    /// Whether it gives a prefix that it wants.
    pub(crate) fn names_prefixes(&self) -> bool {
        self.asked.prefixes.iter().any(|prefix| !prefix.addr.is_unspecified())
    }
}

/// A message as it leaves: over IPv6 with its checksum, over IPv4 in UDP, which has one.
pub(crate) fn datagram(
    body: Body,
    options: Vec<MobilityOption>,
    Ends { own: from, peer: to }: Ends,
    profile: &Profile,
) -> Option<Datagram> {
    let message = Message { body, options };
    let (protocol, bytes) = match (from.0, to.0) {
        (IpAddr::V6(own), IpAddr::V6(peer)) => {
            (MOBILITY, message.emit_with_checksum(own, peer, profile).ok()?)
        }
        (IpAddr::V4(_), IpAddr::V4(_)) => (UDP, message.emit(profile).ok()?),
        _ => return None,
    };
    Some(Datagram { waited_ns: 0, interface: None, from, to, protocol, hop_limit: HOPS, bytes })
}

/// Reads a message whose checksum is right. In UDP it has none of its own.
pub(crate) fn read(came: &Datagram, ends: Ends, profile: &Profile) -> Result<Message, Refusal> {
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (ends.peer.0, ends.own.0)
        && !verify_checksum(from, to, &came.bytes)
    {
        return Err(Refusal::Checksum);
    }
    Message::parse(&came.bytes, profile).map_err(|_| Refusal::Malformed)
}
