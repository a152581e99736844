//! What needs a distribution's kernel: scripts in a virtual machine (`make vm`).

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::path::Path;
use std::process::{Command, Output};

use segue_lab::vm::Pieces;

/// Runs a script of this directory with arguments, or says why not.
fn run(script: &str, arguments: &[&str]) -> Option<Output> {
    if let Err(missing) = Pieces::find(None) {
        println!("skipped: {missing}");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm").join(script);
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    let output = command.args(["lab", "vm"]).arg(script).args(arguments).output().unwrap();
    // A line "skipped: …" of the script is one of the test.
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
