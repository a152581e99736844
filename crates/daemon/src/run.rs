//! The loop that runs every role. It ends on SIGINT or SIGTERM, tells the packet path once a second
//! that the daemon is alive, keeps the machine's deadlines, and takes work from its sources in
//! turns. A [`Role`] adds what is specific to it.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use segue_clock::Time;
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{DatapathError, LinuxDatapath, Setup};
use segue_ip::{Input, Output};
use segue_keepalive::Source;
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Device, Monitor};
use segue_tunnel::{End, Order, Report, Side, ToDriver, Turn};
use tokio::sync::mpsc;

use super::events::{Events, Trouble};
use super::packets::{self, Queue};
use super::shares::Shares;
use super::turns::{Sources, Work};
use super::{check_interfaces, check_permission, scrape, termination, until};
use crate::control::{self, Asked, Head, Request, Response, Status, TunnelStatus, Vocabulary};
pub use crate::settings::Common as Settings;

/// How often the daemon tells the datapath that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Requests over the control socket that wait; more wait in their connections.
const ASKED: usize = 16;

/// What a role adds to the loop: its settings, its signalling, what it does for its machine, and
/// its status.
///
/// An error ends the daemon. Trouble that leaves it useful is only logged ([`Core::trouble`]).
pub trait Role: Sized {
    /// Its name, as in configuration, control and output.
    const NAME: &'static str;
    /// The task that needs the permission, for the error message.
    const TASK: &'static str;
    /// Events of signalling that wait; the connections wait when there are more.
    const SIGNALS: usize;
    /// Everything that it needs to know.
    type Settings;
    /// Its machine.
    type Machine: Side;
    /// What it says on the control socket.
    type Words: Vocabulary<News = Report>;
    /// Its signalling's events.
    type Signal;
    /// Work of its own, beside what the sources bring.
    type Chore;

    /// What every daemon needs to know.
    fn common(settings: &Self::Settings) -> &Settings;

    /// Opens what the role needs. Its signalling reports through `signals`.
    fn start(
        settings: Self::Settings,
        signals: mpsc::Sender<Self::Signal>,
    ) -> anyhow::Result<(Self, Queue)>;

    /// What every role has.
    fn core(&mut self) -> &mut Core<Self::Machine, Self::Words>;

    /// Does what the machine wants of its own role.
    fn apply(&mut self, output: <Self::Machine as Side>::Wish) -> anyhow::Result<()>;

    /// Stores something. It is on disk before anything leaves that follows from it.
    fn persist(&mut self, record: <Self::Machine as Side>::Record) -> anyhow::Result<()>;

    /// The machine has told this. It is among the events already.
    fn on_report(&mut self, _report: &Report) -> anyhow::Result<()> {
        Ok(())
    }

    /// Once a second.
    fn on_heartbeat(&mut self) -> anyhow::Result<()>;

    /// Signalling tells something.
    fn on_signal(&mut self, event: Self::Signal) -> anyhow::Result<()>;

    /// The interfaces have changed, or are known for the first time.
    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()>;

    /// Answers a request specific to this role; the loop answers the common ones.
    fn on_request(&mut self, request: RequestOf<Self>) -> anyhow::Result<Response<Self::Words>>;

    /// The slots of all paths.
    fn slots(&self) -> Vec<u32>;

    /// Its name, if daemons of this role have one.
    fn name(&self) -> String {
        String::new()
    }

    /// Its part of the status. `drops` has what the packet path refused; it adds what the role's other parts did.
    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> <Self::Words as Vocabulary>::Status;

    /// Its metrics, for Prometheus.
    fn metrics(status: &Status<Self::Words>) -> String;

    /// Waits for a chore. Must be cancel-safe: the loop drops the future and calls again.
    fn chore(&mut self) -> impl Future<Output = Self::Chore>;

    /// Does the chore.
    fn on_chore(&mut self, chore: Self::Chore) -> anyhow::Result<()>;

    /// The daemon was told to end.
    fn stop(self) -> impl Future<Output = anyhow::Result<()>>;

    /// Gives the machine an input and carries out its outputs.
    fn feed(&mut self, input: impl Into<InputOf<Self>>) -> anyhow::Result<()> {
        let turn = self.core().end.handle(monotonic(), input);
        self.follow(turn)
    }

    /// Carries out the machine's outputs. Failures of the datapath are logged and skipped.
    fn follow(&mut self, mut turn: Turn<DatapathError>) -> anyhow::Result<()> {
        while let Some(output) = self.core().poll(&mut turn) {
            match output {
                Output::Own(own) => self.apply(own)?,
                Output::Persist(record) => self.persist(record)?,
                Output::Report(report) => {
                    self.core().events.note(monotonic(), &report);
                    self.on_report(&report)?;
                }
                // The ends of tunnels signal over connections of their roles.
                Output::Send(_) => {}
            }
        }
        packets::tell(turn.failures, &mut self.core().trouble);
        Ok(())
    }
}

/// A request of a role's own.
type RequestOf<R> = <<R as Role>::Words as Vocabulary>::Request;
/// What happens to a role's machine.
type InputOf<R> =
    Input<<<R as Role>::Machine as Side>::Own, <<R as Role>::Machine as Side>::Record>;

/// What every role has around its machine.
pub struct Core<M: Side, V: Vocabulary> {
    /// The machine and its packet path.
    pub end: End<M, Box<dyn LinuxDatapath>>,
    /// The event history.
    pub events: Events<V>,
    /// Logs what could not be done.
    pub trouble: Trouble,
    started: Time,
    shares: Shares,
    shed: packets::Shed,
    /// Keeps other programs off the tunnels' port if the datapath has no socket on it.
    _reserved: Option<UdpSocket>,
}

impl<M: Side, V: Vocabulary> Core<M, V> {
    /// Opens the packet path, then makes the `machine`, which must know where its estimates come
    /// from.
    pub fn open(
        settings: &Settings,
        setup: &Setup,
        options: EbpfOptions,
        machine: impl FnOnce(&mut dyn LinuxDatapath, Source) -> anyhow::Result<M>,
    ) -> anyhow::Result<(Core<M, V>, Queue)> {
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

    /// The part of an end's status that says what is below it.
    pub fn status(&self, device: &str) -> TunnelStatus {
        TunnelStatus {
            datapath: packets::kind_name(self.end.datapath.kind()).into(),
            device: device.to_owned(),
            reinjected: self.end.reinjected(),
            ..TunnelStatus::default()
        }
    }

    fn poll(&mut self, turn: &mut Turn<DatapathError>) -> Option<ToDriver<M>> {
        let Core { end, shares, .. } = self;
        end.poll_with(turn, monotonic, |order| match order {
            Order::SetPath(slot, path) if M::ROLE == segue_datapath::Role::Anchor => {
                shares.give(*slot, path.owner)
            }
            Order::RemovePath(slot) => shares.take_back(*slot),
            _ => {}
        })
    }
}

/// The status of a daemon, with the events from this number on.
fn status<R: Role>(role: &mut R, events_from: u64) -> anyhow::Result<Status<R::Words>> {
    let slots = role.slots();
    role.follow(Turn::reading(slots))?;
    let (now, name, core) = (monotonic(), role.name(), role.core());
    let mut drops = packets::drops(core.end.datapath.as_mut(), &core.shed);
    let uptime_s = now.since(core.started).as_secs_f64();
    let (events, next_event) = (core.events.since(events_from), core.events.next());
    let body = role.status(&mut drops);
    let (role, version) = (R::NAME.to_owned(), env!("CARGO_PKG_VERSION").into());
    let head = Head { role, name, version, now_ns: now.0, uptime_s, drops, next_event };
    Ok(Status { head, events, body })
}

/// Runs a role until SIGINT or SIGTERM.
pub async fn run<R: Role>(settings: R::Settings) -> anyhow::Result<()> {
    check_permission(R::TASK)?;
    let common = R::common(&settings).clone();
    let monitor = Monitor::new().await?;
    check_interfaces(&common.interfaces, monitor.current())?;
    let (asked_in, asked) = mpsc::channel::<Asked<R::Words>>(ASKED);
    scrape::start(common.metrics, asked_in.clone(), R::metrics)?;
    let _control = control::Server::start(&common.control, common.control_group, asked_in)?;
    let (signals, signalled) = mpsc::channel(R::SIGNALS);
    let (mut role, packets) = R::start(settings, signals)?;
    role.on_interfaces(monitor.current())?;
    serve(&mut role, Sources::new(packets, signalled, asked, monitor)).await?;
    role.stop().await
}

async fn serve<R: Role>(
    role: &mut R,
    mut sources: Sources<R::Signal, R::Words>,
) -> anyhow::Result<()> {
    let mut interrupt = termination()?;
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    loop {
        let deadline = role.core().end.deadline().map(|(at, _)| at);
        tokio::select! {
            // Picks one ready source at random, so that none can starve another.
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
                // Let the runtime's other tasks run.
                tokio::task::yield_now().await;
            }
        }
    }
}

fn on_work<R: Role>(role: &mut R, work: Work<R::Signal, R::Words>) -> anyhow::Result<()> {
    match work {
        Work::Packet(event) => {
            let turn = role.core().end.on_event(monotonic(), event);
            role.follow(turn)
        }
        Work::Signal(event) => role.on_signal(event),
        Work::Asked((request, back)) => {
            let _ = back.send(match request {
                Request::Status { events_from } => {
                    Response::Status(Box::new(status(role, events_from)?))
                }
                Request::Events { from } => {
                    Response::Events(role.core().events.page(monotonic(), from))
                }
                Request::Own(own) => role.on_request(own)?,
            });
            Ok(())
        }
        Work::TooBig(said) => role.feed(R::Machine::too_big(said)),
        Work::Interfaces(all) => role.on_interfaces(&all?),
    }
}
