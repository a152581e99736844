//! `segue sim run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use segue_clock::Span;
use segue_linux::clock::thread_cpu;
use segue_sim::{Observer, Results};
use segue_text::say;
use segue_text::terminal::Progress;
use segue_text::units;

use super::file::{self, Built, Scenario};
use super::page;
use super::series::{Observers, Recorder};
use super::show::{Json, table};
use super::sweep;
use super::trace::{self, Trace};

/// Run a scenario
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The scenario (docs/simulator/scenarios.md).
    file: PathBuf,
    /// Override the scenario's seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Override the scenario's duration
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    duration: Option<Span>,
    /// Override a value of the scenario, for example link.wifi.loss=1%; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Threads for the shards of a population [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also print the counters of links and nodes
    #[arg(long)]
    links: bool,
    /// Write time series (CSV, Parquet), results and a page with plots into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write PREFIX.pcapng and PREFIX.log [default prefix: the scenario's name, in this directory]
    #[arg(long, value_name = "PREFIX", num_args = 0..=1, require_equals = true)]
    trace: Option<Option<PathBuf>>,
    /// Write only the packets of this node or interface; repeatable
    #[arg(long, value_name = "NODE[:INTERFACE]", requires = "trace")]
    trace_at: Vec<String>,
    /// Most bytes of a packet in the trace
    #[arg(long, value_name = "BYTES", requires = "trace", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=65_535))]
    snaplen: u32,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is no KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the subcommand.
///
/// # Errors
/// The input is invalid, or a file cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut sets = args.set.clone();
    sets.extend(args.seed.map(|seed| ("seed".into(), seed.to_string())));
    sets.extend(args.duration.map(|span| ("duration".into(), format!("\"{}ns\"", span.0))));
    // Read only once: the file may be a pipe.
    let text = segue_grammar::text(&args.file)?;
    let name = args.file.display().to_string();
    if let Some(spec) = file::population::parse(&text, &name, &sets)? {
        if args.trace.is_some() || args.links || args.out.is_some() {
            anyhow::bail!(
                "a population has no nodes and links: leave --trace, --links and --out away"
            );
        }
        return super::population::run(&spec, args.threads, args.json);
    }
    let scenario = Scenario::of_text(&args.file, &text, &sets)?;
    sweep::check(&scenario)?;
    scenario.check_that_time_passes()?;
    let mut built = scenario.build();
    let trace = args
        .trace
        .as_ref()
        .map(|prefix| begin_trace(&args, prefix.as_deref(), &built))
        .transpose()?;
    let recorder = args.out.as_ref().map(|_| Recorder::new(&built));
    let of_trace = trace.as_ref().map(Trace::observer);
    let of_series = recorder.clone().map(|recorder| Box::new(recorder) as Box<dyn Observer>);
    let observers: Vec<_> = of_trace.into_iter().chain(of_series).collect();
    if !observers.is_empty() {
        built.network.observe(Box::new(Observers(observers)));
    }
    let begun = thread_cpu();
    let mut progress = Progress::new(Duration::from_secs(1), Duration::from_secs(60));
    let ran = built.run(|network, share| {
        if let Some(recorder) = &recorder {
            recorder.sample(network);
        }
        progress.tell(|| {
            let (at, events) = (Span(network.now().0), network.events());
            format!("segue: {:.0} %, {at}, {events} events", share * 100.0)
        });
    });
    progress.clear();
    trace.as_ref().map_or(Ok(()), Trace::end)?;
    ran?;
    let mut results = built.network.results();
    if let (Some(directory), Some(recorder)) = (&args.out, &recorder) {
        page::write(directory, &name, &recorder.series(), &results)?;
        eprintln!("segue: wrote {}", directory.join(page::PAGE).display());
    }
    if args.links {
        add_links(&built, &mut results);
    }
    if args.json {
        println!("{}", serde_json::to_string(&Json(&results))?);
    } else {
        say!("{}", table(&results).trim_end());
    }
    for doubt in built.doubts() {
        eprintln!("segue: note: {doubt}");
    }
    let cpu = thread_cpu() - begun;
    let (events, seconds) = (built.network.events(), cpu.as_secs_f64());
    eprintln!("segue: {events} events in {seconds:.2} s of processor time");
    Ok(ExitCode::SUCCESS)
}

fn begin_trace(args: &Args, prefix: Option<&Path>, built: &Built) -> anyhow::Result<Trace> {
    let name = args.file.file_stem().unwrap_or_default();
    let prefix = prefix.map_or_else(|| name.into(), Path::to_owned);
    let (only, snaplen) = (args.trace_at.clone(), args.snaplen);
    Trace::begin(built, &trace::Options { prefix, snaplen, only })
}

/// Adds the counters of links and nodes, in the order of the file.
fn add_links(built: &Built, results: &mut Results) {
    for (name, channels) in &built.links {
        for (way, channel) in ["up", "down"].iter().zip(channels) {
            let counted = built.network.counters(*channel);
            for (key, value) in [
                ("offered", counted.offered),
                ("delivered", counted.delivered),
                ("delivered_bytes", counted.delivered_bytes),
                ("lost", counted.lost),
                ("queue_full", counted.queue_full),
                ("silenced", counted.silenced),
            ] {
                results.int(format!("link.{name}.{way}.{key}"), value);
            }
        }
    }
    let refused = built.network.refused();
    for (key, value) in [
        ("no_route", refused.no_route),
        ("no_listener", refused.no_listener),
        ("ttl", refused.ttl),
        ("detached", refused.detached),
        ("not_forwarded", refused.not_forwarded),
        ("loops", refused.loops),
        ("nat", refused.nat),
    ] {
        results.int(format!("nodes.{key}"), value);
    }
    // Omitted if zero.
    if refused.relay > 0 {
        results.int("nodes.relay", refused.relay);
    }
}
