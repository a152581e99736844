//! The command-line options of `segue probe`, and the measurements that they start.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use nix::net::if_::if_nameindex;
use segue_clock::Span;
use segue_keepalive::{Config, Tau};
use segue_text::errors::Told;
use segue_text::units;
use segue_wire::{Probe, ProbeKey, TUNNEL_PORT};

use super::addresses::{Family, bind, listen_address, resolve};
use super::running::Running;
use super::{client, dscp, endpoint, guard, listen, metrics, peer, screen, secrets, stamp, target};

/// The shortest and the longest UDP payload of a request, in bytes.
const PROBE_LENGTH: i64 = Probe::PACKET_LEN as i64;
const PAYLOAD_MAX: i64 = endpoint::LENGTH_MAX as i64;

/// Maximum number of probes in a loss interval.
const LOSS_INTERVAL_MAX: i64 = 1_000_000;

/// Measure round-trip time and loss in each direction, without a tunnel.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 if every target answered, 1 if one did not, 2 for any other error.")]
pub struct Args {
    /// Hosts to measure; an IPv6 address with a port needs brackets [default port: 5005; STAMP: 862]
    #[arg(value_name = "HOST[:PORT]", required_unless_present_any = ["listen", "peer"])]
    targets: Vec<String>,
    /// Answer probes on this address
    #[arg(
        short,
        long,
        value_name = "ADDR[:PORT]",
        num_args = 0..=1,
        default_missing_value = "[::]",
        conflicts_with_all = ["targets", "count", "deadline", "tau_rise", "tau_fall", "v4", "v6"]
    )]
    listen: Option<String>,
    /// Measure with a peer that does the same: both ends send requests, and one becomes the client
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with_all = ["targets", "listen", "count"])]
    peer: Option<String>,
    /// With --peer, the local address
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "[::]:5005", requires = "peer")]
    bind: String,
    /// With --listen, answer only these networks
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',', requires = "listen")]
    allow: Vec<String>,
    /// With --listen, most answers per second to one address (IPv6: one /64) [STAMP: 2000]
    #[arg(
        long,
        value_name = "N",
        requires = "listen",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rate_limit: Option<u32>,
    /// With --listen, most answers per second in total [STAMP: 20000]
    #[arg(
        long,
        value_name = "N",
        requires = "listen",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rate_limit_total: Option<u32>,
    /// Mark requests with this DSCP: a name (ef, af41, cs1) or a number
    #[arg(long, value_name = "DSCP", conflicts_with = "listen", value_parser = dscp::parse)]
    dscp: Option<u8>,
    /// Do not copy the DSCP of requests into answers
    #[arg(long)]
    no_dscp_echo: bool,
    /// UDP payload of a request and its answer in bytes, never fragmented
    #[arg(
        short,
        long,
        value_name = "BYTES",
        default_value_t = Probe::PACKET_LEN as u16,
        conflicts_with = "listen",
        value_parser = clap::value_parser!(u16).range(PROBE_LENGTH..=PAYLOAD_MAX)
    )]
    size: u16,
    /// Serve Prometheus metrics on this address [default: 127.0.0.1:9105]
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        num_args = 0..=1,
        default_missing_value = ":9105"
    )]
    metrics: Option<String>,
    /// Do not use realtime scheduling, even where it is allowed
    #[arg(long)]
    no_realtime: bool,
    /// Send over this interface
    #[arg(short = 'I', long, value_name = "IFACE")]
    interface: Option<String>,
    /// Time between requests (T_KA)
    #[arg(short, long, value_name = "TIME", default_value = "200ms", value_parser = units::duration)]
    interval: Span,
    /// Stop after this many requests
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Stop sending after this long
    #[arg(short = 'w', long, value_name = "TIME", value_parser = units::duration)]
    deadline: Option<Span>,
    /// Time constants of the averages, the main one first
    #[arg(
        long,
        value_name = "TIME,…",
        value_delimiter = ',',
        default_value = "1s,30s",
        value_parser = units::duration
    )]
    tau: Vec<Span>,
    /// Time constant of the main average while it rises
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    tau_rise: Option<Span>,
    /// Time constant of the main average while it falls
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    tau_fall: Option<Span>,
    /// Probes per loss interval
    #[arg(
        long,
        value_name = "N",
        default_value = "10",
        value_parser = clap::value_parser!(u32).range(1..=LOSS_INTERVAL_MAX)
    )]
    loss_interval: u32,
    /// Lost probes in a row after which a path is down
    #[arg(short, value_name = "K", default_value = "3", value_parser = clap::value_parser!(u8).range(1..))]
    k: u8,
    /// Authenticate probes with the hexadecimal digits in this file, the same at both ends: 32, or 32 to 128 for the
    /// HMAC of STAMP
    #[arg(long, alias = "key-file", value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Print only the summary
    #[arg(short, long)]
    quiet: bool,
    /// Use STAMP (RFC 8762), which routers reflect too, instead of the compact probe
    #[arg(long, conflicts_with_all = ["peer", "tau", "tau_rise", "tau_fall", "loss_interval"])]
    stamp: bool,
    #[command(flatten)]
    stamp_options: stamp::StampArgs,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    v6: bool,
}

/// Runs until all requests are sent and answered, or until interrupted.
///
/// # Errors
/// The measurement cannot start, or fails.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match start(&args) {
        // The reader closed the output because it has seen enough.
        Err(error) if broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn start(args: &Args) -> anyhow::Result<ExitCode> {
    let config = config(args)?;
    let metrics = args.metrics.as_deref().map(metrics::address).transpose()?;
    let running = Running { metrics, realtime: !args.no_realtime };
    if let Some(name) = &args.interface {
        check_interface(name)?;
    }
    if args.stamp {
        return start_stamp(args, config, running);
    }
    let key = match &args.key {
        Some(path) => secrets::read_key(path)?,
        None => ProbeKey::default(),
    };
    if let Some(address) = &args.listen {
        return listen_on(args, address, key, config, running);
    }
    if let Some(name) = &args.peer {
        return measure_with(args, name, key, config, running);
    }
    measure(args, key, config, running)
}

fn listen_on(
    args: &Args,
    address: &str,
    key: ProbeKey,
    config: Config,
    running: Running,
) -> anyhow::Result<ExitCode> {
    let address = listen_address(address, TUNNEL_PORT)?;
    let rates = guard::Rates { source: args.rate_limit, total: args.rate_limit_total };
    let options = listen::ListenOptions {
        config,
        output: output(args),
        guard: guard::Guard::new(guard::parse_allowed(&args.allow)?, rates),
        echo_dscp: !args.no_dscp_echo,
        running,
    };
    listen::run(address, args.interface.as_deref(), key, options)
}

fn measure_with(
    args: &Args,
    name: &str,
    key: ProbeKey,
    config: Config,
    running: Running,
) -> anyhow::Result<ExitCode> {
    let interface = args.interface.as_deref();
    let address = resolve(name, TUNNEL_PORT, family(args), interface)?;
    let socket = bind(listen_address(&args.bind, TUNNEL_PORT)?, interface)?;
    let options = peer::PeerOptions {
        config,
        marks: marks(args),
        echo_dscp: !args.no_dscp_echo,
        keyed: args.key.is_some(),
        deadline: args.deadline,
        output: output(args),
        running,
    };
    peer::run(socket, name, address, key, options)
}

fn measure(
    args: &Args,
    key: ProbeKey,
    config: Config,
    running: Running,
) -> anyhow::Result<ExitCode> {
    let (count, deadline) = (args.count, args.deadline);
    let interface = args.interface.as_deref();
    let keyed = args.key.is_some();
    let options = client::ClientOptions {
        config,
        count,
        deadline,
        interface,
        keyed,
        output: output(args),
        running,
    };
    let mut targets = Vec::new();
    for name in &args.targets {
        let address = resolve(name, TUNNEL_PORT, family(args), interface)?;
        let target =
            target::Target::new(name, address, interface, key, &options.config, marks(args))?;
        targets.push(target);
    }
    client::run(targets, &options)
}

fn start_stamp(args: &Args, config: Config, running: Running) -> anyhow::Result<ExitCode> {
    let rates = guard::Rates {
        source: Some(args.rate_limit.unwrap_or(stamp::reflector::SOURCE_RATE_MAX)),
        total: Some(args.rate_limit_total.unwrap_or(stamp::reflector::RATE_MAX)),
    };
    // The default is the length of a compact probe, which does not apply to STAMP.
    let size = if args.size == Probe::PACKET_LEN as u16 { 0 } else { args.size.into() };
    let common = stamp::Common {
        interface: args.interface.as_deref(),
        key: args.key.as_deref().map(secrets::read_secret).transpose()?,
        interval: args.interval,
        k: args.k,
        count: args.count,
        deadline: args.deadline,
        dscp: args.dscp,
        size,
        guard: guard::Guard::new(guard::parse_allowed(&args.allow)?, rates),
        rates,
        config,
        echo_dscp: !args.no_dscp_echo,
        output: output(args),
        running,
    };
    let port = segue_wire::stamp::PORT;
    match &args.listen {
        Some(address) => {
            let address = listen_address(address, port)?;
            stamp::reflect(&args.stamp_options, common, address)
        }
        None => stamp::measure(&args.stamp_options, &common, addresses(args, port)?),
    }
}

/// The targets' names and addresses. A name that does not resolve is reported and left out; other targets still run.
fn addresses(args: &Args, default_port: u16) -> anyhow::Result<Vec<(String, SocketAddr)>> {
    let interface = args.interface.as_deref();
    let address = |name: &String| {
        resolve(name, default_port, family(args), interface).map(|found| (name.clone(), found))
    };
    let (mut found, mut last) = (Vec::new(), None);
    for answer in args.targets.iter().map(address) {
        match answer {
            Ok(target) => found.push(target),
            Err(error) => last.replace(error).iter().for_each(report),
        }
    }
    match last {
        Some(error) if found.is_empty() => Err(error),
        last => {
            last.iter().for_each(report);
            Ok(found)
        }
    }
}

fn report(error: &anyhow::Error) {
    eprintln!("segue: {}", Told(error));
}

fn output(args: &Args) -> screen::Output {
    screen::Output { json: args.json, quiet: args.quiet }
}

fn marks(args: &Args) -> target::Marks {
    target::Marks { dscp: args.dscp, length: args.size.into() }
}

fn family(args: &Args) -> Option<Family> {
    match (args.v4, args.v6) {
        (true, _) => Some(Family::V4),
        (_, true) => Some(Family::V6),
        _ => None,
    }
}

fn config(args: &Args) -> anyhow::Result<Config> {
    ensure!(args.interval >= Span::from_millis(1), "the interval must be 1 ms or longer");
    let mut taus: Vec<Tau> = args.tau.iter().map(|tau| Tau::symmetric(*tau)).collect();
    if let Some(main) = taus.first_mut() {
        main.rise = args.tau_rise.unwrap_or(main.rise);
        main.fall = args.tau_fall.unwrap_or(main.fall);
    }
    Ok(Config { k: args.k, t_ka: args.interval, n: args.loss_interval, taus, ..Config::default() })
}

/// Fails if the interface that the operator named does not exist.
fn check_interface(name: &str) -> anyhow::Result<()> {
    let present = if_nameindex().context("cannot list the interfaces")?;
    let names: Vec<_> = present.iter().map(|i| i.name().to_string_lossy()).collect();
    ensure!(
        names.iter().any(|present| present == name),
        "there is no interface {name:?} here; there are {}",
        names.join(", ")
    );
    Ok(())
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}
