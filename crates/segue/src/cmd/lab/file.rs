//! The description of a test network in TOML.
//!
//! ```toml
//! [[node]]
//! name = "host"
//! routes = ["default via 10.0.1.1 metric 100"]
//!
//! [[node]]
//! name = "router"
//! router = true
//!
//! [[link]]
//! name = "wifi"
//! ends = ["host:wifi0", "router:lan"]
//! addresses = [["10.0.1.2/24"], ["10.0.1.1/24"]]
//! delay = "10ms"                          # both directions
//! jitter = "1ms"                          # uniform, or { normal = "1ms" }
//! rate = "50mbit"
//! queue = 100                             # packets, or { bytes = 150000 }
//! loss = "0.5%"                           # or [3, 4, 5], or { p = "1%", r = "25%" }
//! up = { loss = "1%" }                    # what differs from the first end to the second
//! profile = [{ at = "3s", delay = "200ms" }, { at = "9s", silent = true }]
//! period = "20s"
//! ```
//!
//! A link with none of the keys from `delay` on is a plain one, without an emulator.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use segue_grammar::link::Way;
use segue_grammar::{from_text, link_table, printable};
use segue_ip::Prefix;
use segue_lab::topology::End;
use segue_lab::{EmulatorSpec, Lab};
use serde::Deserialize;
use toml::Spanned;

/// A network as described, checked as far as possible without building it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    #[serde(default, rename = "node")]
    nodes: Vec<Node>,
    #[serde(default, rename = "link")]
    links: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: Spanned<String>,
    #[serde(default)]
    router: bool,
    #[serde(default)]
    routes: Vec<RouteText>,
}

link_table! {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Link {
        name: Spanned<String>,
        ends: [Spanned<EndText>; 2],
        #[serde(default)]
        addresses: [Vec<AddressText>; 2],
        #[serde(default)]
        seed: u64,
        up: Option<Way>,
        down: Option<Way>,
    }
}

/// A device's address with the length of its prefix.
#[derive(Clone, Copy, Debug)]
struct AddressText(Prefix);
#[derive(Clone, Debug)]
struct EndText {
    node: String,
    device: String,
}
#[derive(Clone, Copy, Debug)]
struct RouteText {
    destination: Prefix,
    gateway: IpAddr,
    metric: Option<u32>,
}

from_text!(AddressText, |s: &str| s.parse().map(AddressText));
from_text!(EndText, end);
from_text!(RouteText, route);

/// Reads the description of a network.
///
/// # Errors
/// One line with file, line, key and what is wrong.
pub fn read(path: &Path) -> Result<Plan> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("read {name}"))?;
    parse(&text).map_err(|e| anyhow!("{name}:{e}"))
}

/// Reads the text of such a file.
///
/// # Errors
/// `LINE: KEY: message`, in one line.
pub fn parse(text: &str) -> Result<Plan, String> {
    let plan: Plan =
        toml::from_str(text).map_err(|e| at(text, e.span().map_or(0, |s| s.start), e.message()))?;
    for link in &plan.links {
        for end in &link.ends {
            let node = &end.get_ref().node;
            if !plan.nodes.iter().any(|n| n.name.get_ref() == node) {
                return Err(at(text, end.span().start, &format!("there is no node {node}")));
            }
        }
        for way in [Some(link.both()), link.up.clone(), link.down.clone()].into_iter().flatten() {
            let refused = way.load(|_| Err("a trace of losses is for segue sim: write a list"));
            refused.map_err(|e| at(text, link.name.span().start, e))?;
        }
        let spec = link.emulator();
        for (way, spec) in spec.iter().flat_map(|s| [("up", &s.up), ("down", &s.down)]) {
            spec.check().map_err(|e| at(text, link.name.span().start, &format!("{way}: {e}")))?;
        }
    }
    if plan.nodes.is_empty() {
        return Err(
            "1: no network: a file has a [[node]] for each machine, and links between them".into(),
        );
    }
    Ok(plan)
}

/// `LINE: KEY: message`, where the key is the text before that line's equals sign.
fn at(text: &str, offset: usize, message: &str) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    printable(&match line.split_once('=') {
        Some((key, _)) => format!("{number}: {}: {message}", key.trim()),
        None => format!("{number}: {message}"),
    })
}

fn end(text: &str) -> Result<EndText, String> {
    match text.split_once(':') {
        Some((node, device)) if !node.is_empty() && !device.is_empty() => {
            Ok(EndText { node: node.to_owned(), device: device.to_owned() })
        }
        _ => Err(format!("{text:?} is no end of a link: write node:device")),
    }
}

fn route(text: &str) -> Result<RouteText, String> {
    let bad = || format!("{text:?} is no route: write PREFIX|default via GATEWAY [metric N]");
    let words: Vec<&str> = text.split_whitespace().collect();
    let (destination, gateway, metric) = match words[..] {
        [destination, "via", gateway] => (destination, gateway, None),
        [destination, "via", gateway, "metric", n] => {
            (destination, gateway, Some(n.parse().map_err(|_| bad())?))
        }
        _ => return Err(bad()),
    };
    let gateway: IpAddr = gateway.parse().map_err(|_| bad())?;
    let destination = match destination {
        "default" => Prefix::default_of(gateway.is_ipv6()),
        other => other.parse().map_err(|_| bad())?,
    };
    Ok(RouteText { destination, gateway, metric })
}

impl Plan {
    /// The names of the nodes, and of the links.
    #[must_use]
    pub fn names(&self) -> (Vec<&str>, Vec<&str>) {
        let nodes = self.nodes.iter().map(|node| node.name.get_ref().as_str());
        (nodes.collect(), self.links.iter().map(|link| link.name.get_ref().as_str()).collect())
    }

    /// Builds the network.
    ///
    /// # Errors
    /// If the kernel refuses something.
    pub fn build(&self, tag: &str) -> Result<Lab> {
        let mut lab = Lab::new(tag)?;
        for node in &self.nodes {
            lab.add_node(node.name.get_ref(), node.router)?;
        }
        for link in &self.links {
            let addresses =
                link.addresses.each_ref().map(|a| a.iter().map(|p| p.0).collect::<Vec<_>>());
            let [a, b] = [0, 1].map(|i| {
                let EndText { node, device } = link.ends[i].get_ref();
                End { node, device, addresses: &addresses[i] }
            });
            match link.emulator() {
                Some(spec) => lab.emulate(link.name.get_ref(), a, b, &spec)?,
                None => lab.connect(a, b)?,
            }
        }
        for node in &self.nodes {
            for r in &node.routes {
                lab.route(node.name.get_ref(), r.destination, r.gateway, r.metric)?;
            }
        }
        Ok(lab)
    }
}

impl Link {
    /// `None` if nothing is to be emulated.
    fn emulator(&self) -> Option<EmulatorSpec> {
        let both = self.both();
        let plain = both.is_empty() && self.up.is_none() && self.down.is_none();
        let way = |own: &Option<Way>| own.clone().unwrap_or_default().over(&both).spec();
        let (up, down) = (way(&self.up), way(&self.down));
        (!plain).then_some(EmulatorSpec { up, down, seed: self.seed, log: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_clock::Span;
    use segue_netem::{Jitter, Loss, Queue};

    const NODES: &str = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n";

    fn link(rest: &str) -> Result<Plan, String> {
        parse(&format!("{NODES}[[link]]\nname = \"l\"\nends = [\"a:x\", \"b:y\"]\n{rest}\n"))
    }

    #[test]
    fn every_key_reaches_the_link_and_a_direction_overrides_both() {
        let plan = link(
            "delay = \"10ms\"\njitter = { normal = \"1ms\" }\nrate = \"50mbit\"\nreordering = true\n\
             queue = { bytes = 9000 }\nloss = \"0.5%\"\nsilent = false\nperiod = \"20s\"\nseed = 4\n\
             up = { loss = { p = \"1%\", r = \"25%\" }, queue = 7 }\n\
             down = { loss = [1, 5], rate = \"unlimited\", jitter = \"2ms\" }\n\
             profile = [{ at = \"3s\", delay = \"200ms\" }, { at = \"9s\", silent = true }]",
        );
        let spec = plan.unwrap().links[0].emulator().unwrap();
        let EmulatorSpec { up, down, seed, .. } = spec;
        assert_eq!((seed, up.rate_bps, down.rate_bps), (4, Some(50_000_000), None));
        assert_eq!((up.delay, down.delay), (Span::from_millis(10), Span::from_millis(10)));
        assert_eq!((up.queue, down.queue), (Queue::Packets(7), Queue::Bytes(9000)));
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
        let example = include_str!("../../../../../examples/lab.toml");
        let documentation = include_str!("../../../../../docs/lab.md");
        assert_eq!(parse(example).unwrap().links.len(), 2);
        for table in ["[[node]]", "[[link]]", "[[link]]\n[link.up]"] {
            // The parser names the valid keys.
            let error = parse(&format!("{table}\nno_such_key = 1\n")).unwrap_err();
            let (_, expected) = error.split_once("expected one of").unwrap();
            for key in expected.split('`').skip(1).step_by(2) {
                assert!(documentation.contains(&format!("`{key}`")), "{table} {key}");
            }
        }
    }

    #[test]
    fn a_link_that_says_nothing_is_not_emulated() {
        assert!(link("").unwrap().links[0].emulator().is_none());
        assert!(link("loss = \"0%\"").unwrap().links[0].emulator().is_some());
    }

    #[test]
    fn routes_are_read_with_and_without_a_metric() {
        let r = route("default via fd00::1 metric 7").unwrap();
        assert_eq!((r.destination, r.metric), (Prefix::default_of(true), Some(7)));
        assert_eq!(route("10.9.0.0/16 via 10.0.0.1").unwrap().destination.len, 16);
        for bad in ["default", "default via x", "1.2.3.4 via 1.2.3.4", "default via ::1 metric x"] {
            assert!(route(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mistake_is_told_in_one_line_with_its_line_and_key() {
        for (rest, expected) in [
            ("delay = \"10\"", "8: delay: \"10\" has no unit"),
            ("dely = \"10ms\"", "8: dely: unknown field"),
            ("loss = \"120%\"", "8: loss: "),
            ("rate = 5", "8: rate: "),
            ("delay = \"1ms\"\nperiod = \"0s\"", "6: name: up: the profile's period is 0"),
            ("delay = ", "8: delay: "),
            ("up = { loss = [2, 1] }", "6: name: up: entry 2 of the loss list"),
        ] {
            let error = link(rest).unwrap_err();
            assert!(error.starts_with(expected), "{rest}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let error = parse("[[link]]\nname = \"l\"\nends = [\"a:x\", \"b:y\"]\n").unwrap_err();
        assert_eq!(error, "3: ends: there is no node a");
    }
}
