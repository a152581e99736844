//! A node that routes the flows of one host to two gateways, between a correspondent and the gateways' network.

use std::net::Ipv6Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use segue_bench::passage::{Passages, Side};
use segue_ip::{FlowKey, Prefix};
use segue_linux::netns::Netns;
use segue_linux::{link, nft};

use super::figures::Samples;
use super::packets::{Flow, Pace, wait_until};
use crate::experiment::Stage;

/// The devices towards the correspondent and towards the gateways.
pub(crate) const IN: &str = "sgc";
pub(crate) const OUT: &str = "sg0";
const CORRESPONDENT: Ipv6Addr = Ipv6Addr::new(0xfd0d, 0, 0, 0, 0, 0, 0, 2);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfd0d, 0, 0, 0, 0, 0, 0, 1);
/// The node's own address towards the gateways.
pub(crate) const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// The gateway of packets without a rule, and the gateway of packets with one.
pub(crate) const USUAL: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
pub(crate) const CHOSEN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 3);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 2);
/// The measured flow's ports.
const PORTS: (u16, u16) = (9_000, 7_000);
/// 100 kbit/s in packets of 125 bytes.
const PERIOD: Duration = Duration::from_millis(10);
const KBIT_S: u32 = 100;
/// Packets sent before the measured ones.
const WARM_UP: u32 = 10;
/// How long the last packet may take to arrive.
const GRACE: Duration = Duration::from_millis(50);
/// Range of packet numbers during a node's lifetime.
const NUMBERS: u32 = 1 << 14;
const PATIENCE: Duration = Duration::from_secs(10);

/// The node with its neighbours; dropping it removes them.
pub(crate) struct Node {
    pub(crate) ns: Netns,
    correspondent: Netns,
    _gateways: Netns,
    passages: Passages,
    next: u32,
}

/// The host's prefix.
pub(crate) fn home() -> Prefix {
    Prefix::new(HOST, 64).network()
}

/// The key of the measured flow.
pub(crate) fn measured() -> FlowKey {
    let (sport, dport) = PORTS;
    FlowKey { src: CORRESPONDENT.into(), dst: HOST.into(), sport, dport, protocol: 17, label: 0 }
}

/// The key of another flow of the host, by number.
pub(crate) fn other(number: usize) -> FlowKey {
    const SPAN: usize = 40_000;
    let (sport, dport) = (10_000 + number % SPAN, 20_000 + number / SPAN);
    FlowKey { sport: sport as u16, dport: dport as u16, ..measured() }
}

/// Runs a command; its failure is an error.
pub(crate) fn must(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.lines().next().unwrap_or("refused"));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Node {
    /// Builds the network. It has no route to the host yet.
    ///
    /// # Errors
    /// The process is not root, or the kernel refuses a part.
    pub(crate) fn new() -> anyhow::Result<Node> {
        let (correspondent, ns, gateways) = (scratch()?, scratch()?, scratch()?);
        correspondent.run(|| link::create_veth(IN, IN, Some(&ns)))??;
        ns.run(|| link::create_veth(OUT, OUT, Some(&gateways)))??;
        for (node, device, addresses) in [
            (&correspondent, IN, &[CORRESPONDENT][..]),
            (&ns, IN, &[ROUTER]),
            (&ns, OUT, &[OWN]),
            (&gateways, OUT, &[USUAL, CHOSEN]),
        ] {
            node.run(|| -> anyhow::Result<()> {
                for address in addresses {
                    link::add_address(device, Prefix::new(*address, 64))?;
                }
                Ok(link::set_up(device, true)?)
            })??;
        }
        // The gateways must not answer packets that arrive in tunnels, because they terminate none.
        let drop = "table ip6 segue_alves { chain in { type filter hook input priority 0; \
                    meta l4proto { 41, 43 } drop; }; }";
        gateways.run(|| nft::apply(drop))??;
        let route = ["-6", "route", "add", "default", "via", &ROUTER.to_string()];
        must(correspondent.command("ip").args(route))?;
        let mut passages = Passages::load(NUMBERS)?;
        ns.run(|| passages.watch(IN, Side::Entry).and_then(|()| passages.watch(OUT, Side::Exit)))??;
        Ok(Node { ns, correspondent, _gateways: gateways, passages, next: 0 })
    }

    /// How long packets of the measured flow take to pass the node, in µs.
    ///
    /// # Errors
    /// Packets do not follow the rule of their flow, or the user wants to stop.
    pub(crate) fn time(&mut self, stage: &Stage, samples: u32) -> anyhow::Result<Samples> {
        let key = measured();
        let pace = Pace::of(KBIT_S, PERIOD);
        let (from, to) = ((CORRESPONDENT, key.sport), (HOST, key.dport));
        let flow = self.opened(from, to, pace)?;
        self.await_passage(&flow)?;
        let first = self.next + WARM_UP;
        let numbers = self.next..first + samples;
        self.next = numbers.end;
        let begin = Instant::now();
        for (i, number) in numbers.enumerate() {
            wait_until(begin + PERIOD * i as u32);
            flow.send(number);
            stage.check()?;
        }
        std::thread::sleep(GRACE);
        let mut took = Vec::new();
        for number in first..self.next {
            let Some(passage) = self.passages.of(number)? else { continue };
            let Some(time) = passage.took() else { continue };
            let [.., last] = CHOSEN.segments();
            ensure!(
                passage.towards == u32::from(last),
                "a packet took the way of those without rules"
            );
            took.push(time.as_secs_f64() * 1e6);
        }
        ensure!(
            2 * took.len() > samples as usize,
            "only {} of {samples} packets came through",
            took.len()
        );
        Ok(Samples::new(took))
    }

    /// Waits until packets pass: new devices and neighbour entries take up to a second.
    fn await_passage(&mut self, flow: &Flow) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (began, mut sent) = (self.next, 0);
        while Instant::now() < deadline {
            flow.send(began + sent % WARM_UP);
            std::thread::sleep(PERIOD);
            let passage = self.passages.of(began + sent % WARM_UP)?;
            if passage.is_some_and(|passage| passage.left.is_some()) {
                self.next += WARM_UP;
                return Ok(());
            }
            sent += 1;
        }
        bail!("no packet comes through the node")
    }

    /// Opens the flow's sender as soon as the kernel accepts the address.
    fn opened(
        &self,
        from: (Ipv6Addr, u16),
        to: (Ipv6Addr, u16),
        pace: Pace,
    ) -> anyhow::Result<Flow> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Flow::new(&self.correspondent, from, to, pace) {
                Err(_) if Instant::now() < deadline => wait_until(Instant::now() + PERIOD),
                other => return other,
            }
        }
    }
}

/// An empty namespace that forwards packets.
///
/// # Errors
/// The process is not root.
pub(crate) fn scratch() -> anyhow::Result<Netns> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let ns = Netns::create(&format!("segue-alves{}-{serial}", std::process::id()))?;
    ns.run(|| -> anyhow::Result<()> {
        for which in ["all", "default"] {
            link::sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0")?;
            link::sysctl(&format!("net.ipv6.conf.{which}.forwarding"), "1")?;
        }
        Ok(())
    })??;
    Ok(ns)
}
