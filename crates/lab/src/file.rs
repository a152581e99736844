//! The description of a test network in TOML: `[[node]]`, `[[link]]` and `[[event]]` as in scenarios (docs/lab.md). A link
//! that says nothing of its parameters, and to which nothing happens, is a plain one, without an emulator.

use std::path::Path;

use anyhow::Result;
use segue_clock::Span;
use segue_grammar::{
    Duration, EndAddress, Link, Mistake, Name, Node, Part, Source, Ways, hint, known, tables,
};
use segue_ip::Prefix;
use segue_linux::clock::monotonic;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use crate::emulator::EmulatorSpec;
use crate::log::Direction;
use crate::topology::{End, Lab};

/// A network as described, checked as far as possible without building it.
#[derive(Debug)]
pub struct Plan {
    nodes: Vec<Node>,
    links: Vec<Planned>,
}

/// A link.
#[derive(Debug)]
struct Planned {
    link: Link,
    /// Of the first end and of the second.
    addresses: [Vec<Prefix>; 2],
    /// `None` if nothing is to be emulated.
    emulator: Option<EmulatorSpec>,
    /// When it stalls, from when the network is up, and for how long.
    stalls: Vec<(Ways, Span, Span)>,
}

/// What happens at a preset time.
#[derive(Deserialize)]
struct Event {
    at: Duration,
    /// A link that stalls.
    stall: Name,
    #[serde(default)]
    way: Ways,
    #[serde(rename = "for")]
    lasting: Duration,
}

/// Reads the description of a network.
///
/// # Errors
/// One line with file, line, key and what is wrong.
pub fn read(path: &Path) -> Result<Plan> {
    let name = path.display().to_string();
    let text = segue_grammar::text(path)?;
    parse(&text, &name)
}

/// Reads the text of the file `name`.
///
/// # Errors
/// One line with file, line, key and what is wrong.
pub fn parse(text: &str, name: &str) -> Result<Plan> {
    let source = Source::new(name, text, &[])?;
    plan(&source).map_err(|mistake| source.tell(&mistake))
}

fn plan(source: &Source) -> Result<Plan, Mistake> {
    let mut file = source.values();
    known(file.get_ref(), &["node", "link", "event"])?;
    let nodes: Vec<Node> = list(file.get_mut().remove("node"))?;
    let links: Vec<Link> = list(file.get_mut().remove("link"))?;
    let events: Vec<Event> = list(file.get_mut().remove("event"))?;
    if let Some(address) = nodes.iter().flat_map(|node| &node.addresses).next() {
        let message = "in a test network the ends of links have addresses, and nodes have none";
        return Err(Mistake::of(address, message));
    }
    let names: Vec<&str> = nodes.iter().map(|node| node.name.get_ref().as_str()).collect();
    let links = links.into_iter().map(|link| link_plan(link, &names, &events));
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let known: Vec<&str> = links.iter().map(Planned::name).collect();
    if let Some(event) =
        events.iter().find(|event| !known.contains(&event.stall.get_ref().as_str()))
    {
        let name = event.stall.get_ref();
        return Err(Mistake::of(
            &event.stall,
            format!("there is no link {name}{}", hint(name, &known)),
        ));
    }
    if nodes.is_empty() {
        let message = "no network: a file has a [[node]] for each machine, and links between them";
        return Err(Mistake::of(&file, message));
    }
    Ok(Plan { nodes, links })
}

fn list<T: Part>(written: Option<Spanned<DeValue<'_>>>) -> Result<Vec<T>, Mistake> {
    written.map_or(Ok(Vec::new()), tables)
}

fn link_plan(link: Link, nodes: &[&str], events: &[Event]) -> Result<Planned, Mistake> {
    let own = &link.own;
    for end in &own.ends {
        let node = &end.get_ref().node;
        if !nodes.contains(&node.as_str()) {
            let message = format!("there is no node {node}{}", hint(node, nodes));
            return Err(Mistake::of(end, message));
        }
    }
    if let Some(senses) = &own.senses {
        let message = "a link of a test network keeps its carrier whatever happens: leave it out";
        return Err(Mistake::of(senses, message));
    }
    let prefix = |written: &Spanned<EndAddress>| match *written.get_ref() {
        EndAddress { address, length: Some(length) } => Ok(Prefix::new(address, length)),
        EndAddress { address, length: None } => {
            let message = format!("{address} needs the length of its prefix here: {address}/24");
            Err(Mistake::of(written, message))
        }
    };
    let prefixes = |list: &[_]| list.iter().map(prefix).collect::<Result<Vec<_>, _>>();
    let [first, second] = &own.addresses;
    let addresses = [prefixes(first)?, prefixes(second)?];
    let unread = |_: &str| Err("a trace of losses is for segue sim: write a list".to_owned());
    let [up, down] = link.specs(&own.name, unread)?;
    let seed = own.seed.as_ref().map_or(0, |seed| *seed.get_ref());
    let mine = events.iter().filter(|event| event.stall.get_ref() == own.name.get_ref());
    let stalls: Vec<_> = mine.map(|event| (event.way, event.at.0, event.lasting.0)).collect();
    let emulated = link.ways.is_some() || !stalls.is_empty();
    let emulator = emulated.then_some(EmulatorSpec { up, down, seed, log: false });
    Ok(Planned { link, addresses, emulator, stalls })
}

impl Planned {
    fn name(&self) -> &str {
        self.link.own.name.get_ref()
    }
}

impl Plan {
    /// The names of the nodes, and of the links.
    #[must_use]
    pub fn names(&self) -> (Vec<&str>, Vec<&str>) {
        let nodes = self.nodes.iter().map(|node| node.name.get_ref().as_str());
        (nodes.collect(), self.links.iter().map(Planned::name).collect())
    }

    /// Builds the network.
    ///
    /// # Errors
    /// If the kernel refuses something.
    pub fn build(&self, tag: &str) -> Result<Lab> {
        let mut lab = Lab::new(tag)?;
        for node in &self.nodes {
            lab.add_node(node.name.get_ref(), node.transit)?;
        }
        for Planned { link, addresses, emulator, .. } in &self.links {
            let name = link.own.name.get_ref();
            let [a, b] = [0, 1].map(|i| {
                let end = link.own.ends[i].get_ref();
                let device = end.interface.as_deref().unwrap_or(name);
                End { node: &end.node, device, addresses: &addresses[i] }
            });
            match emulator {
                Some(spec) => lab.emulate(name, a, b, spec)?,
                None => lab.connect(a, b)?,
            }
        }
        for node in &self.nodes {
            for route in &node.routes {
                let r = route.get_ref();
                lab.route(node.name.get_ref(), r.destination, r.gateway, r.metric)?;
            }
        }
        let up = monotonic();
        for planned in &self.links {
            for (ways, at, lasting) in &planned.stalls {
                let emulator = lab.emulator(planned.name())?;
                for way in ways.of(Direction::ALL) {
                    emulator.stall(way, up + *at, up + *at + *lasting);
                }
            }
        }
        Ok(lab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_clock::Span;
    use segue_netem::{Jitter, Loss, Queue};

    const NODES: &str = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n";

    fn link(rest: &str) -> Result<Plan, String> {
        let link = "[[link]]\nname = \"l\"\nends = [\"a:x\", \"b:y\"]\n";
        parse(&format!("{NODES}{link}{rest}\n"), "f").map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_reaches_the_link_and_a_direction_overrides_both() {
        let plan = link(
            "delay = \"10ms\"\njitter = { normal = \"1ms\" }\nrate = \"50mbit\"\nreordering = true\n\
             queue = { bytes = 9000 }\nloss = \"0.5%\"\nsilent = false\nperiod = \"20s\"\nseed = 4\n\
             up = { loss = { p = \"1%\", r = \"25%\" }, queue = { delay = \"7ms\" } }\n\
             down = { loss = [1, 5], rate = \"unlimited\", jitter = \"2ms\" }\n\
             profile = [{ at = \"3s\", delay = \"200ms\" }, { at = \"9s\", silent = true }]",
        );
        let spec = { plan.unwrap().links }.remove(0).emulator.unwrap();
        let EmulatorSpec { up, down, seed, .. } = spec;
        assert_eq!((seed, up.rate_bps, down.rate_bps), (4, Some(50_000_000), None));
        assert_eq!((up.delay, down.delay), (Span::from_millis(10), Span::from_millis(10)));
        assert_eq!(
            (up.queue, down.queue),
            (Queue::Delay(Span::from_millis(7)), Queue::Bytes(9000))
        );
        assert_eq!(up.jitter, Jitter::Normal(Span::from_millis(1)));
        assert_eq!(down.jitter, Jitter::Uniform(Span::from_millis(2)));
        let burst = Loss::GilbertElliott { p: 0.01, r: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        assert_eq!((up.loss, down.loss), (burst, Loss::Exact(vec![1, 5])));
        assert!(up.reordering && !up.silent);
        assert_eq!(up.profile.steps[0].1.delay, Some(Span::from_millis(200)));
        assert_eq!(up.profile.steps[1].1.silent, Some(true));
        assert_eq!(up.profile.period, Some(Span::from_secs(20)));
    }

    #[test]
    fn the_example_is_taken_and_the_documentation_has_every_key() {
        let example = include_str!("../../../examples/lab.toml");
        let documentation = include_str!("../../../docs/lab.md");
        assert_eq!(parse(example, "f").unwrap().links.len(), 2);
        for table in ["[[node]]", "[[link]]", "[[link]]\n[link.up]", "[[event]]"] {
            // The parser names the valid keys.
            let error = parse(&format!("{table}\nno_such_key = 1\n"), "f").unwrap_err().to_string();
            let (_, known) = error.split_once("(known: ").unwrap();
            for key in known.trim_end_matches(')').split(", ") {
                assert!(documentation.contains(&format!("`{key}`")), "{table} {key}");
            }
        }
    }

    #[test]
    fn a_link_that_says_nothing_is_not_emulated() {
        assert!(link("").unwrap().links[0].emulator.is_none());
        assert!(link("loss = \"0%\"").unwrap().links[0].emulator.is_some());
        let stall = "[[event]]\nat = \"1s\"\nstall = \"l\"\nfor = \"9ms\"\nway = \"down\"";
        let link = { link(stall).unwrap().links }.remove(0);
        let [second, for_ms] = [Span::from_secs(1), Span::from_millis(9)];
        assert_eq!(link.stalls, [(Ways::Down, second, for_ms)]);
        assert!(link.emulator.is_some());
    }

    #[test]
    fn a_node_is_a_router_in_either_word_and_an_interface_may_have_the_links_name() {
        let text = "[[node]]\nname = \"a\"\nrouter = true\n[[node]]\nname = \"b\"\ntransit = true\n\
                    [[link]]\nname = \"l\"\nends = [\"a\", \"b:y\"]\n";
        let plan = parse(text, "f").unwrap();
        assert!(plan.nodes.iter().all(|node| node.transit));
        assert_eq!(plan.links[0].link.own.ends[0].get_ref().interface, None);
    }

    #[test]
    fn a_mistake_is_told_in_one_line_with_its_line_and_key() {
        for (rest, expected) in [
            ("delay = \"10\"", "8: link.l.delay: \"10\" has no unit"),
            ("dely = \"10ms\"", "8: link.l.dely: unknown key (did you mean delay?)"),
            ("loss = \"120%\"", "8: link.l.loss: "),
            ("rate = 5", "8: link.l.rate: "),
            (
                "queue = { bytes = 5, delay = \"1s\" }",
                "8: link.l.queue: a queue is bounded by either",
            ),
            ("queue = {}", "8: link.l.queue: a queue is bounded by either"),
            ("delay = \"1ms\"\nperiod = \"0s\"", "6: link.l.name: up: the profile's period is 0"),
            ("delay = ", "8: delay: "),
            ("up = { loss = [2, 1] }", "6: link.l.name: up: entry 2 of the loss list"),
            ("loss = { trace = \"x\" }", "8: link.l.loss: a trace of losses is for segue sim"),
            ("addresses = [[\"10.0.0.1\"], []]", "8: link.l.addresses: 10.0.0.1 needs the length"),
            ("[[node]]\nname = \"c\"\naddresses = [\"::1\"]", "10: node.c.addresses: in a test"),
            (
                "[[event]]\nat = \"1s\"\nstall = \"m\"\nfor = \"9ms\"",
                "10: event.1.stall: there is no link m",
            ),
            ("[[event]]\nat = \"1s\"\nstall = \"l\"", "8: event.1: the key for is missing"),
            ("senses = true", "8: link.l.senses: a link of a test network keeps its carrier"),
            ("[[voip]]\nname = \"v\"", "8: voip: unknown key (known: node, link, event)"),
        ] {
            let error = link(rest).unwrap_err();
            assert!(error.starts_with(&format!("f:{expected}")), "{rest}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let error = parse("[[link]]\nname = \"l\"\nends = [\"a:x\", \"b:y\"]\n", "f").unwrap_err();
        assert_eq!(error.to_string(), "f:3: link.l.ends: there is no node a");
        let error = parse("", "f").unwrap_err().to_string();
        assert!(error.starts_with("f:1: no network"), "{error}");
    }
}
