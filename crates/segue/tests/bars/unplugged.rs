//! The cost of unplugging or disabling the interface in use. It is less than that of a silent
//! outage because the kernel reports the event.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use segue_clock::{Rng, Span, Time};
use segue_ip::{Prefix, Route};
use segue_lab::DemoNet;
use segue_linux::clock::monotonic;
use segue_linux::link;

use super::flow::{Flow, Running};
use super::stage::{Plan, Stage};
use super::voice::Mode;
use super::{DATAPATHS, late, shared, together};

/// Limit in milliseconds for the longest silence of a flow beyond its packet interval, in every
/// run.
const BAR: f64 = 200.0;
/// Allowance for scheduling delay inside the daemon, which is only partly visible.
const STILL: Span = Span::from_millis(20);

#[derive(Clone, Copy, Debug)]
enum Cause {
    /// The cable is pulled: the device stays up but has no carrier.
    Carrier,
    /// The operator takes the device down.
    Admin,
}

impl Cause {
    /// Takes the interface away; returns the instant.
    fn unplug(self, stage: &Stage) -> Time {
        match self {
            Cause::Carrier => stage.net.set_carrier(DemoNet::WIFI, false).unwrap(),
            Cause::Admin => {
                stage.net.host().run(|| link::set_up(DemoNet::WIFI, false).unwrap()).unwrap();
            }
        }
        monotonic()
    }

    /// Restores the interface.
    fn plug_in(self, stage: &Stage) {
        match self {
            Cause::Carrier => stage.net.set_carrier(DemoNet::WIFI, true).unwrap(),
            Cause::Admin => {
                let gateway = std::net::Ipv4Addr::new(10, 61, 1, 1);
                let route = Route::via(Prefix::default_of(false), gateway).metric(100);
                let back = || {
                    link::set_up(DemoNet::WIFI, true).unwrap();
                    link::add_route(&route).unwrap();
                };
                stage.net.host().run(back).unwrap();
            }
        }
    }
}

const FLOWS: [Flow; 3] =
    [Flow::Udp(10, Mode::Ways([true; 2])), Flow::Tcp { down: false }, Flow::Tcp { down: true }];

/// The longest silence of each run in milliseconds.
fn silences(stage: &Stage, flow: Flow, cause: Cause, port: u16, runs: usize) -> Vec<f64> {
    let running = Running::start(stage, flow, port);
    let mut rng = Rng::new(u64::from(port));
    let mut all = Vec::new();
    for _ in 0..runs {
        stage.both_up();
        running.settle(stage, &mut rng);
        let from = monotonic();
        cause.unplug(stage);
        // Long enough to see a frozen connection, which is silent for three seconds.
        std::thread::sleep(Duration::from_millis(1_500));
        let silent = running.longest(from - Span::from_millis(50), monotonic());
        let silent = silent.as_millis_f64() - flow.interval_ms();
        if silent > BAR {
            println!("silent for {silent:.0} ms:\n{}", stage.story(from - Span::from_millis(500)));
        }
        all.push(silent);
        cause.plug_in(stage);
    }
    all
}

fn judge(stage: &Stage, flow: Flow, cause: Cause, port: u16, runs: usize) -> Result<(), String> {
    let all = silences(stage, flow, cause, port, runs);
    println!("{} {flow:?} {cause:?}: {all:.0?} ms (bar {BAR:.0})", stage.datapath());
    match all.iter().all(|silent| *silent <= BAR) {
        true => Ok(()),
        false => Err(format!("{flow:?} {cause:?}: {all:.0?}")),
    }
}

fn all(runs: usize) {
    let Some(_share) = shared() else { return };
    together(DATAPATHS, |datapath| {
        let stage = Stage::running(Plan::of_defaults("plug", datapath));
        let ports = AtomicU16::new(7_700);
        for flow in FLOWS {
            for cause in [Cause::Carrier, Cause::Admin] {
                late::fairly(&format!("{datapath} {flow:?} {cause:?}"), STILL, || {
                    judge(&stage, flow, cause, ports.fetch_add(1, Ordering::Relaxed), runs)
                });
            }
        }
    });
}

#[test]
fn an_unplugged_interface_is_a_short_gap() {
    all(2);
}

#[test]
#[ignore = "minutes: `make soak`"]
fn an_unplugged_interface_is_a_short_gap_ten_times() {
    all(10);
}
