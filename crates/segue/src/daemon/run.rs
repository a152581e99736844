//! The one loop that runs every role: it ends on SIGINT or SIGTERM, tells the packet path once a second that the daemon
//! lives, keeps the machine's deadlines, and takes what its sources bring in turns. A [`Role`] says what is its own.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Gid;
use segue_clock::{Machine, Time};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{DatapathError, LinuxDatapath, Setup};
use segue_keepalive::Source;
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Device, Monitor};
use segue_tunnel::{End, Order, Side, Turn};
use tokio::sync::mpsc;

use super::events::{Events, Trouble};
use super::packets::{self, Choice, Queue};
use super::shares::Shares;
use super::turns::{Sources, Work};
use super::{check_interfaces, check_permission, scrape, termination, until};
use crate::control::{self, Asked, Request, Response, Status};

/// How often the datapath is told that the daemon lives.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Requests over the control socket that wait; more wait in their connections.
const ASKED: usize = 16;

/// What every daemon needs to know, validated.
#[derive(Clone)]
pub struct Settings {
    /// Name of the tunnel device.
    pub device: String,
    /// Local UDP port of the tunnels.
    pub port: u16,
    /// Which datapath.
    pub datapath: Choice,
    /// The interfaces to use; all that fit the role if empty.
    pub interfaces: Vec<String>,
    /// The control socket.
    pub control: PathBuf,
    /// The group that may use it, beside root.
    pub control_group: Option<Gid>,
    /// Where metrics are served; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
    /// Run before ordinary threads where the system allows it.
    pub realtime: bool,
}

/// What a role has beside the loop: its settings, its signalling, what it does for its machine, and how it stands.
///
/// An error ends the daemon; trouble that leaves it of use is told ([`Core::trouble`]) and is none.
pub trait Role: Sized {
    /// Its name, as in configuration, control and output.
    const NAME: &'static str;
    /// What somebody without the permission may not do.
    const TASK: &'static str;
    /// Events of signalling that wait; the connections wait when there are more.
    const SIGNALS: usize;
    /// Everything that it needs to know.
    type Settings;
    /// Its machine.
    type Machine: Side;
    /// What its signalling tells.
    type Signal;
    /// What it has to see to beside what others bring.
    type Chore;

    /// What every daemon needs to know.
    fn common(settings: &Self::Settings) -> &Settings;

    /// Opens what it needs. Its signalling tells by `signals`.
    fn start(
        settings: Self::Settings,
        signals: mpsc::Sender<Self::Signal>,
    ) -> anyhow::Result<(Self, Queue)>;

    /// What every role has.
    fn core(&mut self) -> &mut Core<Self::Machine>;

    /// Does what the machine wants.
    fn apply(&mut self, output: <Self::Machine as Side>::Own) -> anyhow::Result<()>;

    /// Once a second.
    fn on_heartbeat(&mut self) -> anyhow::Result<()>;

    /// Signalling tells something.
    fn on_signal(&mut self, event: Self::Signal) -> anyhow::Result<()>;

    /// The interfaces have changed, or are known for the first time.
    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()>;

    /// Answers a request of its own; those that every role answers alike do not come here.
    fn on_request(&mut self, request: &Request) -> anyhow::Result<Response>;

    /// The slots of all paths.
    fn slots(&self) -> Vec<u32>;

    /// How it stands, with the events from this number on.
    fn status(&mut self, events_from: u64) -> Status;

    /// Waits for a chore. May be given up at any time, and is asked for again.
    fn chore(&mut self) -> impl Future<Output = Self::Chore>;

    /// Sees to it.
    fn on_chore(&mut self, chore: Self::Chore) -> anyhow::Result<()>;

    /// The daemon was told to end.
    fn stop(self) -> impl Future<Output = anyhow::Result<()>>;

    /// Gives the machine an input and does what it says.
    fn feed(&mut self, input: <Self::Machine as Machine>::Input) -> anyhow::Result<()> {
        let turn = self.core().end.handle(monotonic(), input);
        self.follow(turn)
    }

    /// Does what the machine says. What the datapath cannot do is told and left undone.
    fn follow(&mut self, mut turn: Turn<DatapathError>) -> anyhow::Result<()> {
        while let Some(output) = self.core().poll(&mut turn) {
            self.apply(output)?;
        }
        packets::tell(turn.failures, &mut self.core().trouble);
        Ok(())
    }
}

/// What every role has around its machine.
pub struct Core<M: Side> {
    /// The machine and its packet path.
    pub end: End<M, Box<dyn LinuxDatapath>>,
    /// What there is to tell.
    pub events: Events,
    /// What could not be done.
    pub trouble: Trouble,
    started: Time,
    shares: Shares,
    shed: packets::Shed,
    /// Keeps the tunnels' port from other programs where the datapath has no socket on it.
    _reserved: Option<UdpSocket>,
}

impl<M: Side> Core<M> {
    /// Opens the packet path; `machine` is made when it is known where its estimates come from.
    pub fn open(
        settings: &Settings,
        setup: &Setup,
        options: EbpfOptions,
        machine: impl FnOnce(&mut dyn LinuxDatapath, Source) -> anyhow::Result<M>,
    ) -> anyhow::Result<(Core<M>, Queue)> {
        let opened = packets::open(settings.datapath, setup, options, settings.realtime)?;
        let mut datapath = opened.datapath;
        let source = packets::source(datapath.as_ref());
        let machine = machine(datapath.as_mut(), source)?;
        let core = Core {
            end: End::new(machine, datapath),
            events: Events::default(),
            trouble: Trouble::default(),
            started: monotonic(),
            shares: opened.shares,
            shed: opened.shed,
            _reserved: opened.reserved,
        };
        Ok((core, opened.events))
    }

    fn poll(&mut self, turn: &mut Turn<DatapathError>) -> Option<M::Own> {
        let Core { end, shares, .. } = self;
        end.poll_with(turn, monotonic, |order| match order {
            Order::SetPath(slot, path) if M::ROLE == segue_datapath::Role::Anchor => {
                shares.give(*slot, path.owner)
            }
            Order::RemovePath(slot) => shares.take_back(*slot),
            _ => {}
        })
    }

    /// What is the same in the status of every role.
    pub fn status(&mut self, role: &str, device: &str, events_from: u64) -> Status {
        let now = monotonic();
        Status {
            role: role.to_owned(),
            version: env!("CARGO_PKG_VERSION").into(),
            datapath: packets::kind_name(self.end.datapath.kind()).into(),
            device: device.to_owned(),
            now_ns: now.0,
            uptime_s: now.since(self.started).as_secs_f64(),
            drops: packets::drops(self.end.datapath.as_mut(), &self.shed),
            reinjected: self.end.reinjected(),
            events: self.events.since(events_from),
            next_event: self.events.next(),
            ..Status::default()
        }
    }
}

/// Runs a role until SIGINT or SIGTERM.
pub async fn run<R: Role>(settings: R::Settings) -> anyhow::Result<()> {
    check_permission(R::TASK)?;
    let common = R::common(&settings).clone();
    let monitor = Monitor::new().await?;
    check_interfaces(&common.interfaces, monitor.current())?;
    let (asked_in, asked) = mpsc::channel::<Asked>(ASKED);
    scrape::start(common.metrics, asked_in.clone())?;
    let _control = control::Server::start(&common.control, common.control_group, asked_in)?;
    let (signals, signalled) = mpsc::channel(R::SIGNALS);
    let (mut role, packets) = R::start(settings, signals)?;
    role.on_interfaces(monitor.current())?;
    serve(&mut role, Sources::new(packets, signalled, asked, monitor)).await?;
    role.stop().await
}

async fn serve<R: Role>(role: &mut R, mut sources: Sources<R::Signal>) -> anyhow::Result<()> {
    let mut interrupt = termination()?;
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    loop {
        let deadline = role.core().end.deadline().map(|(at, _)| at);
        tokio::select! {
            // Of those that are ready one at random: none can keep another from its turn.
            _ = interrupt.recv() => return Ok(()),
            _ = heartbeat.tick() => {
                let datapath = &mut role.core().end.datapath;
                datapath.heartbeat();
                datapath.carries()?;
                role.on_heartbeat()?;
            }
            () = until(deadline) => role.follow(Turn::at_deadline(sources.probes()))?,
            chore = role.chore() => {
                role.on_chore(chore)?;
                tokio::task::yield_now().await;
            }
            works = sources.turn() => {
                works.into_iter().try_for_each(|work| on_work(role, work))?;
                // The runtime's other tasks have theirs.
                tokio::task::yield_now().await;
            }
        }
    }
}

fn on_work<R: Role>(role: &mut R, work: Work<R::Signal>) -> anyhow::Result<()> {
    match work {
        Work::Packet(event) => {
            let turn = role.core().end.on_event(monotonic(), event);
            role.follow(turn)
        }
        Work::Signal(event) => role.on_signal(event),
        Work::Asked((Request::Status { events_from }, back)) => {
            let slots = role.slots();
            role.follow(Turn::reading(slots))?;
            let _ = back.send(Response::Status(Box::new(role.status(events_from))));
            Ok(())
        }
        Work::Asked((Request::Events { from }, back)) => {
            let _ = back.send(Response::Events(role.core().events.page(monotonic(), from)));
            Ok(())
        }
        Work::Asked((request, back)) => {
            let _ = back.send(role.on_request(&request)?);
            Ok(())
        }
        Work::TooBig(said) => role.feed(R::Machine::too_big(said)),
        Work::Interfaces(all) => role.on_interfaces(&all?),
    }
}
