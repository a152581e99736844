//! The Proxy Mobile IPv6 domain for the experiments of paper 3: the anchor and two gateways of the demonstration's
//! domain, with programs that timestamp packets where they pass.

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

/// The host's port for all flows.
const PORT: u16 = 7_000;

/// The accesses of the two radios, on different nodes.
pub(crate) const FIRST: Access = WLAN1;
pub(crate) const SECOND: Access = LTE2;

/// The running domain; dropping it stops the daemons and deletes the network.
pub(crate) struct Domain {
    base: domain::Domain,
    _files: TempDir,
}

impl Domain {
    /// Builds the network and starts the daemons. No radio is attached yet.
    ///
    /// # Errors
    /// The process is not root, or a daemon does not start.
    pub(crate) fn start(stage: &Stage) -> anyhow::Result<Domain> {
        Domain::with(stage, &[FIRST, SECOND], false)
    }

    /// The same with all parts of the paper's evaluation: IEEE 802.21 functions report attachments, and a RADIUS server
    /// identifies the hosts if FreeRADIUS is installed.
    ///
    /// # Errors
    /// As [`Domain::start`].
    /// As [`Domain::start`].
    pub(crate) fn whole(stage: &Stage) -> anyhow::Result<Domain> {
        Domain::with(stage, &[FIRST, SECOND], true)
    }

    /// The same with all four accesses of the paper's two nodes.
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

    /// Returns true if a RADIUS server identifies the hosts.
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

    /// The anchor's status.
    pub(crate) fn anchor(&self) -> anyhow::Result<lma::LmaStatus> {
        self.base.anchor()
    }

    /// The events that a daemon has in memory.
    pub(crate) fn events<V: Vocabulary>(&self, name: &str) -> anyhow::Result<Vec<EventRecord<V>>> {
        self.base.events(name)
    }

    /// Waits until `holds` returns true.
    pub(crate) fn wait(
        &mut self,
        stage: &Stage,
        what: &str,
        holds: impl Fn(&domain::Domain) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        self.base.wait(&|| stage.check(), what, holds)
    }

    /// Attaches the host's radio to an access, and waits until it is registered and has its address.
    ///
    /// # Errors
    /// The radio cannot be attached, or the wait fails.
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

    /// Attaches both radios and waits until each gateway carries the other's prefix too; from then on, each flow is
    /// placed individually.
    pub(crate) fn attach_both(&mut self, stage: &Stage) -> anyhow::Result<()> {
        for access in [&FIRST, &SECOND] {
            self.attach(stage, access)?;
        }
        self.await_mobility(stage)
    }

    /// Waits until flows can use either access.
    pub(crate) fn await_mobility(&mut self, stage: &Stage) -> anyhow::Result<()> {
        self.base.await_mobility(&|| stage.check(), [&FIRST, &SECOND])
    }

    /// The address that the host has formed from the prefix of a radio.
    pub(crate) fn address(&self, access: &Access) -> anyhow::Result<Ipv6Addr> {
        self.base.address(access.radio)
    }

    /// A flow from a port of the correspondent to the host's address on an access.
    pub(crate) fn flow(&self, access: &Access, port: u16, pace: Pace) -> anyhow::Result<Flow> {
        let to = (self.address(access)?, PORT);
        Flow::new(self.node("cn")?, (CORRESPONDENT, port), to, pace)
    }

    /// A socket at the host that receives the flows, so that the host does not answer them with ICMP errors. Unread
    /// packets are dropped.
    pub(crate) fn sink(&self) -> anyhow::Result<UdpSocket> {
        let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT));
        self.node("host")?.run(bind)?.context("the host's socket")
    }

    /// Timestamps packets that pass the anchor towards the gateways, with numbers below `most`.
    pub(crate) fn watch_anchor(&self, most: u32) -> anyhow::Result<Passages> {
        self.watch("lma", most, &[("outside", Side::Entry), ("core", Side::Exit)])
    }

    /// Timestamps packets that pass the gateway of an access towards the host.
    pub(crate) fn watch_gateway(&self, access: &Access, most: u32) -> anyhow::Result<Passages> {
        self.watch(access.node, most, &[("core", Side::Entry), (access.name, Side::Exit)])
    }

    /// Timestamps packets at devices of a node.
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
