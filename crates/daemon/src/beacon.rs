//! A throw-away role: keeps a lease of an echo server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use segue_clock::Span;
use segue_echo::{Client, ClientConfig, PORT};
use segue_ip::Prefix;
use segue_linux::clock::realtime_ns;
use segue_probe::metrics::{Page, names};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::control::{self, Status, Vocabulary};
use crate::echo::About;
use crate::ledger::{Entry, Ledger};
use crate::run::{self, Core, Role};
use crate::sockets::{Arrivals, Sockets};

/// The file of a beacon.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeaconFile {
    /// Address of the server. Required.
    pub server: Option<IpAddr>,
    /// A number unlike any other beacon's, 1.
    pub owner: Option<u64>,
    /// Control socket.
    pub control: Option<PathBuf>,
}

impl segue_grammar::Config for BeaconFile {}

/// Settings of a beacon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings of every daemon.
    pub common: run::Settings,
    /// Address of the server.
    pub server: IpAddr,
    /// The beacon's number.
    pub owner: u64,
}

impl BeaconFile {
    /// Validates the file.
    ///
    /// # Errors
    /// The server is missing.
    pub fn validate(self) -> anyhow::Result<Settings> {
        let server = self.server.context("server is missing")?;
        let control = self.control.unwrap_or_else(|| control::default_path(Daemon::NAME, None));
        let common = run::Settings::at(control);
        Ok(Settings { common, server, owner: self.owner.unwrap_or(1) })
    }
}

/// The vocabulary on the control socket.
#[derive(Clone, Debug)]
pub struct Words;

impl Vocabulary for Words {
    type News = segue_echo::Report;
    type Request = ();
    type Answer = ();
    type Status = BeaconStatus;
    type Event = About;

    fn metrics(status: &Status<Words>, page: &mut Page) {
        page.one(&names::REGISTERED, f64::from(u8::from(status.body.address.is_some())));
    }
}

/// The status of a beacon.
#[derive(Debug, Serialize, Deserialize)]
pub struct BeaconStatus {
    /// The leased address.
    pub address: Option<String>,
}

/// The daemon.
pub struct Daemon(Core<Sockets<Client>, Words>);

impl Role for Daemon {
    const NAME: &'static str = "beacon";
    const TASK: &'static str = "lease an address";
    type Settings = Settings;
    type Engine = Sockets<Client>;
    type Words = Words;
    type Signalling = Infallible;
    type Chore = Infallible;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(settings: Settings, _: mpsc::Sender<Infallible>) -> anyhow::Result<(Self, Arrivals)> {
        let server = SocketAddr::new(settings.server, PORT);
        let (period, seed) = (Span::from_secs(1), realtime_ns());
        let config = ClientConfig { owner: settings.owner, server, period, seed };
        let (end, arrivals) = Sockets::open(Client::new(config), &[PORT])?;
        Ok((Daemon(Core::new(end, Ledger::without_store())), arrivals))
    }

    fn core(&mut self) -> &mut Core<Sockets<Client>, Words> {
        &mut self.0
    }

    fn apply(&mut self, wish: Infallible) -> anyhow::Result<()> {
        match wish {}
    }

    fn entry(&self, record: Infallible) -> anyhow::Result<Entry> {
        match record {}
    }

    fn status(&mut self, _drops: &mut BTreeMap<String, u64>) -> BeaconStatus {
        BeaconStatus { address: self.0.end.machine.address().map(|at: Prefix| at.to_string()) }
    }
}
