//! From a change of a link to a daemon's machine: the delay of the event, and of the list of interfaces that shows the
//! change.
//!
//! `cargo run --release -p segue-daemon --example link_bench -- [--rounds N] [--routes N]`
//!
//! One namespace with a veth pair, and as many other routes as requested (default 0, then 10 000), all of which a full
//! reading has to pass. A daemon runs on the loop that all daemons use, and its machine records when it receives the
//! event. A carrier is lost and comes back with the other end of the pair; `off` and `on` switch the device itself. The
//! clock starts before the system call. Bar: the event's median is at most 5 ms.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use segue_clock::{Machine, Time};
use segue_daemon::control::{Response, Vocabulary};
use segue_daemon::ledger::{Entry, Ledger};
use segue_daemon::run::{self, Core, Role};
use segue_daemon::sockets::{Arrivals, Sockets};
use segue_ip::{Input, Interface, LinkEvent, Output, Prefix, Route};
use segue_linux::clock::monotonic;
use segue_linux::link;
use segue_linux::netns::Netns;

const DEVICE: &str = "sgl0";
const PEER: &str = "sgl1";
/// An event that has not arrived by then counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two changes, in which all readings of the first finish.
const REST: Duration = Duration::from_millis(700);

/// The machine's inputs about the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// An event: the device is up, or down.
    Event(bool),
    /// A list that contains the device, or does not.
    List(bool),
}

type Said = (Time, Told);

/// The machine: it only records.
struct Watch {
    index: u32,
    to: Sender<Said>,
}

impl Machine for Watch {
    type Input = Input<Infallible, Infallible>;
    type Output = Output<Infallible, Infallible, Infallible>;

    fn handle(&mut self, _: Time, input: Self::Input) {
        let has = |list: &[Interface]| list.iter().any(|one| one.index == self.index);
        let told = match input {
            Input::Link(LinkEvent::Up { interface, .. }) if interface == self.index => {
                Told::Event(true)
            }
            Input::Link(LinkEvent::Down { interface, .. }) if interface == self.index => {
                Told::Event(false)
            }
            Input::Interfaces(list) => Told::List(has(&list)),
            _ => return,
        };
        // The benchmark may have ended.
        let _ = self.to.send((monotonic(), told));
    }

    fn tick(&mut self, _: Time) {}

    fn poll(&mut self) -> Option<Self::Output> {
        None
    }

    fn deadline(&self) -> segue_clock::Deadline {
        None
    }
}

#[derive(Clone, Debug)]
struct Words;

impl Vocabulary for Words {
    type News = Infallible;
    type Request = ();
    type Answer = ();
    type Status = ();
    type Event = ();
}

struct Daemon(Core<Sockets<Watch>, Words>);

struct Settings {
    common: run::Settings,
    machine: Watch,
}

impl Role for Daemon {
    const NAME: &'static str = "link-bench";
    const TASK: &'static str = "watch links";
    type Settings = Settings;
    type Engine = Sockets<Watch>;
    type Words = Words;
    type Signalling = Infallible;
    type Chore = Infallible;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        settings: Settings,
        _: tokio::sync::mpsc::Sender<Infallible>,
    ) -> Result<(Daemon, Arrivals)> {
        let (end, arrivals) = Sockets::open(settings.machine, &[])?;
        Ok((Daemon(Core::new(end, Ledger::without_store())), arrivals))
    }

    fn core(&mut self) -> &mut Core<Sockets<Watch>, Words> {
        &mut self.0
    }

    fn apply(&mut self, wish: Infallible) -> Result<()> {
        match wish {}
    }

    fn entry(&self, record: Infallible) -> Result<Entry> {
        match record {}
    }

    fn on_request(&mut self, (): ()) -> Result<Response<Words>> {
        Ok(Response::Error("there is nothing to ask".into()))
    }

    fn status(&mut self, _: &mut std::collections::BTreeMap<String, u64>) {}
}

fn main() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return Ok(());
    }
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str| -> Result<Option<usize>> {
        let Some(at) = args.iter().position(|a| a == name) else { return Ok(None) };
        Ok(Some(args.get(at + 1).context("a number is missing")?.parse()?))
    };
    let rounds = number("--rounds")?.unwrap_or(25);
    let routes = number("--routes")?.map_or(vec![0, 10_000], |routes| vec![routes]);
    println!("{:<24} {:>22} {:>22}", "median, 95 % of rounds", "event", "list");
    for routes in routes {
        measure(rounds, routes)?;
    }
    Ok(())
}

fn measure(rounds: usize, routes: usize) -> Result<()> {
    let name = format!("segue-lb{}-{routes}", std::process::id());
    let ns = Netns::create(&name)?;
    let index = ns.run(|| -> Result<u32> {
        link::create_veth(DEVICE, PEER, None)?;
        [DEVICE, PEER].iter().try_for_each(|device| link::set_up(device, true))?;
        link::set_up("lo", true)?;
        let lo = link::index_of("lo")?;
        for n in 0..routes as u32 {
            let addr = std::net::Ipv4Addr::from(0x0b00_0000 + (n << 8)).into();
            link::add_route(&Route::on(Prefix { addr, len: 24 }, lo))?;
        }
        Ok(link::index_of(DEVICE)?)
    })??;
    let (to, told) = channel();
    let control = tempfile::tempdir()?;
    let common = run::Settings::at(control.path().join("control"));
    let settings = Settings { common, machine: Watch { index, to } };
    let inside = Netns::open(&name)?;
    // The thread ends with the program.
    std::thread::spawn(move || -> Result<()> {
        inside.enter_thread()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run::run::<Daemon>(settings))
    });
    told.recv_timeout(PATIENCE).context("the daemon does not start")?;
    // The receiver may be used by one thread only, and the namespace's calls run on another.
    let told = Mutex::new(told);
    let changes = [("carrier lost", PEER, false), ("carrier back", PEER, true)]
        .into_iter()
        .chain([("off", DEVICE, false), ("on", DEVICE, true)]);
    let changes: Vec<_> = changes.collect();
    let mut taken = vec![[const { Vec::new() }; 2]; changes.len()];
    ns.run(|| -> Result<()> {
        let told = told.lock().map_err(|_| anyhow::anyhow!("a measurement failed"))?;
        for _ in 0..rounds {
            for ((_, device, up), taken) in changes.iter().zip(&mut taken) {
                std::thread::sleep(REST);
                while told.try_recv().is_ok() {}
                let from = monotonic();
                link::set_up(device, *up)?;
                let [events, lists] = taken;
                let (event, list) = wait(&told, *up);
                events.extend(event.map(|at| at.since(from).as_secs_f64() * 1e3));
                lists.extend(list.map(|at| at.since(from).as_secs_f64() * 1e3));
            }
        }
        Ok(())
    })??;
    println!("{routes} other routes, {rounds} rounds");
    for ((what, ..), [events, lists]) in changes.iter().zip(&taken) {
        println!("  {what:<22} {:>22} {:>22}", row(events, rounds), row(lists, rounds));
    }
    Ok(())
}

/// When the machine received the event, and its first list that shows the change.
fn wait(told: &Receiver<Said>, up: bool) -> (Option<Time>, Option<Time>) {
    let mut event = None;
    while let Ok((at, what)) = told.recv_timeout(PATIENCE) {
        match what {
            Told::Event(is) if is == up => event = event.or(Some(at)),
            Told::List(is) if is == up => return (event, Some(at)),
            _ => {}
        }
    }
    (event, None)
}

fn row(taken_ms: &[f64], rounds: usize) -> String {
    if taken_ms.is_empty() {
        return "none".to_owned();
    }
    let mut sorted = taken_ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: usize| sorted[(sorted.len() - 1) * share / 100];
    let lost = rounds - sorted.len();
    let lost = if lost > 0 { format!(" ({lost} lost)") } else { String::new() };
    format!("{:.2} ms, {:.2} ms{lost}", at(50), at(95))
}
