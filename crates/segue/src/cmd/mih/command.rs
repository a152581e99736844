//! `segue mih get`, `threshold` and `act`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use segue_clock::Span;
use segue_daemon::control::{self, Request, Response};
use segue_daemon::mih::Words;
use segue_daemon::mih::command::{
    Acted, ActionKey, Answer, Ask, DirectionKey, HowKey, ParameterKey, Parameters, ThresholdKey,
    Thresholds,
};
use segue_mih::AFTER_MAX_MS;
use segue_text::{terminal, units};
use serde::Serialize;

/// How long an answer may take: a frame is sent three times, and the ordered action may be delayed.
const PATIENCE: Duration = Duration::from_secs(45);

/// Which link, and who is asked.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The link's address, as `segue status mih-function` shows it
    #[arg(value_name = "LINK")]
    link: String,
    /// Control socket of the function, or of a link service access point (default: the function's)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `segue mih get`.
#[derive(clap::Args)]
pub(super) struct Get {
    #[command(flatten)]
    which: Which,
    /// Which parameters; all by default
    #[arg(value_name = "PARAMETER", value_enum)]
    parameters: Vec<ParameterKey>,
}

/// Arguments of `segue mih threshold`.
#[derive(clap::Args)]
pub(super) struct Threshold {
    #[command(flatten)]
    which: Which,
    /// Which parameter
    #[arg(value_name = "PARAMETER", value_enum)]
    parameter: ParameterKey,
    /// Report when it falls below this, in its unit
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    below: Vec<i32>,
    /// Report when it rises above this, in its unit
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    above: Vec<i32>,
    /// Report it regularly too; without this it is not
    #[arg(long, value_name = "TIME", value_parser = every)]
    every: Option<u16>,
    /// Report the first crossing alone
    #[arg(long)]
    once: bool,
    /// Do not report these any more
    #[arg(long, conflicts_with_all = ["once", "every"])]
    cancel: bool,
}

/// Arguments of `segue mih act`.
#[derive(clap::Args)]
pub(super) struct Act {
    #[command(flatten)]
    which: Which,
    /// What the link is to do
    #[arg(value_name = "ACTION", value_enum)]
    action: ActionKey,
    /// The station that is to be sent away
    #[arg(long, value_name = "MAC")]
    station: Option<String>,
    /// Do it after this time
    #[arg(long, value_name = "TIME", value_parser = after)]
    after: Option<u16>,
}

fn within(text: &str, least: Span, most: Span) -> Result<u16, String> {
    let span = units::duration(text)?;
    let ms = u16::try_from(span.as_micros() / 1_000).ok();
    let ms = ms.filter(|_| (least..=most).contains(&span));
    ms.ok_or_else(|| format!("must lie between {least} and {most}"))
}

fn every(text: &str) -> Result<u16, String> {
    within(text, Span::from_millis(100), Span::from_secs(60))
}

fn after(text: &str) -> Result<u16, String> {
    within(text, Span::ZERO, Span::from_millis(AFTER_MAX_MS.into()))
}

impl Which {
    fn ask(&self, ask: Ask) -> anyhow::Result<Answer> {
        let usual = || control::default_path("mih-function", None);
        let path = self.control.clone().unwrap_or_else(usual);
        let asked = control::ask_within(&path, &Request::<Words>::Own(ask), PATIENCE);
        let roles = ["mih-function", "mih-link-sap"];
        let asked = asked.map_err(|error| {
            let whom = "segue mih function and segue mih link-sap";
            control::expecting(&path, (&roles, whom), error)
        });
        match asked? {
            Response::Own(answer) => Ok(answer),
            _ => bail!("the daemon's answer makes no sense"),
        }
    }

    fn print<T: Serialize>(&self, answer: &T, lines: &[String]) -> anyhow::Result<ExitCode> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(answer)?);
        } else {
            lines.iter().for_each(|line| terminal::say(line));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows parameters of a link.
pub(super) fn get(args: Get) -> anyhow::Result<ExitCode> {
    let all = args.parameters.is_empty();
    let parameters = if all { ParameterKey::ALL.to_vec() } else { args.parameters };
    let link = args.which.link.clone();
    let Answer::Parameters(answer) = args.which.ask(Ask::Get { link, parameters })? else {
        bail!("the daemon's answer is to something else");
    };
    args.which.print(&answer, &lines(&answer))
}

fn lines(Parameters { link, owner, parameters }: &Parameters) -> Vec<String> {
    if parameters.is_empty() {
        let why = "nobody is attached, several stations are, or nothing measures them";
        return vec![format!("nothing is known of {link} ({owner}): {why}")];
    }
    let line = |of: &segue_daemon::mih::command::ParameterStatus| {
        format!("{:<18}{}{}", of.parameter.name(), of.value, of.parameter.unit())
    };
    parameters.iter().map(line).collect()
}

/// Sets thresholds of a link.
pub(super) fn threshold(args: Threshold) -> anyhow::Result<ExitCode> {
    let Threshold { which, parameter, below, above, every: every_ms, once, cancel } = args;
    let of = |direction| move |value| ThresholdKey { direction, value };
    let below = below.into_iter().map(of(DirectionKey::Below));
    let thresholds: Vec<ThresholdKey> =
        below.chain(above.into_iter().map(of(DirectionKey::Above))).collect();
    if thresholds.is_empty() && every_ms.is_none() && !cancel {
        bail!("threshold: say at what value (--below, --above), or how often (--every)");
    }
    let how = match (once, cancel) {
        (true, _) => HowKey::Once,
        (_, true) => HowKey::Cancel,
        _ => HowKey::Set,
    };
    let link = which.link.clone();
    let ask = Ask::Threshold { link, parameter, thresholds, how, every_ms };
    let Answer::Thresholds(answer) = which.ask(ask)? else {
        bail!("the daemon's answer is to something else");
    };
    which.print(&answer, &[sentence(&answer)])
}

fn sentence(answer: &Thresholds) -> String {
    let Thresholds { link, parameter, thresholds, how, every_ms } = answer;
    let one = |threshold: &ThresholdKey| {
        let direction = match threshold.direction {
            DirectionKey::Above => "above",
            DirectionKey::Below => "below",
        };
        format!("{direction} {}{}", threshold.value, parameter.unit())
    };
    let mut when: Vec<String> = thresholds.iter().map(one).collect();
    when.extend(every_ms.map(|ms| format!("every {}", Span::from_millis(ms.into()))));
    let said = match how {
        HowKey::Set => "reported",
        HowKey::Once => "reported once",
        HowKey::Cancel if when.is_empty() => "not reported regularly any more",
        HowKey::Cancel => "not reported any more",
    };
    let line = format!("{} of {link} is {said} {}", parameter.name(), when.join(", "));
    line.trim_end().to_owned()
}

/// Orders a link to perform an action.
pub(super) fn act(args: Act) -> anyhow::Result<ExitCode> {
    let Act { which, action, station, after } = args;
    let (link, after_ms) = (which.link.clone(), after.unwrap_or(0));
    let Answer::Acted(answer) = which.ask(Ask::Act { link, action, station, after_ms })? else {
        bail!("the daemon's answer is to something else");
    };
    let Acted { link, station, .. } = &answer;
    let line = match (action, station) {
        (ActionKey::Disconnect, station) => {
            format!("{link} has sent {} away", station.as_deref().unwrap_or_default())
        }
        (ActionKey::LowPower, _) => format!("{link} saves power"),
        (ActionKey::PowerDown, _) => format!("{link} is down"),
        (ActionKey::PowerUp, _) => format!("{link} is up"),
    };
    which.print(&answer, &[line])
}
