//! `segue status --watch`, which redraws in place on a terminal and otherwise prints one status
//! after the other; and `segue events`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::pty::Pty;
use crate::world::{Daemon, SEGUE, World, text, wait_for};

fn watch(daemon: &Daemon, more: &[&str]) -> Command {
    let mut command = Command::new(SEGUE);
    command.env("COLUMNS", "1000");
    command.args(["status", "--watch"]).args(more).arg("--control").arg(daemon.socket());
    command
}

/// A watch that prints into a pipe. Dropping it ends the process.
struct Piped(Child);

impl Piped {
    fn start(mut command: Command) -> (Piped, impl Iterator<Item = String>) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        (Piped(child), lines)
    }

    fn ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first `count` pages that a watch prints into a pipe, each as lines.
pub(crate) fn texts(command: Command, count: usize) -> Vec<Vec<String>> {
    let (_child, mut lines) = Piped::start(command);
    (0..count).map(|_| lines.by_ref().take_while(|line| !line.is_empty()).collect()).collect()
}

#[test]
fn a_watched_status_changes_in_place_and_ends_in_order() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let (anchor, mut host) = world.running();

    // On a terminal, in place.
    for (columns, daemon, role) in [(80, &host, "host laptop"), (40, &anchor, "anchor, up")] {
        let mut pty = Pty::start(columns, 24, Some("xterm"), &mut watch(daemon, &[]));
        let first = pty.until("paths", |screen| screen.contains("lte") && screen.contains("wifi"));
        pty.pieces(2);
        // A chunk of output may end in the middle of a status.
        let whole = |screen: &str| {
            [role, "device "].iter().all(|text| screen.matches(text).count() == 1)
                && screen.contains("loss up")
        };
        pty.until("another in its place", |screen| *screen != first && whole(screen));
        pty.resize(columns + 20, 24);
        pty.pieces(2);
        pty.until("it, with more room", |screen| whole(screen) && !screen.contains('…'));
        assert!(pty.raw.contains("\x1b[32mup\x1b[0m"), "{:?}", pty.raw);
        kill(pty.pid(), Signal::SIGINT).unwrap();
        let (status, last) = pty.end();
        assert!(status.success() && last.contains(role), "{last}");
    }

    // For programs: one object per line, with the events since the previous one.
    for (daemon, role) in [(&host, "host"), (&anchor, "anchor")] {
        let (mut child, lines) = Piped::start(watch(daemon, &["--json"]));
        let told: Vec<Value> =
            lines.take(3).map(|line| serde_json::from_str(&line).unwrap()).collect();
        assert!(told.iter().all(|status| status["role"] == role), "{told:?}");
        let number = |status: &Value, key: &str| status[key].as_u64().unwrap();
        for two in told.windows(2) {
            assert!(number(&two[0], "now_ns") < number(&two[1], "now_ns"));
            let events = two[1]["events"].as_array().unwrap();
            let from = number(&two[0], "next_event");
            assert!(events.iter().all(|event| number(event, "number") >= from), "{events:?}");
        }
        assert!(!told[0]["events"].as_array().unwrap().is_empty());
        // The watch ends when the reader is gone.
        wait_for("its end", || child.ended());
    }

    // Text into a pipe.
    for text in texts(watch(&host, &[]), 2) {
        assert!(text[0].starts_with("on ") && text[1].starts_with("host laptop, up "), "{text:?}");
        assert!(text.iter().all(|line| !line.contains('\x1b')), "{text:?}");
    }
    let (mut child, _lines) = Piped::start(watch(&host, &[]));
    std::thread::sleep(std::time::Duration::from_millis(200));
    kill(Pid::from_raw(child.0.id() as i32), Signal::SIGINT).unwrap();
    assert!(child.0.wait().unwrap().success());

    // The watch waits for a daemon that stops, and keeps showing its last status.
    let mut pty = Pty::start(60, 24, Some("xterm"), &mut watch(&host, &[]));
    pty.until("paths", |screen| screen.contains("wifi"));
    host.end(Signal::SIGTERM);
    pty.until("its absence, and how it stood", |screen| {
        ["no daemon answers at", "how it", "wifi"].iter().all(|text| screen.contains(text))
            && screen.matches("device ").count() == 1
    });
    drop(pty);
    let mut once = watch(&host, &[]);
    assert_eq!(once.output().unwrap().status.code(), Some(2), "one that never was there is not");
}

#[test]
fn events_are_printed_and_followed() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    let (mut anchor, host) = world.running();
    let events = |daemon: &Daemon, more: &[&str]| {
        let mut command = Command::new(SEGUE);
        command.env("COLUMNS", "1000");
        command.arg("events").args(more).arg("--control").arg(daemon.socket());
        command
    };

    for (daemon, whose) in [(&host, ""), (&anchor, "laptop")] {
        let told = events(daemon, &["--json"]).output().unwrap();
        assert!(told.status.success());
        let told: Vec<Value> =
            text(&told.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> =
            told.iter().map(|event| event["number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..told.len() as u64).collect::<Vec<_>>());
        let registered = |event: &Value| event["kind"] == "registered" && event["host"] == whose;
        assert!(told.iter().any(registered), "{told:?}");
        let last = text(&events(daemon, &["-n", "2"]).output().unwrap().stdout);
        assert_eq!(last.lines().count(), 2, "{last}");
    }

    let (mut child, mut lines) = Piped::start(events(&host, &["--follow"]));
    assert!(lines.next().unwrap().starts_with("20"), "a time of day");
    anchor.end(Signal::SIGKILL);
    let down = lines.find(|line| line.contains(" down")).unwrap();
    assert!(down.contains("  path ") && down.contains(", silent for "), "{down}");
    kill(Pid::from_raw(child.0.id() as i32), Signal::SIGINT).unwrap();
    assert!(child.0.wait().unwrap().success());
}
