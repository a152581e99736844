//! Prints plans, tables and numbers for people.

use std::fmt::Write as _;

use segue_keepalive::planner::{Plan, Targets};
use segue_text::say;
use serde::Serialize;

/// A plan in the units of the command's output.
#[derive(Serialize)]
pub(super) struct Shown {
    pub(super) k: u8,
    pub(super) t_ka_ms: f64,
    pub(super) t_to_ms: f64,
    pub(super) t_r_max_ms: f64,
    pub(super) t_r_avg_ms: f64,
    /// Absent (null) without loss, since false positives never happen then.
    pub(super) t_fp_s: Option<f64>,
    pub(super) probes_per_s: f64,
    pub(super) bits_per_s: f64,
}

/// A plan with the round trip that it was computed for.
#[derive(Serialize)]
pub(super) struct OnePlan {
    rtt_ms: f64,
    rtt_max_ms: f64,
    /// Share of packets lost up and down, and of probes that get no answer.
    loss_up: f64,
    loss_down: f64,
    loss: f64,
    #[serde(flatten)]
    plan: Shown,
    /// Time constant for `--t-tml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tau_ms: Option<f64>,
}

impl OnePlan {
    pub(super) fn of(targets: &Targets, plan: &Plan, tau_ms: Option<f64>) -> OnePlan {
        OnePlan {
            rtt_ms: rounded(targets.rtt_avg * 1e3),
            rtt_max_ms: rounded(targets.rtt_max() * 1e3),
            loss_up: targets.loss_up,
            loss_down: targets.loss_down,
            loss: rounded(targets.probe_loss()),
            plan: Shown::from(plan),
            tau_ms,
        }
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
        }
    }
}

/// The columns of [`plan_cells`].
pub(super) const PLAN_COLUMNS: [&str; 8] =
    ["k", "t_ka_ms", "t_to_ms", "t_r_max_ms", "t_r_avg_ms", "t_fp_s", "probes_per_s", "bits_per_s"];

/// A plan as the row of a table; `full` keeps every digit.
pub(super) fn plan_cells(plan: &Plan, full: bool) -> Vec<String> {
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

/// Rows of text under headings.
pub(super) struct Rows {
    rows: Vec<Vec<String>>,
}

impl Rows {
    pub(super) fn new(columns: &[&str]) -> Rows {
        Rows { rows: vec![columns.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn print(&self, csv: bool) {
        if csv {
            for row in &self.rows {
                let quoted = row.iter().map(|cell| match cell.contains([',', '"']) {
                    true => format!("\"{}\"", cell.replace('"', "\"\"")),
                    false => cell.clone(),
                });
                println!("{}", quoted.collect::<Vec<_>>().join(","));
            }
            return;
        }
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let width = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        // Align words left and numbers right.
        let is_number = |column| cells(column).skip(1).any(|cell| cell.parse::<f64>().is_ok());
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let _ = match is_number(column) {
                    true => write!(line, "{cell:>width$}  ", width = width(column)),
                    false => write!(line, "{cell:<width$}  ", width = width(column)),
                };
            }
            say!("{}", line.trim_end());
        }
    }
}

/// Rounds to twelve significant digits, which hides the noise of binary fractions.
pub(super) fn rounded(x: f64) -> f64 {
    format!("{x:.11e}").parse().unwrap_or(x)
}

/// Up to six significant digits.
pub(super) fn digits(x: f64) -> String {
    let whole = if x.abs() >= 1.0 { x.abs().log10().floor() as usize + 1 } else { 1 };
    if whole > 15 {
        return format!("{x:.5e}");
    }
    let text = format!("{x:.*}", 6_usize.saturating_sub(whole));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

pub(super) fn milliseconds(ms: f64) -> String {
    if ms < 1e3 { format!("{} ms", digits(ms)) } else { seconds(ms / 1e3) }
}

pub(super) fn seconds(s: f64) -> String {
    format!("{} s", digits(s))
}

/// A long duration in a suitable unit.
pub(super) fn human(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{s:.1} seconds"),
        s if s < 7_200.0 => format!("{:.1} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} hours", s / 3_600.0),
        s if s < 63_072_000.0 => format!("{:.1} days", s / 86_400.0),
        s if s < 3.15e13 => format!("{:.1} years", s / 31_557_600.0),
        _ => "more than a million years".into(),
    }
}
