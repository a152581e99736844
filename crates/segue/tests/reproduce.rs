//! `segue reproduce` as a user runs it.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn reproduce(out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.env("COLUMNS", "1000");
    command.arg("reproduce").arg("--out").arg(out).args(args);
    command
}

fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("segue-reproduce").tempdir().unwrap()
}

/// Runs experiments that must succeed; returns the result as JSON.
fn json(out: &Path, ids: &[&str]) -> Value {
    let output = reproduce(out, ids).arg("--json").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}{}", String::from_utf8_lossy(&output.stdout));
    assert!(errors.is_empty(), "--json prints nothing else: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The lines of an experiment.
fn lines<'a>(result: &'a Value, id: &str) -> &'a Vec<Value> {
    let mut experiments = result["experiments"].as_array().unwrap().iter();
    let found = experiments.find(|experiment| experiment["id"] == id);
    found.unwrap_or_else(|| panic!("{id} is not in {result}"))["lines"].as_array().unwrap()
}

/// The value measured here for the quantity whose name begins with `what`.
fn here<'a>(result: &'a Value, id: &str, what: &str) -> &'a str {
    let mut all = lines(result, id).iter();
    let found = all.find(|line| line["what"].as_str().unwrap().starts_with(what));
    found.unwrap_or_else(|| panic!("{id} says nothing of {what}"))["here"].as_str().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The points of a series in a CSV file.
fn series(out: &Path, file: &str, name: &str) -> Vec<(f64, f64)> {
    let text = std::fs::read_to_string(out.join(file)).unwrap();
    let rows = text.lines().skip(1).map(|line| line.rsplitn(3, ',').collect::<Vec<_>>());
    let mine = rows.filter(|row| row[2].trim_matches('"') == name);
    mine.map(|row| (row[1].parse().unwrap(), row[0].parse().unwrap())).collect()
}

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

#[test]
fn the_list_names_every_figure_of_the_measurements() {
    let out = directory();
    let output = reproduce(out.path(), &["--list"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let ids: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for figure in [7, 8, 9, 10, 11, 16, 17, 18, 21, 22, 23, 24] {
        assert!(ids.contains(&format!("salsano-fig{figure}").as_str()), "{figure}: {text}");
    }
    for id in ["salsano-table2", "patriarca-fig7", "patriarca-fig8", "false-positives", "detection"]
        .into_iter()
        .chain(["salsano-appendix3", "salsano-active-pb", "salsano-memory"])
    {
        assert!(ids.contains(&id), "{text}");
    }
    for figure in [16, 17, 18, 21, 22, 23, 24] {
        assert!(ids.contains(&format!("salsano-fig{figure}-tunnel").as_str()), "{figure}: {text}");
    }
    for figure in ALVES {
        assert!(ids.contains(&figure), "{figure}: {text}");
    }
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "a list writes nothing");
    let output = reproduce(out.path(), &["--list", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), ids.len());
}

#[test]
fn an_unknown_experiment_is_refused_with_the_nearest_names() {
    let out = directory();
    let output = reproduce(out.path(), &["salsano-fig8", "salsano-fg16"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.contains("salsano-fg16") && error.contains("salsano-fig16"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let output = reproduce(out.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "no experiment named: {}", stderr(&output));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let output = reproduce(Path::new("/dev/null/x"), &["salsano-fig8"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/null/x"), "{}", stderr(&output));
}

#[test]
fn the_planners_figures_have_the_values_that_the_paper_states() {
    let out = directory();
    let ids = [7, 8, 9, 10, 11].map(|figure| format!("salsano-fig{figure}"));
    let result = json(out.path(), &ids.each_ref().map(String::as_str));
    assert_eq!(here(&result, "salsano-fig8", "K* of the example"), "7");
    assert_eq!(here(&result, "salsano-fig8", "T_KA* of the example"), "60.0 ms");
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    the_headline_counts_every_verdict(out.path());
    assert_eq!(here(&result, "salsano-fig7", "T_Ravg"), "100 ms more for each K");
    for line in ids.iter().flat_map(|id| lines(&result, id)) {
        assert_ne!(line["agrees"], false, "{line}");
    }
    // Eq. 2 and 4 at K = 3: 3.5·100 ms + 50 ms, and 0.1 s / 0.0975³.
    let at_three = |file, name| series(out.path(), file, name)[2];
    assert_eq!(at_three("salsano-fig7.csv", "T_Ravg (ms)"), (3.0, 400.0));
    let (_, t_fp) = at_three("salsano-fig7-false-positives.csv", "T_fp (s)");
    assert!((t_fp - 0.1 / 0.0975f64.powi(3)).abs() < 1e-6, "{t_fp}");
    let page = std::fs::read_to_string(out.path().join("index.html")).unwrap();
    for link in page.split("<a href=\"").skip(1).filter_map(|a| a.split('"').next()) {
        assert!(out.path().join(link).is_file(), "{link} lies beside the page");
    }
    for id in &ids {
        assert!(
            page.contains(&format!("<a href=\"{id}.csv\">")),
            "the page links to the data of {id}"
        );
        assert!(page.contains(&format!("{id}: ")), "the page has {id}");
        let svg = std::fs::read_to_string(out.path().join(format!("{id}.svg"))).unwrap();
        assert!(svg.starts_with("<svg ") && svg.contains("xmlns="), "{id}.svg stands alone");
    }
}

/// Every verdict names its bar, and no quantity is counted twice.
fn every_verdict_has_its_bar_and_no_fact_has_two(result: &Value) {
    let mut judged = std::collections::BTreeSet::new();
    for experiment in result["experiments"].as_array().unwrap() {
        for line in experiment["lines"].as_array().unwrap() {
            assert_eq!(line["bar"].is_string(), line["agrees"].is_boolean(), "{line}");
            if line["bar"].is_string() {
                assert!(!line["bar"].as_str().unwrap().is_empty(), "{line}");
                let fact = line["what"].as_str().unwrap();
                let place = if fact.contains("of the example") {
                    ""
                } else {
                    experiment["id"].as_str().unwrap()
                };
                assert!(judged.insert((place, fact)), "{fact} is judged twice");
            }
        }
    }
    assert!(!judged.is_empty());
}

/// The page's headline counts each verdict on the page once.
fn the_headline_counts_every_verdict(out: &Path) {
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    let shown = |verdict: &str| page.matches(&format!(">{verdict}</td>")).count();
    let (agree, differ) = (shown("agrees"), shown("DIFFERS"));
    let (_, headline) = page.split_once("<p class=\"verdict\">").unwrap();
    let counted = format!("{agree} of {} quantit", agree + differ);
    assert!(
        headline.starts_with(&counted),
        "{counted}… is not {}",
        headline.chars().take(80).collect::<String>()
    );
}

#[test]
fn text_and_page_show_the_bar_beside_the_verdict() {
    let out = directory();
    let output = reproduce(out.path(), &["salsano-fig8"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[agrees; bar: 59.50 to 60.50 ms]"), "{text}");
    let page = std::fs::read_to_string(out.path().join("index.html")).unwrap();
    assert!(page.contains("59.50 to 60.50 ms"), "the page names the bar");
    let verdict = page.split_once("<p class=\"verdict\">").unwrap().1.split_once("</p>").unwrap().0;
    assert!(verdict.starts_with("2 of 2 quantities with a bar agree: salsano-fig8, "), "{verdict}");
    assert!(verdict.contains("(bar: 59.50 to 60.50 ms; agrees)"), "{verdict}");
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.contains(&format!("</time> by Segue {version}: <code>segue reproduce --out ")));
}

#[test]
fn a_fault_is_found_half_a_period_sooner_than_eq_1_and_2_say_and_no_sooner() {
    let out = directory();
    let result = json(out.path(), &["detection"]);
    let lines = lines(&result, "detection");
    assert_eq!(lines.len(), 8);
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    for line in lines {
        assert_eq!(line["agrees"], true, "{line}");
    }
}

#[test]
#[ignore = "millions of probes; make soak runs it"]
fn the_simulated_machine_has_false_positives_as_rarely_as_eq_4_and_the_exact_chain_say() {
    let out = directory();
    let result = json(out.path(), &["false-positives"]);
    for line in lines(&result, "false-positives") {
        assert_eq!(line["agrees"], true, "{line}");
    }
}

#[test]
fn the_average_of_fig_16_is_that_of_what_the_emulator_imposed() {
    if !root() {
        return;
    }
    let out = directory();
    let result = json(out.path(), &["salsano-fig16"]);
    for line in lines(&result, "salsano-fig16") {
        println!("{}: {} / {}", line["what"], line["paper"], line["here"]);
    }
    assert_eq!(lines(&result, "salsano-fig16").len(), 5);
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    let csv = |name: &str| series(out.path(), "salsano-fig16.csv", name);
    let imposed = csv("imposed on each probe");
    assert!(imposed.len() > 20, "{} probes", imposed.len());
    // The emulator's timestamps show the step, and no round trip below the configured one.
    let (step, _) = csv("imposed")[1];
    assert!((3.75..6.0).contains(&step), "the step came at {step} s");
    let level = |at: f64| if at < step { 100.0 } else { 200.0 };
    assert!(imposed.iter().all(|(at, rtt)| *rtt >= level(at - 0.3)), "{imposed:?}");
    assert!(imposed.iter().any(|(_, rtt)| *rtt >= 200.0), "{imposed:?}");
    for tau_ms in [124.0, 218.0, 392.0, 896.0] {
        follows(&imposed, &csv(&format!("measured, τ = {tau_ms} ms")), [tau_ms; 2]);
    }
    let conditions = result["experiments"][0]["conditions"].as_str().unwrap();
    assert!(conditions.contains("seed 1"), "{conditions}");
    for key in ["kernel", "processor", "datapath"] {
        assert!(result["machine"][key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
}

/// Asserts that half of the measured values are close to eq. 13 over the imposed ones, with one time constant for
/// samples above the average and one for samples below. Only half, because a busy machine delays packets after the
/// emulator has timestamped them.
fn follows(imposed: &[(f64, f64)], measured: &[(f64, f64)], taus_ms: [f64; 2]) {
    let errors =
        measured.iter().filter_map(|(at, s)| Some((s - average(imposed, taus_ms, *at)?).abs()));
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 20, "{} averages", errors.len());
    let median = errors[errors.len() / 2];
    println!("tau {taus_ms:?} ms: median error {median:.3} ms of {}", errors.len());
    assert!(median < 5.0, "tau {taus_ms:?} ms: {median} ms");
}

/// Eq. 13 over samples up to an instant.
fn average(samples: &[(f64, f64)], [rise_ms, fall_ms]: [f64; 2], at: f64) -> Option<f64> {
    let mut samples = samples.iter().take_while(|(when, _)| *when <= at);
    let (mut last, mut s) = *samples.next()?;
    for (when, x) in samples {
        let tau_ms = if *x > s { rise_ms } else { fall_ms };
        let keep = (-(when - last) * 1e3 / tau_ms).exp();
        (last, s) = (*when, (1.0 - keep) * x + keep * s);
    }
    Some(s)
}

#[test]
fn the_round_trip_loss_is_what_both_one_way_losses_make_of_it() {
    let out = directory();
    let result = json(out.path(), &["salsano-appendix3"]);
    let lines = lines(&result, "salsano-appendix3");
    assert_eq!(lines.len(), 5);
    for line in lines {
        assert_eq!(line["agrees"], true, "{line}");
    }
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
}

/// A step of the round-trip time as the host daemon measures it, and probes that ride on a call.
#[test]
fn the_daemons_estimators_follow_a_step_over_the_tunnel_and_riding_probes_save_what_the_paper_says()
{
    if !root() {
        return;
    }
    let out = directory();
    let result = json(out.path(), &["salsano-fig16-tunnel", "salsano-active-pb"]);
    for id in ["salsano-fig16-tunnel", "salsano-active-pb"] {
        for line in lines(&result, id) {
            println!("{id}: {}: {} [{}]", line["what"], line["here"], line["agrees"]);
        }
    }
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    let csv = |name: &str| series(out.path(), "salsano-fig16-tunnel.csv", name);
    let imposed = csv("imposed on each probe");
    assert!(imposed.len() > 20, "{} probes", imposed.len());
    for tau_ms in [124.0, 896.0] {
        follows(&imposed, &csv(&format!("measured, τ = {tau_ms} ms")), [tau_ms; 2]);
    }
    let saved = here(&result, "salsano-active-pb", "air time saved");
    let percent: f64 = saved.split(' ').next().unwrap().parse().unwrap();
    // If the machine stalls the call for a period, a probe is sent alone.
    assert!((85.0..=97.0).contains(&percent), "{saved}");
    let conditions = result["experiments"][0]["conditions"].as_str().unwrap();
    assert!(conditions.contains("datapath ebpf"), "{conditions}");
}

/// An average that rises with one time constant and falls with another, configured in a host's file and computed by the
/// programs.
#[test]
fn the_daemons_asymmetric_average_follows_increases_more_closely() {
    if !root() {
        return;
    }
    let out = directory();
    let id = "salsano-fig23-tunnel";
    let result = json(out.path(), &[id]);
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    for line in lines(&result, id) {
        println!("{}: {} [{}]", line["what"], line["here"], line["agrees"]);
        let accuracy = line["what"].as_str().unwrap().contains("error");
        assert!(accuracy || line["agrees"] == true, "{line}");
    }
    let csv = |name: &str| series(out.path(), &format!("{id}.csv"), name);
    let imposed = csv("imposed on each probe");
    follows(&imposed, &csv("measured, τ = 124 ms rising, 896 ms falling"), [124.0, 896.0]);
    follows(&imposed, &csv("measured, τ = 896 ms"), [896.0; 2]);
}

/// The experiments of paper 3.
const ALVES: [&str; 8] = [
    "alves-table2",
    "alves-fig7",
    "alves-fig8",
    "alves-fig9",
    "alves-fig10",
    "alves-fig11",
    "alves-fig12",
    "alves-table4",
];

/// The median in a line's text, in µs or ms.
fn median(text: &str) -> f64 {
    let after = text.split_once("median ").unwrap().1;
    after.split(' ').next().unwrap().parse().unwrap()
}

/// Paper 3 in its quick form: checks results that hold even on a busy machine, and that no leftovers remain.
#[test]
fn the_figures_of_paper_3_come_from_classifiers_and_from_a_domains_daemons() {
    if !root() {
        return;
    }
    let out = directory();
    let arguments = [&ALVES[..], &["--quick", "--json"]].concat();
    let child = reproduce(out.path(), &arguments).stdout(std::process::Stdio::piped()).spawn();
    let child = child.unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    for id in ALVES {
        for line in lines(&result, id) {
            println!("{id}: {}: {} [{}]", line["what"], line["here"], line["agrees"]);
        }
    }
    assert!(output.status.success(), "{result:#}");
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    the_headline_counts_every_verdict(out.path());
    let repeated = lines(&result, "alves-table4").iter().filter(|line| line["bar"].is_string());
    assert_eq!(repeated.count(), 0, "the table counts what stands beside the figures");

    // One nftables rule per flow slows down each packet, more than any other classifier here.
    let at = |name: &str| series(out.path(), "alves-fig7.csv", name);
    let rules = at("nftables, a rule for each flow");
    let [(few, short), .., (many, long)] = rules[..] else { panic!("{rules:?}") };
    assert_eq!((few, many), (1.0, 1_000.0));
    assert!(long > 2.0 * short, "{rules:?}");
    assert_eq!(at("eBPF, the relay").last().unwrap().0, 100_000.0);
    let ours =
        lines(&result, "alves-fig8").iter().find(|l| l["what"].as_str().unwrap().contains("eBPF"));
    assert_eq!(ours.unwrap()["agrees"], true, "{ours:?}");

    // The first packet of a flow passes through the daemon, later ones do not.
    let first = median(here(&result, "alves-fig9", "time in the LMA, packet 1"));
    let later = median(here(&result, "alves-fig9", "time in the LMA, packets 6"));
    assert!(first > 2.0 * later, "{first} µs, then {later} µs");
    for node in ["LMA", "MAG"] {
        let alone = here(&result, "alves-fig10", &format!("time in the {node}, 100 kbit/s, alone"));
        assert!(median(alone) > 0.0, "{alone}");
        let batched = format!("batched over alone in the {node}, 100 kbit/s");
        assert!(here(&result, "alves-fig10", &batched).contains("packets"), "{result:#}");
    }
    assert_eq!(lines(&result, "alves-fig11").len(), 4);
    let delay = here(&result, "alves-fig12", "handover delay of a flow, 1 Mbit/s, median");
    assert!(delay.ends_with(" ms of 6"), "{delay}");
    let attached = median(here(&result, "alves-fig12", "attaching"));
    assert!(attached > 0.0 && attached < 1_500.0, "{attached} ms");
    // The table counts the bars of the figures.
    let bars = |id: &str| lines(&result, id).iter().filter(|l| l["bar"].is_string()).count();
    let e = here(&result, "alves-table4", "E: ");
    assert!(e.ends_with(&format!("of {} bars are met (alves-fig12)", bars("alves-fig12"))), "{e}");
    let page = std::fs::read_to_string(out.path().join("index.html")).unwrap();
    assert!(page.contains("Attaching to an access: each step"));
    let left = segue_linux::netns::list_with_prefix("segue-");
    assert!(left.iter().all(|name| !name.contains(&format!("alves{pid}-"))), "{left:?}");
}

#[test]
fn an_interrupted_domain_of_paper_3_leaves_no_namespace_and_no_daemon() {
    if !root() {
        return;
    }
    let out = directory();
    let mut command = reproduce(out.path(), &["alves-fig12", "--quick", "--json"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let namespaces = || {
        let all = segue_linux::netns::list_with_prefix("segue-");
        all.iter().filter(|name| name.contains(&format!("alves{pid}-"))).count()
    };
    let daemons = || -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let told =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let told: Vec<String> = told.collect();
        told.iter().flat_map(|all| all.split(' ')).filter_map(|pid| pid.parse().ok()).collect()
    };
    let patience = Instant::now() + Duration::from_secs(60);
    while daemons().len() < 3 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    let running = daemons();
    assert!(
        running.len() >= 3,
        "functions of IEEE 802.21, a server, the anchor, gateways: {running:?}"
    );
    assert!(namespaces() > 0);
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["experiments"][0]["error"], "interrupted");
    assert_eq!(namespaces(), 0);
    for daemon in running {
        assert!(!Path::new(&format!("/proc/{daemon}")).exists(), "{daemon} still runs");
    }
}

#[test]
fn an_interrupted_run_leaves_what_was_done_and_no_namespace() {
    if !root() {
        return;
    }
    let out = directory();
    let mut command = reproduce(out.path(), &["salsano-fig17", "--json"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mark = |name: &String| name.contains(&format!("levelsslow{}-", child.id()));
    let namespaces =
        || segue_linux::netns::list_with_prefix("segue-").iter().filter(|n| mark(n)).count();
    let patience = Instant::now() + Duration::from_secs(60);
    while namespaces() == 0 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(namespaces() > 0, "it began");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["experiments"][0]["error"], "interrupted");
    assert!(out.path().join("index.html").exists());
    let left = segue_linux::netns::list_with_prefix("segue-");
    assert!(left.iter().all(|name| !name.contains(&format!("levelsslow{pid}-"))), "{left:?}");
}

/// Experiments that need a distribution's kernel or a program to compare with.
const BESIDE_OTHERS: [&str; 2] = ["salsano-fig16-netem", "patriarca-fig7"];

/// Runs every experiment in its full form. Judges only the verdicts that a busy machine cannot spoil.
#[test]
#[ignore = "takes 20 minutes; make soak runs it"]
fn every_experiment_runs_and_figures_on_the_emulated_path_agree_with_the_paper() {
    if !root() {
        return;
    }
    let out = directory();
    let output = reproduce(out.path(), &["--all", "--json"]).output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = reproduce(out.path(), &["--list", "--json"]).output().unwrap();
    let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    for experiment in &listed {
        let id = experiment["id"].as_str().unwrap();
        for line in lines(&result, id) {
            println!(
                "{id}: {}: {} / {} [{}]",
                line["what"], line["paper"], line["here"], line["agrees"]
            );
        }
    }
    for ran in result["experiments"].as_array().unwrap() {
        let id = ran["id"].as_str().unwrap();
        let why = ran["skipped"].as_str().or(ran["error"].as_str()).unwrap_or_default();
        if BESIDE_OTHERS.contains(&id) && !why.is_empty() {
            println!("{id}: not judged, {why}");
            continue;
        }
        assert!(!lines(&result, id).is_empty(), "{ran}");
    }
    assert_eq!(result["experiments"].as_array().unwrap().len(), listed.len());
    every_verdict_has_its_bar_and_no_fact_has_two(&result);
    the_headline_counts_every_verdict(out.path());
    for id in ["salsano-fig17", "salsano-fig18", "salsano-fig23", "salsano-fig18-tunnel"] {
        for line in lines(&result, id)
            .iter()
            .filter(|line| !line["what"].as_str().unwrap().contains("error"))
        {
            assert_ne!(line["agrees"], false, "{id}: {line}");
        }
    }
    // Counting does not depend on the machine's speed.
    for id in ["salsano-fig24", "salsano-fig24-tunnel", "salsano-memory", "alves-table2"] {
        for line in lines(&result, id)
            .iter()
            .filter(|line| !line["what"].as_str().unwrap().contains("behind"))
        {
            assert_ne!(line["agrees"], false, "{id}: {line}");
        }
    }
}
