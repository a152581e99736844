//! The domain of Proxy Mobile IPv6 on which the experiments of paper 3 run: of the demonstration's, the anchor and two gateways, and
//! packets that are stamped where they pass.

use std::net::{Ipv6Addr, UdpSocket};

use anyhow::Context;
use segue_bench::passage::{Passages, Side};
use segue_daemon::control::{EventRecord, Vocabulary};
use segue_daemon::pmip::lma;
use segue_daemon::settings::Choice;
use segue_demo::domain::{self, CORRESPONDENT, LTE1, LTE2, Plan, WLAN1, WLAN2};
use segue_linux::netns::Netns;
use tempfile::TempDir;

use super::packets::{Flow, Pace};
use crate::experiment::Stage;

pub(crate) use segue_demo::domain::Access;

/// The port of all flows at the host.
const PORT: u16 = 7_000;

/// The accesses of the two radios, at different nodes.
pub(crate) const FIRST: Access = WLAN1;
pub(crate) const SECOND: Access = LTE2;

/// The domain; dropping it ends the daemons, then deletes the network.
pub(crate) struct Domain {
    base: domain::Domain,
    _files: TempDir,
}

impl Domain {
    /// Builds the network and starts the daemons; no radio is at an access yet.
    ///
    /// # Errors
    /// Without root, or when a daemon does not start.
    pub(crate) fn start(stage: &Stage) -> anyhow::Result<Domain> {
        Domain::with(stage, &[FIRST, SECOND], false)
    }

    /// The same as the paper's evaluation had it: functions of IEEE 802.21 tell of attachments, and a RADIUS server knows
    /// the hosts where FreeRADIUS is installed.
    ///
    /// # Errors
    /// As [`Domain::start`].
    pub(crate) fn whole(stage: &Stage) -> anyhow::Result<Domain> {
        Domain::with(stage, &[FIRST, SECOND], true)
    }

    /// The same with both accesses of the paper's two nodes.
    ///
    /// # Errors
    /// As [`Domain::start`].
    pub(crate) fn of_two_nodes(stage: &Stage) -> anyhow::Result<Domain> {
        Domain::with(stage, &[WLAN1, LTE1, WLAN2, LTE2], true)
    }

    /// The daemons' names and processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.base.processes()
    }

    /// Whether a RADIUS server knows the hosts.
    pub(crate) fn has_radius(&self) -> bool {
        self.base.has_radius()
    }

    fn with(stage: &Stage, accesses: &'static [Access], whole: bool) -> anyhow::Result<Domain> {
        let files = tempfile::Builder::new().prefix("segue-reproduce").tempdir()?;
        let (mih, radius, datapath) = (whole, whole, Choice::Ebpf);
        let plan = Plan { tag: "alves", accesses, mih, radius, paced: false, datapath };
        let base = domain::Domain::start(&plan, files.path(), &|| stage.check())?;
        Ok(Domain { base, _files: files })
    }

    pub(crate) fn node(&self, name: &str) -> anyhow::Result<&Netns> {
        self.base.node(name)
    }

    /// The network.
    pub(crate) fn lab(&self) -> &segue_lab::Lab {
        self.base.lab()
    }

    /// What the anchor says.
    pub(crate) fn anchor(&self) -> anyhow::Result<lma::LmaStatus> {
        self.base.anchor()
    }

    /// The events that a daemon remembers.
    pub(crate) fn events<V: Vocabulary>(&self, name: &str) -> anyhow::Result<Vec<EventRecord<V>>> {
        self.base.events(name)
    }

    /// Waits until something holds.
    pub(crate) fn wait(
        &mut self,
        stage: &Stage,
        what: &str,
        holds: impl Fn(&domain::Domain) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        self.base.wait(&|| stage.check(), what, holds)
    }

    /// Brings the host's radio to an access, and waits until it is registered and has its address.
    ///
    /// # Errors
    /// When that does not happen.
    pub(crate) fn attach(&mut self, stage: &Stage, access: &Access) -> anyhow::Result<()> {
        self.base.attach(&|| stage.check(), access)
    }

    /// Waits until the host is registered at an access and has its address.
    pub(crate) fn await_host(&mut self, stage: &Stage, access: &Access) -> anyhow::Result<()> {
        self.base.await_host(&|| stage.check(), access)
    }

    pub(crate) fn detach(&self, access: &Access) -> anyhow::Result<()> {
        self.base.detach(access.radio)
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
        self.base.await_mobility(&|| stage.check(), [&FIRST, &SECOND])
    }

    /// The address that the host has made of the prefix of a radio.
    pub(crate) fn address(&self, access: &Access) -> anyhow::Result<Ipv6Addr> {
        self.base.address(access.radio)
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
