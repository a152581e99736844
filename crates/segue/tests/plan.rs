//! `segue plan` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

const EXAMPLE: &str = "--rtt 100ms --loss 5% --responsiveness 500ms --false-positive-interval 1e5s";

fn plan(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue"))
        .env("COLUMNS", "1000")
        .arg("plan")
        .args(options.split_whitespace())
        .output()
        .expect("the binary runs")
}

/// Standard output of a run that must succeed.
fn ok(options: &str) -> String {
    let output = plan(options);
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(options: &str) -> Value {
    serde_json::from_str(&ok(&format!("{options} --json"))).expect("JSON")
}

/// Standard error of a run that must end with status 2 and print nothing on standard output.
fn refused(options: &str) -> String {
    let output = plan(options);
    assert_eq!(output.status.code(), Some(2), "{options}");
    assert!(output.stdout.is_empty(), "{options}");
    String::from_utf8(output.stderr).expect("text")
}

fn near(value: &Value, want: f64) {
    let got = value.as_f64().expect("a number");
    assert!((got - want).abs() <= want.abs() * 1e-9, "{got}, wanted {want}");
}

#[test]
fn the_papers_example_gives_k_7_and_a_period_of_60_ms() {
    let plan = json(EXAMPLE);
    assert_eq!(plan["k"], 7);
    near(&plan["t_ka_ms"], 60.0);
    near(&plan["t_to_ms"], 420.0);
    near(&plan["t_r_max_ms"], 580.0);
    near(&plan["t_r_avg_ms"], 500.0);
    near(&plan["t_fp_s"], 0.06 / 0.0975_f64.powi(7));
    near(&plan["probes_per_s"], 1.0 / 0.06);
    // IP, UDP, header, probe, authenticator; both directions.
    near(&plan["bits_per_s"], 2.0 * 8.0 * f64::from(20 + 8 + 16 + 32 + 8) / 0.06);
    // The whole round trip.
    near(&plan["rtt_ms"], 100.0);
    near(&plan["rtt_max_ms"], 100.0);
    near(&plan["loss_up"], 0.05);
    near(&plan["loss_down"], 0.05);
    near(&plan["loss"], 0.0975);
    assert_eq!(plan.as_object().unwrap().len(), 13);
}

#[test]
fn the_text_names_every_figure_and_the_warning_goes_to_standard_error() {
    let output = plan(EXAMPLE);
    let text = String::from_utf8(output.stdout).unwrap();
    for figure in
        ["K*      7", "T_KA*   60 ms", "T_TO    420 ms", "580 ms", "500 ms", "22400 bit/s"]
    {
        assert!(text.contains(figure), "{figure} in\n{text}");
    }
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.starts_with("warning: the largest RTT"), "{warning}");
    let quiet = plan("--rtt 10ms --loss 5% --responsiveness 500ms --false-positive-interval 1e5s");
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}

#[test]
fn responsiveness_max_plans_on_equation_1() {
    let plan = json(
        "--rtt 100ms --rtt-max 140ms --loss 5% --responsiveness-max 500ms \
         --false-positive-interval 1e5s",
    );
    near(&plan["t_r_max_ms"], 500.0);
    let k = plan["k"].as_f64().unwrap();
    near(&plan["t_ka_ms"], (500.0 - 140.0) / (k + 1.0));
}

#[test]
fn losses_of_the_two_directions_combine_and_bursts_need_a_larger_k() {
    let rest = "--rtt 100ms --responsiveness 500ms --false-positive-interval 1e5s";
    assert_eq!(json(&format!("{rest} --loss-up 5% --loss-down 0.05"))["k"], 7);
    assert!(json(&format!("{rest} --loss-up 5% --loss-down 0%"))["k"].as_u64().unwrap() < 7);
    assert!(json(&format!("{rest} --loss 5% --burst 1.5"))["k"].as_u64().unwrap() > 7);
    let none = json(&format!("{rest} --loss 0%"));
    assert_eq!((&none["k"], &none["t_fp_s"]), (&Value::from(1), &Value::Null));
}

#[test]
fn a_fixed_period_shows_what_each_k_gives() {
    let rows = json("--rtt 100ms --loss 5% --t-ka 100ms");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for (i, row) in rows.iter().enumerate() {
        let k = i as f64 + 1.0;
        near(&row["t_r_avg_ms"], (k + 0.5) * 100.0 + 50.0);
        near(&row["t_fp_s"], 0.1 / 0.0975_f64.powf(k));
    }
    assert_eq!(ok("--rtt 100ms --loss 5% --t-ka 100ms --k-max 3").lines().count(), 4);
}

#[test]
fn sweeps_print_tables_csv_and_json() {
    for (what, column, rows) in [
        ("loss", "loss_percent", 16),
        ("false-positive-interval", "fp_interval_s", 13),
        ("responsiveness", "responsiveness_ms", 25),
        ("k", "k", 10),
    ] {
        let table = ok(&format!("{EXAMPLE} --sweep {what}"));
        assert_eq!(table.lines().count(), rows + 1, "{what}");
        assert_eq!(table.split_whitespace().next(), Some(column));
        let csv = ok(&format!("{EXAMPLE} --sweep {what} --csv"));
        let commas = csv.lines().map(|line| line.matches(',').count());
        assert_eq!(commas.clone().min(), commas.max(), "{what}: every row has all columns");
        assert_eq!(json(&format!("{EXAMPLE} --sweep {what}")).as_array().unwrap().len(), rows);
    }
}

#[test]
fn the_sweep_over_k_shows_where_the_curves_of_figure_8_cross() {
    let rows = json(&format!("{EXAMPLE} --sweep k --from 5 --to 8"));
    let admissible: Vec<_> =
        rows.as_array().unwrap().iter().map(|row| row["admissible"].as_bool()).collect();
    assert_eq!(admissible, [Some(false), Some(false), Some(true), Some(true)]);
    near(&rows[2]["t_ka_longest_ms"], 60.0);
}

#[test]
fn a_sweep_takes_its_range_and_says_which_rows_cannot_be_met() {
    let rows = json(
        "--rtt 100ms --loss 5% --false-positive-interval 1e5s --sweep responsiveness --from 40ms \
         --to 500ms --points 2",
    );
    assert!(rows[0]["infeasible"].as_str().unwrap().starts_with("responsiveness:"));
    assert_eq!(rows[1]["k"], 7);
}

#[test]
fn targets_that_cannot_be_met_name_the_constraint_in_one_line() {
    let rest = "--responsiveness 500ms --false-positive-interval 1e5s";
    for (options, constraint) in [
        ("--rtt 1s --loss 5%", "responsiveness:"),
        ("--rtt 100ms --loss 50%", "minimum period:"),
        ("--rtt 100ms --loss 50% --k-max 5", "false positive interval:"),
        ("--rtt 100ms --loss 100%", "loss up:"),
        ("--rtt 100ms --rtt-max 50ms --loss 1%", "largest RTT:"),
        ("--rtt 10ms --loss 1% --burst 0.5", "burst length:"),
        ("--rtt 10ms --loss 1% --t-ka-min 0ms", "minimum period:"),
        ("--rtt 10ms --loss 1% --k-max 0", "largest K:"),
    ] {
        let error = refused(&format!("{options} {rest}"));
        assert!(error.starts_with(&format!("segue: {constraint}")), "{options}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn what_is_missing_or_has_no_unit_is_said() {
    assert!(refused("").contains("add for example --rtt 100ms"));
    assert!(refused("--rtt 100ms").contains("--loss"));
    assert!(refused("--rtt 100ms --loss 1%").contains("--responsiveness"));
    assert!(refused("--rtt 100ms --loss 1% --responsiveness 1s").contains("--false-positive"));
    assert!(refused("--rtt 100").contains("has no unit"));
    assert!(refused("--rtt 100ms --loss 1% --t-ka 0ms").contains("--t-ka"));
    assert!(refused(&format!("{EXAMPLE} --csv")).contains("--sweep"));
    assert!(refused(&format!("{EXAMPLE} --responsiveness-max 1s")).contains("exclude"));
}

#[test]
fn the_time_to_reach_a_measurement_gives_the_time_constant() {
    // The example of section 6: 2 s yield 0.87 s.
    near(&json("--t-tml 2s")["tau_ms"], 2_000.0 / std::f64::consts::LN_10);
    assert!(ok("--t-tml 2s").starts_with("tau     868.589 ms"), "{}", ok("--t-tml 2s"));
    let both = json(&format!("{EXAMPLE} --t-tml 2s"));
    assert_eq!(both["k"], 7);
    near(&both["tau_ms"], 2_000.0 / std::f64::consts::LN_10);
    assert!(json(EXAMPLE).get("tau_ms").is_none());
    assert!(refused("--t-tml 0s").contains("--t-tml"));
}

/// Without a configuration, computed by hand: A = RTT + 10 ms, T_D = 2 · 8 ms + A; q is the minimum
/// planned loss.
#[test]
fn in_use_questions_follow_the_answer_time() {
    let plan = json("--use --rtt 20ms");
    near(&plan["answer_ms"], 30.0);
    assert_eq!((&plan["k"], plan["spacing_ms"].as_f64()), (&Value::from(3), Some(8.0)));
    near(&plan["t_d_ms"], 46.0);
    near(&plan["detection_used_ms"], 30.0 + 46.0);
    near(&plan["detection_one_way_ms"], 60.0 + 30.0 + 24.0 + 30.0 + 46.0);
    near(&plan["t_ka_idle_ms"], 2.0 * (2_500.0 - 76.0));
    near(&plan["detection_idle_ms"], 2_500.0);
    let q: f64 = 1.0 - 0.999 * 0.999;
    let about = |value: &Value, want: f64| {
        let got = value.as_f64().expect("a number");
        assert!((got / want - 1.0).abs() < 0.01, "{got}, wanted {want}");
    };
    about(&plan["t_fp_s"], 1.0 / ((4.0 + 1.0 / 0.06) * q.powi(4) + q.powi(3)));
    about(&plan["bytes_a_day_idle"], 168.0 * (1.0 + 3.0 * q) / 4.848 * 86_400.0);
    // More loss requires more questions, and bursts spread them over time.
    let lossy = json("--use --rtt 20ms --loss 5%");
    assert!(lossy["k"].as_u64() > Some(5), "{lossy}");
    let cost = |plan: &Value| plan["bytes_a_day_idle"].as_f64().unwrap();
    assert!(cost(&lossy) > 1.4 * cost(&plan), "{lossy}");
    let bursts = json("--use --rtt 20ms --loss 1% --burst-time 50ms");
    let spread = (bursts["k"].as_f64().unwrap() - 1.0) * bursts["spacing_ms"].as_f64().unwrap();
    assert!(spread >= 50.0, "{bursts}");
    assert!(bursts["t_fp_s"].as_f64() >= Some(1e5), "{bursts}");
    let rows = plan["by_k"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["k"] == 3 && row["t_fp_s"] == plan["t_fp_s"]));
}

#[test]
fn what_does_not_go_with_use_is_refused() {
    for other in ["--t-tml 1s", "--t-ka 100ms", "--sweep loss", "--responsiveness-max 1s"] {
        let said = refused(&format!("--use --rtt 20ms {other}"));
        assert!(said.contains("--use"), "{said}");
    }
    assert!(refused("--use").contains("--rtt"));
}
