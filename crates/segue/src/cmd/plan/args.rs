//! The options of `segue plan`, and the targets that they give.

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_keepalive::planner::{self, Responsiveness, Targets};
use segue_text::units;

/// Choose how often to probe: K* and T_KA* from the path and the targets.
#[derive(clap::Args)]
#[command(after_help = "Example: segue plan --rtt 100ms --loss 5% --responsiveness 500ms \
                        --false-positive-interval 1e5s")]
pub struct Args {
    /// Average round-trip time, for example 100ms.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) rtt: Option<Span>,
    /// Largest round-trip time [default: that of --rtt].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) rtt_max: Option<Span>,
    /// Loss in each direction, for example 5%.
    #[arg(long, value_name = "RATIO", value_parser = units::ratio)]
    pub(super) loss: Option<f64>,
    /// Loss from host to anchor, instead of --loss.
    #[arg(long, value_name = "RATIO", value_parser = units::ratio)]
    pub(super) loss_up: Option<f64>,
    /// Loss from anchor to host, instead of --loss.
    #[arg(long, value_name = "RATIO", value_parser = units::ratio)]
    pub(super) loss_down: Option<f64>,
    /// Mean number of successive probes that a burst of losses takes (Gilbert model, one step per probe) [default:
    /// independent losses]
    #[arg(long, value_name = "PROBES")]
    pub(super) burst: Option<f64>,
    /// Plan for detection that follows use, a host's default: how it asks when in doubt, and what an idle path costs.
    /// Needs only --rtt; --responsiveness is that of an idle path
    #[arg(long = "use", conflicts_with_all = ["burst", "rides", "t_ka_min"])]
    pub(super) in_use: bool,
    /// With --use: mean duration of a burst of losses
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "in_use")]
    pub(super) burst_time: Option<Span>,
    /// Plan for probes that may ride on data (`rides = true`).
    #[arg(long)]
    pub(super) rides: bool,
    /// Detect a fault within this time on average (T_Ravg)
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) responsiveness: Option<Span>,
    /// Detect a fault within this time at worst (T_Rmax), instead of --responsiveness
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) responsiveness_max: Option<Span>,
    /// Lower bound for the mean time between false positives (T_fp), for example 1e5s
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) false_positive_interval: Option<Span>,
    /// Shortest period to consider [default: 10ms, in a sweep 1ms].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(super) t_ka_min: Option<Span>,
    /// Largest K to consider, or to show with --t-ka (default there: 10) or --sweep k
    #[arg(long, value_name = "N")]
    pub(super) k_max: Option<u8>,
    /// Fix the period and show what each K gives; no targets are needed.
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "sweep")]
    pub(super) t_ka: Option<Span>,
    /// Vary one quantity, and show K* and T_KA* for each value; for k, the periods that each K allows
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) sweep: Option<Sweep>,
    /// First value of the sweep, for example 0.5% or 80ms.
    #[arg(long, value_name = "VALUE", requires = "sweep")]
    pub(super) from: Option<String>,
    /// Last value of the sweep.
    #[arg(long, value_name = "VALUE", requires = "sweep")]
    pub(super) to: Option<String>,
    /// Number of values of the sweep.
    #[arg(long, value_name = "N", requires = "sweep", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(super) points: Option<u32>,
    /// Show the time constant of an average that covers 90 % of a step within this time (T_tml), alone or beside a plan
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with_all = ["sweep", "t_ka"])]
    pub(super) t_tml: Option<Span>,
    /// Print a table as comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub(super) csv: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What a sweep varies; each is a figure of the paper.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Sweep {
    /// Loss in each direction, from 0.5 % to 8 % (Fig. 9).
    Loss,
    /// K, from 1 to 10 (Fig. 8).
    K,
    /// T_fp, from 100 s to 10⁶ s in equal ratios (Fig. 10).
    FalsePositiveInterval,
    /// Responsiveness, from 80 ms to 2 s (Fig. 11).
    Responsiveness,
}

/// The targets given.
pub(super) struct Given {
    pub(super) up: Option<f64>,
    pub(super) down: Option<f64>,
    pub(super) responsiveness: Option<Responsiveness>,
    pub(super) fp_interval: Option<f64>,
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
    pub(super) fn check(self, args: &Args) -> anyhow::Result<Targets> {
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
