//! `segue lab` as a person calls it.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

fn segue(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue")).args(args).output().unwrap()
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
