//! Tests that need a distribution's kernel: scripts in a virtual machine (`make vm`).

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use segue_lab::vm::Pieces;

/// Runs a script of this directory with arguments. Prints the reason if that is not possible.
fn run(script: &str, arguments: &[&str]) -> Option<Output> {
    if let Err(missing) = Pieces::find(None) {
        println!("skipped: {missing}");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm").join(script);
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    let output = command.args(["lab", "vm"]).arg(script).args(arguments).output().unwrap();
    // Pass on the output: a line "skipped: …" of the script then appears in the test's output.
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

#[test]
#[ignore = "make vm runs it"]
fn a_script_runs_as_root_with_its_arguments_and_its_output_and_status_come_back() {
    let Some(output) = run("output.sh", &["it's $x", "--json"]) else { return };
    let own = Path::new(env!("CARGO_BIN_EXE_segue"));
    let directory = std::env::current_dir().unwrap();
    let expected = format!("0 2 it's $x --json\n{}\n{}\n", directory.display(), own.display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "first\nsecond\n");
    assert_eq!(output.status.code(), Some(7));
    assert!(!Path::new("/segue-vm-was-here").exists(), "what it writes vanishes");
}

#[test]
#[ignore = "make vm runs it"]
fn a_script_that_takes_too_long_is_ended_with_its_virtual_machine() {
    if let Err(missing) = Pieces::find(None) {
        println!("skipped: {missing}");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    let output =
        command.args(["lab", "vm", "--limit", "1s", "/bin/sleep", "1000"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "segue: the script did not end within 1 s\n");
}

#[test]
#[ignore = "make vm runs it"]
fn ctrl_c_ends_it_with_one_line() {
    if let Err(missing) = Pieces::find(None) {
        println!("skipped: {missing}");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    let mut child = command
        .args(["lab", "vm", "/bin/sh", "-c", "echo started; sleep 1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"started\n");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    // The virtual machine holds this standard output, so the wait ends only with the machine.
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "segue: interrupted\n");
}

#[test]
#[ignore = "make vm runs it"]
fn the_kernel_has_netem_wireguard_and_tunnels_in_ipv6_and_they_carry_pings() {
    let Some(output) = run("stock_kernel.sh", &[]) else { return };
    assert!(output.status.success());
}

#[test]
#[ignore = "make vm runs it"]
fn doctor_and_probe_run_there() {
    let Some(output) = run("segue_runs.sh", &[]) else { return };
    assert!(output.status.success());
}

#[test]
#[ignore = "make vm runs it"]
fn the_kernels_tunnels_and_its_mobile_ipv6_are_peers_of_the_relay() {
    let relay = Path::new(env!("CARGO_BIN_EXE_segue")).with_file_name("examples/relay_end");
    if !relay.exists() {
        println!("skipped: build it first: cargo build -p segue-datapath --example relay_end");
        return;
    }
    let Some(output) = run("relay_peers.sh", &[relay.to_str().unwrap()]) else { return };
    assert!(output.status.success());
}

#[test]
#[ignore = "make vm runs it"]
fn a_station_roams_between_two_access_points_and_keeps_its_address() {
    let Some(output) = run("roaming.sh", &[]) else { return };
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("skipped: needs") || said.ends_with("roamed\n"), "{said}");
}
