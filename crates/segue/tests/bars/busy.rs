//! A host and an anchor on a fully loaded machine: the load must not make a path look bad.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;
use serde_json::Value;

use super::stage::{Plan, Stage, instant};
use super::voice::Voice;
use super::{DATAPATHS, alone};

/// K and T_KA in milliseconds, as planned for the default detection time of 500 ms.
const PLANNED: (u8, u64) = (5, 86);
const INTERVAL: Span = Span::from_millis(20);

/// Two busy loops per core. Dropping this ends them.
pub(crate) struct Loops(Vec<Child>);

impl Loops {
    pub(crate) fn start() -> Loops {
        let cores = std::thread::available_parallelism().unwrap().get();
        let spin = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap()
        };
        Loops((0..2 * cores).map(|_| spin()).collect())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_busy_machine_takes_no_path_down_and_moves_no_flow() {
    let Some(_machine) = alone() else { return };
    DATAPATHS.iter().for_each(|datapath| stays(datapath, Duration::from_secs(10)));
}

#[test]
#[ignore = "ten minutes on each datapath: make soak"]
fn a_machine_that_is_busy_for_ten_minutes_takes_no_path_down_and_moves_no_flow() {
    let Some(_machine) = alone() else { return };
    DATAPATHS.iter().for_each(|datapath| stays(datapath, Duration::from_secs(600)));
}

/// If the emulator itself was delayed this long, the path could not have stayed up.
const OUT: Span = Span::from_millis(200);

fn stays(datapath: &'static str, length: Duration) {
    if !(0..3).any(|_| stays_or_was_out(datapath, length)) {
        println!("{datapath}: not judged, the emulator stands still all the time");
    }
}

/// Returns false if the emulator was stalled during the run, which then proves nothing.
fn stays_or_was_out(datapath: &'static str, length: Duration) -> bool {
    let stage = Stage::running(Plan::new("busy", datapath, PLANNED));
    let _voice = Voice::start(&stage, 7_500, INTERVAL);
    // Let the flow settle on its path before the load begins.
    std::thread::sleep(Duration::from_secs(2));
    let start = monotonic();
    let loops = Loops::start();
    std::thread::sleep(length);
    drop(loops);
    let changes: usize = ["host", "anchor"].iter().map(|role| changes(&stage, role, start)).sum();
    println!("{datapath}: {length:?} with two busy loops per core, {changes} changes");
    let late = ["wifi", "lte"].map(|name| stage.access(name).health().late_max);
    let late = late[0].max(late[1]);
    if changes > 0 && late >= OUT {
        println!("{datapath}: again, the emulator was {late:?} late");
        return false;
    }
    assert_eq!(changes, 0, "{}", stage.story(start));
    true
}

/// Path state changes and flow moves that a daemon reports from an instant on.
fn changes(stage: &Stage, role: &str, start: Time) -> usize {
    let status = stage.status(role).unwrap();
    let events = status["events"].as_array().unwrap().iter();
    let ours = |event: &&Value| event["kind"] == "path_state" || event["kind"] == "handover";
    events.filter(ours).filter(|event| instant(event) >= start).count()
}
