//! `segue sim run` as a user runs it: every example, and traces in the eyes of tshark.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

#[test]
fn every_example_runs_twice_to_the_same_bytes() {
    for name in ["dumbbell", "handover"] {
        let run = || run(&[&example(name), "--duration", "15s", "--json", "--links"]);
        let (first, second) = (run(), run());
        assert!(first.status.success(), "{name}: {}", text(&first.stderr));
        assert!(first.stdout.len() > 500 && first.stdout == second.stdout, "{name}");
        let other = self::run(&[&example(name), "--duration", "15s", "--json", "--seed", "2"]);
        assert!(other.stdout != first.stdout, "{name}: the seed does nothing");
    }
}

#[test]
fn a_trace_changes_nothing_and_has_what_was_lost() {
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let scenario = example("handover");
    let plain = run(&[&scenario, "--duration", "14s", "--json"]);
    let option = format!("--trace={prefix}");
    let traced = run(&[&scenario, "--duration", "14s", "--json", &option]);
    assert_eq!(text(&plain.stdout), text(&traced.stdout), "{}", text(&traced.stderr));
    let log = std::fs::read_to_string(format!("{prefix}.log")).unwrap();
    for part in ["registered with 10.7.0.2", "lost on wifi.up, link silent: ", "silent for "] {
        assert!(log.contains(part), "{part}");
    }
    assert!(log.lines().all(|line| line.split(' ').next().unwrap().len() >= 11));
}

#[test]
fn a_trace_without_a_prefix_has_the_name_of_its_scenario() {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.args(["sim", "run", &example("handover"), "--duration", "1s", "--trace"]);
    let output = command.current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["handover.pcapng", "handover.log"] {
        assert!(directory.path().join(name).metadata().unwrap().len() > 0, "{name}");
    }
}

#[test]
fn wireshark_finds_nothing_wrong_in_a_trace_and_the_retransmissions_that_were() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: no tshark");
        return;
    }
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let trace = format!("--trace={prefix}");
    let options = ["--duration", "14s", "--json", "--snaplen", "65535", "--trace-at", "server"];
    let scenario = example("handover");
    let arguments = [&[scenario.as_str(), trace.as_str()], &options[..]].concat();
    let results: serde_json::Value = serde_json::from_slice(&run(&arguments).stdout).unwrap();
    let capture = format!("{prefix}.pcapng");
    expect_clean(&capture);
    let again =
        fields(&capture, "tcp.analysis.retransmission || tcp.analysis.out_of_order", "tcp.seq");
    let sent = results["download.retransmissions"].as_u64().unwrap();
    assert!(sent > 0 && !again.is_empty(), "{sent} sent again, {} seen", again.len());
    assert!(again.len() as u64 <= sent, "{sent} sent again, {} seen", again.len());
}

#[test]
fn wireshark_reads_probes_and_tunnels_by_the_description_of_their_format() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: no tshark");
        return;
    }
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("t").display().to_string();
    let trace = format!("--trace={prefix}");
    let options = ["--duration", "4s", "--snaplen", "65535", "--trace-at", "phone:wifi"];
    run(&[&[example("handover").as_str(), trace.as_str()], &options[..]].concat());
    let capture = format!("{prefix}.pcapng");
    expect_clean(&capture);
    let requests = fields(&capture, "segue.type == 2", "segue.probe.seq");
    let numbers: Vec<u32> = requests.iter().map(|text| text.parse().unwrap()).collect();
    assert!(
        numbers.len() > 20 && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{numbers:?}"
    );
    assert!(fields(&capture, "segue.type == 3", "segue.probe.seq").len() > 20);
    // Data within: the call's packets, 20 ms of G.711 with their headers.
    assert!(fields(&capture, "segue.type == 0 && udp.length == 180", "ip.src").len() > 50);
}

/// No packet is malformed, and every checksum is right.
fn expect_clean(capture: &str) {
    let wrong = "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || \
                 tcp.checksum.status == 0 || segue.malformed";
    let found = fields(capture, wrong, "frame.number");
    assert!(found.is_empty(), "{} packets, the first {:?}", found.len(), found.first());
    let right =
        fields(capture, "ip.checksum.status == 1 && udp.checksum.status == 1", "frame.number");
    assert!(right.len() > 50, "{}", right.len());
}

/// A field of every packet that a display filter takes.
fn fields(capture: &str, filter: &str, field: &str) -> Vec<String> {
    let lua = format!("lua_script:{}", root().join("docs/wire/segue.lua").display());
    let mut command = Command::new("tshark");
    command.args(["-X", &lua, "-r", capture, "-Y", filter, "-T", "fields", "-e", field]);
    for checked in ["ip", "udp", "tcp"] {
        command.args(["-o", &format!("{checked}.check_checksum:TRUE")]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{filter}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.args(["sim", "run"]).args(arguments).output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> String {
    root().join(format!("examples/{name}.toml")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
