//! Plans, tables and stored runs, without a simulation.

use std::fs::{self, File};
use std::sync::Mutex;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use segue_sim::Results;
use tempfile::TempDir;

use super::plan::{Plan, Seeds, seeds, set};
use super::store::{Kept, Store, gather};
use super::table::Table;
use super::work::execute;
use super::{Point, Shard};
use crate::file::Scenario;

const BASE: &str = "duration = \"10s\"
seed = 7
[[node]]
name = \"a\"
[[node]]
name = \"b\"
[[link]]
name = \"wire\"
ends = [\"a\", \"b\"]
";

fn scenario(sweep: &str) -> Scenario {
    Scenario::parse(&format!("{BASE}{sweep}\n"), "s.toml").unwrap()
}

fn plan(sweep: &str) -> Plan {
    Plan::of(&scenario(sweep), &[], None).unwrap()
}

fn refusal(sweep: &str) -> String {
    let scenario = scenario(sweep);
    let plan = Plan::of(&scenario, &[], None);
    plan.and_then(|plan| plan.check(&scenario)).unwrap_err().to_string()
}

fn points(plan: &Plan) -> Vec<String> {
    (0..plan.runs()).map(|run| plan.point(run).to_string()).collect()
}

/// A grid of twelve runs.
const GRID: &str = "[sweep]
seeds = [5, 3]
\"link.wire.loss\" = [0.5, 0.25]
\"link.wire.delay\" = [\"1ms\", \"2ms\", \"3ms\"]
";

#[test]
fn a_directory_that_no_sweep_has_written_is_refused() {
    let place = TempDir::new().unwrap();
    let dir = place.path().to_owned();
    let said = || gather(std::slice::from_ref(&dir)).unwrap_err().to_string();
    assert!(said().ends_with("holds no sweep"), "{}", said());
    let plan = |axes: &str, seeds: &str| {
        let text = format!(
            "{{\"version\":\"1\",\"scenario\":\"\",\"axes\":[{axes}],\"seeds\":[{seeds}]}}"
        );
        fs::write(dir.join("sweep.json"), text).unwrap();
    };
    let axis = format!("{{\"key\":\"k\",\"values\":[{}\"\"]}}", "\"\",".repeat(255));
    for (axes, seeds) in
        [("", ""), ("{\"key\":\"k\",\"values\":[]}", "1"), (&[&*axis; 9].join(","), "1")]
    {
        plan(axes, seeds);
        assert!(said().ends_with("is no sweep's: it has no runs, or too many"), "{}", said());
    }
    plan("", "1");
    fs::create_dir(dir.join("runs")).unwrap();
    let run = |text: &str| fs::write(dir.join("runs/000000.json"), text).unwrap();
    run("garbage");
    assert!(said().contains("000000.json"), "{}", said());
    run("{\"run\":0,\"error\":null,\"results\":[[\"x\",{\"float\":\"zz\"}]]}");
    assert!(said().ends_with("000000.json: \"x\" is \"zz\", which is no number"), "{}", said());
}

#[test]
fn seeds_change_first_and_then_the_last_axis_of_the_file() {
    let points = points(&plan(GRID));
    assert_eq!(points.len(), 12);
    assert_eq!(points[0], "link.wire.loss=0.5 link.wire.delay=\"1ms\" seed=5");
    assert_eq!(points[1], "link.wire.loss=0.5 link.wire.delay=\"1ms\" seed=3");
    assert_eq!(points[2], "link.wire.loss=0.5 link.wire.delay=\"2ms\" seed=5");
    assert_eq!(points[11], "link.wire.loss=0.25 link.wire.delay=\"3ms\" seed=3");
}

#[test]
fn the_command_line_adds_axes_replaces_them_and_gives_seeds() {
    let sets = [set("link.wire.loss=0.1").unwrap(), set("link.wire.rate=5mbit,6mbit").unwrap()];
    let plan = Plan::of(&scenario(GRID), &sets, Some(seeds("1").unwrap())).unwrap();
    let points = points(&plan);
    assert_eq!(points.len(), 6);
    assert_eq!(points[1], "link.wire.loss=0.1 link.wire.delay=\"1ms\" link.wire.rate=6mbit seed=1");
    assert_eq!(plan.check(&scenario(GRID)).map_err(|error| error.to_string()), Ok(()));
    // Without seeds, the scenario's seed is used.
    let one = Plan::of(&scenario(""), &sets, None).unwrap();
    assert_eq!(one.point(0).seed, 7);
}

#[test]
fn a_range_counts_both_ends_with_as_many_decimals_as_were_written() {
    let values = |text: &str| {
        let plan = plan(&format!("[sweep]\n\"link.wire.loss\" = {text}"));
        plan.axes()[0].values.join(" ")
    };
    assert_eq!(values("{ from = 0.1, to = 0.3, step = 0.1 }"), "0.1 0.2 0.3");
    assert_eq!(values("{ from = 0.0, to = 0.1, step = 0.025 }"), "0.000 0.025 0.050 0.075 0.100");
    assert_eq!(values("{ from = 5, to = -1, step = -2 }"), "5 3 1 -1");
    assert_eq!(values("{ from = 1, to = 2.5, step = 1 }"), "1.0 2.0");
    assert_eq!(values("[true, \"1 %\", 2, 1.5, [1, 2]]"), "true \"1 %\" 2 1.5 [1, 2]");
}

#[test]
fn what_makes_no_sweep_is_refused_with_file_line_and_key() {
    for (sweep, expected) in [
        (
            "\"link.wire.dely\" = [\"1ms\"]",
            "link.wire.dely: \"1ms\": unknown key (did you mean delay?)",
        ),
        ("\"link.wite.delay\" = [\"1ms\"]", "link.wite.delay: \"1ms\": there is no link wite"),
        ("\"lonk.wire.delay\" = [1]", "lonk.wire.delay: 1: there is no lonk in the file"),
        (
            "\"link.wire.loss\" = [\"1%\", \"200%\"]",
            "link.wire.loss: \"200%\": \"200%\" is more than 100 %",
        ),
        ("\"link.wire.loss\" = []", "link.wire.loss: an axis has one value at least"),
        ("\"link.wire.loss\" = [0.1, 0.1]", "link.wire.loss: 0.1 stands there twice"),
        (
            "\"link.wire.loss\" = 0.1",
            "link.wire.loss: an axis is a list of values, or { from, to, step }",
        ),
        (
            "link.wire.loss = [0.1]",
            "link: a key of several parts stands in quotation marks: \"….wire\"",
        ),
        ("\"link.wire.loss\" = { from = 0 }", "link.wire.loss: the range has no to"),
        (
            "\"link.wire.loss\" = { from = 0, to = 1, step = 0 }",
            "link.wire.loss: the range never gets from its from to its to",
        ),
        (
            "\"link.wire.loss\" = { from = 0, to = 1, step = -0.5 }",
            "link.wire.loss: the range never gets from its from to its to",
        ),
        (
            "\"link.wire.loss\" = { from = 0, to = 1, step = 1e-9 }",
            "link.wire.loss: the range has more than 1000000 values",
        ),
        ("seeds = 0", "seeds: 0 seeds: write a number from 1 to 1000000, or a list"),
        ("seeds = [1, 2, 1]", "seeds: seed 1 stands there twice"),
        ("seed = 4", "seed: write seeds: how many, or a list"),
    ] {
        assert_eq!(refusal(&format!("[sweep]\n{sweep}")), format!("s.toml:11: sweep.{expected}"));
    }
    let nothing = refusal("");
    assert!(nothing.starts_with("nothing to sweep"), "{nothing}");
    let many = refusal("[sweep]\nseeds = 1000000\n\"link.wire.loss\" = [0.1, 0.2]");
    assert!(many.starts_with("2000000 runs are more than 1000000"), "{many}");
}

#[test]
fn a_value_that_is_right_beside_another_is_taken() {
    // From b to b is wrong, from b to a is not.
    let flow = "[[tcp]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n";
    let axes = "[sweep]\n\"tcp.f.from\" = [\"a\", \"b\"]\n\"tcp.f.to\" = [\"b\", \"a\"]";
    let scenario = scenario(&format!("{flow}{axes}"));
    let plan = Plan::of(&scenario, &[], None).unwrap();
    plan.check(&scenario).unwrap();
    let good = (0..4).filter(|run| scenario.with(&plan.point(*run).sets()).is_ok());
    assert_eq!(good.collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn shards_share_the_runs_out_and_seeds_and_sets_are_read_from_the_command_line() {
    let plan = plan(GRID);
    let share = |text: &str| plan.share(text.parse::<Shard>().unwrap());
    assert_eq!((share("1/5"), share("5/5")), (vec![0, 5, 10], vec![4, 9]));
    for bad in ["0/4", "5/4", "1", "1/0", "a/b", "-1/4"] {
        assert!(bad.parse::<Shard>().unwrap_err().contains("is no share"), "{bad}");
    }
    let listed = Plan::of(&scenario(""), &[], Some(seeds("9, 4").unwrap())).unwrap();
    assert_eq!((listed.point(0).seed, listed.point(1).seed), (9, 4));
    assert!(seeds("1,x").is_err() && seeds("0").is_err() && seeds("3,3").is_err());
    assert_ne!(seeds("3").unwrap(), seeds("3,1").unwrap());
    let values = |text: &str| set(text).unwrap().1;
    assert_eq!(values("k=1,[2,3],\"a,b\",{x=1,y=2}"), ["1", "[2,3]", "\"a,b\"", "{x=1,y=2}"]);
    assert!(set("k").is_err());
}

/// Values of every type; the loss decides which of them appear.
fn outcome(point: &Point<'_>) -> Result<Results, String> {
    let mut results = Results::new();
    results.int("f.sent", u64::MAX - point.run);
    results.float("f.goodput_bps", 0.1 * point.run as f64);
    match point.run % 4 {
        0 => results.text("f.name", "a \"b\", c"),
        1 => results.int("f.mixed", 3),
        2 => results.float("f.mixed", 2.5),
        _ => return Err("no way".into()),
    }
    Ok(results)
}

fn tables(plan: &Plan, store: &Store) -> (Vec<u8>, Vec<u8>) {
    let kept: Vec<Kept> = (0..plan.runs()).map(|run| store.load(run).unwrap()).collect();
    let table = Table::of(plan, &kept).unwrap();
    (table.csv(), table.parquet().unwrap())
}

fn swept(plan: &Plan, jobs: usize) -> (TempDir, Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), plan).unwrap();
    let all: Vec<u64> = (0..plan.runs()).collect();
    execute(plan, &store, &all, jobs, &outcome).unwrap();
    let (csv, parquet) = tables(plan, &store);
    (dir, csv, parquet)
}

#[test]
fn the_table_has_a_row_for_each_run_and_a_column_for_all_that_any_run_has() {
    let (_dir, csv, _) = swept(&plan(GRID), 2);
    let csv = String::from_utf8(csv).unwrap();
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines.len(), 14);
    let heading = "run,seed,link.wire.loss,link.wire.delay_s,f.sent,f.goodput_bps,f.name,f.mixed";
    assert_eq!(lines[0], heading);
    assert_eq!(lines[1], "0,5,0.5,0.001,18446744073709551615,0.0,\"a \"\"b\"\", c\",");
    assert_eq!(lines[2], "1,3,0.5,0.001,18446744073709551614,0.1,,3");
    assert_eq!(lines[4], "3,3,0.5,0.002,,,,");
    // Exact to the last bit: 0.1 · 6.
    assert_eq!(lines[7], "6,5,0.25,0.001,18446744073709551609,0.6000000000000001,,2.5");
}

#[test]
fn parquet_gives_back_what_went_in() {
    let (dir, _, parquet) = swept(&plan(GRID), 1);
    let path = dir.path().join("t.parquet");
    fs::write(&path, parquet).unwrap();
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 12);
    let row =
        |i: usize| rows[i].get_column_iter().map(|(_, field)| field.clone()).collect::<Vec<_>>();
    let text = |text: &str| Field::Str(text.into());
    let (axes, sent) = ([Field::Double(0.25), Field::Double(0.001)], Field::ULong(u64::MAX - 6));
    let mut expected = vec![Field::ULong(6), Field::ULong(5)];
    expected.extend(axes);
    expected.extend([sent, Field::Double(0.1 * 6.0), Field::Null, Field::Double(2.5)]);
    assert_eq!(row(6), expected);
    // A whole number in a column with fractions; a failed run.
    assert_eq!(row(1)[7], Field::Double(3.0));
    assert_eq!(row(0)[6], text("a \"b\", c"));
    assert!(row(3)[4..].iter().all(|field| *field == Field::Null));
    let names: Vec<_> = rows[0].get_column_iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names[2], "link.wire.loss");
}

#[test]
fn a_sweep_goes_on_with_what_it_has_and_runs_again_what_cannot_be_read() {
    let plan = plan(GRID);
    let (_whole, csv, parquet) = swept(&plan, 1);
    let (dir, ..) = swept(&plan, 3);
    let file = |run: u64| dir.path().join(format!("runs/{run:06}.json"));
    fs::remove_file(file(4)).unwrap();
    fs::write(file(8), "{\"run\":8,\"err").unwrap();
    fs::copy(file(1), file(9)).unwrap();
    let again = Mutex::new(Vec::new());
    let store = Store::open(dir.path(), &plan).unwrap();
    let all: Vec<u64> = (0..plan.runs()).collect();
    let noted = |point: &Point<'_>| {
        again.lock().unwrap().push(point.run);
        outcome(point)
    };
    execute(&plan, &store, &all, 1, &noted).unwrap();
    assert_eq!(*again.lock().unwrap(), [4, 8, 9]);
    assert_eq!(tables(&plan, &store), (csv, parquet));
}

#[test]
fn a_directory_of_another_sweep_is_refused_and_says_what_differs() {
    let (dir, ..) = swept(&plan(GRID), 1);
    let refusal = |sweep: &str, sets: &[_], seeds: Option<Seeds>| {
        let plan = Plan::of(&scenario(sweep), sets, seeds).unwrap();
        Store::open(dir.path(), &plan).err().unwrap().to_string()
    };
    let place = dir.path().display();
    let loss = [set("link.wire.loss=0.5").unwrap()];
    for (error, why) in [
        (refusal("[sweep]\nseeds = 2", &[], None), "has another scenario"),
        (refusal(GRID, &loss, None), "has other axes"),
        (refusal(GRID, &[], Some(seeds("2").unwrap())), "has other seeds"),
    ] {
        assert_eq!(error, format!("{place} holds a sweep that {why}: give another --out"));
    }
}

#[test]
fn shards_in_directories_of_their_own_make_the_whole_and_a_missing_one_is_named() {
    let plan = plan(GRID);
    let (_whole, csv, parquet) = swept(&plan, 1);
    let dirs: Vec<TempDir> = (1..=3).map(|_| tempfile::tempdir().unwrap()).collect();
    for (i, dir) in (1..).zip(&dirs) {
        let store = Store::open(dir.path(), &plan).unwrap();
        let share = plan.share(format!("{i}/3").parse().unwrap());
        execute(&plan, &store, &share, 2, &outcome).unwrap();
    }
    let paths: Vec<_> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
    let (found, kept) = gather(&paths).unwrap();
    let table = Table::of(&found, &kept).unwrap();
    assert_eq!((table.csv(), table.parquet().unwrap()), (csv, parquet));
    let error = gather(&paths[..2]).unwrap_err().to_string();
    assert_eq!(error, "4 of 12 runs are missing: 2, 5, 8, 11");
    let (other, ..) = swept(&self::plan("[sweep]\nseeds = 2"), 1);
    let error = gather(&[paths[0].clone(), other.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("holds a sweep that has another scenario than"), "{error}");
    // The same run with two results: the files are inconsistent.
    let kept = Kept::of(0, Err("otherwise".into()));
    Store::open(&paths[1], &plan).unwrap().keep(&kept).unwrap();
    let error = gather(&paths).unwrap_err().to_string();
    assert!(error.starts_with("run 0 has two different results"), "{error}");
}

#[test]
fn a_run_that_panics_is_a_failed_run() {
    let plan = plan("[sweep]\nseeds = 3");
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &plan).unwrap();
    let run = |point: &Point<'_>| if point.run == 1 { panic!("planted") } else { outcome(point) };
    execute(&plan, &store, &[0, 1, 2], 2, &run).unwrap();
    let errors: Vec<_> = (0..3).map(|run| store.load(run).unwrap().error).collect();
    assert_eq!(errors, [None, Some("the simulator panicked".into()), None]);
}
