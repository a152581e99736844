//! `[[node]]`, `[[link]]` and `[[route]]`.

use schemars::JsonSchema;
use segue_clock::Time;
use segue_grammar::{
    Event, Link, Mistake, Name, Node, PrefixText, Spanned, Within, event, from_text,
};
use segue_sim::net::{Change, ChannelId, Hop, Rule};
use serde::Deserialize;

use crate::file::builder::Builder;
use crate::file::event::EventKind;
use crate::file::table::{Kind, Table};

pub(super) const NODE: Kind = Kind::of::<Node>("node", &[]);
pub(super) const LINK: Kind = Kind::of::<Link>("link", &[CUT, MEND, STALL]);
pub(super) const ROUTE: Kind = Kind::of::<Route>("route", &[]);

impl Table for Node {
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        if let Some(route) = self.routes.first() {
            return Err(Mistake::of(route, "routes are for segue lab: write a [[route]]"));
        }
        let id = builder.add_node(&self.name, self.transit)?;
        for address in &self.addresses {
            builder.own(id, address.get_ref().0, address)?;
            builder.network.node_mut(id).addresses.push(address.get_ref().0);
        }
        Ok(())
    }
}

impl Table for Link {
    fn plan(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let link = &self.own;
        if let Some(seed) = &link.seed {
            return Err(Mistake::of(seed, "a run has one seed, at the top"));
        }
        link.check()?;
        let name = link.name.get_ref();
        if builder.links.iter().any(|(known, _)| known == name) {
            return Err(Mistake::of(&link.name, format!("there is another link {name}")));
        }
        let mut ends = Vec::new();
        for (end, addresses) in link.ends.iter().zip(&link.addresses) {
            let node = builder.end_node(end)?;
            let interface = end.get_ref().interface.as_deref().unwrap_or(name);
            let addresses = addresses.iter().map(|a| Spanned::new(a.span(), a.get_ref().address));
            let index = builder.add_end(node, interface, addresses, end)?;
            let senses = link.senses();
            builder.network.node_mut(node).adapters[index as usize - 1].senses = senses;
            ends.push((node, index));
        }
        let [up, down] = builder.specs(self, &link.name)?;
        let channels = builder.network.connect(ends[0], ends[1], up, down);
        let (up, down) = channels.expect("both were checked");
        builder.links.push((name.clone(), [up, down]));
        Ok(())
    }
}

/// A route of a node, which takes precedence over the shortest paths.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Route {
    /// The node that routes. Its routes take precedence over the shortest paths and tunnels; the first match decides
    node: Name,
    /// Sources that it matches
    #[schemars(extend("x-unset" = "all"))]
    from: Option<PrefixText>,
    /// Destinations that it matches
    #[schemars(extend("x-unset" = "all"))]
    to: Option<PrefixText>,
    /// Code point that it matches
    #[schemars(extend("x-unset" = "all"))]
    dscp: Option<CodePoint>,
    /// Protocol that it matches
    #[schemars(extend("x-unset" = "all"))]
    protocol: Option<Protocol>,
    /// Destination port that it matches
    #[schemars(extend("x-unset" = "all"))]
    dport: Option<u16>,
    /// An interface of the node, a neighbour, or `"reject"`
    via: Name,
}

/// A code point (DSCP).
pub(super) type CodePoint = Within<-1, 0, 63>;

impl Table for Route {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let node = builder.node(&self.node)?;
        let out = |via| builder.way_out(node, via).map_err(Mistake::at(&self.via));
        let hop = match self.via.get_ref().as_str() {
            "reject" => Hop::Reject,
            via => Hop::Interface(out(via)?),
        };
        builder.network.node_mut(node).routes.add_rule(Rule {
            from: self.from.map(|p| p.0),
            to: self.to.map(|p| p.0),
            dscp: self.dscp.map(Within::get),
            protocol: self.protocol.map(|p| p.0),
            dport: self.dport,
            hop,
        });
        Ok(())
    }
}

/// A transport protocol.
#[derive(Clone, Copy)]
struct Protocol(u8);

from_text!(Protocol, "`\"tcp\"`, `\"udp\"`", |text: &str| match text {
    "tcp" => Ok(Protocol(6)),
    "udp" => Ok(Protocol(17)),
    _ => Err(format!("{text:?} is no protocol: write \"tcp\" or \"udp\"")),
});

const CUT: EventKind = EventKind {
    keys: event::CUT,
    add: |builder, event, at, link| {
        set_cut(builder, event, at, link, true)?;
        match event.lasting()? {
            Some(lasting) => set_cut(builder, event, at + lasting, link, false),
            None => Ok(()),
        }
    },
};

const MEND: EventKind = EventKind {
    keys: event::MEND,
    add: |builder, event, at, link| set_cut(builder, event, at, link, false),
};

const STALL: EventKind = EventKind {
    keys: event::STALL,
    add: |builder, event, at, link| {
        let lasting = event.stalled(link)?;
        for channel in channels(builder, event, link)? {
            builder.network.stall(channel, at, at + lasting);
        }
        Ok(())
    },
};

/// The directions of a link that an event names.
fn channels(
    builder: &Builder<'_>,
    event: &Event,
    link: &Name,
) -> Result<impl Iterator<Item = ChannelId> + use<>, Mistake> {
    let both = builder.link(link)?;
    Ok(event.ways()?.of(both))
}

fn set_cut(
    builder: &mut Builder<'_>,
    event: &Event,
    at: Time,
    link: &Name,
    cut: bool,
) -> Result<(), Mistake> {
    for channel in channels(builder, event, link)? {
        builder.network.schedule(at, Change::Cut(channel, cut));
    }
    Ok(())
}
