//! Proxy Binding Updates and Acknowledgements, and the options that both sides read.

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

/// The mobility options of a message: what an update requests and an acknowledgement echoes or grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) node: Option<NodeId>,
    /// An unspecified prefix requests any.
    pub(crate) prefixes: Vec<Prefix>,
    /// Prefixes that must not be advertised (RFC 7864).
    pub(crate) off_link: Vec<Prefix>,
    pub(crate) handoff: Option<Handoff>,
    pub(crate) access: Option<AccessTechnology>,
    pub(crate) link_layer: LinkLayer,
    pub(crate) link_local: Option<Ipv6Addr>,
    pub(crate) timestamp: Option<UnixTime>,
    pub(crate) alternate: Option<Ipv6Addr>,
    /// Over IPv4: the gateway's own address, which differs from the packet's source behind a NAT.
    pub(crate) care_of: Option<Ipv4Addr>,
    /// GRE is requested or granted; the key is the one that the sender expects in packets it receives.
    pub(crate) gre: Option<Option<u32>>,
    /// A NAT lies between the ends, or UDP encapsulation is forced as if one did.
    pub(crate) nat: Option<NatDetection>,
    pub(crate) restart_counter: Option<u32>,
    /// The anchor wants the host to prefer this gateway.
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

    /// The options in an order that needs little padding.
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

pub(crate) fn home_network_prefix(prefix: Prefix) -> MobilityOption {
    let home_network_prefix = match prefix.addr {
        IpAddr::V6(address) => address,
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
    };
    let (flags, prefix_length) = (HomeNetworkPrefixFlags(0), prefix.len);
    let home = HomeNetworkPrefix { flags, prefix_length, home_network_prefix };
    MobilityOption::HomeNetworkPrefix(home)
}

/// A Home Network Prefix option with the off-link flag, for a prefix that must not be advertised (RFC 7864).
pub(crate) fn off_link_prefix(prefix: Prefix) -> MobilityOption {
    match home_network_prefix(prefix) {
        MobilityOption::HomeNetworkPrefix(home) => {
            let flags = HomeNetworkPrefixFlags::OFF_LINK;
            MobilityOption::HomeNetworkPrefix(HomeNetworkPrefix { flags, ..home })
        }
        other => other,
    }
}

pub(crate) fn timestamp(time: UnixTime) -> MobilityOption {
    let (seconds, fraction_65536ths) = time.to_timestamp();
    MobilityOption::Timestamp(Timestamp { seconds, fraction_65536ths })
}

pub(crate) fn ipv4_care_of_address(ipv4_care_of_address: Ipv4Addr) -> MobilityOption {
    MobilityOption::Ipv4CareOfAddress(Ipv4CareOfAddress { ipv4_care_of_address })
}

pub(crate) fn gre_key(gre_key_identifier: Option<u32>) -> MobilityOption {
    MobilityOption::GreKey(GreKey { gre_key_identifier })
}

/// The unspecified prefix, which requests any prefix.
pub(crate) const ANY_PREFIX: Prefix = Prefix { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

/// A received Proxy Binding Update.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// Arrival time at the socket, before the packet waited for the machine.
    pub(crate) arrived: Time,
    pub(crate) sequence: u16,
    pub(crate) flags: BindingUpdateFlags,
    pub(crate) lifetime: Lifetime,
    pub(crate) asked: Registration,
    /// The options as received; the answer echoes some of them.
    pub(crate) options: Vec<MobilityOption>,
    /// Where the answer goes, and the source address it uses.
    pub(crate) ends: Ends,
    pub(crate) profile: Profile,
}

impl Update {
    /// The address to register (Proxy-CoA). A gateway whose source address differs from its IPv4 Care-of Address is
    /// behind a NAT.
    pub(crate) fn proxy_coa(&self) -> PeerAddress {
        match self.ends.peer.0 {
            IpAddr::V6(from) => self.asked.alternate.unwrap_or(from).into(),
            IpAddr::V4(from) => {
                let behind = self.asked.care_of.filter(|own| *own != from);
                PeerAddress { address: from.into(), behind }
            }
        }
    }

    /// Returns true if `other` comes from the same gateway for the same interface, so that it replaces this update.
    pub(crate) fn is_repeated_by(&self, other: &Update) -> bool {
        let who = |update: &Update| (update.asked.node.clone(), update.asked.link_layer.clone());
        self.proxy_coa() == other.proxy_coa() && who(self) == who(other)
    }

    /// Returns true if both updates are about the same interface, at any gateway; false if its identifier is unknown.
    pub(crate) fn is_of_same(&self, other: &Update) -> bool {
        let (one, other) = (&self.asked, &other.asked);
        one.link_layer.is_known()
            && (&one.node, &one.link_layer) == (&other.node, &other.link_layer)
    }

    /// Returns true if the update requests specific prefixes.
    pub(crate) fn names_prefixes(&self) -> bool {
        self.asked.prefixes.iter().any(|prefix| !prefix.addr.is_unspecified())
    }
}

/// Builds a message: over IPv6 with a Mobility Header checksum, over IPv4 in UDP, which has its own.
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

/// Verifies the checksum and parses a message. Over IPv4, UDP has already checked it.
pub(crate) fn read(came: &Datagram, ends: Ends, profile: &Profile) -> Result<Message, Refusal> {
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (ends.peer.0, ends.own.0)
        && !verify_checksum(from, to, &came.bytes)
    {
        return Err(Refusal::Checksum);
    }
    Message::parse(&came.bytes, profile).map_err(|_| Refusal::Malformed)
}
