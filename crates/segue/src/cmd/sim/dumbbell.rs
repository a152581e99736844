//! `segue sim dumbbell`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_sim::net::AT_ONCE;
use segue_sim::{Results, Value};
use segue_text::say;
use segue_text::units;
use segue_traffic::dumbbell::{Dumbbell, Outcome};
use segue_traffic::tcp::{Config, Congestion, Counting, TracePoint, Variant};

/// Maximum window in packets.
const MAX_WINDOW: u32 = 1 << 20;

/// One greedy TCP sender over one link, for comparison with other simulators.
///
/// The sender starts at 0 s without a handshake, its packets are numbered from 0, and each arriving packet
/// is acknowledged unless --delayed-ack says otherwise. The profile sets what no option does.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: segue sim dumbbell --variant newreno --drop-at 10s:1,20s:2,30s:3 --json"
)]
pub struct Args {
    /// The sender: tahoe, reno, newreno, sack, fack, vegas, cubic or rack.
    #[arg(long, value_parser = variant)]
    variant: Variant,
    /// Profile, which sets what no other option does.
    #[arg(long, value_enum, default_value = "ns-2.35")]
    profile: Profile,
    /// Rate of the link, both ways.
    #[arg(long, value_name = "RATE", value_parser = units::rate, allow_hyphen_values = true, default_value = "10mbit")]
    rate: u64,
    /// Propagation delay, each way.
    #[arg(long, value_name = "TIME", value_parser = units::duration, allow_hyphen_values = true, default_value = "16ms")]
    delay: Span,
    /// Limit of the queue as ns-2 counts it: N - 1 packets wait while one is sent.
    #[arg(long, value_name = "N", default_value_t = 50)]
    queue: u32,
    /// Bytes of a data packet on the wire, with 40 bytes of headers.
    #[arg(long, value_name = "BYTES", default_value_t = 1480)]
    packet: u32,
    /// Maximum window in packets.
    #[arg(long, value_name = "PACKETS", default_value_t = 30)]
    window: u32,
    /// How long the sender sends.
    #[arg(long, value_name = "TIME", value_parser = units::duration, allow_hyphen_values = true, default_value = "100s")]
    duration: Span,
    /// Losses, as TIME:COUNT,…: at TIME a counter is set to COUNT; while it is positive, each data packet that starts
    /// serialisation is lost and decrements it.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = drop_at)]
    drop_at: Vec<(Span, u32)>,
    /// Write time, cwnd, ssthresh and sequence of every segment that leaves, as CSV, in packets.
    #[arg(long, value_name = "FILE")]
    cwnd_trace: Option<PathBuf>,
    #[command(flatten)]
    tcp: Settings,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Parameters of the connection that take the place of the profile's.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Overriding the profile")]
struct Settings {
    /// Unit of windows.
    #[arg(long, value_enum)]
    count: Option<Count>,
    /// Window algorithm of sack (modern profile), cubic and rack.
    #[arg(long, value_enum)]
    congestion: Option<Window>,
    /// First congestion window, in packets.
    #[arg(long, value_name = "PACKETS")]
    initial_window: Option<u32>,
    /// First slow-start threshold, in packets.
    #[arg(long, value_name = "PACKETS")]
    initial_ssthresh: Option<u32>,
    /// Shortest retransmission timeout.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    min_rto: Option<Span>,
    /// Longest retransmission timeout.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    max_rto: Option<Span>,
    /// Retransmission timeout before the first round trip is measured.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    first_rto: Option<Span>,
    /// Granularity of the sender's clock.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    tick: Option<Span>,
    /// Acknowledge every second packet, or after TIME (100ms if none is given); "off" acknowledges each.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "100ms", value_parser = delayed_ack)]
    delayed_ack: Option<Delay>,
    /// Duplicate acknowledgements that signal a loss.
    #[arg(long, value_name = "N")]
    dupack_threshold: Option<u32>,
    /// Whether a duplicate below the threshold sends a new packet (RFC 3042).
    #[arg(long, value_enum)]
    limited_transmit: Option<Switch>,
    /// Bytes of an acknowledgement on the wire.
    #[arg(long, value_name = "BYTES")]
    ack_size: Option<u32>,
}

/// Parameters that belong together.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Profile {
    /// ns-2.35's defaults.
    #[value(name = "ns-2.35")]
    Ns235,
    /// ns-2 before May 2001.
    #[value(name = "ns-2-2001")]
    Ns2001,
    /// The RFCs of today with a host's usual settings.
    #[value(name = "modern")]
    Modern,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Count {
    Packets,
    Bytes,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Window {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// `None` acknowledges each packet.
#[derive(Clone, Copy, Debug)]
struct Delay(Option<Span>);

/// Runs the verb.
///
/// # Errors
/// Bad input, or a trace that cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let dumbbell = args.dumbbell()?;
    let outcome = dumbbell.run().context("the link")?;
    if outcome.stuck {
        bail!(
            "the run gets no further, with {AT_ONCE} events at one instant: a delay or a lower rate helps"
        );
    }
    if let Some(path) = &args.cwnd_trace {
        write_trace(path, &outcome.trace)?;
    }
    if args.json {
        println!("{}", json(&outcome.results));
    } else {
        say!("{}", describe(&args, &outcome).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn dumbbell(&self) -> anyhow::Result<Dumbbell> {
        if self.rate == 0 {
            bail!("--rate: a link of rate 0 carries nothing");
        }
        if self.duration == Span::ZERO {
            bail!("--duration: a run of no time finds nothing");
        }
        if self.queue == 0 {
            bail!("--queue: the packet that is being sent counts, so the limit is at least 1");
        }
        if let Some(pair) = self.drop_at.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            bail!("--drop-at: {} does not come after {}: put them in order", pair[1].0, pair[0].0);
        }
        Ok(Dumbbell {
            tcp: self.config()?,
            rate_bps: self.rate,
            delay: self.delay,
            queue: self.queue,
            drop_at: self.drop_at.clone(),
            duration: self.duration,
            trace: self.cwnd_trace.is_some(),
        })
    }

    fn config(&self) -> anyhow::Result<Config> {
        let mut config = match self.profile {
            Profile::Ns235 => Config::ns2_35(self.variant),
            Profile::Ns2001 => Config::ns2_2001(self.variant),
            Profile::Modern => Config::modern(self.variant),
        };
        let header = config.header;
        if self.packet <= header || self.packet > 65_535 {
            bail!("--packet: {} bytes, but a packet has {} to 65535", self.packet, header + 1);
        }
        config.mss = self.packet - header;
        config.window = within("--window", self.window, MAX_WINDOW)?;
        let set = &self.tcp;
        if let Some(n) = set.initial_window {
            config.initial_window = within("--initial-window", n, MAX_WINDOW)?;
        }
        if let Some(n) = set.initial_ssthresh {
            config.initial_ssthresh = Some(within("--initial-ssthresh", n, MAX_WINDOW)?);
        }
        if let Some(n) = set.dupack_threshold {
            config.dupack_threshold = within("--dupack-threshold", n, 1_000)?;
        }
        if let Some(bytes) = set.ack_size {
            config.ack_bytes = within("--ack-size", bytes, 65_535)?;
        }
        if let Some(count) = set.count {
            config.counting = match count {
                Count::Packets => Counting::Packets,
                Count::Bytes => Counting::Bytes,
            };
        }
        if let Some(window) = set.congestion {
            let separate = match self.variant {
                Variant::Cubic | Variant::Rack => true,
                Variant::Sack => config.scoreboard,
                _ => false,
            };
            if !separate {
                let name = self.variant.name();
                bail!(
                    "--congestion: {name} has a window of its own here; it is for sack with --profile modern, cubic and rack"
                );
            }
            config.congestion = match window {
                Window::Reno => Congestion::Reno,
                Window::Cubic => Congestion::Cubic,
            };
        }
        if set.tick == Some(Span::ZERO) {
            bail!("--tick: a clock needs a tick above 0");
        }
        config.rto.tick = set.tick.unwrap_or(config.rto.tick);
        config.rto.min = set.min_rto.unwrap_or(config.rto.min);
        config.rto.max = set.max_rto.unwrap_or(config.rto.max);
        config.rto.first = set.first_rto.unwrap_or(config.rto.first);
        if config.rto.max < config.rto.min || config.rto.max == Span::ZERO {
            let (max, min) = (config.rto.max, config.rto.min);
            bail!("--max-rto: {max} is below the shortest timeout, {min}");
        }
        config.delayed_ack = set.delayed_ack.map_or(config.delayed_ack, |delay| delay.0);
        config.limited_transmit =
            set.limited_transmit.map_or(config.limited_transmit, |switch| switch == Switch::On);
        Ok(config)
    }
}

fn within(option: &str, n: u32, most: u32) -> anyhow::Result<u32> {
    if n == 0 {
        bail!("{option}: 0 is too little, it is at least 1");
    }
    if n > most {
        bail!("{option}: {n} is too much, it is at most {most}");
    }
    Ok(n)
}

fn variant(text: &str) -> Result<Variant, String> {
    Variant::ALL.into_iter().find(|variant| variant.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Variant::ALL.iter().map(|variant| variant.name()).collect();
        format!("{text:?} is none of {}", names.join(", "))
    })
}

fn drop_at(text: &str) -> Result<(Span, u32), String> {
    let (time, count) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} is no TIME:COUNT: write for example 1s:3"))?;
    let count =
        count.parse().map_err(|_| format!("{text:?}: {count:?} is no number of packets"))?;
    Ok((units::duration(time)?, count))
}

fn delayed_ack(text: &str) -> Result<Delay, String> {
    if text == "off" {
        return Ok(Delay(None));
    }
    units::duration(text).map(|span| Delay(Some(span)))
}

fn write_trace(path: &Path, trace: &[TracePoint]) -> anyhow::Result<()> {
    let mut text = String::from("time_s,cwnd,ssthresh,sequence\n");
    for TracePoint { at, cwnd, ssthresh, seq } in trace {
        let (whole, nanos) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
        let _ = writeln!(text, "{whole}.{nanos:09},{cwnd:.4},{ssthresh:.4},{seq}");
    }
    std::fs::write(path, text).with_context(|| format!("--cwnd-trace: {}", path.display()))
}

fn json(results: &Results) -> String {
    let members = results.iter().filter_map(|(name, value)| {
        let value = match value {
            Value::Int(n) => serde_json::Value::from(*n),
            Value::Float(x) => serde_json::Value::from(*x),
            Value::Text(text) => serde_json::Value::from(text.as_str()),
            // A run with one connection has no rows.
            Value::Rows(_) => return None,
        };
        Some((name.to_owned(), value))
    });
    serde_json::Value::Object(members.collect()).to_string()
}

fn describe(args: &Args, outcome: &Outcome) -> String {
    let number = |name: &str| match outcome.results.get(name) {
        Some(Value::Int(n)) => n.to_string(),
        Some(Value::Float(x)) => format!("{:.4} Mbit/s", x / 1e6),
        _ => String::new(),
    };
    let mut text = String::new();
    for (name, key, what) in [
        ("goodput", "goodput_bps", "packets handed over in order, with their headers"),
        ("delivered", "delivered", "of them"),
        ("sent", "sent", "data packets"),
        ("again", "retransmissions", "of them sent before"),
        ("timeouts", "timeouts", "retransmission timer"),
        ("queue", "queue_drops", "dropped at the full queue"),
        ("lost", "loss_drops", "by --drop-at"),
    ] {
        let _ = writeln!(text, "{name:<11}{:<18}{what}", number(key));
    }
    let _ = writeln!(text, "{} over {}", args.variant.name(), args.duration);
    text
}
