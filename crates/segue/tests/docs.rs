//! The program accepts the example files, and the documentation covers every key.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// No socket can be created at this path: a daemon that accepts its configuration fails here,
/// before it changes anything in the system.
const NO_SOCKET: &str = "/dev/null/segue.sock";

/// The roles that are installed.
fn roles() -> impl Iterator<Item = &'static str> {
    segue::cmd::roles::installed().map(|role| role.name)
}

#[test]
fn the_examples_are_taken_as_they_stand() {
    for role in roles() {
        assert_taken(role, &example(role));
    }
}

#[test]
fn the_examples_are_taken_with_every_default_written_out() {
    for role in roles() {
        // A gateway's [mih] requires the access whose hosts are reported.
        let text = example(role).replace("\n# [[access]]\n# interface", "\n[[access]]\ninterface");
        let text = text.replace("\n# proxy_coa", "\nproxy_coa").replace("\n# attach", "\nattach");
        let text: String = text.lines().map(|line| uncommented(line) + "\n").collect();
        assert!(text.len() < example(role).len(), "{role}.toml shows defaults in comments");
        assert_taken(role, &text);
    }
}

#[test]
fn a_wrong_value_in_an_example_would_be_noticed() {
    let text = example("host").replace("\"250ms\"", "\"250\"");
    let error = stopped_by("host", &text);
    assert!(error.contains("host.toml:") && error.contains("unit"), "{error}");
}

#[test]
fn every_key_stands_in_an_example() {
    for role in roles() {
        let text = example(role);
        // Keys that only make sense with another setting are commented with "# ".
        let behind = |line: &str| line.strip_prefix("# ").unwrap_or(line).to_owned();
        let lines: Vec<String> =
            text.lines().flat_map(|line| [uncommented(line), behind(line)]).collect();
        let mut keys = Vec::new();
        keys_of(&schema(role), &mut keys);
        assert!(keys.len() > 5, "{role}: {keys:?}");
        for key in keys {
            let is_table = |line: &str| {
                let name = line.strip_prefix('[').map(|name| name.trim_matches(['[', ']']));
                name.is_some_and(|name| name.split('.').any(|part| part == key))
            };
            let starts = format!("{key} = ");
            let shown = lines.iter().any(|line| line.starts_with(&starts) || is_table(line));
            assert!(shown, "examples/{role}.toml does not show {key}");
        }
    }
}

#[test]
fn doctor_examines_the_example_of_every_role() {
    for role in roles() {
        let mut doctor = segue();
        let file = root().join(format!("examples/{role}.toml"));
        let output = doctor.args(["doctor", "--json", "-c"]).arg(file).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        let findings: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{role}: {error}"));
        let has = |check: &str| findings.as_array().unwrap().iter().any(|f| f["check"] == check);
        assert!(has("kernel") && has("leftovers"), "{role}: {findings:#}");
    }
}

#[test]
fn the_tables_of_keys_in_the_documentation_are_those_of_the_program() {
    let directory = TempDir::new().unwrap();
    let mut told = String::new();
    for page in ["docs/configuration.md", "docs/simulator/scenarios.md"] {
        let copy = directory.path().join(page);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(&copy, read(page)).unwrap();
        let output = segue().args(["generate", "keys"]).arg(&copy).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let written = std::fs::read_to_string(&copy).unwrap();
        assert!(written == read(page), "write it again: segue generate keys {page}");
        told += &written;
    }
    let code = told.split('`').skip(1).step_by(2);
    let separates = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let words: BTreeSet<&str> = code.flat_map(|code| code.split(separates)).collect();
    for kind in roles().chain(["lab", "scenario"]) {
        let mut keys = Vec::new();
        keys_of(&schema(kind), &mut keys);
        for key in keys {
            assert!(words.contains(&*key), "{kind}: {key} is not in the documentation");
        }
    }
}

#[test]
fn the_schemas_have_the_keys_of_the_examples() {
    for directory in ["examples", "examples/pmip"] {
        let files = std::fs::read_dir(root().join(directory)).unwrap();
        let files = files.map(|file| file.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "toml")) {
            let output = segue().args(["check", "--json"]).arg(&file).output().unwrap();
            let told: Value = serde_json::from_slice(&output.stdout).unwrap();
            let values = std::fs::read_to_string(&file).unwrap().parse::<toml::Table>().unwrap();
            let values = serde_json::to_value(values).unwrap();
            assert_described(&schema(told["kind"].as_str().unwrap()), &values, &file);
        }
    }
}

/// Asserts that a schema describes all keys of these values.
fn assert_described(schema: &Value, values: &Value, file: &Path) {
    for value in values.as_array().into_iter().flatten() {
        assert_described(&schema["items"], value, file);
    }
    for (key, value) in values.as_object().into_iter().flatten() {
        let known = schema["properties"].get(key);
        let open = schema.get("properties").is_none();
        assert!(known.is_some() || open, "{}: {key}: {schema:#}", file.display());
        assert_described(known.unwrap_or(&schema["additionalProperties"]), value, file);
    }
}

/// The JSON Schema of a kind of file.
fn schema(kind: &str) -> Value {
    let output = segue().args(["generate", "schema", kind]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The keys of a table and of the tables below it.
fn keys_of(table: &Value, keys: &mut Vec<String>) {
    for (key, schema) in table["properties"].as_object().into_iter().flatten() {
        keys.push(key.clone());
        for below in [schema, &schema["items"], &schema["additionalProperties"]] {
            keys_of(below, keys);
        }
    }
}

#[test]
fn every_link_between_the_documents_leads_to_a_file() {
    let mut links = 0;
    let mut documents =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from).to_vec();
    for directory in ["docs", "docs/simulator", "docs/wire"] {
        let files = std::fs::read_dir(root().join(directory))
            .unwrap()
            .map(|file| file.unwrap().file_name());
        documents.extend(files.map(|file| Path::new(directory).join(file)));
    }
    documents.retain(|document| document.extension().is_some_and(|extension| extension == "md"));
    for document in documents {
        let document = document.to_str().unwrap();
        let text = read(document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let inside = !link.is_empty() && !link.contains("://");
            let target = root().join(document).with_file_name(link);
            assert!(!inside || target.exists(), "{document}: {link}");
            links += usize::from(inside);
        }
    }
    assert!(links > 50, "{links} links found");
}

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    let rules = read("monitoring/segue-alerts.yml");
    let tests = read("monitoring/segue-alerts-test.yml");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} is not tested");
    }
    promtool(&["test", "rules", "segue-alerts-test.yml"], &root().join("monitoring"));
}

#[test]
fn the_dashboard_asks_for_what_daemons_serve() {
    let board: Value = serde_json::from_str(&read("monitoring/segue-dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let asked: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|asked| asked.replace("$instance", ".*").replace("$__rate_interval", "1m"))
        .collect();
    assert!(asked.len() > 15, "{asked:?}");
    let rules: String =
        (0..).zip(&asked).fold("groups: [{name: all, rules: [\n".into(), |all, (i, asked)| {
            format!("{all}{{record: panel:{i}, expr: '{asked}'}},\n")
        });
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("panels.yml"), rules + "]}]\n").unwrap();
    promtool(&["check", "rules", "panels.yml"], directory.path());

    let names = read("crates/probe/src/metrics/names.rs");
    let all = asked.join(" ") + &read("monitoring/segue-alerts.yml");
    let words = all.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    for metric in words.filter(|word| word.starts_with("segue_")) {
        assert!(names.contains(&format!("\"{metric}\"")), "no daemon serves {metric}");
    }
}

/// Checks with promtool, Prometheus' own checker.
fn promtool(arguments: &[&str], directory: &Path) {
    let output = Command::new("promtool").args(arguments).current_dir(directory).output();
    let output = output.expect("promtool is there (scripts/deps.sh test)");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr)
    );
}

/// A line with its default in force: `#key = value` and `# [table]` without the comment mark.
fn uncommented(line: &str) -> String {
    let table =
        line.strip_prefix("# ").filter(|rest| rest.starts_with('[') && !rest.starts_with("[["));
    let key = table
        .or_else(|| line.strip_prefix('#'))
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '['));
    key.unwrap_or(line).to_owned()
}

/// Asserts that the program accepts the file, so that something else stops it.
fn assert_taken(role: &str, text: &str) {
    let error = stopped_by(role, text);
    let outside = ["/dev/null", "not permitted", "there is no interface"];
    assert!(outside.iter().any(|part| error.contains(part)), "{role}: {error}");
    assert!(!error.contains(&format!("{role}.toml")), "{role}: {error}");
}

/// Runs a daemon with this file until it exits by itself; returns the one line that says why.
fn stopped_by(role: &str, text: &str) -> String {
    let directory = TempDir::with_prefix("segue-docs").unwrap();
    let file = directory.path().join(format!("{role}.toml"));
    std::fs::write(&file, text).unwrap();
    let mut daemon = segue();
    daemon.args(role.splitn(2, '-')).args(["--control", NO_SOCKET, "-c"]).arg(&file);
    if role == "host" {
        daemon.args(["--join", &join_line(directory.path())]);
    }
    let output = daemon.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn join_line(directory: &Path) -> String {
    let mut enroll = segue();
    enroll.args(["enroll", "example", "--at", "192.0.2.1", "--control", NO_SOCKET, "--state"]);
    let output = enroll.arg(directory.join("anchor.db")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn segue() -> Command {
    Command::new(env!("CARGO_BIN_EXE_segue"))
}

fn example(role: &str) -> String {
    read(&format!("examples/{role}.toml"))
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect()
}
