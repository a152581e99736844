//! `segue lab` as a user runs it.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

fn segue(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue")).env("COLUMNS", "1000").args(args).output().unwrap()
}

#[test]
fn a_description_with_a_mistake_is_refused_in_one_line_with_status_two() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("net.toml");
    std::fs::write(&path, "[[node]]\nname = \"a\"\nruter = true\n").unwrap();
    let output = segue(&["lab", "up", path.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("net.toml:3: node.a.ruter: unknown key (did you mean router?)"),
        "{text}"
    );
}

#[test]
fn radios_attach_and_links_are_cut_by_command_and_what_cannot_be_is_told() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("net.toml");
    let text = "[[node]]\nname = \"left\"\n[[node]]\nname = \"right\"\n[[link]]\nname = \"l\"\n\
                ends = [\"left:x\", \"right:y\"]\nsenses = true\n\
                [[cell]]\nname = \"east\"\nrouter = \"right\"\n\
                [[walk]]\nnode = \"left\"\ncells = []\n";
    std::fs::write(&path, text).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
        .env("COLUMNS", "1000")
        .args(["lab", "up", path.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let path = format!("/run/segue-lab/segue-lab{}.sock", child.id());
    assert_eq!(lines.nth(2).unwrap(), format!("announcements of radios: {path}"));
    let mut input = child.stdin.take().unwrap();
    let mut announced = BufReader::new(UnixStream::connect(&path).unwrap()).lines();
    assert!(lines.next().unwrap().starts_with("commands: "));
    for (command, answer) in [
        ("attach left:radio east", "left:radio: attached to east"),
        ("attach left:radio east", "left:radio is in east already"),
        ("attach left:radio west", "there is no cell west (did you mean east?)"),
        ("detach left:radio", "left:radio: detached"),
        ("detach left:radio east", "left:radio is not in east"),
        ("cut l", "l both: cut"),
        ("mend l up", "l up: mended"),
        ("cut l sideways", "a direction is up, down or both, not sideways"),
        ("cut m", "there is no emulated link called m"),
    ] {
        input.write_all(format!("{command}\n").as_bytes()).unwrap();
        assert_eq!(lines.next().unwrap(), answer);
    }
    for what in ["attached", "detached"] {
        let line = announced.next().unwrap().unwrap();
        assert!(line.contains(&format!("\"what\":\"{what}\",\"node\":\"left\"")), "{line}");
    }
    input.write_all(b"counters\nend\n").unwrap();
    let counters: Vec<String> = lines.by_ref().take(4).collect();
    assert!(counters[2].starts_with("left:radio in east up    offered "), "{counters:?}");
    assert!(child.wait().unwrap().success());
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn a_network_from_a_file_is_up_until_a_command_or_a_signal_ends_it() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("net.toml");
    let text = "[[node]]\nname = \"left\"\n[[node]]\nname = \"right\"\n[[link]]\nname = \"l\"\n\
                ends = [\"left:x\", \"right:y\"]\naddresses = [[\"10.61.6.1/24\"], [\"10.61.6.2/24\"]]\n\
                delay = \"5ms\"\n";
    std::fs::write(&path, text).unwrap();
    for by_signal in [false, true] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_segue"))
            .env("COLUMNS", "1000")
            .args(["lab", "up", path.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let prefix = format!("segue-lab{}", child.id());
        assert_eq!(first, format!("{prefix} is up with nodes left, right"));
        assert_eq!(segue_linux::netns::list_with_prefix(&prefix).len(), 3);
        let mut input = child.stdin.take().unwrap();
        input
            .write_all(b"silent l both on\nsilent m up on\nstall l up 90ms\nstall l up 9\n")
            .unwrap();
        let mut answers = lines.skip_while(|l| !l.as_ref().unwrap().starts_with("l both"));
        assert_eq!(answers.next().unwrap().unwrap(), "l both: silent on");
        assert_eq!(answers.next().unwrap().unwrap(), "there is no emulated link called m");
        assert_eq!(answers.next().unwrap().unwrap(), "l up: stalls for 90ms");
        assert!(answers.next().unwrap().unwrap().contains("\"9\" has no unit"));
        if by_signal {
            let pid = nix::unistd::Pid::from_raw(child.id() as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        } else {
            input.write_all(b"end\n").unwrap();
        }
        assert!(child.wait().unwrap().success());
        assert!(segue_linux::netns::list_with_prefix(&prefix).is_empty());
    }
}
