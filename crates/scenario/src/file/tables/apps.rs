//! The common part of all applications: two ends, ports, and a period of time.

use std::net::IpAddr;

use schemars::JsonSchema;
use segue_clock::{Span, Time};
use segue_grammar::{Duration, End, Mistake, Name, Part, Spanned, Values, schema::Key};
use segue_sim::{NodeId, Packet};
use segue_traffic::apps::{BadConfig, Ends, Pair, Period};
use serde::Deserialize;

use crate::file::builder::Builder;
use crate::file::reach;

pub(super) use segue_sim::packet::TCP;
/// UDP's protocol number.
pub(super) const UDP: u8 = 17;

/// First ports assigned if the file gives none, at the requesting end and at the other.
const FIRST_PORTS: [u16; 2] = [49_152, 40_000];

/// The table of an application: the common keys, the keys of its transport, and its specific keys.
pub(super) struct App<T, A> {
    pub(super) common: Common,
    pub(super) over: T,
    pub(super) own: A,
}

impl<T: Part, A: Part> Part for App<T, A> {
    fn keys() -> Vec<&'static str> {
        [Common::keys(), T::keys(), A::keys()].concat()
    }

    fn described() -> Vec<Key> {
        [Common::described(), T::described(), A::described()].concat()
    }

    fn take(table: &mut Values<'_>) -> Result<App<T, A>, Mistake> {
        Ok(App { common: Part::take(table)?, over: Part::take(table)?, own: Part::take(table)? })
    }
}

/// The keys of every application.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Common {
    /// In front of its results
    pub(super) name: Name,
    /// The client (for `tcp`: the sender)
    from: Spanned<End>,
    /// The other end. The two must be able to reach each other
    to: Spanned<End>,
    /// Port at `to`
    #[schemars(extend("x-unset" = "a free one"))]
    port: Option<Spanned<u16>>,
    /// When it starts; not for `tcp`
    #[schemars(extend("x-unset" = "with the run"))]
    pub(super) start: Option<Spanned<Duration>>,
    /// When it stops; not for `tcp`
    #[schemars(extend("x-unset" = "with the run"))]
    pub(super) stop: Option<Spanned<Duration>>,
}

/// The two ends of an application, resolved.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    /// Their nodes.
    pub(super) nodes: (NodeId, NodeId),
    /// Their addresses and first ports.
    pub(super) ends: Ends,
}

impl Placed {
    /// A packet from the first end to the second, or back, to look up its route.
    pub(super) fn probe(&self, protocol: u8, dscp: u8, back: bool) -> (NodeId, Packet) {
        let Placed { nodes, ends } = self;
        let (node, from, to) = match back {
            false => (nodes.0, ends.first, ends.second),
            true => (nodes.1, ends.second, ends.first),
        };
        (node, reach::probe(from, to, protocol, dscp))
    }
}

impl Common {
    /// Resolves the ends, assigns them ports of a protocol, and checks that they reach each other.
    pub(super) fn place(
        &self,
        builder: &mut Builder<'_>,
        protocol: u8,
        (own, other): (u16, u16),
        dscp: u8,
    ) -> Result<Placed, Mistake> {
        builder.take_name(&self.name)?;
        let first = builder.end_node(&self.from)?;
        let second = builder.end_node(&self.to)?;
        if first == second {
            let message = format!("{} with itself", self.to.get_ref().node);
            return Err(Mistake::of(&self.to, message));
        }
        let addresses = builder.addresses(&self.from, first)?;
        let others = builder.addresses(&self.to, second)?;
        let same = |(a, b): &(IpAddr, IpAddr)| a.is_ipv4() == b.is_ipv4();
        let pairs = addresses.iter().flat_map(|a| others.iter().map(move |b| (*a, *b)));
        let Some((from, to)) = { pairs }.find(same) else {
            let (from, to) = (&self.from.get_ref().node, &self.to.get_ref().node);
            let message = format!("{from} and {to} have no addresses of one family");
            return Err(Mistake::of(&self.to, message));
        };
        let owner = self.name.get_ref();
        let own = builder.free_ports(first, protocol, FIRST_PORTS[0], own, owner);
        let other = match &self.port {
            Some(port) => builder.take_ports(second, protocol, port, other, owner)?,
            None => builder.free_ports(second, protocol, FIRST_PORTS[1], other, owner),
        };
        let ends = Ends { first: (from, own), second: (to, other) };
        let placed = Placed { nodes: (first, second), ends };
        for back in [false, true] {
            let (node, probe) = placed.probe(protocol, dscp, back);
            if builder.is_home(probe.src) {
                continue;
            }
            if reach::follow(&builder.network, node, &probe).map_err(Mistake::at(&self.to))? {
                // Behind a translator: answers are sent to a different address.
                break;
            }
        }
        Ok(placed)
    }

    /// Notes a sender that never stops, if neither its packets nor the answers take time.
    pub(super) fn note_standstill(&self, builder: &mut Builder<'_>, placed: &Placed, protocol: u8) {
        let ways = [false, true].map(|back| {
            let (node, probe) = placed.probe(protocol, 0, back);
            reach::timeless(&builder.network, node, &probe)
        });
        let [Some(first), Some(_)] = ways else { return };
        let link = builder.links.iter().find(|(_, channels)| channels.contains(&first));
        let link = link.map_or("the way", |(name, _)| name);
        let message =
            format!("time stops: {link} has neither delay nor rate, and the sender no end");
        builder.standstill.get_or_insert(Mistake::of(&self.to, message));
    }

    /// When it starts and when it stops.
    pub(super) fn period(&self, builder: &Builder<'_>) -> Result<Period, Mistake> {
        let start = self.start.as_ref().map_or(Ok(Time::ZERO), |start| builder.within(start))?;
        let stop = self.stop.as_ref().map(|stop| builder.within(stop)).transpose()?;
        if let Some(written) = self.stop.as_ref().filter(|stop| stop.get_ref().0.0 <= start.0) {
            return Err(Mistake::of(written, "it stops before it starts"));
        }
        Ok(Period { start: Span(start.0), stop: stop.map(|at| Span(at.0)) })
    }

    /// Adds both ends, unless their model refuses a key.
    pub(super) fn add(
        &self,
        builder: &mut Builder<'_>,
        placed: &Placed,
        pair: Result<Pair, BadConfig>,
    ) -> Result<(), Mistake> {
        let pair = pair.map_err(|e| Mistake::beside(&self.name, e.key, e.problem))?;
        pair.add(&mut builder.network, placed.nodes, self.name.get_ref());
        Ok(())
    }
}
