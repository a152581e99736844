//! Errors about wrong files.

use std::path::Path;

use segue_grammar::{Config, parse};

use super::*;

/// Wrong files, each as `ROLE | TEXT | ERROR` with line breaks written as `\n`.
const WRONG: &str = include_str!("wrong-files.txt");

#[test]
fn wrong_files_are_refused_with_file_line_and_key() {
    let mut found = String::new();
    for line in WRONG.lines() {
        let mut parts = line.split(" | ");
        let (role, text) = (parts.next().unwrap(), parts.next().unwrap());
        found += &format!("{role} | {text} | {}\n", refusal(role, &text.replace("\\n", "\n")));
    }
    assert!(found == WRONG, "{found}");
}

#[test]
fn each_state_has_a_log_of_its_own() {
    let keys = StateKeys::default();
    let log = |state: &str| keys.history(Path::new(state)).unwrap().path.display().to_string();
    assert_eq!(log("/var/lib/segue/host.db"), "/var/lib/segue/host.events");
    assert_eq!(log("/srv/site.1"), "/srv/site.1.events");
    assert_eq!(log("/srv/host.events"), "/srv/host.events.events");
    let file: HostFile = parse("history_mb = 0", "f").unwrap();
    assert!(file.state.history(Path::new("/srv/host.db")).is_none());
}

fn refusal(role: &str, text: &str) -> String {
    match role {
        "host" => of(text, HostFile::validate),
        "anchor" => of(text, AnchorFile::validate),
        "pmip-lma" => of(text, LmaFile::validate),
        "pmip-mag" => of(text, MagFile::validate),
        "mih-function" => of(text, MihFunctionFile::validate),
        "mih-link-sap" => of(text, MihLinkSapFile::validate),
        _ => panic!("{role}"),
    }
}

fn of<T: Config, S>(text: &str, validate: fn(T) -> anyhow::Result<S>) -> String {
    let error = parse::<T>(text, "f.toml").and_then(|file| validate(file).map(drop)).err();
    error.map_or("taken".into(), |error| format!("{error:#}"))
}
