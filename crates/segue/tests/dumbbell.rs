//! `segue sim dumbbell` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

#[test]
fn json_has_the_keys_of_the_comparison_and_figures_that_agree() {
    let found = json("--variant newreno --drop-at 1s:3,2s:3 --duration 10s");
    let count = |key: &str| found[key].as_u64().unwrap_or_else(|| panic!("{key}: {found}"));
    assert_eq!(found.as_object().map(serde_json::Map::len), Some(7), "{found}");
    assert_eq!((count("loss_drops"), count("queue_drops")), (6, 0));
    assert_eq!((count("retransmissions"), count("timeouts")), (6, 0));
    assert!(count("sent") >= count("delivered") + 6);
    let goodput = found["goodput_bps"].as_f64().expect("a number");
    assert!((goodput - count("delivered") as f64 * 1480.0 * 8.0 / 10.0).abs() < 1.0);
}

#[test]
fn the_queue_is_ns_2s_and_a_smaller_one_drops_more() {
    let drops = |queue: u32| {
        let options = format!("--variant reno --window 100 --duration 5s --queue {queue}");
        json(&options)["queue_drops"].as_u64().expect("a number")
    };
    assert!(drops(10) > 0 && drops(100) == 0);
}

#[test]
fn options_take_the_place_of_the_profiles_values() {
    let delivered = |options: &str| {
        let found = json(&format!("--variant reno --duration 2s {options}"));
        found["delivered"].as_u64().expect("a number")
    };
    let plain = delivered("");
    assert!(delivered("--initial-window 10") > plain);
    assert!(delivered("--initial-ssthresh 2") < plain);
    assert!(delivered("--delayed-ack") < plain);
    assert!(delivered("--delay 100ms") < plain);
    assert!(delivered("--rate 1mbit") < plain);
    let drops = "--drop-at 500ms:2";
    assert!(delivered(&format!("{drops} --min-rto 1s")) < delivered(drops));
    assert!(delivered(&format!("{drops} --dupack-threshold 40")) < delivered("--drop-at 500ms:1"));
    assert!(delivered("--ack-size 1480 --rate 1mbit") <= delivered("--rate 1mbit"));
    assert!(delivered("--profile modern") > 0 && delivered("--profile ns-2-2001") < plain);
}

#[test]
fn cubic_and_rack_are_there_and_the_window_of_rack_is_chosen_apart_from_its_recovery() {
    let run = |options: &str| {
        let drops = "--duration 10s --drop-at 1s:1,2s:3,3s:5";
        let found = json(&format!("{options} --profile modern {drops}"));
        assert_eq!((found["loss_drops"].as_u64(), found["timeouts"].as_u64()), (Some(9), Some(0)));
        found["delivered"].as_u64().expect("a number")
    };
    assert!(run("--variant cubic") > run("--variant sack"));
    assert!(run("--variant rack") > run("--variant rack --congestion reno"));
}

#[test]
fn the_trace_has_a_line_for_every_segment_and_two_runs_are_byte_identical() {
    let directory = std::env::temp_dir().join(format!("segue-dumbbell-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let traces = ["one", "two"].map(|name| {
        let path = directory.join(name);
        let path = path.to_str().expect("text");
        let found =
            json(&format!("--variant sack --drop-at 1s:2 --duration 2s --cwnd-trace {path}"));
        (std::fs::read_to_string(path).expect("a trace"), found)
    });
    std::fs::remove_dir_all(&directory).expect("removed");
    let (trace, found) = &traces[0];
    assert_eq!(traces[0], traces[1]);
    let mut lines = trace.lines();
    assert_eq!(lines.next(), Some("time_s,cwnd,ssthresh,sequence"));
    assert_eq!(lines.next(), Some("0.000000000,2.0000,30.0000,0"));
    assert_eq!(Some(trace.lines().count() as u64 - 1), found["sent"].as_u64());
}

#[test]
fn a_clock_that_never_ticks_and_one_that_always_does_send_as_others_do() {
    for tick in ["213503d", "1ns"] {
        let found = json(&format!("--variant reno --duration 2s --tick {tick}"));
        assert!(found["delivered"].as_u64().expect("a number") > 500, "{found}");
    }
}

#[test]
fn bad_input_is_refused_in_one_line_with_status_2() {
    for (options, says) in [
        ("", "--variant"),
        ("--variant foo", "newreno"),
        ("--variant reno --rate 10", "no unit"),
        ("--variant reno --rate 0mbit", "rate 0"),
        ("--variant reno --duration -1s", "negative"),
        ("--variant reno --duration 0s", "no time"),
        ("--variant reno --queue 0", "--queue"),
        ("--variant reno --packet 40", "41 to 65535"),
        ("--variant reno --window 0", "--window"),
        ("--variant reno --window 4294967295", "at most 1048576"),
        ("--variant reno --initial-window 4294967295", "at most 1048576"),
        ("--variant reno --ack-size 65536", "at most 65535"),
        ("--variant reno --tick 0ms", "--tick"),
        ("--variant reno --min-rto 100s", "--max-rto"),
        ("--variant reno --drop-at 2s:1,1s:1", "--drop-at"),
        ("--variant reno --congestion cubic", "--congestion"),
        ("--variant sack --congestion cubic", "--congestion"),
        ("--variant reno --drop-at 2s", "TIME:COUNT"),
        ("--variant reno --drop-at 2s:many", "number of packets"),
        ("--variant reno --duration 1s --cwnd-trace /nowhere/x", "/nowhere/x"),
    ] {
        let output = dumbbell(options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {said}");
        assert_eq!(said.lines().count(), 1, "{options}: {said}");
        assert!(said.contains(says), "{options}: {said}");
        assert!(output.stdout.is_empty(), "{options}");
    }
}

fn dumbbell(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue"))
        .env("COLUMNS", "1000")
        .args(["sim", "dumbbell"])
        .args(options.split_whitespace())
        .output()
        .expect("the binary runs")
}

fn json(options: &str) -> Value {
    let output = dumbbell(&format!("{options} --json"));
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
