//! Ways to determine the gateway of a packet's flow. The packet filters mark packets, and a rule looks up marked
//! packets in a table with the route to their gateway; other packets use the main table. Not every kernel has
//! `ip6_tunnel`, so the tunnels are routes with `encap seg6` to one segment, which prepend one IPv6 header (RFC 2473 on
//! the wire).

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use segue_clock::Span;
use segue_ip::{Binding, FlowKey, Forward, Forwarding, Traffic};
use segue_linux::netns::Netns;

use super::node::{CHOSEN, OUT, OWN, USUAL, home, measured, must, other, scratch};
use super::relay::{Kept, TO_CHOSEN};

/// The mark of packets for the chosen gateway, and the table with its route.
const MARK: &str = "0x2";
const TABLE: &str = "24392";
const IPTABLES: &str = "ip6tables-legacy";
const RESTORE: &str = "ip6tables-legacy-restore";

/// The method of classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// One rule of iptables per flow.
    Iptables,
    /// One rule of nftables per flow.
    Rules,
    /// One rule of nftables with a map of all flows.
    Map,
    /// The relay's eBPF programs.
    Ebpf,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Iptables, Kind::Rules, Kind::Map, Kind::Ebpf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Iptables => "iptables (legacy), a rule for each flow",
            Kind::Rules => "nftables, a rule for each flow",
            Kind::Map => "nftables, a map of flows",
            Kind::Ebpf => "eBPF, the relay",
        }
    }

    /// The reason why this machine cannot run it; `None` if it can.
    pub(crate) fn missing(self) -> Option<String> {
        let (program, tried): (_, &[&str]) = match self {
            Kind::Iptables => (IPTABLES, &["-t", "mangle", "-S"]),
            Kind::Rules | Kind::Map => ("nft", &["list", "tables"]),
            Kind::Ebpf => return None,
        };
        // In a separate namespace: listing a table of iptables creates it.
        let found = scratch().and_then(|ns| must(ns.command(program).args(tried)));
        found.err().map(|e| format!("not available here: {e:#}"))
    }

    /// A command that does nothing, to measure the cost of starting the program.
    pub(crate) fn idle(self) -> Option<Command> {
        let (program, version) = match self {
            Kind::Iptables => (IPTABLES, "-V"),
            Kind::Rules | Kind::Map => ("nft", "-v"),
            Kind::Ebpf => return None,
        };
        let mut command = Command::new(program);
        command.arg(version);
        Some(command)
    }
}

/// A classifier at work in a node.
pub(crate) struct Classifier<'a> {
    kind: Kind,
    node: &'a Netns,
    relay: Option<Kept>,
    rules: usize,
}

impl Classifier<'_> {
    /// Routes the host's packets to the usual gateway, except flows with a rule, which go to the chosen one.
    ///
    /// # Errors
    /// The kernel refuses a part.
    pub(crate) fn start(kind: Kind, node: &Netns) -> anyhow::Result<Classifier<'_>> {
        let relay = match kind {
            Kind::Ebpf => Some(node.run(|| Kept::start(node))??),
            _ => {
                routes(node)?;
                None
            }
        };
        Ok(Classifier { kind, node, relay, rules: 0 })
    }

    /// Installs this many rules; the last one matches the measured flow.
    ///
    /// # Errors
    /// The rules are refused.
    pub(crate) fn hold(&mut self, rules: usize) -> anyhow::Result<()> {
        let others = (1..rules).map(other);
        let flows = others.chain([measured()]);
        match self.kind {
            Kind::Iptables => self.feed(RESTORE, &[], &iptables(flows))?,
            Kind::Rules => self.feed("nft", &["-f", "-"], &nft_rules(flows))?,
            Kind::Map => self.feed("nft", &["-f", "-"], &nft_map(flows))?,
            Kind::Ebpf => {
                // Existing entries stay: a map has no order.
                let new = (self.rules.max(1)..rules).map(other).chain([measured()]);
                self.bind(new)?;
            }
        }
        self.rules = rules;
        Ok(())
    }

    /// The time that it takes to add a rule for one more flow. Removes that rule again.
    ///
    /// # Errors
    /// The rule is refused.
    pub(crate) fn insertion(&mut self) -> anyhow::Result<Span> {
        let flow = other(usize::MAX >> 40);
        let took = match self.kind {
            Kind::Iptables => {
                let rule = format!("-t mangle -A PREROUTING {}", iptables_match(&flow));
                let took = self.timed(IPTABLES, &rule)?;
                self.timed(IPTABLES, &rule.replacen("-A", "-D", 1))?;
                took
            }
            Kind::Rules => {
                let rule = format!("add rule ip6 segue_alves pre {}", nft_match(&flow));
                let took = self.timed("nft", &rule)?;
                self.hold(self.rules)?;
                took
            }
            Kind::Map => {
                let element =
                    |verb| format!("{verb} element ip6 segue_alves flows {{ {} }}", nft_key(&flow));
                let took =
                    self.timed("nft", &element("add").replacen(" }", &format!(" : {MARK} }}"), 1))?;
                self.timed("nft", &element("delete"))?;
                took
            }
            Kind::Ebpf => self.node.run(|| self.rebound(flow))??,
        };
        Ok(took)
    }

    /// Runs a program with this input.
    fn feed(&self, program: &str, args: &[&str], input: &str) -> anyhow::Result<()> {
        let mut command = self.node.command(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        let given =
            child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program}: {}", said.lines().next().unwrap_or("refused"));
        Ok(given?)
    }

    /// Runs a command; returns how long that took, including the start of the program.
    fn timed(&self, program: &str, words: &str) -> anyhow::Result<Span> {
        let mut command = self.node.command(program);
        command.args(words.split(' '));
        let began = Instant::now();
        must(&mut command)?;
        Ok(Span(began.elapsed().as_nanos() as u64))
    }

    fn bind(&self, flows: impl Iterator<Item = FlowKey> + Send) -> anyhow::Result<()> {
        let Some(relay) = &self.relay else { return Ok(()) };
        self.node.run(|| -> anyhow::Result<()> {
            let mut relay = relay.lock();
            for flow in flows {
                relay.put(&binding(flow))?;
            }
            Ok(())
        })?
    }

    /// In the relay's namespace: binds a flow, and unbinds it again.
    fn rebound(&self, flow: FlowKey) -> anyhow::Result<Span> {
        let relay = self.relay.as_ref().context("no relay")?;
        let mut relay = relay.lock();
        let began = Instant::now();
        relay.put(&binding(flow))?;
        let took = Span(began.elapsed().as_nanos() as u64);
        relay.take_back(&binding(flow))?;
        Ok(took)
    }
}

fn binding(flow: FlowKey) -> Forward {
    Forward::Bind(Binding { traffic: Traffic::Flow(flow), exit: TO_CHOSEN })
}

/// The tunnels as routes, and the rule that looks up marked packets.
fn routes(node: &Netns) -> anyhow::Result<()> {
    let home = home();
    let to = |gateway, table| {
        format!(
            "-6 route add {home} table {table} encap seg6 mode encap.red segs {gateway} dev {OUT}"
        )
    };
    for words in [
        format!("sr tunsrc set {OWN}"),
        to(USUAL, "main"),
        to(CHOSEN, TABLE),
        format!("-6 rule add fwmark {MARK} lookup {TABLE}"),
    ] {
        must(node.command("ip").args(words.split(' ')))?;
    }
    Ok(())
}

fn iptables_match(flow: &FlowKey) -> String {
    let FlowKey { src, dst, sport, dport, .. } = flow;
    format!(
        "-s {src} -d {dst} -p udp -m udp --sport {sport} --dport {dport} -j MARK --set-mark {MARK}"
    )
}

fn iptables(flows: impl Iterator<Item = FlowKey>) -> String {
    let mut text = String::from("*mangle\n:PREROUTING ACCEPT [0:0]\n");
    for flow in flows {
        let _ = writeln!(text, "-A PREROUTING {}", iptables_match(&flow));
    }
    text + "COMMIT\n"
}

fn nft_match(flow: &FlowKey) -> String {
    let FlowKey { src, dst, sport, dport, .. } = flow;
    format!(
        "ip6 saddr {src} ip6 daddr {dst} udp sport {sport} udp dport {dport} meta mark set {MARK}"
    )
}

/// An empty table with a chain for incoming packets.
fn nft_table(more: &str) -> String {
    format!(
        "table ip6 segue_alves\ndelete table ip6 segue_alves\ntable ip6 segue_alves {{\n{more} \
         chain pre {{ type filter hook prerouting priority mangle; }}\n}}\n"
    )
}

fn nft_rules(flows: impl Iterator<Item = FlowKey>) -> String {
    let mut text = nft_table("");
    for flow in flows {
        let _ = writeln!(text, "add rule ip6 segue_alves pre {}", nft_match(&flow));
    }
    text
}

fn nft_key(flow: &FlowKey) -> String {
    let FlowKey { src, dst, sport, dport, .. } = flow;
    format!("{src} . {dst} . udp . {sport} . {dport}")
}

fn nft_map(flows: impl Iterator<Item = FlowKey>) -> String {
    let kind = "ipv6_addr . ipv6_addr . inet_proto . inet_service . inet_service : mark";
    let mut text = nft_table(&format!("map flows {{ type {kind}; }}\n"));
    for flow in flows {
        let _ =
            writeln!(text, "add element ip6 segue_alves flows {{ {} : {MARK} }}", nft_key(&flow));
    }
    let key = "ip6 saddr . ip6 daddr . meta l4proto . udp sport . udp dport";
    let _ = writeln!(text, "add rule ip6 segue_alves pre meta mark set {key} map @flows");
    text
}
