//! `segue demo`: shows the main feature on this machine. Real daemons in network namespaces carry live traffic, the
//! backhaul of a Wi-Fi falls silent, and the program measures the outcome.

mod pmip;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use segue_daemon::settings::Choice;
use segue_demo::stage::Stage;
use segue_demo::traffic::Traffic;
use segue_demo::watch::Watch;
use segue_demo::{Course, interrupt, outcome, page};
use segue_lab::emulator::Direction;
use segue_linux::clock::monotonic;
use segue_linux::netns;
use segue_report::Page;
use segue_text::say;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::wrap;
use segue_text::units;

/// Show that sessions survive a silent Wi-Fi outage (takes 35 seconds).
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Datapath to use
    #[arg(long, value_enum, default_value = "auto")]
    datapath: Choice,
    /// Mean time to detect a silent outage (T_Ravg), with probes at a fixed period; without it, detection follows use
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    responsiveness: Option<segue_clock::Span>,
    /// When the Wi-Fi falls silent
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    silent_at: segue_clock::Span,
    /// When it recovers
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = units::duration)]
    back_at: segue_clock::Span,
    /// When the demonstration ends
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    until: segue_clock::Span,
    /// Translate addresses (NAT) in both access networks
    #[arg(long)]
    nat: bool,
    /// Directory for the report
    #[arg(long, value_name = "DIR", default_value = "segue-demo")]
    out: PathBuf,
    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,
}

/// Other demonstrations.
#[derive(clap::Subcommand)]
enum Other {
    Pmip(pmip::Args),
}

/// File name of the result page.
const REPORT: &str = "report.html";
/// How often the daemons are polled.
const POLL: Duration = Duration::from_millis(40);

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(Other::Pmip(args)) = &args.other {
        return pmip::run(args);
    }
    let course = Course {
        silent_at: args.silent_at.as_secs_f64(),
        back_at: args.back_at.as_secs_f64(),
        until: args.until.as_secs_f64(),
    };
    if !(2.0 <= course.silent_at
        && course.silent_at + 1.0 <= course.back_at
        && course.back_at + 1.0 <= course.until
        && course.until <= 3_600.0)
    {
        anyhow::bail!(
            "the times must be in order and a second apart: --silent-at (at least 2s) < --back-at < --until (at most 1h)"
        );
    }
    let rootless = !nix::unistd::geteuid().is_root();
    if rootless {
        netns::unshare_user().context("without root the demonstration needs a user namespace")?;
    }
    let datapath =
        if rootless && args.datapath == Choice::Auto { Choice::User } else { args.datapath };
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot write to {}", args.out.display()))?;
    let say = |text: &str| {
        if !args.json {
            eprintln!("{}", wrap(text, Stream::Error.room()));
        }
    };
    if rootless {
        say("No root here: running in an unprivileged user namespace, on the user-space datapath.");
    }
    say("Building the network: host (wifi, lte), router, anchor, correspondent node.");
    let interrupted = interrupt::interrupts()?;
    let stage = Stage::build(datapath, args.responsiveness, args.nat, &args.out)?;
    say("Starting the anchor, enrolling the host, starting the host.");
    stage.wait_ready(&interrupted)?;
    let (result, page) = perform(&stage, course, &args, &interrupted)?;
    drop(stage);
    page.write(&args.out, REPORT)?;
    let text = serde_json::to_string_pretty(&result)?;
    std::fs::write(args.out.join("result.json"), &text)?;
    if args.json {
        println!("{text}");
    } else {
        outcome::print(&result);
        say!("\nThe whole story with plots: {}", args.out.join(REPORT).display());
    }
    Ok(if result.holds() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs the play and judges it.
fn perform(
    stage: &Stage,
    course: Course,
    args: &Args,
    interrupted: &interrupt::Interrupts,
) -> anyhow::Result<(outcome::Outcome, Page)> {
    let start = monotonic();
    let traffic = Traffic::start(&stage.ends()?, start)?;
    let mut watch = Watch::new(start);
    let mut view = view::View::new(args.json, course);
    let (mut silent, mut back) = (None, None);
    loop {
        let now = monotonic();
        let t = now.since(start).as_secs_f64();
        let wifi = stage.net().wifi();
        if t >= course.silent_at && silent.is_none() {
            silent = Some(wifi.set_silent(Direction::Up, true).since(start).as_secs_f64());
            wifi.set_silent(Direction::Down, true);
        }
        if t >= course.back_at && back.is_none() {
            back = Some(wifi.set_silent(Direction::Up, false).since(start).as_secs_f64());
            wifi.set_silent(Direction::Down, false);
        }
        watch.poll(stage)?;
        view.show(t, &watch, &traffic);
        if t >= course.until {
            break;
        }
        if interrupted.happened() {
            anyhow::bail!("interrupted; everything has been taken down");
        }
        stage.check_alive()?;
        std::thread::sleep(POLL);
    }
    view.end();
    let traffic = traffic.stop();
    let course = Course {
        silent_at: silent.unwrap_or(course.silent_at),
        back_at: back.unwrap_or(course.back_at),
        until: course.until,
    };
    let truth = stage.truth(start);
    let outcome = outcome::judge(&watch, &traffic, &truth, course);
    let page = page::render(&outcome, &watch, &traffic, &truth, course);
    Ok((outcome, page))
}
