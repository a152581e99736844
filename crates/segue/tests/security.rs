//! Every claim in `docs/security.md` has a test: the last column of each table row names tests of
//! this repository, as `` `crate::file::function` ``, or gives the reason why there is none.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Prefix of the last cell of a row without a test; the reason follows.
const NONE: &str = "none: ";
/// Allowed prefixes of the second cell of a row without a test, which promises no protection.
const OPEN: [&str; 3] = ["**succeeds**", "**not", "**seen**"];

#[test]
fn every_line_of_the_page_on_security_names_a_test() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let mut tree = Tree::default();
    let wrong: Vec<String> = rows(&page)
        .into_iter()
        .filter_map(|(line, row)| Some(format!("{line}: {}", tree.fault(&row)?)))
        .collect();
    assert!(wrong.is_empty(), "docs/security.md:\n{}", wrong.join("\n"));
    assert!(rows(&page).len() > 50, "{} rows found", rows(&page).len());
}

#[test]
fn a_line_without_a_test_or_with_one_that_does_not_run_would_be_noticed() {
    let table = |row: &str| {
        let page = format!("| tries | outcome | test |\n| --- | --- | --- |\n{row}\n");
        Tree::default().fault(&rows(&page)[0].1)
    };
    let good = "`segue::security::every_line_of_the_page_on_security_names_a_test`";
    assert_eq!(table(&format!("| this | refused | {good} |")), None);
    assert_eq!(table("| this | **succeeds** | none: nobody could |"), None);
    let listed = "`segue::daemons::several::two_hosts_are_kept_apart_and_may_not_borrow_addresses`";
    assert_eq!(table(&format!("| in a list of tests | refused | {listed} |")), None);
    for (row, part) in [
        ("| this | refused |", "2 cells"),
        ("| this | refused | |", "names no test"),
        ("| this | refused | soon |", "names no test"),
        ("| this | refused | none: nobody could |", "promises"),
        ("| this | **succeeds** | none: |", "names no test"),
        ("| this | refused | `segue::security::no_such_test` |", "no_such_test"),
        ("| this | refused | `segue::nowhere::no_such_test` |", "no file"),
        ("| a function | refused | `segue::security::root` |", "no test"),
        (
            "| by hand only | refused | \
             `segue::reproduce::all_figures_on_the_emulated_path_agree_with_the_paper` |",
            "that `make test` runs",
        ),
    ] {
        let fault = table(row).unwrap_or_default();
        assert!(fault.contains(part), "{row}: {fault:?}");
    }
}

struct Row {
    cells: Vec<String>,
    /// Number of cells in the table's header.
    width: usize,
}

/// The rows of all tables, without headers, with their line numbers.
fn rows(page: &str) -> Vec<(usize, Row)> {
    let mut found = Vec::new();
    let mut width = None;
    for (n, line) in page.lines().enumerate() {
        let Some(inside) = line.trim().strip_prefix('|').and_then(|l| l.strip_suffix('|')) else {
            width = None;
            continue;
        };
        let cells: Vec<String> = inside.split('|').map(|cell| cell.trim().to_owned()).collect();
        match width {
            None => {
                assert_eq!(cells.last().map(String::as_str), Some("test"), "line {}", n + 1);
                width = Some(cells.len());
            }
            Some(_) if cells.iter().all(|cell| cell.starts_with("---")) => {}
            Some(width) => found.push((n + 1, Row { cells, width })),
        }
    }
    found
}

/// Source files by crate, read once.
#[derive(Default)]
struct Tree {
    files: BTreeMap<String, Vec<(Vec<String>, String)>>,
}

impl Tree {
    /// The error in a row; `None` if it is correct.
    fn fault(&mut self, row: &Row) -> Option<String> {
        let [.., outcome, tests] = row.cells.as_slice() else { return Some("no cells".into()) };
        if row.cells.len() != row.width {
            return Some(format!("{} cells where {} are wanted", row.cells.len(), row.width));
        }
        if tests.strip_prefix(NONE).is_some_and(|reason| !reason.is_empty()) {
            let open = OPEN.iter().any(|words| outcome.starts_with(words));
            return (!open).then(|| format!("{:?} promises something untested", row.cells[0]));
        }
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            return Some(format!("{:?} names no test", row.cells[0]));
        }
        named.into_iter().find_map(|name| self.missing(name))
    }

    /// Why `name` is not a test of this tree; `None` if it is one.
    fn missing(&mut self, name: &str) -> Option<String> {
        let parts: Vec<&str> = name.split("::").collect();
        let [of, path @ .., function] = parts.as_slice() else {
            return Some(format!("{name}: no crate::file::function"));
        };
        let files = self.files.entry((*of).to_owned()).or_insert_with(|| sources(of));
        let fits = |file: &&(Vec<String>, String)| {
            !path.is_empty()
                && file.0.iter().map(String::as_str).collect::<Vec<_>>().ends_with(path)
        };
        let mut candidates = files.iter().filter(fits).peekable();
        if candidates.peek().is_none() {
            return Some(format!("{name}: no file {}", path.join("/")));
        }
        let found = candidates.any(|(_, text)| is_test(text, function));
        (!found).then(|| format!("{name}: no test {function} that `make test` runs"))
    }
}

/// Whether `text` contains a test of this name that runs by default: with a test attribute, or in a
/// list that generates one test per datapath.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let starts = [format!("fn {name}("), format!("async fn {name}(")];
    let marked = lines.iter().enumerate().any(|(n, line)| {
        let above = lines[..n].iter().rev().take_while(|line| line.starts_with("#["));
        let above: Vec<&&str> = above.collect();
        starts.iter().any(|start| line.starts_with(start.as_str()))
            && above
                .iter()
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
            && !above.iter().any(|line| line.starts_with("#[ignore"))
    });
    let listed = text.split("over_both! {").skip(1).any(|rest| {
        let list = rest.split('}').next().unwrap_or_default();
        list.split_whitespace().any(|word| word == name)
    });
    marked || listed
}

/// The files of a crate: the parts of the path below `src` or `tests`, and the text.
fn sources(of: &str) -> Vec<(Vec<String>, String)> {
    let mut files = Vec::new();
    for place in ["src", "tests"] {
        collect(&root().join("crates").join(of).join(place), &[], &mut files);
    }
    files
}

fn collect(directory: &Path, parts: &[String], files: &mut Vec<(Vec<String>, String)>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let mut parts = parts.to_vec();
        parts.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        if path.is_dir() {
            collect(&path, &parts, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            // A `mod.rs` stands for its directory.
            parts.pop_if(|last| last == "mod");
            files.push((parts, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect()
}
