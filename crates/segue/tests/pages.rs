//! The documentation shows real output of the simulator: each block with `$ segue sim …` and its output is run again.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A command of a page, and the output that the page shows.
struct Shown {
    command: String,
    lines: Vec<String>,
}

#[test]
fn what_pages_show_of_simulations_is_what_they_print() {
    let (mut commands, mut lines) = (0, 0);
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            // Commands shown without output run only if a command in their block has output.
            if block.iter().any(|shown| is_run(&shown.command) && !shown.lines.is_empty()) {
                let compared = compare(&page, &block);
                commands += compared.0;
                lines += compared.1;
            }
        }
    }
    assert!(commands >= 5 && lines >= 25, "{commands} commands, {lines} lines");
}

#[test]
fn another_figure_on_a_page_is_noticed() {
    let page = root().join("docs/simulator/README.md");
    let text = fs::read_to_string(&page).unwrap();
    let block = &blocks(&text)[0];
    assert!(block[0].lines.iter().any(|line| line.contains("handovers")));
    let wrong = text.replacen("  handovers     ", "  handovers    9", 1);
    assert_ne!(wrong, text);
    let compared = std::panic::catch_unwind(|| compare(&page, &blocks(&wrong)[0]));
    assert!(compared.is_err());
}

/// Whether the test runs this command.
fn is_run(command: &str) -> bool {
    command.starts_with("segue sim ") || command.starts_with("grep ")
}

/// Runs the commands of a block in a separate directory. The lines shown must occur in the output in this order; "..."
/// stands for any others. Returns the number of commands and of lines.
fn compare(page: &Path, block: &[Shown]) -> (usize, usize) {
    let directory = TempDir::new().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), directory.path().join("examples")).unwrap();
    let (mut commands, mut lines) = (0, 0);
    for Shown { command, lines: shown } in block.iter().filter(|shown| is_run(&shown.command)) {
        let program = Path::new(env!("CARGO_BIN_EXE_segue")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PATH", path).current_dir(&directory);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut rest = printed.lines();
        for line in shown.iter().filter(|line| *line != "...") {
            let found = rest.any(|printed| printed == line);
            assert!(found, "{}: {command} does not print {line:?} there", page.display());
        }
        commands += 1;
        lines += shown.len();
    }
    (commands, lines)
}

/// The commands in each block of a page.
fn blocks(page: &str) -> Vec<Vec<Shown>> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let commands = |block: &str| {
        let mut commands: Vec<Shown> = Vec::new();
        for line in block.lines().skip(1) {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => {
                    commands.push(Shown { command: command.to_owned(), lines: Vec::new() });
                }
                (None, Some(last)) => last.lines.push(line.to_owned()),
                (None, None) => {}
            }
        }
        commands
    };
    blocks.map(commands).filter(|commands| !commands.is_empty()).collect()
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for directory in ["docs", "docs/simulator"] {
        let files = fs::read_dir(root().join(directory)).unwrap();
        pages.extend(files.map(|file| file.unwrap().path()));
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
