//! Terminal output: the real program on a pseudo-terminal, decoded by a terminal emulator.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod pty;
#[path = "../shared/screen.rs"]
mod screen;
mod screens;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use pty::Pty;

const XTERM: Option<&str> = Some("xterm-256color");

/// Two seconds of patience, so that a busy machine does not look like a dead path.
const PATIENT: [&str; 4] = ["-i", "50ms", "-k", "40"];

/// A listener and its address. Dropping it ends the process.
struct Listener(Child, String);

impl Listener {
    fn start(more: &[&str]) -> Listener {
        let mut child = segue(&[&["probe", "--listen", "127.0.0.1:0", "--json"], more].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = ready["address"].as_str().unwrap().to_owned();
        Listener(child, address)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn segue(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.args(args);
    command
}

/// The live view of a probe for an answering target.
const SHOWN: [&str; 5] = ["up", "loss up 0.00 %", "down 0.00 %", "both ways 0.00 %", "answered"];

#[test]
fn a_live_probe_shows_all_its_figures_once_on_any_terminal() {
    let listener = Listener::start(&[]);
    let target = listener.1.as_str();
    for columns in [80, 40, 200] {
        let args = [&["probe", target, "-c", "30", "--loss-interval", "5"], &PATIENT[..]].concat();
        let mut pty = Pty::start(columns, 24, XTERM, &mut segue(&args));
        let screen =
            pty.until("all figures", |screen| SHOWN.iter().all(|part| screen.contains(part)));
        assert!(!screen.contains('…'), "{columns}: {screen}");
        let (status, last) = pty.end();
        assert!(status.success(), "{last}");
        // The opening line, the live lines, and the heading of the summary each name the target
        // once.
        for screen in &pty.screens {
            assert!(screen.matches("answered").count() <= 1, "{columns}: {screen}");
            assert!(screen.matches("(ewma").count() <= 1, "{columns}: {screen}");
        }
        assert!(
            last.contains("30 of 30 answered") && last.contains("30 sent, 30 received"),
            "{last}"
        );
    }
}

#[test]
fn a_live_probe_of_stamp_shows_all_its_figures_once() {
    let listener = Listener::start(&["--stamp"]);
    let args = [&["probe", "--stamp", &listener.1, "-c", "30"], &PATIENT[..]].concat();
    let mut pty = Pty::start(40, 24, XTERM, &mut segue(&args));
    pty.until("all figures", |screen| {
        ["rtt ", "loss up - down -", "answered"].iter().all(|part| screen.contains(part))
    });
    let (_, last) = pty.end();
    assert!(pty.screens.iter().all(|screen| screen.matches("answered").count() <= 1), "{last}");
}

#[test]
fn a_window_of_another_size_shows_the_probe_once() {
    let listener = Listener::start(&[]);
    let mut pty =
        Pty::start(120, 24, XTERM, &mut segue(&["probe", &listener.1, "-i", "50ms", "-k", "40"]));
    let live = |screen: &str| screen.contains("answered");
    pty.until("the live lines", live);
    for (columns, rows) in [(40, 24), (70, 10), (120, 24)] {
        pty.resize(columns, rows);
        pty.pieces(4);
        let screen = pty.until("the live lines", live);
        assert_eq!(screen.matches("answered").count(), 1, "{columns}×{rows}: {screen}");
        assert_eq!(screen.matches("(ewma").count(), 1, "{columns}×{rows}: {screen}");
    }
    // After Ctrl-C the lines stay, and the summary follows.
    nix::sys::signal::kill(pty.pid(), nix::sys::signal::Signal::SIGINT).unwrap();
    let (status, last) = pty.end();
    assert!(status.success() && last.contains("rtt min/avg/max"), "{last}");
}

#[test]
fn what_takes_text_alone_gets_no_escape_sequence() {
    let listener = Listener::start(&[]);
    for kind in [None, Some("dumb")] {
        let args = [&["probe", &listener.1, "-c", "3"], &PATIENT[..]].concat();
        let mut pty = Pty::start(80, 24, kind, &mut segue(&args));
        let (_, screen) = pty.end();
        assert!(!pty.raw.contains('\x1b'), "{kind:?}: {screen}");
        assert_eq!(screen.matches(": seq=").count(), 3, "{kind:?}: {screen}");
    }
}

#[test]
fn colours_are_given_up_where_nobody_wants_them() {
    let listener = Listener::start(&[]);
    let args = [&["probe", &listener.1, "-c", "5"], &PATIENT[..]].concat();
    let mut pty = Pty::start(80, 24, XTERM, &mut segue(&args));
    pty.end();
    assert!(pty.raw.contains("\x1b[32mup\x1b[0m"), "{:?}", pty.raw);
    // Set as users do, in the program's environment.
    let args: Vec<&str> =
        ["NO_COLOR=1", env!("CARGO_BIN_EXE_segue")].into_iter().chain(args).collect();
    let mut pty = Pty::start(80, 24, XTERM, Command::new("env").args(args));
    let (_, screen) = pty.end();
    assert!(!pty.raw.contains("\x1b[32m") && screen.contains("answered"), "{:?}", pty.raw);
}

#[test]
fn more_targets_than_rows_are_cut_with_a_mark() {
    let listener = Listener::start(&[]);
    let mut args = vec!["probe"];
    args.extend([listener.1.as_str(); 20]);
    args.extend(["-c", "8", "-i", "100ms", "-k", "20"]);
    let mut pty = Pty::start(60, 12, XTERM, &mut segue(&args));
    let screen = pty.until("a mark", |screen| screen.contains("lines more"));
    assert_eq!(screen.matches("lines more").count(), 1, "{screen}");
    pty.end();
    let most = pty.screens.iter().map(|screen| screen.matches("lines more").count()).max();
    assert_eq!(most, Some(1));
}

#[test]
fn the_progress_of_a_long_run_stays_on_its_line() {
    // More runs than can finish during the test.
    let mut pty = Pty::start(16, 6, XTERM, &mut segue(&["sim", "faults", "--seeds", "1000000"]));
    pty.pieces(3);
    let screen = pty.until("progress", |screen| screen.contains(" of "));
    assert_eq!(screen.trim().lines().count(), 1, "{screen}");
    assert!(screen.contains('…'), "{screen}");
}

#[test]
fn the_demonstration_fits_its_terminal() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let out = tempfile::Builder::new().prefix("segue-views").tempdir().unwrap();
    let out = out.path().to_str().unwrap();
    let course = ["--silent-at", "3s", "--back-at", "4s", "--until", "6s"];
    for columns in [80, 40] {
        let args = [&["demo", "--datapath", "user", "--out", out][..], &course].concat();
        let mut pty = Pty::start(columns, 24, XTERM, &mut segue(&args));
        let carries = ["bulk", "default", "interactive", "voice"];
        let screen = pty.until("the paths", |screen| {
            screen.contains("loss down") && carries.iter().all(|class| screen.contains(class))
        });
        assert!(!screen.contains('…'), "{columns}: {screen}");
        pty.end();
        for screen in &pty.screens {
            // The bar and its end.
            assert!(screen.matches("─ 6 s").count() <= 1, "{columns}: {screen}");
            assert!(screen.matches("TCP download").count() <= 1, "{columns}: {screen}");
        }
    }
}
