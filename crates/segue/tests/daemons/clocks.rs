//! A wrong clock, and a copy of a host's state: neither keeps the true host out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::several::Two;
use crate::world::{Daemon, paths_up, registered};

/// Time limit for a host with a wrong clock, or with a copy of its state gone.
const BAR: Duration = Duration::from_secs(10);

/// A library to preload that moves the clock by `CLOCK_OFFSET_S` seconds.
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

/// A host's daemon in a node, with the state of `name` and its clock off by `off_s` seconds.
fn start(two: &Two, node: &str, name: &str, off_s: i64, more: &[&str]) -> Daemon {
    let shim = shim(two.directory());
    let state = two.directory().join(format!("{name}.db"));
    let args = ["host", "--datapath", "user", "--state", state.to_str().unwrap()];
    let preload = format!("LD_PRELOAD={}", shim.display());
    let offset = format!("CLOCK_OFFSET_S={off_s}");
    let under = ["env", &preload, &offset];
    let base = two.directory().join(format!("{node}-{name}"));
    Daemon::start_under(two.node(node), &under, base, &[&args[..], more].concat())
}

/// How long it takes until the host is registered with its path up.
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
        // Otherwise the clock was not wrong.
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
