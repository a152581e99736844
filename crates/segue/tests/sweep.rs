//! `segue sim sweep` and `segue sim merge` as a user runs them.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Two variants, two losses, six seeds: 24 runs.
const SCENARIO: &str = r#"duration = "20s"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
name = "wire"
ends = ["a", "b"]
rate = "10mbit"
delay = "16ms"
queue = 50
[[tcp]]
name = "f1"
from = "a"
to = "b"
window = 60

[sweep]
seeds = 6
"tcp.f1.variant" = ["reno", "newreno"]
"link.wire.up.loss" = [0.001, 0.01]
"#;

struct Place(TempDir);

impl Place {
    fn new(scenario: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.path("s.toml"), scenario).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sweep(&self, out: &str, options: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.env("COLUMNS", "1000");
        command.args(["sim", "sweep"]).arg(self.path("s.toml"));
        command.arg("--out").arg(self.path(out)).args(options.split_whitespace());
        command
    }

    fn merge(&self, out: &str, dirs: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.env("COLUMNS", "1000");
        command.args(["sim", "merge"]).arg(self.path(out));
        command.args(dirs.iter().map(|dir| self.path(dir)));
        command
    }

    fn tables(&self, out: &str) -> [Vec<u8>; 2] {
        let read = |name| fs::read(self.path(out).join(name)).unwrap();
        [read("results.csv"), read("results.parquet")]
    }
}

fn ended(mut command: Command, status: i32) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{command:?}: {errors}");
    output
}

fn runs_there(dir: &Path) -> usize {
    let files = fs::read_dir(dir.join("runs")).map(|list| list.flatten().collect::<Vec<_>>());
    let whole = |name: &str| name.ends_with(".json") && !name.starts_with('.');
    let names = files.unwrap_or_default();
    names.iter().filter(|entry| entry.file_name().to_str().is_some_and(whole)).count()
}

#[test]
fn one_core_two_cores_an_interruption_and_shards_give_the_same_bytes() {
    let place = Place::new(SCENARIO);
    let output = ended(place.sweep("one", "--jobs 1"), 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("24 runs, 0 failed: "), "{text}");
    let whole = place.tables("one");
    let csv = String::from_utf8(whole[0].clone()).unwrap();
    assert_eq!(csv.lines().count(), 25);
    assert!(csv.starts_with("run,seed,tcp.f1.variant,link.wire.up.loss,"), "{csv}");
    assert!(csv.contains("f1.goodput_bps"));

    ended(place.sweep("two", "--jobs 2"), 0);
    assert_eq!(place.tables("two"), whole);

    // Kill a sweep in the middle; try again if it had already finished.
    let mut interrupted = 0;
    for attempt in 0..10 {
        let name = format!("killed{attempt}");
        let mut child = place.sweep(&name, "--jobs 1").stdout(Stdio::null()).spawn().unwrap();
        while runs_there(&place.path(&name)) < 3 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        interrupted = runs_there(&place.path(&name));
        assert!(interrupted >= 3);
        let output = ended(place.sweep(&name, "--jobs 2"), 0);
        assert_eq!(place.tables(&name), whole);
        if interrupted < 24 {
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(&format!("{interrupted} of 24 runs are there")), "{said}");
            break;
        }
    }
    assert!(interrupted < 24, "ten times it was over before it was killed");

    // Shards in separate directories, and in a shared one.
    for shard in 1..=3 {
        let share = format!("--jobs 1 --shard {shard}/3");
        ended(place.sweep(&format!("shard{shard}"), &share), 0);
        ended(place.sweep("all", &share), 0);
    }
    assert!(!place.path("all").join("results.csv").exists());
    let output = ended(place.merge("merged", &["shard1", "shard3"]), 2);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("8 of 24 runs are missing: 1, 4, 7, 10"), "{error}");
    assert!(!place.path("merged").exists());
    ended(place.merge("merged", &["shard1", "shard2", "shard3"]), 0);
    ended(place.merge("all", &["all"]), 0);
    assert_eq!((place.tables("merged"), place.tables("all")), (whole.clone(), whole));
}

#[test]
fn a_reader_of_others_finds_in_parquet_what_is_in_the_csv() {
    let code = "import csv, sys
try:
    import pyarrow.parquet as parquet
except ImportError:
    sys.exit(77)
table = parquet.read_table(sys.argv[1] + '/results.parquet')
rows = list(csv.reader(open(sys.argv[1] + '/results.csv', newline='')))
assert table.column_names == rows[0], table.column_names
assert table.num_rows == len(rows) - 1 == 24
for row, values in zip(rows[1:], table.to_pylist()):
    for text, value in zip(row, values.values()):
        assert text == ('' if value is None else str(value)) or float(text) == value, (text, value)
print(' '.join(str(field.type) for field in table.schema))";
    let place = Place::new(SCENARIO);
    ended(place.sweep("o", "--set duration=1s"), 0);
    let read = Command::new("python3").args(["-c", code]).arg(place.path("o")).output();
    let Some(read) = read.ok().filter(|read| read.status.code() != Some(77)) else {
        eprintln!("not looked at without python3's pyarrow: results.parquet");
        return;
    };
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let types = String::from_utf8(read.stdout).unwrap();
    assert!(types.starts_with("uint64 uint64 string double string "), "{types}");
}

#[test]
fn another_sweep_in_the_directory_is_refused() {
    let place = Place::new(SCENARIO);
    ended(place.sweep("o", "--set duration=1s"), 0);
    let output = ended(place.sweep("o", "--set duration=2s"), 2);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.ends_with("holds a sweep that has other axes: give another --out\n"), "{error}");
}

#[test]
fn a_bad_axis_is_refused_with_file_line_and_key_before_any_run() {
    let place = Place::new(&SCENARIO.replace("\"tcp.f1.variant\"", "\"tcp.f1.varient\""));
    let output = ended(place.sweep("o", ""), 2);
    let file = place.path("s.toml");
    let said = "sweep.tcp.f1.varient: \"reno\": unknown key (did you mean variant?)";
    let expected = format!("segue: {}:20: {said}\n", file.display());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert!(output.stdout.is_empty() && !place.path("o").exists());
}

#[test]
fn a_run_that_cannot_be_is_reported_with_its_parameters_and_the_others_are_done() {
    let axes = "[sweep]\n\"tcp.f1.from\" = [\"a\", \"b\"]\n\"tcp.f1.to\" = [\"b\", \"a\"]\n";
    let (base, _) = SCENARIO.split_once("[sweep]").unwrap();
    let place = Place::new(&format!("{}{axes}", base.replace("20s", "1s")));
    for _ in 0..2 {
        // The second time all runs exist already, and the same ones are reported.
        let output = ended(place.sweep("o", "--json"), 1);
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&summary["runs"], &summary["done"]), (&4.into(), &4.into()));
        let failed = summary["failed"].as_array().unwrap();
        let numbers: Vec<_> = failed.iter().map(|run| run["run"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(failed[0]["parameters"], "tcp.f1.from=\"a\" tcp.f1.to=\"a\" seed=1");
        let errors = String::from_utf8(output.stderr).unwrap();
        let line = "segue: run 2 (tcp.f1.from=\"b\" tcp.f1.to=\"b\" seed=1) failed: ";
        assert!(errors.lines().any(|said| said.starts_with(line)), "{errors}");
    }
    let [csv, _] = place.tables("o");
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 5);
}

#[test]
fn the_example_is_a_sweep_and_a_scenario() {
    let example = fs::read_to_string(repository("examples/sweep.toml")).unwrap();
    let place = Place::new(&example);
    ended(place.sweep("o", "--seeds 1 --set duration=1s"), 0);
    let [csv, _] = place.tables("o");
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 19);
    let mut run = Command::new(env!("CARGO_BIN_EXE_segue"));
    run.env("COLUMNS", "1000");
    run.args(["sim", "run", "--duration", "1s"]).arg(place.path("s.toml"));
    ended(run, 0);
}

#[test]
fn a_population_is_not_swept() {
    let example = fs::read_to_string(repository("examples/million.toml")).unwrap();
    let place = Place::new(&example);
    let output = ended(place.sweep("o", "--seeds 2"), 2);
    let error = String::from_utf8(output.stderr).unwrap();
    let words = "s.toml: a population is not swept: segue sim run it with --seed and --set\n";
    assert!(error.ends_with(words) && !place.path("o").exists(), "{error}");
}

#[test]
fn the_examples_for_clusters_are_what_their_readers_take() {
    let python = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    let yaml = "import sys
try:
    import yaml
except ImportError:
    sys.exit(77)
claim, job = yaml.safe_load_all(open(sys.argv[1]))
assert job['spec']['completionMode'] == 'Indexed'
shell, option, command = job['spec']['template']['spec']['containers'][0]['command']
assert command.split('/16')[0].endswith('--shard \"$((JOB_COMPLETION_INDEX + 1))'), command
assert job['spec']['completions'] == 16
print(command)";
    let script = |code: &str, file: &str| {
        Command::new("python3").args(["-c", code]).arg(repository(file)).output()
    };
    let shell = |arguments: &[&str], file: Option<&str>| {
        let file = file.map(repository);
        Command::new("bash").args(arguments).args(file).output().unwrap()
    };
    assert!(shell(&["-n"], Some("examples/cluster/slurm.sh")).status.success());
    let Ok(parsed) = script(python, "examples/cluster/ray_sweep.py") else {
        eprintln!("not looked at without python3: ray_sweep.py, kubernetes.yaml");
        return;
    };
    assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let read = script(yaml, "examples/cluster/kubernetes.yaml").unwrap();
    if read.status.code() == Some(77) {
        eprintln!("not looked at without python3's yaml: kubernetes.yaml");
        return;
    }
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let command = String::from_utf8(read.stdout).unwrap();
    assert!(shell(&["-n", "-c", &command], None).status.success(), "{command}");
}

fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}
