//! A wrong clock, or a copy of the host's state in use elsewhere, does not lock the real host out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::several::Two;
use crate::world::{Daemon, paths_up, registered, text};

/// Time limit for the registration of a host with a wrong clock, or after a copy of its state was
/// in use.
const BAR: Duration = Duration::from_secs(10);

/// Builds a library to preload that shifts the clock by `CLOCK_OFFSET_S` seconds.
pub(crate) fn shim(directory: &Path) -> PathBuf {
    let shim = directory.join("shim.so");
    if !shim.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemons/clock_shim.c");
        let mut cc = Command::new("cc");
        let made = cc.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(source).arg("-ldl").status();
        assert!(made.unwrap().success());
    }
    shim
}

/// Starts a host's daemon in a node with the state of `name` and a clock that is off by `off_s`
/// seconds.
fn start(two: &Two, node: &str, name: &str, off_s: i64, more: &[&str]) -> Daemon {
    start_under(two, (node, name), &format!("CLOCK_OFFSET_S={off_s}"), more)
}

/// Like [`start`], with `clock` as the environment variable that controls the clock.
fn start_under(two: &Two, (node, name): (&str, &str), clock: &str, more: &[&str]) -> Daemon {
    let shim = shim(two.directory());
    let state = two.directory().join(format!("{name}.db"));
    let args = ["host", "--datapath", "user", "--state", state.to_str().unwrap()];
    let preload = format!("LD_PRELOAD={}", shim.display());
    let under = ["env", &preload, clock];
    let base = two.directory().join(format!("{node}-{name}"));
    Daemon::start_under(two.node(node), &under, base, &[&args[..], more].concat())
}

/// Time until the host is registered and its path is up.
fn comes_in(host: &Daemon, within: Duration) -> Duration {
    let start = Instant::now();
    while !host.json(&["status", "--json"]).is_some_and(|s| registered(&s) && paths_up(&s) == 1) {
        assert!(start.elapsed() < within, "not within {within:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    start.elapsed()
}

#[test]
fn a_host_comes_in_whatever_its_clock_says_and_said_before() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let line = two.enroll(&anchor, 1, "a");
    // Enrolled in 1970; then in 2090, and an hour off in either direction, each time after a crash.
    let mut more: Vec<&str> = vec!["--join", &line];
    for (off_s, what) in [
        (30 - now, "1970"),
        (64 * 365 * 86_400, "2090"),
        (3_600, "an hour ahead"),
        (-3_600, "an hour behind"),
        (0, "right"),
    ] {
        let mut host = start(&two, "a", "a", off_s, &more);
        println!("{what}: in after {:?} (bar {BAR:?})", comes_in(&host, BAR));
        // Verify that the clock really was wrong.
        assert!(!what.starts_with("19") || host.log().starts_with("1970-01-01"), "{}", host.log());
        host.end(Signal::SIGKILL);
        more.clear();
    }
    assert!(!anchor.log().contains("refused"), "{}", anchor.log());
}

#[test]
fn a_copy_of_a_hosts_state_keeps_the_host_out_only_while_it_is_connected() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    two.host(&anchor, 1, "a").end(Signal::SIGTERM);
    let state = |name: &str| two.directory().join(format!("{name}.db"));
    std::fs::copy(state("a"), state("copy")).unwrap();
    let host = start(&two, "a", "a", 0, &[]);
    comes_in(&host, BAR);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut copy = start(&two, "b", "copy", 60, &[]);
        comes_in(&copy, BAR);
        host.wait("the host is out", |status| !registered(status));
        let named = "another process is connected with the same credentials";
        let start = Instant::now();
        while !(host.log().contains(named) && anchor.log().contains(named)) {
            assert!(start.elapsed() < BAR, "{}", host.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        copy.end(signal);
        println!("in {:?} after the copy's {signal} (bar {BAR:?})", comes_in(&host, BAR));
    }
}

/// Seconds since 1970.
fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn the_log_has_the_right_time_of_each_event_and_outlives_a_host_that_was_killed() {
    let _turn = crate::among_others();
    let Some(two) = Two::new("user") else { return };
    let anchor = two.anchor();
    let line = two.enroll(&anchor, 1, "a");
    let clock = two.directory().join("clock");
    let shown = |off: i64, slept: i64| {
        // Replace the file atomically: a reader would otherwise see it empty while it is written.
        let new = clock.with_extension("new");
        std::fs::write(&new, format!("{off} {slept}")).unwrap();
        std::fs::rename(new, &clock).unwrap();
    };
    shown(0, 0);
    let word = format!("CLOCK_FILE={}", clock.display());
    let mut host = start_under(&two, ("a", "a"), &word, &["--join", &line]);
    comes_in(&host, BAR);
    let mut wanted = Vec::new();
    for (off, slept, said) in [
        (3_600, 0, "the clock was set forward by 60 min"),
        (0, 0, "the clock was set back by 60 min"),
        (600, 600, "the machine slept for 10 min"),
    ] {
        shown(off, slept);
        host.wait(said, |status| {
            let events = status["events"].as_array().unwrap().iter();
            events.filter(|event| event["kind"] == "clock").count() > wanted.len()
        });
        wanted.push((said, now_s() + off as f64));
    }
    std::thread::sleep(Duration::from_secs(1));
    host.end(Signal::SIGKILL);

    let log = two.directory().join("a.events");
    let read = |more: &[&str]| {
        let mut command = Command::new(crate::world::SEGUE);
        let done = command.args(["events", "--since", "2h", "--log"]).arg(&log).args(more).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    let records = || -> Vec<Value> {
        read(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let first = records();
    let kinds = |records: &[Value]| -> Vec<String> {
        records.iter().map(|record| record["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&first)[0], "started");
    assert!(kinds(&first).iter().any(|kind| kind == "registered"), "{first:#?}");
    let clocks: Vec<&Value> = first.iter().filter(|record| record["kind"] == "clock").collect();
    assert_eq!(clocks.len(), wanted.len(), "{clocks:#?}");
    for (record, (said, at)) in clocks.iter().zip(wanted) {
        assert_eq!(record["text"], said);
        let off = record["unix_s"].as_f64().unwrap() - at;
        assert!((-BAR.as_secs_f64()..=0.5).contains(&off), "{said}: {off} s off");
    }

    // A second daemon continues the same log, and logs that it was stopped.
    let mut host = start_under(&two, ("a", "a"), &word, &[]);
    comes_in(&host, BAR);
    host.end(Signal::SIGTERM);
    let both = kinds(&records());
    assert_eq!(both.iter().filter(|kind| *kind == "started").count(), 2);
    assert_eq!(both.last().map(String::as_str), Some("stopped"));
    assert!(read(&["--samples"]).lines().count() >= both.len());
    assert!(read(&["--last", "1"]).contains("segue host "), "in words, too");
    let out = two.directory().join("report");
    let mut command = Command::new(crate::world::SEGUE);
    let done = command.args(["report", "--since", "2h", "--log"]).arg(&log).arg("--out").arg(&out);
    assert!(done.output().unwrap().status.success());
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("3 jumps of the clock, 1 restart."), "{page}");
}
