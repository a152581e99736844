//! The plan of a host with default settings: how it probes when in doubt, and how soon it detects
//! an outage.

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_keepalive::adapt::{Look, Why};
use segue_keepalive::questions::{K_MIN, MARGIN, QUESTION_GAP, Questions, SPACING_MIN, evaluate};
use segue_keepalive::{Adaptive, Aims, Counted, Estimates, Lapses};
use segue_text::say;
use serde::Serialize;

use super::args::Args;
use super::show::{Rows, human, milliseconds, rounded, seconds};

/// Number of packets assumed behind the loss measurements.
const MEASURED: f64 = 1e6;
/// Assumed load of a path in use, in bytes a second.
const RATE: f64 = 1e5;
/// Bytes of a request and its response over IPv4.
const EXCHANGE: f64 = 168.0;
/// Columns of the table.
const COLUMNS: [&str; 6] = ["K", "spacing_ms", "spread_ms", "t_d_ms", "detection_ms", "t_fp_s"];

#[derive(Serialize)]
struct Shown {
    answer_ms: f64,
    k: u8,
    spacing_ms: f64,
    t_d_ms: f64,
    /// Absent (null) without loss.
    t_fp_s: Option<f64>,
    /// Time from the first lost packet on a path in use: with data in both directions, and an upper
    /// bound with data in one.
    detection_used_ms: f64,
    detection_one_way_ms: f64,
    t_ka_idle_ms: f64,
    detection_idle_ms: f64,
    bytes_a_day_idle: f64,
    false_positives_given_up: bool,
    by_k: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    k: u8,
    spacing_ms: f64,
    spread_ms: f64,
    t_d_ms: f64,
    detection_ms: f64,
    t_fp_s: Option<f64>,
}

/// Prints the plans for an idle path and a path in use.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let others = [args.t_ka.is_some(), args.sweep.is_some(), args.t_tml.is_some()];
    if others.contains(&true) || args.responsiveness_max.is_some() {
        bail!("--use plans by itself: leave out --t-ka, --sweep, --t-tml and --responsiveness-max");
    }
    let shown = shown(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&shown)?);
    } else if args.csv {
        table(&shown, true);
    } else {
        describe(&shown);
        table(&shown, false);
    }
    Ok(())
}

/// The given properties of a path.
struct Path {
    rtt: Span,
    answer: Span,
    up: f64,
    down: f64,
    burst: Option<Span>,
}

impl Path {
    /// The host's plan once it has measured the path well.
    fn plan(&self, aims: Aims, used: bool) -> anyhow::Result<Why> {
        let mut adaptive = Adaptive::new(aims);
        let rtt_ewma = vec![self.rtt.as_secs_f64()];
        let mut estimates = Estimates { rtt_ewma, ..Estimates::default() };
        let lapses = self.burst.map_or_else(Lapses::default, |burst| {
            let burst = burst.as_secs_f64();
            let (weight, lasted) = (MEASURED, MEASURED * burst);
            Lapses { weight, lasted, longest: burst, ..Lapses::default() }
        });
        for n in [0.0, MEASURED] {
            let counted =
                |loss: f64| Counted { sent: n as u64, received: (n * (1.0 - loss)) as u64 };
            (estimates.up, estimates.down) = (counted(self.up), counted(self.down));
            adaptive.update(Look {
                estimates: &estimates,
                round_trips: Counted::default(),
                lapses,
                answer: self.answer,
                used,
                rate: RATE,
                is_up: true,
            });
        }
        adaptive.why().copied().context("nothing can be planned for this path")
    }
}

fn shown(args: &Args) -> anyhow::Result<Shown> {
    let rtt = args.rtt.context("the round-trip time is missing: add for example --rtt 20ms")?;
    let loss = args.loss.unwrap_or(0.0);
    let (up, down) = (args.loss_up.unwrap_or(loss), args.loss_down.unwrap_or(loss));
    let default = Aims::default();
    let aims = Aims {
        idle: args.responsiveness.map_or(default.idle, Span::as_secs_f64),
        fp_interval: args.false_positive_interval.map_or(default.fp_interval, Span::as_secs_f64),
        k_max: args.k_max.unwrap_or(default.k_max).max(K_MIN),
        ..default
    };
    if aims.idle <= 0.0 || aims.fp_interval <= 0.0 {
        bail!("--responsiveness and --false-positive-interval must be above zero");
    }
    let answer = args.rtt_max.unwrap_or(rtt).max(rtt) + MARGIN;
    let path = Path { rtt, answer, up, down, burst: args.burst_time };
    let (idle, used) = (path.plan(aims, false)?, path.plan(aims, true)?);
    let silence = used.known.silence(&aims);
    let spacing = used.questions.spacing.max(SPACING_MIN);
    let most = used.questions.k.saturating_add(2).max(K_MIN + 4);
    let row = |found: Questions| Row {
        k: found.k,
        spacing_ms: rounded(found.spacing * 1e3),
        spread_ms: rounded((f64::from(found.k) - 1.0) * found.spacing * 1e3),
        t_d_ms: rounded(found.t_d * 1e3),
        detection_ms: rounded((found.t_d + silence.answer) * 1e3),
        t_fp_s: Some(found.t_fp).filter(|t_fp| t_fp.is_finite()),
    };
    // Time until the first probe, and the time that its answer may wait to share a packet.
    let held = segue_wire::HELD_AT_MOST_MS as f64 * 1e-3;
    let unasked = QUESTION_GAP.as_secs_f64() + silence.answer + held;
    // A lost probe triggers all questions of a doubt.
    let exchanges = 1.0 + idle.known.loss * f64::from(idle.questions.k);
    Ok(Shown {
        answer_ms: rounded(silence.answer * 1e3),
        k: used.questions.k,
        spacing_ms: rounded(spacing * 1e3),
        t_d_ms: rounded(used.questions.t_d * 1e3),
        t_fp_s: Some(used.questions.t_fp).filter(|t_fp| t_fp.is_finite()),
        detection_used_ms: rounded(used.detection * 1e3),
        detection_one_way_ms: rounded((used.detection + unasked) * 1e3),
        t_ka_idle_ms: rounded(idle.t_ka * 1e3),
        detection_idle_ms: rounded(idle.detection * 1e3),
        bytes_a_day_idle: rounded(EXCHANGE * exchanges / idle.t_ka * 86_400.0),
        false_positives_given_up: used.is_given_up(),
        by_k: (1..=most).map(|k| row(evaluate(&silence, k, spacing))).collect(),
    })
}

fn describe(shown: &Shown) {
    let t_fp = shown.t_fp_s.map_or("never".into(), |s| format!("{} ({})", seconds(s), human(s)));
    for (name, value, what) in [
        ("A", milliseconds(shown.answer_ms), "an answer comes within"),
        ("K*", shown.k.to_string(), "questions without an answer declare the path down"),
        ("y*", milliseconds(shown.spacing_ms), "from one question to the next"),
        ("T_D", milliseconds(shown.t_d_ms), "from the beginning of doubt to down"),
        ("T_fp", t_fp, "mean time between false positives"),
        (
            "in use",
            milliseconds(shown.detection_used_ms),
            "from the first packet that is lost to down, where data run both ways",
        ),
        (
            "one way",
            milliseconds(shown.detection_one_way_ms),
            "the same at most, where they run one way",
        ),
        ("idle", milliseconds(shown.detection_idle_ms), "from an outage to down, on average"),
        ("T_KA", milliseconds(shown.t_ka_idle_ms), "period of probes of an idle path"),
        (
            "cost",
            format!("{:.1} MB a day", shown.bytes_a_day_idle / 1e6),
            "of an idle path, over IPv4",
        ),
    ] {
        say!("{name:<8}{value:<28}{what}");
    }
    if shown.false_positives_given_up {
        say!("The false positive interval cannot be kept: --k-max allows no more questions.");
    }
    say!();
}

fn table(shown: &Shown, csv: bool) {
    let mut table = Rows::new(&COLUMNS);
    for row in &shown.by_k {
        let number = |value: f64| format!("{value}");
        let t_fp = row.t_fp_s.map_or_else(|| "never".into(), |s| format!("{s:.4e}"));
        table.row(vec![
            row.k.to_string(),
            number(row.spacing_ms),
            number(row.spread_ms),
            number(row.t_d_ms),
            number(row.detection_ms),
            t_fp,
        ]);
    }
    table.print(csv);
}
