//! Every command that runs without a daemon, on a terminal and into a pipe of 80 columns.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::pty::Pty;
use crate::screen::{COLUMNS, fits};
use crate::{Listener, PATIENT, XTERM, segue};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of a command into a pipe of this width, in the directory of examples.
fn printed(args: &[&str], columns: Option<&str>) -> String {
    let mut command = segue(args);
    command.current_dir(root().join("examples")).env_remove("COLUMNS").stdin(Stdio::null());
    columns.map(|columns| command.env("COLUMNS", columns));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The output of a command on a terminal, without escape sequences.
fn shown(args: &[&str]) -> String {
    let mut command = segue(args);
    command.current_dir(root().join("examples"));
    let mut pty = Pty::start(COLUMNS as u16, 24, XTERM, &mut command);
    pty.end();
    let mut text = String::new();
    let mut parts = pty.raw.split('\x1b');
    text += parts.next().unwrap_or_default();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        text += &part[end..];
    }
    text.replace('\r', "")
}

/// The words of a text in order.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// All commands, as listed in the help texts.
fn commands() -> Vec<Vec<String>> {
    let (mut all, mut next) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(command) = next.pop() {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        let help = printed(&args, None);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| line.starts_with("  ")) {
            let name = line.trim_start().split(' ').next().unwrap_or_default();
            if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
                next.push([&command[..], &[name.to_owned()]].concat());
            }
        }
        all.push(command);
    }
    all
}

#[test]
fn the_help_of_every_command_fits() {
    let all = commands();
    assert!(all.len() > 30, "{all:?}");
    for command in all {
        for help in ["--help", "-h"] {
            let args: Vec<&str> = command.iter().map(String::as_str).chain([help]).collect();
            fits(&args.join(" "), &printed(&args, None));
        }
    }
}

#[test]
fn what_commands_print_fits_and_no_word_of_it_is_broken() {
    const PLAN: [&str; 5] = ["plan", "--rtt", "100ms", "--loss", "5%"];
    const TARGETS: [&str; 4] = ["--responsiveness", "500ms", "--false-positive-interval", "1e5s"];
    let capture = root().join("crates/decode/tests/captures");
    let captures = ["oai-pmip.pcap", "odtone.pcap", "umip.pcap"].map(|name| capture.join(name));
    let mut all: Vec<Vec<&str>> = vec![
        [&PLAN[..], &TARGETS].concat(),
        [&PLAN[..], &TARGETS, &["--sweep", "loss"]].concat(),
        [&PLAN[..], &["--t-ka", "60ms"]].concat(),
        [&PLAN[..], &["--use"]].concat(),
        vec!["plan", "--t-tml", "2s"],
        vec!["sim", "run", "handover.toml"],
        vec!["sim", "faults", "--seeds", "1"],
        vec!["sim", "dumbbell", "--variant", "newreno", "--duration", "5s"],
        vec!["lab", "list"],
        vec!["reproduce", "--list"],
        vec!["check", "lab.toml"],
        vec!["check", "handover.toml"],
        vec!["check", "million.toml"],
    ];
    let examples: Vec<String> =
        segue::cmd::roles::installed().map(|role| format!("{}.toml", role.name)).collect();
    all.extend(examples.iter().map(|example| vec!["check", example]));
    all.extend(captures.iter().map(|path| vec!["decode", path.to_str().unwrap()]));
    for args in all {
        let what = args.join(" ");
        let narrow = printed(&args, None);
        assert!(!narrow.trim().is_empty(), "{what}");
        fits(&what, &narrow);
        // Networks of other tests may come and go between two lists.
        let again = || words(&printed(&args, None)) == words(&printed(&args, Some("1000")));
        let is_whole = words(&narrow) == words(&printed(&args, Some("1000")));
        assert!(is_whole || (0..3).any(|_| again()), "{what}: words are broken or missing");
        if !what.starts_with("decode") {
            fits(&format!("{what}, on a terminal"), &shown(&args));
        }
    }
}

#[test]
fn a_probe_and_its_summary_fit() {
    let listener = Listener::start(&[]);
    for more in [&[][..], &["--quiet"]] {
        let args = [&["probe", &listener.1, "-c", "4"], &PATIENT[..], more].concat();
        let text = printed(&args, None);
        assert!(text.contains("delay variation"), "{text}");
        fits("probe", &text);
    }
    let stamp = Listener::start(&["--stamp"]);
    fits("probe --stamp", &printed(&["probe", "--stamp", &stamp.1, "-c", "4"], None));
}

#[test]
fn a_network_of_the_lab_fits() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let mut command = segue(&["lab", "up", "lab.toml"]);
    command.current_dir(root().join("examples")).env_remove("COLUMNS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut lab = command.spawn().unwrap();
    lab.stdin.take().unwrap().write_all(b"counters\nend\n").unwrap();
    let output = lab.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("offered"), "{text}");
    fits("lab up", &text);
}

/// Lines that are never wrapped: JSON is for programs; an error and a log entry are one line each.
fn stays_whole(line: &str) -> bool {
    let json = line.trim_start_matches(['<', '>', ' ']).starts_with('{');
    let entry = line.starts_with("20") && line.contains("Z  ");
    json || entry || line.starts_with("segue: ")
}

#[test]
fn what_pages_show_of_a_terminal_fits() {
    let mut shown = 0;
    for directory in ["", "docs", "docs/simulator", "docs/wire"] {
        for entry in std::fs::read_dir(root().join(directory)).unwrap() {
            let page = entry.unwrap().path();
            let read_me = page.file_name().is_some_and(|name| name == "README.md");
            let is_page = page.extension().is_some_and(|extension| extension == "md");
            if !is_page || directory.is_empty() && !read_me {
                continue;
            }
            let text = std::fs::read_to_string(&page).unwrap();
            // A block without a language shows a terminal.
            for block in text.split("\n```").skip(1).step_by(2) {
                let Some(block) = block.strip_prefix('\n') else { continue };
                // The output of other programs cannot be changed.
                let others = block.starts_with("# nft ") || block.starts_with("# nc ");
                for line in block.lines().filter(|line| !others && !stays_whole(line)) {
                    fits(&page.display().to_string(), line);
                    shown += 1;
                }
            }
        }
    }
    assert!(shown > 150, "{shown} lines");
}
