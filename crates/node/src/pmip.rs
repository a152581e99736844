//! The roles of Proxy Mobile IPv6: gateways and anchors ask servers about their hosts.

use core::net::{IpAddr, Ipv6Addr};

use segue_aaa::{AaaInput, Cause, Side, Subject, Verdict};
use segue_clock::{Span, UnixTime};
use segue_pmip::{
    Authorization, Identity, LinkLayer, Lma, LmaInput, LmaRecord, LmaWish, Mag, MagInput,
    MagRecord, NodeId, Report, Why, Wish,
};
use segue_wire::mobility::option::{AccessTechnology, MobileNodeIdentifier};

use crate::{AnchorLinks, GatewayLinks, Node, Role};

impl Role for Mag {
    type Own = MagInput;
    type Wish = Wish;
    type Report = Report;
    type Record = MagRecord;
    type Key = (u32, LinkLayer);
    type Links = GatewayLinks;
    const SIDE: Side = Side::Gateway;

    fn radius_request(&self, wish: Wish) -> Result<AaaInput<Self::Key>, Wish> {
        let subject = |(interface, station): &Self::Key| {
            let found = self.station(*interface, station);
            found.map_or(Subject::default(), |(access, at)| Subject {
                link_layer: station.0.clone(),
                // Servers identify the station by its link-layer address, and return its identity.
                node: None,
                nas: v6(access.proxy_coa),
                port: Some(access.interface.clone()),
                port_type: Some(port_type(access.technology)),
                prefixes: at.prefixes.clone(),
            })
        };
        match wish {
            Wish::Identify { interface, station } => {
                let key = (interface, station);
                Ok(AaaInput::Ask { subject: subject(&key), key })
            }
            Wish::Began { interface, station } => {
                let key = (interface, station);
                Ok(AaaInput::Began { subject: subject(&key), key })
            }
            Wish::Ended { interface, station, why } => {
                Ok(AaaInput::Ended { key: (interface, station), cause: cause(why) })
            }
            Wish::Ask { .. } | Wish::Show { .. } | Wish::ToStation { .. } => Err(wish),
        }
    }

    fn on_verdict((interface, station): Self::Key, verdict: Verdict) -> MagInput {
        let identity = match verdict {
            Verdict::Granted(grant) => grant.node.map(|node| Identity {
                node: NodeId::from_parts(MobileNodeIdentifier::NAI, &node),
                anchor: grant.anchor.map(Into::into),
                prefixes: grant.prefixes,
            }),
            Verdict::Refused | Verdict::Unanswered => None,
        };
        MagInput::Identified { interface, station, identity }
    }

    fn time_of_day(own: &MagInput) -> Option<UnixTime> {
        if let MagInput::TimeOfDay(day) = own { Some(*day) } else { None }
    }
}

impl Node<Mag> {
    /// True if the IEEE 802.21 function reports that this station is attached at this interface.
    #[must_use]
    pub fn is_reported(&self, interface: u32, station: &LinkLayer) -> bool {
        self.listener().is_some_and(|(mihf, links)| links.has(mihf, interface, station))
    }

    /// How long after the link of an access came up the function reported a station; `None` if it did not, or took
    /// more than 5 s.
    #[must_use]
    pub fn reported_after(&self, access: &str, station: &LinkLayer) -> Option<Span> {
        self.listener()?.1.reported_after(access, station)
    }
}

impl Role for Lma {
    type Own = LmaInput;
    type Wish = LmaWish;
    type Report = Report;
    type Record = LmaRecord;
    type Key = (NodeId, LinkLayer);
    type Links = AnchorLinks;
    const SIDE: Side = Side::Anchor;

    fn radius_request(&self, wish: LmaWish) -> Result<AaaInput<Self::Key>, LmaWish> {
        let subject = |(node, link_layer): &Self::Key, access, prefixes| Subject {
            link_layer: link_layer.0.clone(),
            node: Some(node.parts().1.to_vec()),
            nas: v6(self.config().address),
            port: None,
            port_type: Some(port_type(access)),
            prefixes,
        };
        match wish {
            LmaWish::Authorize { node, link_layer, access, prefixes } => {
                let key = (node, link_layer);
                Ok(AaaInput::Ask { subject: subject(&key, access, prefixes), key })
            }
            LmaWish::Bound { node, link_layer, access, prefixes } => {
                let key = (node, link_layer);
                Ok(AaaInput::Began { subject: subject(&key, access, prefixes), key })
            }
            LmaWish::Unbound { node, link_layer, why } => {
                Ok(AaaInput::Ended { key: (node, link_layer), cause: cause(why) })
            }
            LmaWish::Release(_)
            | LmaWish::Refuse(_)
            | LmaWish::Inspect(_)
            | LmaWish::Decide(_)
            | LmaWish::Went { .. }
            | LmaWish::Ended(_)
            | LmaWish::Link { .. }
            | LmaWish::Interface { .. } => Err(wish),
        }
    }

    fn on_verdict((node, link_layer): Self::Key, verdict: Verdict) -> LmaInput {
        let verdict = match verdict {
            Verdict::Granted(grant) => Authorization::Allowed(grant.prefixes),
            Verdict::Refused => Authorization::Refused,
            Verdict::Unanswered => Authorization::Unanswered,
        };
        LmaInput::Authorized { node, link_layer, verdict }
    }

    fn time_of_day(own: &LmaInput) -> Option<UnixTime> {
        if let LmaInput::TimeOfDay(day) = own { Some(*day) } else { None }
    }
}

/// The NAS-IPv6-Address of a daemon. One with an IPv4 address identifies itself by name.
fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// NAS-Port-Type of an access (RFC 2865, 5.41).
fn port_type(access: AccessTechnology) -> u32 {
    match access {
        AccessTechnology::ETHERNET => 15,
        AccessTechnology::WLAN => 19,
        AccessTechnology::WIMAX => 27,
        AccessTechnology::GERAN | AccessTechnology::UTRAN | AccessTechnology::E_UTRAN => 18,
        _ => 5,
    }
}

fn cause(why: Why) -> Cause {
    match why {
        Why::Detached => Cause::UserRequest,
        Why::Expired | Why::Unreachable => Cause::LostCarrier,
        Why::Revoked => Cause::AdminReset,
        Why::Displaced => Cause::PortPreempted,
        Why::Refused => Cause::LostService,
        Why::Unauthorized => Cause::SessionTimeout,
    }
}
