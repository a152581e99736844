//! `segue plan`: computes K and T_KA from detection targets, or evaluates given ones.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_keepalive::ewma;
use segue_keepalive::planner::{self, Plan, Responsiveness, Targets};
use segue_text::units;
use serde::Serialize;

mod doubt;
mod show;
mod sweep;

use show::{Table, digits, human, milliseconds, rounded, seconds};

/// Choose how often to probe: K* and T_KA* from the path and the targets.
#[derive(clap::Args)]
#[command(after_help = "Example: segue plan --rtt 100ms --loss 5% --responsiveness 500ms \
                        --false-positive-interval 1e5s")]
pub struct Args {
    /// Average round-trip time, for example 100ms.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    rtt: Option<Span>,
    /// Largest round-trip time [default: that of --rtt].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    rtt_max: Option<Span>,
    /// Loss in each direction, for example 5%.
    #[arg(long, value_name = "RATIO", value_parser = units::ratio)]
    loss: Option<f64>,
    /// Loss from host to anchor, instead of --loss.
    #[arg(long, value_name = "RATIO", value_parser = units::ratio)]
    loss_up: Option<f64>,
    /// Loss from anchor to host, instead of --loss.
    #[arg(long, value_name = "RATIO", value_parser = units::ratio)]
    loss_down: Option<f64>,
    /// Mean number of probes in a row that a burst of losses takes (Gilbert model, one step for each
    /// probe) [default: losses are independent].
    #[arg(long, value_name = "PROBES")]
    burst: Option<f64>,
    /// Plan for detection that follows use, as a host without a configuration has it: how it asks in doubt, and what
    /// an idle path costs. Needs --rtt alone; --responsiveness is that of an idle path.
    #[arg(long = "use", conflicts_with_all = ["burst", "rides", "t_ka_min"])]
    in_use: bool,
    /// With --use: mean time that a burst of losses lasts.
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "in_use")]
    burst_time: Option<Span>,
    /// Plan for probes that may ride on data (`rides = true`).
    #[arg(long)]
    rides: bool,
    /// A fault is found within this time on average (T_Ravg).
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    responsiveness: Option<Span>,
    /// A fault is found within this time at worst (T_Rmax), instead of --responsiveness.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    responsiveness_max: Option<Span>,
    /// Mean time between false positives (T_fp) that must be exceeded, for example 1e5s.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    false_positive_interval: Option<Span>,
    /// Shortest period to consider [default: 10ms, in a sweep 1ms].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    t_ka_min: Option<Span>,
    /// Largest K to consider, or to show with --t-ka (default there: 10) and --sweep k.
    #[arg(long, value_name = "N")]
    k_max: Option<u8>,
    /// Fix the period and show what each K gives; no targets are needed.
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "sweep")]
    t_ka: Option<Span>,
    /// Vary one quantity and show K* and T_KA* for each value, or (k) the periods that each K allows.
    #[arg(long, value_enum, value_name = "WHAT")]
    sweep: Option<Sweep>,
    /// First value of the sweep, for example 0.5% or 80ms.
    #[arg(long, value_name = "VALUE", requires = "sweep")]
    from: Option<String>,
    /// Last value of the sweep.
    #[arg(long, value_name = "VALUE", requires = "sweep")]
    to: Option<String>,
    /// Number of values of the sweep.
    #[arg(long, value_name = "N", requires = "sweep", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    points: Option<u32>,
    /// An average shall have covered 90 % of a step after this time (T_tml): its time constant. Alone, or
    /// beside a plan.
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with_all = ["sweep", "t_ka"])]
    t_tml: Option<Span>,
    /// Print a table as comma-separated values.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What a sweep varies; each is a figure of the paper.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Sweep {
    /// Loss in each direction, from 0.5 % to 8 % (Fig. 9).
    Loss,
    /// K, from 1 to 10 (Fig. 8).
    K,
    /// T_fp, from 100 s to 10⁶ s in equal ratios (Fig. 10).
    FalsePositiveInterval,
    /// Responsiveness, from 80 ms to 2 s (Fig. 11).
    Responsiveness,
}

/// A plan with the units of the command's output.
#[derive(Serialize)]
struct Shown {
    k: u8,
    t_ka_ms: f64,
    t_to_ms: f64,
    t_r_max_ms: f64,
    t_r_avg_ms: f64,
    /// Absent (null) without loss: false positives never happen.
    t_fp_s: Option<f64>,
    probes_per_s: f64,
    bits_per_s: f64,
    /// Time constant for `--t-tml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tau_ms: Option<f64>,
}

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
            false => print!("{}", tau_row(tau_ms)),
        }
        return Ok(());
    }
    let plan = planner::plan(&Given::from(args).check(args)?)?;
    warn(&plan);
    if args.json {
        println!("{}", serde_json::to_string(&Shown { tau_ms, ..Shown::from(&plan) })?);
    } else {
        print!("{}{}", describe(&plan, args.rides), tau_ms.map(tau_row).unwrap_or_default());
    }
    Ok(())
}

fn tau_row(tau_ms: f64) -> String {
    let what = "time constant (tau) of averages that cover 90 % of a step in T_tml";
    format!("{:<8}{:<28}{what}\n", "tau", milliseconds(tau_ms))
}

fn warn(plan: &Plan) {
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
}

fn describe(plan: &Plan, rides: bool) -> String {
    let shown = Shown::from(plan);
    let mut text = String::new();
    let t_to = if rides { "time-out, (K + 2)·T_KA" } else { "time-out, K·T_KA" };
    let t_fp = shown.t_fp_s.map_or("never".into(), |s| format!("{} ({})", seconds(s), human(s)));
    for (name, value, what) in [
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
    let mut table = Table::new(&PLAN_COLUMNS);
    for plan in &plans {
        table.row(plan_cells(plan, args.csv));
    }
    table.print(args.csv);
    Ok(())
}

/// The targets given.
struct Given {
    up: Option<f64>,
    down: Option<f64>,
    responsiveness: Option<Responsiveness>,
    fp_interval: Option<f64>,
}

impl From<&Args> for Given {
    fn from(args: &Args) -> Given {
        let avg = args.responsiveness.map(|t| Responsiveness::Avg(t.as_secs_f64()));
        let max = args.responsiveness_max.map(|t| Responsiveness::Max(t.as_secs_f64()));
        Given {
            up: args.loss_up.or(args.loss),
            down: args.loss_down.or(args.loss),
            responsiveness: max.or(avg),
            fp_interval: args.false_positive_interval.map(Span::as_secs_f64),
        }
    }
}

impl Given {
    fn check(self, args: &Args) -> anyhow::Result<Targets> {
        let rtt =
            args.rtt.context("the round-trip time is missing: add for example --rtt 100ms")?;
        let loss = "the loss is missing: add for example --loss 5%, or --loss-up and --loss-down";
        if args.responsiveness.is_some() && args.responsiveness_max.is_some() {
            bail!("--responsiveness and --responsiveness-max exclude each other: give one");
        }
        // A sweep shows the whole curve, even its impractical part.
        let default_t_ka_min = if args.sweep.is_some() { 0.001 } else { planner::T_KA_MIN };
        let targets = Targets {
            rtt_avg: rtt.as_secs_f64(),
            rtt_max: args.rtt_max.map(Span::as_secs_f64),
            loss_up: self.up.context(loss)?,
            loss_down: self.down.context(loss)?,
            loss: None,
            burst: args.burst,
            rides: args.rides,
            responsiveness: self
                .responsiveness
                .context("the responsiveness is missing: add for example --responsiveness 500ms")?,
            fp_interval: self.fp_interval.context(
                "the false positive interval is missing: add for example \
                 --false-positive-interval 1e5s",
            )?,
            t_ka_min: args.t_ka_min.map_or(default_t_ka_min, Span::as_secs_f64),
            k_max: args.k_max.unwrap_or(planner::K_MAX),
        };
        targets.check()?;
        Ok(targets)
    }
}

impl From<&Plan> for Shown {
    fn from(plan: &Plan) -> Shown {
        Shown {
            k: plan.k,
            t_ka_ms: rounded(plan.t_ka * 1e3),
            t_to_ms: rounded(plan.t_to * 1e3),
            t_r_max_ms: rounded(plan.t_r_max * 1e3),
            t_r_avg_ms: rounded(plan.t_r_avg * 1e3),
            t_fp_s: plan.t_fp.is_finite().then(|| rounded(plan.t_fp)),
            probes_per_s: rounded(plan.probes_per_s),
            bits_per_s: rounded(plan.bits_per_s),
            tau_ms: None,
        }
    }
}

const PLAN_COLUMNS: [&str; 8] =
    ["k", "t_ka_ms", "t_to_ms", "t_r_max_ms", "t_r_avg_ms", "t_fp_s", "probes_per_s", "bits_per_s"];

fn plan_cells(plan: &Plan, full: bool) -> Vec<String> {
    let s = Shown::from(plan);
    let number = |x: f64| if full { x.to_string() } else { digits(x) };
    vec![
        s.k.to_string(),
        number(s.t_ka_ms),
        number(s.t_to_ms),
        number(s.t_r_max_ms),
        number(s.t_r_avg_ms),
        s.t_fp_s.map_or("inf".into(), number),
        number(s.probes_per_s),
        number(s.bits_per_s),
    ]
}
