//! The domain of Proxy Mobile IPv6 of `examples/pmip` with its daemons: one anchor, gateways at accesses of two nodes, a
//! correspondent, and a stock host with two radios.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use segue_bench::passage::{Passages, Side};
use segue_daemon::control::{self, EventRecord, Vocabulary};
use segue_daemon::pmip::{lma, mag};
use segue_demo::stage::{Daemon, own_program};
use segue_lab::Lab;
use segue_linux::link;
use segue_linux::netns::Netns;
use tempfile::TempDir;

use super::packets::{Flow, Pace};
use crate::experiment::Stage;

/// The correspondent's address, and the port of all flows at the host.
const CORRESPONDENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xc, 0, 0, 0, 0, 0, 2);
const PORT: u16 = 7_000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../../examples/pmip/", $name))
    };
}

/// An access, and the host's radio that comes to it.
#[derive(Debug)]
pub(crate) struct Access {
    /// Its name, which is that of its cell, its interface and its gateway's instance.
    pub name: &'static str,
    /// The node of its gateway.
    pub node: &'static str,
    /// The gateway's address towards the anchor.
    pub proxy_coa: &'static str,
    /// The host's radio, and its link-layer address.
    pub radio: &'static str,
    pub llid: &'static str,
    config: &'static str,
}

/// The accesses of the two radios, at different nodes.
pub(crate) const FIRST: Access = Access {
    name: "wlan1",
    node: "left",
    proxy_coa: "fd00:2::2",
    radio: "wlan",
    llid: "02:5e:67:01:00:00",
    config: example!("wlan1.toml"),
};
pub(crate) const SECOND: Access = Access {
    name: "lte2",
    node: "right",
    proxy_coa: "fd00:3::3",
    radio: "wwan",
    llid: "02:5e:67:01:00:01",
    config: example!("lte2.toml"),
};

/// The domain; dropping it ends the daemons, then deletes the network.
pub(crate) struct Domain {
    daemons: Vec<Daemon>,
    pub(crate) lab: Lab,
    files: TempDir,
}

impl Domain {
    /// Builds the network and starts the daemons; no radio is at an access yet.
    ///
    /// # Errors
    /// Without root, or when a daemon does not start.
    pub(crate) fn start(stage: &Stage) -> anyhow::Result<Domain> {
        let plan = segue_lab::file::parse(example!("lab.toml"), "lab.toml")?;
        let lab = plan.build("alves").context("the domain's network cannot be built")?;
        let files = tempfile::Builder::new().prefix("segue-reproduce").tempdir()?;
        let mut domain = Domain { daemons: Vec::new(), lab, files };
        domain.daemon("lma", "lma", "lma", example!("lma.toml"))?;
        for access in [&FIRST, &SECOND] {
            domain.daemon("mag", access.name, access.node, access.config)?;
        }
        domain.wait(stage, "the anchor", |domain| Ok(domain.anchor().is_ok()))?;
        for access in [&FIRST, &SECOND] {
            domain.wait(stage, "a gateway", |domain| Ok(domain.gateway(access).is_ok()))?;
        }
        Ok(domain)
    }

    fn daemon(
        &mut self,
        role: &str,
        name: &'static str,
        node: &str,
        config: &str,
    ) -> anyhow::Result<()> {
        let file = |extension: &str| self.files.path().join(format!("{name}.{extension}"));
        std::fs::write(file("toml"), config)?;
        let mut command: Command = self.node(node)?.command(own_program()?);
        command.args(["pmip", role, "--datapath", "ebpf", "-c"]).arg(file("toml"));
        command.arg("--state").arg(file("db")).arg("--control").arg(self.socket(name));
        self.daemons.push(Daemon::spawn(name, command, file("log"), None)?);
        Ok(())
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.files.path().join(format!("{name}.sock"))
    }

    pub(crate) fn node(&self, name: &str) -> anyhow::Result<&Netns> {
        self.lab.node(name)
    }

    /// What the anchor says.
    pub(crate) fn anchor(&self) -> anyhow::Result<lma::LmaStatus> {
        Ok(self.status::<lma::Words>("lma")?.body)
    }

    /// What the gateway of an access says.
    pub(crate) fn gateway(&self, access: &Access) -> anyhow::Result<mag::MagStatus> {
        Ok(self.status::<mag::Words>(access.name)?.body)
    }

    fn status<V: Vocabulary>(&self, name: &str) -> anyhow::Result<control::Status<V>> {
        control::status(&self.socket(name), u64::MAX)
    }

    /// The events that a daemon remembers.
    pub(crate) fn events<V: Vocabulary>(&self, name: &str) -> anyhow::Result<Vec<EventRecord<V>>> {
        Ok(control::status::<V>(&self.socket(name), 0)?.events)
    }

    /// Waits until something holds.
    pub(crate) fn wait(
        &mut self,
        stage: &Stage,
        what: &str,
        holds: impl Fn(&Domain) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            stage.check()?;
            self.daemons.iter_mut().try_for_each(Daemon::check_alive)?;
            if holds(self)? {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!("not within {} s: {what}", PATIENCE.as_secs())
    }

    /// Brings the host's radio to an access, and waits until it is registered and has its address.
    ///
    /// # Errors
    /// When that does not happen.
    pub(crate) fn attach(&mut self, stage: &Stage, access: &Access) -> anyhow::Result<()> {
        self.lab.attach(&format!("host:{}", access.radio), access.name)?;
        self.await_host(stage, access)
    }

    /// Waits until the host is registered at an access and has its address.
    pub(crate) fn await_host(&mut self, stage: &Stage, access: &Access) -> anyhow::Result<()> {
        self.wait(stage, "a binding at the anchor", |domain| {
            let bindings = domain.anchor()?.bindings;
            let mut own = bindings.iter().filter(|binding| binding.llid == access.llid);
            Ok(own.any(|at| at.proxy_coa == access.proxy_coa && at.state == "active"))
        })?;
        self.wait(stage, "the host's address", |domain| Ok(domain.address(access).is_ok()))
    }

    pub(crate) fn detach(&self, access: &Access) -> anyhow::Result<()> {
        self.lab.detach(&format!("host:{}", access.radio), None)
    }

    /// Both radios are attached, and each gateway carries the other's prefix too: from then on each flow is placed by
    /// itself.
    pub(crate) fn attach_both(&mut self, stage: &Stage) -> anyhow::Result<()> {
        for access in [&FIRST, &SECOND] {
            self.attach(stage, access)?;
        }
        self.await_mobility(stage)
    }

    /// Waits until flows can be anywhere.
    pub(crate) fn await_mobility(&mut self, stage: &Stage) -> anyhow::Result<()> {
        self.wait(stage, "each gateway knows the other's prefix", |domain| {
            let mut told = [&FIRST, &SECOND].into_iter().map(|access| {
                let hosts = domain.gateway(access)?.hosts;
                Ok(hosts.first().is_some_and(|host| !host.off_link.is_empty()))
            });
            told.try_fold(true, |all, one: anyhow::Result<bool>| Ok(all && one?))
        })
    }

    /// The address that the host has made of the prefix of a radio.
    pub(crate) fn address(&self, access: &Access) -> anyhow::Result<Ipv6Addr> {
        let (all, index) = self.node("host")?.run(|| -> anyhow::Result<_> {
            Ok((link::addresses()?, link::index_of(access.radio)?))
        })??;
        let mut own = all.into_iter().filter(|address| address.index == index);
        let global = own.find_map(|address| match address.prefix.addr {
            IpAddr::V6(address) if !address.is_unicast_link_local() => Some(address),
            _ => None,
        });
        global.context("the host has no address of its prefix")
    }

    /// A flow from a port of the correspondent to the host's address of an access.
    pub(crate) fn flow(&self, access: &Access, port: u16, pace: Pace) -> anyhow::Result<Flow> {
        let to = (self.address(access)?, PORT);
        Flow::new(self.node("cn")?, (CORRESPONDENT, port), to, pace)
    }

    /// The host takes flows as long as the socket is there, so that it answers none of them with an error. What it does not
    /// read is dropped.
    pub(crate) fn sink(&self) -> anyhow::Result<UdpSocket> {
        let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT));
        self.node("host")?.run(bind)?.context("the host's socket")
    }

    /// Stamps packets that pass the anchor towards the gateways, with numbers below `most`.
    pub(crate) fn watch_anchor(&self, most: u32) -> anyhow::Result<Passages> {
        self.watch("lma", most, &[("outside", Side::Entry), ("core", Side::Exit)])
    }

    /// Stamps packets that pass the gateway of an access towards the host.
    pub(crate) fn watch_gateway(&self, access: &Access, most: u32) -> anyhow::Result<Passages> {
        self.watch(access.node, most, &[("core", Side::Entry), (access.name, Side::Exit)])
    }

    /// Stamps packets at devices of a node.
    pub(crate) fn watch(
        &self,
        node: &str,
        most: u32,
        devices: &[(&str, Side)],
    ) -> anyhow::Result<Passages> {
        let mut passages = Passages::load(most)?;
        self.node(node)?.run(|| {
            devices.iter().try_for_each(|(device, side)| passages.watch(device, *side))
        })??;
        Ok(passages)
    }
}
