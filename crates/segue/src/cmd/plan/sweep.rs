//! `--sweep`: K* and T_KA* as one quantity varies (Fig. 8 to 11).

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_keepalive::planner::{self, Infeasible, Responsiveness, Targets};
use segue_text::terminal::Stream;
use segue_text::terminal::layout::wrap;
use segue_text::units;
use serde_json::{Value, json};

use super::args::{Args, Given, Sweep};
use super::show::{PLAN_COLUMNS, Rows, Shown, digits, plan_cells, rounded};

/// Runs `--sweep`.
pub(super) fn run(args: &Args, sweep: Sweep) -> anyhow::Result<()> {
    match sweep {
        Sweep::K => sweep_k(args),
        Sweep::Loss => {
            let values = range(args, units::ratio, (0.005, 0.08, 16), false)?;
            let percent = |x: f64| x * 100.0;
            sweep_plans(args, "loss_percent", &values, percent, |targets, x| Targets {
                loss_up: x,
                loss_down: x,
                ..targets
            })
        }
        Sweep::FalsePositiveInterval => {
            let values = range(args, seconds_of, (100.0, 1e6, 13), true)?;
            sweep_plans(
                args,
                "fp_interval_s",
                &values,
                |x| x,
                |targets, x| Targets { fp_interval: x, ..targets },
            )
        }
        Sweep::Responsiveness => {
            let values = range(args, seconds_of, (0.08, 2.0, 25), false)?;
            let ms = |x: f64| x * 1e3;
            sweep_plans(args, "responsiveness_ms", &values, ms, |targets, x| Targets {
                responsiveness: match targets.responsiveness {
                    Responsiveness::Avg(_) => Responsiveness::Avg(x),
                    Responsiveness::Max(_) => Responsiveness::Max(x),
                },
                ..targets
            })
        }
    }
}

/// Fig. 9 to 11: one row for each value of a quantity. If the targets are unattainable at a value, the row says why.
fn sweep_plans(
    args: &Args,
    name: &'static str,
    values: &[f64],
    unit: impl Fn(f64) -> f64,
    with: impl Fn(Targets, f64) -> Targets,
) -> anyhow::Result<()> {
    let base = targets_for_sweep(args, name, values[0])?;
    let mut columns = vec![name];
    columns.extend(PLAN_COLUMNS);
    columns.push("infeasible");
    let (mut table, mut objects) = (Rows::new(&columns), Vec::new());
    let mut doubtful = 0;
    for &value in values {
        let mut row = vec![digits(unit(value))];
        let mut object = json!({ name: rounded(unit(value)) });
        match planner::plan(&with(base, value)) {
            Ok(plan) => {
                doubtful += usize::from(!plan.warnings.is_empty());
                merge(&mut object, serde_json::to_value(Shown::from(&plan))?);
                row.extend(plan_cells(&plan, args.csv));
                row.push(String::new());
            }
            Err(error @ Infeasible::BadValue { .. }) => return Err(error.into()),
            Err(error) => {
                merge(&mut object, json!({ "infeasible": error.to_string() }));
                row.extend(PLAN_COLUMNS.map(|_| "-".into()));
                row.push(error.to_string());
            }
        }
        table.row(row);
        objects.push(object);
    }
    if doubtful > 0 {
        let warning = format!(
            "warning: the largest RTT is not below T_KA in {doubtful} of {} rows: the false positive \
             interval assumes that it is",
            values.len()
        );
        eprintln!("{}", wrap(&warning, Stream::Error.room()));
    }
    if args.json {
        println!("{}", Value::Array(objects));
    } else {
        table.print(args.csv);
    }
    Ok(())
}

/// Fig. 8: the longest period that responsiveness allows and the shortest that false positives allow.
fn sweep_k(args: &Args) -> anyhow::Result<()> {
    let targets = Given::from(args).check(args)?;
    let whole = |s: &str| s.parse::<u8>().map(f64::from).map_err(|_| format!("{s:?} is no K"));
    let (from, to) = (args.from.as_deref(), args.to.as_deref());
    let first = from.map_or(Ok(1.0), whole).map_err(anyhow::Error::msg).context("--from")? as u8;
    let last = to
        .map_or(Ok(f64::from(args.k_max.unwrap_or(10))), whole)
        .map_err(anyhow::Error::msg)
        .context("--to")? as u8;
    if args.points.is_some() || first == 0 || last < first {
        bail!("--sweep k goes through every K from --from (at least 1) to --to, without --points");
    }
    let mut table = Rows::new(&["k", "t_ka_longest_ms", "t_ka_shortest_ms", "admissible"]);
    let mut objects = Vec::new();
    for k in first..=last {
        let longest = planner::longest_period(k, &targets);
        let shortest = planner::shortest_period(k, &targets);
        let admissible = shortest < longest && longest >= targets.t_ka_min;
        let (longest_ms, shortest_ms) = (rounded(longest * 1e3), rounded(shortest * 1e3));
        let word = if admissible { "yes" } else { "no" };
        table.row(vec![k.to_string(), digits(longest_ms), digits(shortest_ms), word.into()]);
        objects.push(json!({ "k": k, "t_ka_longest_ms": longest_ms,
            "t_ka_shortest_ms": shortest_ms, "admissible": admissible }));
    }
    if args.json {
        println!("{}", Value::Array(objects));
    } else {
        table.print(args.csv);
    }
    Ok(())
}

/// The values of a sweep, evenly spaced or in equal ratios; `default` is (first, last, number).
fn range(
    args: &Args,
    parse: impl Fn(&str) -> Result<f64, String>,
    default: (f64, f64, u32),
    ratios: bool,
) -> anyhow::Result<Vec<f64>> {
    let one = |text: &Option<String>, otherwise: f64, name: &'static str| match text {
        Some(text) => parse(text).map_err(anyhow::Error::msg).context(name),
        None => Ok(otherwise),
    };
    let first = one(&args.from, default.0, "--from")?;
    let last = one(&args.to, default.1, "--to")?;
    if last <= first || (ratios && first <= 0.0) {
        bail!("a sweep goes upwards: --from must be below --to, and above zero");
    }
    let steps = args.points.unwrap_or(default.2) - 1;
    let at = |i: u32| f64::from(i) / f64::from(steps);
    Ok((0..=steps)
        .map(|i| match ratios {
            true => first * (last / first).powf(at(i)),
            false => first + (last - first) * at(i),
        })
        .collect())
}

fn seconds_of(text: &str) -> Result<f64, String> {
    units::duration(text).map(Span::as_secs_f64)
}

/// The targets of a sweep: the quantity that varies need not be given.
fn targets_for_sweep(args: &Args, name: &str, first: f64) -> anyhow::Result<Targets> {
    let mut given = Given::from(args);
    match name {
        "loss_percent" => (given.up, given.down) = (Some(first), Some(first)),
        "fp_interval_s" => given.fp_interval = Some(first),
        _ => given.responsiveness = given.responsiveness.or(Some(Responsiveness::Avg(first))),
    }
    given.check(args)
}

fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
