//! Typing errors and full disks: one line that names the mistake, its place and the remedy, and
//! exit status 2. Runs without root.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn segue(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.args(args).stdin(Stdio::null());
    command
}

/// The one line on standard error.
fn line(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn refused(args: &[&str]) -> String {
    line(&segue(args).output().unwrap())
}

/// A file with this text, in a temporary directory.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn output_that_cannot_be_written_is_told() {
    for args in [&["plan", "--rtt", "100ms", "--use"][..], &["lab", "list", "--json"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let said = line(&segue(args).stdout(full).output().unwrap());
        assert!(
            said.starts_with("segue: cannot write to standard output: No space left"),
            "{said}"
        );
    }
}

#[test]
fn a_value_below_zero_is_no_unknown_option() {
    for args in [["plan", "--rtt", "-100ms"], ["plan", "--loss", "-.5"]] {
        let said = refused(&args);
        assert!(said.contains(args[2]) && said.contains("less than zero"), "{said}");
    }
    assert!(refused(&["plan", "-x"]).contains("unexpected argument '-x'"));
}

#[test]
fn no_seeds_and_no_jobs_are_refused_in_words_of_the_user() {
    for option in ["--seeds", "--jobs"] {
        let said = refused(&["sim", "faults", option, "0"]);
        assert!(said.contains("a whole number from 1 on is needed"), "{said}");
        assert!(!said.contains("non-zero"), "{said}");
    }
}

#[test]
fn what_is_wrong_is_one_sentence_without_the_parsers_other_advice() {
    let said = refused(&["hosts"]);
    assert_eq!(
        said.trim_end(),
        "segue: unrecognized subcommand 'hosts'; some similar subcommands exist: 'status', 'host'"
    );
    let said = refused(&["plan", "--rtt", "100"]);
    assert!(said.trim_end().ends_with("has no unit: write for example 100ms or 1.5s"), "{said}");
}

#[test]
fn numbers_out_of_range_are_told_in_numbers() {
    for (text, range) in [("port = 70000", "0 and 65535"), ("[keepalive]\nk = 300\n", "1 and 255")]
    {
        let (_directory, path) = file(text);
        let said = refused(&["host", "-c", &path]);
        assert!(said.contains(&format!("must lie between {range}")), "{said}");
    }
    let (_directory, path) = file("[steering]\nmargin = \"much\"\n");
    let said = refused(&["host", "-c", &path]);
    assert!(!said.contains("f64"), "{said}");
}

#[test]
fn a_source_that_no_path_can_have_and_a_priority_without_room_are_refused() {
    for bad in ["wlan0", "10.0.0.1/24", "::", "127.0.0.1", "fe80::1", "224.0.0.1", "::ffff:1.2.3.4"]
    {
        let (_directory, path) = file(&format!("[path.wlan0]\nsource = {bad:?}\n"));
        let said = refused(&["host", "-c", &path]);
        assert!(
            said.contains("path.wlan0.source") && said.contains(bad.trim_end_matches("/24")),
            "{said}"
        );
    }
    for bad in ["0", "32761"] {
        let (_directory, path) = file(&format!("priority = {bad}\n"));
        let said = refused(&["host", "-c", &path]);
        assert!(said.contains("priority") && said.contains("between 1 and 32760"), "{said}");
    }
}

#[test]
fn a_mistake_in_the_file_is_told_before_credentials_are_missed() {
    let (directory, path) = file("mtu = 1\n");
    let none = directory.path().join("none").to_str().unwrap().to_owned();
    let said = refused(&["host", "-c", &path, "--join-file", &none, "--state", &none]);
    assert!(said.contains("mtu: must lie"), "{said}");
}

#[test]
fn a_level_of_the_log_that_is_none_is_refused() {
    let (directory, path) = file("");
    let none = directory.path().join("none").to_str().unwrap().to_owned();
    let mut command = segue(&["host", "-c", &path, "--state", &none]);
    let said = line(&command.env("SEGUE_LOG", "bogus").output().unwrap());
    assert!(said.contains("SEGUE_LOG") && said.contains("bogus"), "{said}");
}

#[test]
fn a_file_without_a_network_is_refused() {
    let (_directory, path) = file("# nothing yet\n");
    let said = refused(&["lab", "up", &path]);
    assert!(said.contains("file.toml:1: no network") && said.contains("[[node]]"), "{said}");
}

#[test]
fn enrolling_where_no_anchor_ever_ran_makes_no_authority() {
    let state = std::path::Path::new("/var/lib/segue/anchor.db");
    if state.exists() {
        println!("skipped: an anchor has run on this machine");
        return;
    }
    let said = refused(&["enroll", "laptop", "--control", "/nonexistent/anchor.sock"]);
    assert!(said.contains("start segue anchor first"), "{said}");
    assert!(!state.exists());
}

#[test]
fn an_error_of_the_system_is_named_once() {
    let said = refused(&["host", "-c", "/nonexistent/host.toml"]);
    assert_eq!(said.matches("os error 2").count(), 1, "{said}");
    let said =
        refused(&["enroll", "laptop", "--control", "/nonexistent/s", "--state", "/proc/none/a.db"]);
    assert_eq!(said.matches("os error").count(), 1, "{said}");
}

#[test]
fn a_target_that_never_answers_comes_with_what_to_look_for() {
    let hole = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = hole.local_addr().unwrap().to_string();
    let output = segue(&["probe", &target, "-c", "2", "-i", "20ms", "-k", "40"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["no answer: ", "segue probe --listen", "segue probe --stamp"] {
        assert!(said.contains(part), "{said}");
    }
}
