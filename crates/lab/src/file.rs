//! The description of a test network in TOML: `[[node]]`, `[[link]]`, `[[cell]]`, `[[walk]]` and `[[event]]` as in
//! scenarios (docs/lab.md). A link without parameters and without events is a plain one, without an emulator.

mod air;
mod events;
mod places;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Result;
use segue_grammar::schema::{self, Key};
use segue_grammar::{
    Cell, EndAddress, Ends, Event, Link, Mistake, Node, Part, Source, Spanned, Walk, known, tables,
};
use segue_ip::Prefix;
use segue_linux::clock::monotonic;
use toml::de::DeValue;

use crate::agenda::Agenda;
use crate::emulator::EmulatorSpec;
use crate::topology::{End, Lab};
use air::{PlannedCell, PlannedRadio};
use events::Happening;
use places::{Places, unread};

/// The description of a network, validated as far as possible without building it.
#[derive(Debug)]
pub struct Plan {
    nodes: Vec<Node>,
    links: Vec<Planned>,
    cells: Vec<PlannedCell>,
    radios: Vec<PlannedRadio>,
    happenings: Vec<Happening>,
}

/// A link.
#[derive(Debug)]
struct Planned {
    link: Link,
    /// Addresses of the first and of the second end.
    addresses: [Vec<Prefix>; 2],
    /// `None` for a plain link.
    emulator: Option<EmulatorSpec>,
}

/// Reads the description of a network.
///
/// # Errors
/// One line with file, line, key and mistake.
pub fn read(path: &Path) -> Result<Plan> {
    let name = path.display().to_string();
    let text = segue_grammar::text(path)?;
    parse(&text, &name)
}

/// Parses the text of the file `name`.
///
/// # Errors
/// One line with file, line, key and mistake.
pub fn parse(text: &str, name: &str) -> Result<Plan> {
    let source = Source::new(name, text, &[])?;
    plan(&source).map_err(|mistake| source.tell(&mistake))
}

/// The keys of a description.
#[must_use]
pub fn keys() -> Vec<Key> {
    vec![
        schema::list("node", Node::described()),
        schema::list("link", Link::described()),
        schema::list("cell", Cell::described()),
        schema::list("walk", Walk::described()),
        schema::events(),
    ]
}

fn plan(source: &Source) -> Result<Plan, Mistake> {
    let mut file = source.values();
    known(file.get_ref(), &["node", "link", "cell", "walk", "event"])?;
    let nodes: Vec<Node> = list(file.get_mut().remove("node"))?;
    let links: Vec<Link> = list(file.get_mut().remove("link"))?;
    let cells = list(file.get_mut().remove("cell"))?;
    let walks = list(file.get_mut().remove("walk"))?;
    let events = file.get_mut().remove("event").map(segue_grammar::value).transpose()?;
    let events: Vec<Event> = events.unwrap_or_default();
    if let Some(address) = nodes.iter().flat_map(|node| &node.addresses).next() {
        let message = "in a test network the ends of links have addresses, and nodes have none";
        return Err(Mistake::of(address, message));
    }
    let mut places = Places::of(&nodes)?;
    for (number, own) in links.iter().map(|link| &link.own).enumerate() {
        own.check()?;
        let Ends { name, ends, addresses, .. } = own;
        if links[..number].iter().any(|other| other.own.name.get_ref() == name.get_ref()) {
            return Err(Mistake::of(name, format!("there is another link {}", name.get_ref())));
        }
        for (end, addresses) in ends.iter().zip(addresses) {
            let (node, device) = (&end.get_ref().node, &end.get_ref().interface);
            places.take(node, device.as_ref().unwrap_or(name.get_ref()), end)?;
            for address in addresses {
                places.own(node, with_length(address)?, address)?;
            }
        }
    }
    let cells = air::cells(cells, &mut places)?;
    let radios = air::radios(walks, &cells, &mut places)?;
    let happenings = events::happenings(&events, &links, &cells, &radios)?;
    nodes.iter().try_for_each(|node| places.check_routes(node))?;
    let links = links.into_iter().map(|link| {
        let name = link.own.name.get_ref();
        let busy = happenings.iter().any(|happening| happening.is_of_link(name));
        link_plan(link, busy)
    });
    let links = links.collect::<Result<Vec<_>, _>>()?;
    if nodes.is_empty() {
        let message = "no network: a file has a [[node]] for each machine, and links between them";
        return Err(Mistake::of(&file, message));
    }
    Ok(Plan { nodes, links, cells, radios, happenings })
}

fn list<T: Part>(written: Option<toml::Spanned<DeValue<'_>>>) -> Result<Vec<T>, Mistake> {
    written.map_or(Ok(Vec::new()), tables)
}

/// An address of an end, which must have a prefix length.
fn with_length(written: &Spanned<EndAddress>) -> Result<Prefix, Mistake> {
    let EndAddress { address, length } = *written.get_ref();
    let length = length.ok_or_else(|| {
        let message = format!("{address} needs the length of its prefix here: {address}/24");
        Mistake::of(written, message)
    })?;
    Ok(Prefix::new(address, length))
}

/// Plans a link; `busy` means that it has events.
fn link_plan(link: Link, busy: bool) -> Result<Planned, Mistake> {
    let own = &link.own;
    let prefixes = |list: &[_]| list.iter().map(with_length).collect::<Result<Vec<_>, _>>();
    let [first, second] = &own.addresses;
    let addresses = [prefixes(first)?, prefixes(second)?];
    let [up, down] = link.specs(&own.name, unread)?;
    let seed = own.seed.as_ref().map_or(0, |seed| *seed.get_ref());
    let emulated = link.ways.is_some() || own.senses() || busy;
    let emulator = emulated.then_some(EmulatorSpec { up, down, seed, log: false });
    Ok(Planned { link, addresses, emulator })
}

impl Plan {
    /// The names of the nodes, and of the links.
    #[must_use]
    pub fn names(&self) -> (Vec<&str>, Vec<&str>) {
        let nodes = self.nodes.iter().map(|node| node.name.get_ref().as_str());
        (nodes.collect(), self.links.iter().map(|l| l.link.own.name.get_ref().as_str()).collect())
    }

    /// The names of the cells, and of the radios.
    #[must_use]
    pub fn air(&self) -> (Vec<&str>, Vec<&str>) {
        let cells = self.cells.iter().map(|cell| cell.name.as_str());
        (cells.collect(), self.radios.iter().map(|radio| radio.name.as_str()).collect())
    }

    /// Builds the network.
    ///
    /// # Errors
    /// The kernel rejects a request.
    pub fn build(&self, tag: &str) -> Result<Lab> {
        let mut lab = Lab::new(tag)?;
        for node in &self.nodes {
            lab.add_node(node.name.get_ref(), node.transit)?;
        }
        for Planned { link, addresses, emulator } in &self.links {
            let name = link.own.name.get_ref();
            let [a, b] = [0, 1].map(|i| {
                let end = link.own.ends[i].get_ref();
                let device = end.interface.as_deref().unwrap_or(name);
                End { node: &end.node, device, addresses: &addresses[i] }
            });
            match emulator {
                Some(spec) if link.own.senses() => lab.emulate_sensing(name, a, b, spec)?,
                Some(spec) => lab.emulate(name, a, b, spec)?,
                None => lab.connect(a, b)?,
            }
        }
        for cell in &self.cells {
            lab.add_cell(&cell.name, &cell.spec)?;
        }
        for radio in &self.radios {
            lab.add_radio(&radio.spec)?;
        }
        for node in &self.nodes {
            for route in &node.routes {
                let r = route.get_ref();
                lab.route(node.name.get_ref(), r.destination, r.gateway, r.metric)?;
            }
        }
        lab.await_silence()?;
        let up = monotonic();
        let mut agenda = Agenda::default();
        for radio in &self.radios {
            radio.begin(&self.cells, up, &mut agenda);
        }
        for happening in &self.happenings {
            happening.begin(&lab, up, &mut agenda)?;
        }
        lab.follow(agenda)?;
        Ok(lab)
    }
}
