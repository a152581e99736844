//! The example protocol `segue-echo` as daemons: a server and its clients. The loop opens the control socket, watches
//! interfaces, arms deadlines, stores records and sets addresses; this module adds the rest.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_clock::{Machine, Span};
use segue_echo::{Client, ClientConfig, Lease, Order, PORT, Refused, Report, Server, ServerConfig};
use segue_ip::{Input, Output, Prefix};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_store::{Embedded, Store};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::control::{self, News, Response, Vocabulary};
use crate::ledger::{Entry, Ledger, StoreTable};
use crate::run::{self, Core, Role};
use crate::sockets::{Arrivals, Sockets};

/// The table of a server's leases.
const LEASES: StoreTable = StoreTable { name: "echo", of: "lease" };

/// Lease an address, and echo: the pattern for further protocols.
#[derive(clap::Args)]
pub struct Args {
    /// Run a server of these addresses
    #[arg(
        long,
        value_name = "PREFIX",
        required_unless_present = "server",
        conflicts_with = "server"
    )]
    pool: Option<Prefix>,
    /// Run a client of the server at this address
    #[arg(long, value_name = "ADDRESS")]
    server: Option<IpAddr>,
    /// A client's number, unlike any other
    #[arg(long, value_name = "N", default_value_t = 1)]
    owner: u64,
    /// How long a lease lasts, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    lifetime: u64,
    /// File of a server's leases
    #[arg(long, value_name = "FILE", default_value = "/var/lib/segue/echo.db")]
    state: PathBuf,
    /// Control socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Runs a server or a client until it is shut down.
///
/// # Errors
/// Not permitted, no such pool, or the port is taken.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if args.pool.is_some() {
        run::run::<Daemon<Server>>(args).await
    } else {
        run::run::<Daemon<Client>>(args).await
    }
}

/// The daemons' vocabulary on their control sockets.
#[derive(Clone, Debug)]
pub struct Words;

impl Vocabulary for Words {
    type News = Report;
    type Request = Ask;
    type Answer = ();
    type Status = EchoStatus;
    type Event = About;
}

/// The subject of an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    owner: u64,
    address: String,
}

/// The status of a server or a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct EchoStatus {
    /// The owner of each leased address.
    pub leases: BTreeMap<String, u64>,
}

impl News<About> for Report {
    fn kind(&self) -> &'static str {
        match self {
            Report::Leased { .. } => "leased",
            Report::Ended { .. } => "ended",
        }
    }

    fn about(&self) -> About {
        let (Report::Leased { owner, address } | Report::Ended { owner, address }) = self;
        About { owner: *owner, address: address.to_string() }
    }
}

/// A request to either side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// A client releases its address.
    Release,
}

/// The differences between the two sides.
pub trait Side: Machine<Input = Input<Self::Own, Self::Record>, Output = OutputOf<Self>> {
    /// The role's name.
    const NAME: &'static str;
    /// The machine's own input.
    type Own;
    /// The machine's records.
    type Record: Into<Entry>;

    /// The machine at startup, and the ledger of its records.
    fn begin(args: &Args) -> anyhow::Result<(Self, Ledger<OutputOf<Self>>)>
    where
        Self: Sized;
    /// The machine's input for a request; `None` if this side has no such order.
    fn order(ask: Ask) -> Option<Self::Own>;
    /// The owner of each leased address.
    fn leases(&self) -> impl Iterator<Item = (u64, Prefix)>;
    /// Refused messages, by reason.
    fn refused(&self) -> &Refused;
}

type OutputOf<S> = Output<Infallible, Report, <S as Side>::Record>;

impl From<Lease> for Entry {
    fn from(lease: Lease) -> Entry {
        let value = Some(lease.owner.to_be_bytes().into());
        Entry { subject: lease.subject(), key: lease.place.to_string(), value }
    }
}

impl Side for Server {
    const NAME: &'static str = "echo-server";
    type Own = Infallible;
    type Record = Lease;

    fn begin(args: &Args) -> anyhow::Result<(Server, Ledger<OutputOf<Server>>)> {
        let pool = args.pool.context("no pool")?;
        let config = ServerConfig::new(pool, Span::from_secs(args.lifetime));
        let mut server = Server::new(config.with_context(|| {
            format!("--pool {pool} has no room for a client: give a shorter length, such as /24")
        })?);
        let store = Arc::new(Embedded::open(&args.state)?);
        if let Some(other) = store.tables()?.iter().find(|table| *table != LEASES.name) {
            let path = args.state.display();
            bail!(
                "{path} is the state of another role (it has {other}): name another with --state"
            );
        }
        for (key, value) in store.list(LEASES.name)? {
            let (Ok(place), Ok(owner)) = (key.parse(), value.try_into()) else { continue };
            let lease = Lease { place, owner: u64::from_be_bytes(owner) };
            server.handle(monotonic(), Input::Record(lease));
        }
        Ok((server, Ledger::start(store, LEASES)?))
    }

    fn order(_: Ask) -> Option<Infallible> {
        None
    }

    fn leases(&self) -> impl Iterator<Item = (u64, Prefix)> {
        Server::leases(self)
    }

    fn refused(&self) -> &Refused {
        Server::refused(self)
    }
}

impl Side for Client {
    const NAME: &'static str = "echo-client";
    type Own = Order;
    type Record = Infallible;

    fn begin(args: &Args) -> anyhow::Result<(Client, Ledger<OutputOf<Client>>)> {
        let server = SocketAddr::new(args.server.context("no server")?, PORT);
        let (period, seed) = (Span::from_secs(1), realtime_ns());
        let config = ClientConfig { owner: args.owner, server, period, seed };
        Ok((Client::new(config), Ledger::without_store()))
    }

    fn order(Ask::Release: Ask) -> Option<Order> {
        Some(Order::Release)
    }

    fn leases(&self) -> impl Iterator<Item = (u64, Prefix)> {
        self.address().map(|address| (self.owner(), address)).into_iter()
    }

    fn refused(&self) -> &Refused {
        Client::refused(self)
    }
}

/// The role of either side.
pub struct Daemon<M: Side>(Core<Sockets<M>, Words>);

impl<M: Side> Role for Daemon<M> {
    const NAME: &'static str = M::NAME;
    const TASK: &'static str = "lease addresses";
    type Settings = Args;
    type Engine = Sockets<M>;
    type Words = Words;
    type Signalling = Infallible;
    type Chore = Infallible;

    fn common(args: &Args) -> run::Settings {
        let usual = || control::default_path(M::NAME, None);
        run::Settings::at(args.control.clone().unwrap_or_else(usual))
    }

    fn start(args: Args, _: mpsc::Sender<Infallible>) -> anyhow::Result<(Self, Arrivals)> {
        let (machine, ledger) = M::begin(&args)?;
        let (end, arrivals) = Sockets::open(machine, &[PORT])?;
        Ok((Daemon(Core::new(end, ledger)), arrivals))
    }

    fn core(&mut self) -> &mut Core<Sockets<M>, Words> {
        &mut self.0
    }

    fn apply(&mut self, wish: Infallible) -> anyhow::Result<()> {
        match wish {}
    }

    fn entry(&self, record: M::Record) -> anyhow::Result<Entry> {
        Ok(record.into())
    }

    fn on_request(&mut self, ask: Ask) -> anyhow::Result<Response<Words>> {
        let Some(order) = M::order(ask) else {
            return Ok(Response::Error("clients alone have something to release".into()));
        };
        self.feed(Input::Own(order))?;
        Ok(Response::Done("released".into()))
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> EchoStatus {
        let machine = &self.0.end.machine;
        drops.extend(machine.refused().iter().map(|(why, n)| (why.name().to_owned(), *n)));
        let leases = machine.leases().map(|(owner, address)| (address.to_string(), owner));
        EchoStatus { leases: leases.collect() }
    }
}
