//! `segue plan`: computes K and T_KA from detection targets, or evaluates given ones.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use segue_clock::Span;
use segue_keepalive::ewma;
use segue_keepalive::planner::{self, Plan, Responsiveness, Targets};
use segue_text::say;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::wrap;

mod args;
mod doubt;
mod show;
mod sweep;

pub use args::Args;
use args::Given;
use show::{OnePlan, PLAN_COLUMNS, Rows, Shown, digits, human, milliseconds, plan_cells, seconds};

/// Runs the verb.
///
/// # Errors
/// Targets that are missing, out of range or unattainable.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.in_use {
        doubt::run(&args)?;
    } else if let Some(t_ka) = args.t_ka {
        table_of_k(&args, t_ka)?;
    } else if let Some(sweep) = args.sweep {
        sweep::run(&args, sweep)?;
    } else {
        one_plan(&args)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one_plan(args: &Args) -> anyhow::Result<()> {
    if args.csv {
        bail!("--csv prints a table: it needs --sweep or --t-ka");
    }
    let tau_ms = args.t_tml.map(|t_tml| ewma::time_constant(t_tml).as_millis_f64());
    if tau_ms.is_some_and(|tau_ms| tau_ms == 0.0) {
        bail!("--t-tml: a time of zero has no time constant");
    }
    let targets = args.responsiveness.or(args.responsiveness_max).or(args.false_positive_interval);
    if let (Some(tau_ms), None, None) = (tau_ms, targets, args.rtt) {
        match args.json {
            true => println!("{}", serde_json::json!({ "tau_ms": tau_ms })),
            false => say!("{}", tau_row(tau_ms)),
        }
        return Ok(());
    }
    let targets = Given::from(args).check(args)?;
    let plan = planner::plan(&targets)?;
    warn(&plan);
    if args.json {
        println!("{}", serde_json::to_string(&OnePlan::of(&targets, &plan, tau_ms))?);
    } else {
        let mut text = describe(&targets, &plan);
        text.extend(tau_ms.map(tau_row));
        say!("{}", text.trim_end());
    }
    Ok(())
}

fn tau_row(tau_ms: f64) -> String {
    let what = "time constant (tau) of averages that cover 90 % of a step in T_tml";
    format!("{:<8}{:<28}{what}", "tau", milliseconds(tau_ms))
}

fn warn(plan: &Plan) {
    for warning in &plan.warnings {
        eprintln!("{}", wrap(&format!("warning: {warning}"), Stream::Error.room()));
    }
}

fn describe(targets: &Targets, plan: &Plan) -> String {
    let shown = Shown::from(plan);
    let rides = targets.rides;
    let [mean, most] = [targets.rtt_avg, targets.rtt_max()].map(|s| milliseconds(s * 1e3));
    let rtt = if mean == most { mean } else { format!("{mean}, at most {most}") };
    let [q, up, down] = [targets.probe_loss(), targets.loss_up, targets.loss_down]
        .map(|share| format!("{} %", digits(share * 1e2)));
    let mut text = String::new();
    let t_to = if rides { "time-out, (K + 2)·T_KA" } else { "time-out, K·T_KA" };
    let t_fp = shown.t_fp_s.map_or("never".into(), |s| format!("{} ({})", seconds(s), human(s)));
    for (name, value, what) in [
        ("RTT", rtt, "round trip"),
        ("q", q, &format!("of probes unanswered: {up} lost up, {down} down")),
        ("K*", shown.k.to_string(), "probes lost in a row declare the path down"),
        ("T_KA*", milliseconds(shown.t_ka_ms), "period of probes"),
        ("T_TO", milliseconds(shown.t_to_ms), t_to),
        ("T_Rmax", milliseconds(shown.t_r_max_ms), "a fault is found within, at worst"),
        ("T_Ravg", milliseconds(shown.t_r_avg_ms), "a fault is found within, on average"),
        ("T_fp", t_fp, "mean time between false positives"),
        ("probes", format!("{} /s", digits(shown.probes_per_s)), "requests"),
        ("rate", format!("{} bit/s", digits(shown.bits_per_s)), "both directions, over IPv4"),
    ] {
        let _ = writeln!(text, "{name:<8}{value:<28}{what}");
    }
    text
}

/// Fig. 7: the period is fixed, K varies.
fn table_of_k(args: &Args, t_ka: Span) -> anyhow::Result<()> {
    if t_ka == Span::ZERO {
        bail!("--t-ka: a period of zero is no period");
    }
    // Responsiveness and interval are results here, so any valid targets will do.
    let any = (Some(Responsiveness::Avg(1.0)), Some(1.0));
    let mut given = Given::from(args);
    (given.responsiveness, given.fp_interval) = any;
    let targets = given.check(args)?;
    let plans: Vec<Plan> = (1..=args.k_max.unwrap_or(10))
        .map(|k| planner::evaluate(k, t_ka.as_secs_f64(), &targets))
        .collect();
    plans.first().into_iter().for_each(warn);
    if args.json {
        let shown: Vec<Shown> = plans.iter().map(Shown::from).collect();
        println!("{}", serde_json::to_string(&shown)?);
        return Ok(());
    }
    let mut table = Rows::new(&PLAN_COLUMNS);
    for plan in &plans {
        table.row(plan_cells(plan, args.csv));
    }
    table.print(args.csv);
    Ok(())
}
