//! The loop that runs every role until SIGINT or SIGTERM. It gives the engine a heartbeat once a second, arms the
//! machine's deadlines, takes work from its sources in turn, stores the machine's records before it sends anything that
//! depends on them, and installs the forwarding that the machine wants in the kernel. A [`Role`] adds its specific
//! parts.
//!
//! Waiting work is taken in bounded batches, so that no source starves another. A thread writes records, all that wait
//! in one transaction; what depends on a record is held until it is on disk. At an anchor each host's messages wait for
//! its own lease alone. Forwarding that other programs remove is restored, and removed at the end. An error ends the
//! daemon.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use segue_clock::Time;
use segue_ip::{After, Forward, Input, LinkEvent, Output};
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Change, Device, Monitor, RouterOptions};
use tokio::sync::{mpsc, oneshot};

use super::events::Events;
use super::trouble::Trouble;
use super::turns::{Sources, Work};
use super::{check_interfaces, check_permission, scrape, termination, until};
use crate::control::{self, Asked, Head, Request, Response, Status, Vocabulary};
use crate::engine::{Engine, ToLoop};
use crate::history::{self, History};
use crate::kept::Kept;
use crate::ledger::{Entry, Ledger};
use crate::notify::Manager;
pub use crate::settings::Common as Settings;
use crate::wall::Reading;

/// Interval of the engine's heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Heartbeats between two samples in the event log.
const SAMPLED: u64 = 10;
/// Heartbeats between two attempts to open an event log that could not be opened.
const LOG_TRIED: u64 = 60;
/// Requests over the control socket that may be queued; further ones wait in their connections.
const ASKED: usize = 16;

/// The part of a daemon that a role adds to the loop: settings, signalling, the actions that its machine wants, and
/// status.
///
/// An error ends the daemon. Trouble that leaves it useful is only logged ([`Core::trouble`]).
pub trait Role: Sized {
    /// Its name, as in configuration, control and output.
    const NAME: &'static str;
    /// The task that needs the permission, for the error message.
    const TASK: &'static str;
    /// Signalling events that may be queued; when the queue is full, the connections wait.
    const SIGNALLED: usize = 256;
    /// Settings of the role.
    type Settings;
    /// The machine, and the layer below it.
    type Engine: Engine;
    /// The vocabulary of the role on the control socket.
    type Words: Vocabulary<News = <Self::Engine as Engine>::News>;
    /// Events of the role's signalling.
    type Signalling;
    /// Work of the role that none of the loop's sources brings.
    type Chore;

    /// The settings that every daemon has.
    fn common(settings: &Self::Settings) -> Settings;

    /// Opens the role's sockets, devices and files. Its signalling reports through `signalling`.
    fn start(
        settings: Self::Settings,
        signalling: mpsc::Sender<Self::Signalling>,
    ) -> anyhow::Result<(Self, <Self::Engine as Engine>::Queue)>;

    /// The parts that every role has.
    fn core(&mut self) -> &mut Core<Self::Engine, Self::Words>;

    /// Carries out an output that is specific to the machine's role.
    fn apply(&mut self, output: <Self::Engine as Engine>::Wish) -> anyhow::Result<()>;

    /// The stored form of a record.
    fn entry(&self, record: <Self::Engine as Engine>::Record) -> anyhow::Result<Entry>;

    /// The subject whose records must be on disk before this output is carried out; `None` if it depends on no record.
    /// Datagrams name it themselves; a role whose own outputs depend on records adds theirs.
    fn after(&self, output: &ToLoop<Self::Engine>) -> After {
        if let Output::Send(_, after) = output { after.clone() } else { None }
    }

    /// An output that depended on a record is dropped: the record cannot be written, or too much is waiting.
    fn on_unwritten(&mut self, _output: ToLoop<Self::Engine>, _why: Unwritten) {}

    /// The machine reported this; it is already in the event history.
    fn on_report(&mut self, _report: &<Self::Engine as Engine>::News) -> anyhow::Result<()> {
        Ok(())
    }

    /// Called once a second.
    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Handles an event of the role's signalling.
    fn on_signalling(&mut self, _event: Self::Signalling) -> anyhow::Result<()> {
        Ok(())
    }

    /// A link has come up or gone down; [`Role::on_interfaces`] follows.
    fn on_link(&mut self, event: LinkEvent) -> anyhow::Result<()> {
        self.feed(Input::Link(event))
    }

    /// The interfaces have changed, or are known for the first time. By default the machine learns all that are up,
    /// except loopback.
    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        let used = all.iter().filter(|device| device.up && !device.loopback);
        self.feed(Input::Interfaces(used.map(|device| device.interface.clone()).collect()))
    }

    /// Routing rules have changed.
    fn on_rules(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// A router has advertised options that the kernel leaves to programs.
    fn on_advertised(&mut self, _options: &RouterOptions) -> anyhow::Result<()> {
        Ok(())
    }

    /// Answers a request specific to this role; the loop answers the common ones.
    fn on_request(&mut self, _request: RequestOf<Self>) -> anyhow::Result<Response<Self::Words>> {
        Ok(Response::Error("this daemon has no requests of its own".into()))
    }

    /// Like [`Role::on_request`], for a role that answers some requests later.
    fn on_asked(
        &mut self,
        request: RequestOf<Self>,
        answer: oneshot::Sender<Response<Self::Words>>,
    ) -> anyhow::Result<()> {
        // The client may have disconnected.
        let _ = answer.send(self.on_request(request)?);
        Ok(())
    }

    /// Samples for the event log, one set every ten seconds, each with a sentence that describes it.
    fn samples(&mut self) -> Vec<(String, <Self::Words as Vocabulary>::Event)> {
        Vec::new()
    }

    /// The daemon's name, if daemons of this role have names.
    fn name(&self) -> String {
        String::new()
    }

    /// The role's part of the status. `drops` holds the engine's drop counts; the role adds the counts of its other
    /// parts.
    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> <Self::Words as Vocabulary>::Status;

    /// Waits for a chore. Must be cancel-safe: the loop drops the future and calls again.
    fn chore(&mut self) -> impl Future<Output = Self::Chore> {
        std::future::pending()
    }

    /// Does the chore.
    fn on_chore(&mut self, _chore: Self::Chore) -> anyhow::Result<()> {
        Ok(())
    }

    /// Called when the daemon shuts down.
    fn stop(self) -> impl Future<Output = anyhow::Result<()>> {
        async { Ok(()) }
    }

    /// Gives the machine an input and carries out its outputs.
    fn feed(&mut self, input: impl Into<InputOf<Self>>) -> anyhow::Result<()> {
        let turn = self.core().end.handle(input.into());
        self.follow(turn)
    }

    /// Carries out the machine's outputs. An output that fails in the layer below is logged and skipped.
    fn follow(&mut self, mut turn: <Self::Engine as Engine>::Turn) -> anyhow::Result<()> {
        while let Some(output) = self.core().end.poll(&mut turn) {
            let after = self.after(&output).filter(|after| self.core().ledger.is_open(after));
            let Some(subject) = after else {
                self.carry_out(output)?;
                continue;
            };
            if let Err(output) = self.core().ledger.hold(&subject, output) {
                self.on_unwritten(output, Unwritten::TooMuch);
            }
        }
        let core = self.core();
        core.end.finish(turn, &mut core.trouble);
        Ok(())
    }

    /// Carries out an output that depends on no pending record.
    fn carry_out(&mut self, output: ToLoop<Self::Engine>) -> anyhow::Result<()> {
        let now = monotonic();
        match output {
            Output::Own(own) => self.apply(own)?,
            Output::Persist(record) => {
                let entry = self.entry(record)?;
                self.core().ledger.put(entry);
            }
            Output::Report(report) => {
                self.core().events.note(&Reading::now(), &report);
                self.on_report(&report)?;
            }
            Output::Send(datagram, _) => self.core().end.send(datagram),
            Output::Forward(part) => self.core().forward(now, part, true),
            Output::Withdraw(part) => self.core().forward(now, part, false),
        }
        Ok(())
    }

    /// Records have been written, or could not be.
    fn on_written(&mut self) -> anyhow::Result<()> {
        let outcome = self.core().ledger.outcome();
        if let Some(error) = outcome.error {
            self.core().trouble.tell(monotonic(), &error);
        }
        outcome.due.into_iter().try_for_each(|output| self.carry_out(output))?;
        for output in outcome.failed {
            self.on_unwritten(output, Unwritten::Failed);
        }
        Ok(())
    }

    /// Waits until all pending records are written, so that the role can change the store itself.
    fn settle(&mut self) -> anyhow::Result<()> {
        self.core().ledger.settle();
        self.on_written()
    }
}

/// Why an output that depends on a record is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// The record cannot be written.
    Failed,
    /// Too many outputs wait for records of the same subject.
    TooMuch,
}

/// A request that is specific to a role.
type RequestOf<R> = <<R as Role>::Words as Vocabulary>::Request;
/// The input of a role's machine.
type InputOf<R> =
    Input<<<R as Role>::Engine as Engine>::Own, <<R as Role>::Engine as Engine>::Record>;

/// The parts around the machine that every role has.
pub struct Core<E: Engine, V: Vocabulary> {
    /// The machine, and the layer below it.
    pub end: E,
    /// Records that are being written, and the outputs that depend on them.
    pub ledger: Ledger<ToLoop<E>>,
    /// Forwarding that the kernel keeps for this daemon.
    pub kept: Kept,
    /// The event history.
    pub events: Events<V>,
    /// Logs failures.
    pub trouble: Trouble,
    started: Time,
}

impl<E: Engine, V: Vocabulary> Core<E, V> {
    /// A core in which nothing has happened yet.
    pub fn new(end: E, ledger: Ledger<ToLoop<E>>) -> Core<E, V> {
        let (events, trouble, started) = (Events::default(), Trouble::default(), monotonic());
        Core { end, ledger, kept: Kept::default(), events, trouble, started }
    }

    /// Installs a part of the forwarding, or removes it. Tunnels and their bindings belong to the layer below the
    /// machine, everything else to the kernel.
    fn forward(&mut self, now: Time, part: Forward, given: bool) {
        match (part, given) {
            (part @ (Forward::Tunnel(_) | Forward::Source(_) | Forward::Bind(_)), given) => {
                self.trouble.note(now, self.end.carry(&part, given));
            }
            (part, true) => self.trouble.note(now, self.kept.put(part)),
            (part, false) => self.trouble.note(now, self.kept.take_back(&part)),
        }
    }

    /// Takes over the forwarding that was installed before this core existed.
    pub fn keeping(self, kept: Kept) -> Core<E, V> {
        Core { kept, ..self }
    }
}

/// The status of a daemon, with the events from `events_from` on.
fn status<R: Role>(role: &mut R, events_from: u64) -> anyhow::Result<Status<R::Words>> {
    let turn = role.core().end.refresh();
    role.follow(turn)?;
    let (now, name, core) = (monotonic(), role.name(), role.core());
    let mut drops = core.end.drops();
    let uptime_s = now.since(core.started).as_secs_f64();
    let (events, next_event) = (core.events.since(events_from), core.events.next());
    let body = role.status(&mut drops);
    let event_counts = role.core().events.counts().clone();
    let history = role.core().events.log().map(Path::to_owned);
    let (role, version) = (R::NAME.to_owned(), env!("CARGO_PKG_VERSION").into());
    let now_ns = now.0;
    let head =
        Head { role, name, version, now_ns, uptime_s, drops, next_event, event_counts, history };
    Ok(Status { head, events, body })
}

/// Runs a role until SIGINT or SIGTERM.
pub async fn run<R: Role>(settings: R::Settings) -> anyhow::Result<()> {
    // First of all: a signal during startup must still leave nothing behind.
    let mut interrupt = termination()?;
    check_permission(R::TASK)?;
    let common = R::common(&settings);
    let monitor = Monitor::new().await?;
    check_interfaces(&common.interfaces, monitor.current())?;
    let (asked_in, asked) = mpsc::channel::<Asked<R::Words>>(ASKED);
    scrape::start(common.metrics, asked_in.clone(), control::page)?;
    let mut control = control::Server::start(&common.control, common.control_group, asked_in)?;
    let (signalling, signalled) = mpsc::channel(R::SIGNALLED);
    let (mut role, packets) = R::start(settings, signalling)?;
    open_log(&mut role, common.history.as_ref());
    role.on_interfaces(monitor.current())?;
    let sources = Sources::new(packets, signalled, asked, monitor);
    let manager = Manager::of_process();
    manager.ready();
    let keeping = (&mut control, &manager, common.history.as_ref());
    serve(&mut role, &mut interrupt, keeping, sources).await?;
    manager.stopping();
    mark(&mut role, "stopped");
    role.stop().await
}

/// Opens the event log, if one is configured and not yet open.
fn open_log<R: Role>(role: &mut R, settings: Option<&history::Settings>) {
    let core = role.core();
    let Some(settings) = settings.filter(|_| core.events.log().is_none()) else { return };
    match History::start(settings) {
        Ok(history) => {
            core.events.write_to(history);
            mark(role, "started");
        }
        Err(error) => core.trouble.tell(monotonic(), &error),
    }
}

/// Records the daemon's start or stop in the event log. A daemon that was killed has no stop record.
fn mark<R: Role>(role: &mut R, what: &str) {
    let text = format!("segue {} {} {what}", R::NAME, env!("CARGO_PKG_VERSION"));
    role.core().events.write(&Reading::now(), what, text, Default::default());
}

/// Writes the role's samples to the event log.
fn sample<R: Role>(role: &mut R) {
    if role.core().events.log().is_none() {
        return;
    }
    let at = Reading::now();
    for (text, about) in role.samples() {
        role.core().events.write(&at, "sample", text, about);
    }
}

async fn serve<R: Role>(
    role: &mut R,
    interrupt: &mut mpsc::Receiver<()>,
    (control, manager, log): (&mut control::Server, &Manager, Option<&history::Settings>),
    mut sources: Sources<<R::Engine as Engine>::Queue, R::Signalling, R::Words>,
) -> anyhow::Result<()> {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    let mut beats = 0u64;
    let written = role.core().ledger.told();
    loop {
        let deadline = role.core().end.deadline();
        tokio::select! {
            // Picks a ready source at random, so that none can starve another.
            _ = interrupt.recv() => return Ok(()),
            _ = heartbeat.tick() => {
                let core = role.core();
                core.end.heartbeat()?;
                core.ledger.writes()?;
                core.kept.look_after(monotonic());
                core.events.look_at_clocks(&Reading::now());
                control.look_after();
                manager.alive();
                role.on_heartbeat()?;
                beats += 1;
                if beats.is_multiple_of(SAMPLED) {
                    sample(role);
                }
                if beats.is_multiple_of(LOG_TRIED) {
                    open_log(role, log);
                }
            }
            () = until(deadline) => {
                let turn = role.core().end.at_deadline(&mut sources.below);
                role.follow(turn)?;
            }
            () = written.notified() => role.on_written()?,
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

fn on_work<R: Role>(
    role: &mut R,
    work: Work<<R::Engine as Engine>::Event, R::Signalling, R::Words>,
) -> anyhow::Result<()> {
    match work {
        Work::Below(event) => {
            let turn = role.core().end.on_event(event);
            role.follow(turn)
        }
        Work::Signalling(event) => role.on_signalling(event),
        Work::Asked((request, back)) => {
            let answer = match request {
                Request::Status { events_from } => {
                    Response::Status(Box::new(status(role, events_from)?))
                }
                Request::Events { from } => {
                    Response::Events(role.core().events.page(monotonic(), from))
                }
                Request::Own(own) => return role.on_asked(own, back),
            };
            let _ = back.send(answer);
            Ok(())
        }
        Work::Interfaces(change) => match change? {
            Change::Link(event) => role.on_link(event),
            Change::Devices(all) => role.on_interfaces(&all),
            Change::Rules => role.on_rules(),
            Change::Advertised(options) => role.on_advertised(&options),
        },
    }
}
