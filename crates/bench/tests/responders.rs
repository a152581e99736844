//! Each responder of this machine answers each probe, and answers it right. Counts, not speeds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use segue_bench::probes::{self, Options};
use segue_bench::{BenchError, Responder};

/// Few enough for a busy machine.
const RATE: f64 = 400.0;
const BURST: usize = 8;
const DURATION: Duration = Duration::from_millis(500);

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: namespaces and eBPF need root");
    }
    root
}

fn answers_all(responder: Responder) {
    if !is_root() {
        return;
    }
    // What comes later than the grace after the last request is not waited for: on a busy machine, once
    // more.
    let enough = (0..5).any(|_| {
        let checked = match probes::check(responder, RATE, BURST, DURATION) {
            Err(BenchError::Missing { what, remedy }) => {
                eprintln!("skipped: {responder}: {what} is missing: {remedy}");
                return true;
            }
            other => other.unwrap(),
        };
        println!("{responder}: {checked:?}");
        assert_eq!(checked.sent, 200, "{checked:?}");
        assert_eq!(checked.invalid, 0, "{checked:?}");
        checked.answered >= 150
    });
    assert!(enough, "five times fewer than 150 of 200 answers");
}

#[test]
fn sip() {
    answers_all(Responder::Sip);
}

#[test]
fn java() {
    answers_all(Responder::Java);
}

#[test]
fn one_system_call_for_each_packet() {
    answers_all(Responder::Syscall);
}

#[test]
fn batched_system_calls() {
    answers_all(Responder::Batched);
}

#[test]
fn af_xdp() {
    answers_all(Responder::AfXdp);
}

#[test]
fn segue_at_tc() {
    answers_all(Responder::Tc);
}

#[test]
fn segue_with_xdp() {
    answers_all(Responder::Xdp);
}

#[test]
fn a_bare_reflector() {
    answers_all(Responder::XdpBare);
}

#[test]
fn a_short_bench_fills_every_row() {
    if !is_root() {
        return;
    }
    let options = Options {
        responders: vec![Responder::Syscall, Responder::Tc, Responder::XdpBare],
        runs: 1,
        duration: Duration::from_millis(100),
        paths: 64,
        sending: Some(100),
        ..Options::default()
    };
    let mut steps = 0;
    let report = probes::run(&options, &mut |_: &str| steps += 1).unwrap();
    assert_eq!(report.rows.len(), 6);
    for row in &report.rows {
        assert!(row.answered > 0.0 && row.p50_us.is_some(), "{row:?}");
    }
    assert!(steps > 3);
    assert!(report.sending.unwrap().batch_arrived > 0.0);
    assert!(report.raw.len() == 2 || report.skipped.iter().any(|s| s.what == "raw frames"));
    assert!(report.bars.len() >= 2, "{:?}", report.bars);
}

#[test]
#[ignore = "measures; make bench does it for a report"]
fn raw_frames_and_sending() {
    if !is_root() {
        return;
    }
    let options = Options {
        responders: vec![Responder::Xdp, Responder::XdpBare],
        bursts: vec![32],
        runs: 3,
        duration: Duration::from_millis(300),
        ..Options::default()
    };
    let report = probes::run(&options, &mut |_: &str| ()).unwrap();
    for row in &report.raw {
        println!(
            "{}: {:.0} ns, {:.3} answered",
            row.responder,
            row.cpu_us.median * 1e3,
            row.answered
        );
    }
    println!("{:?}", report.sending);
    println!("{:?}", report.bars);
}
