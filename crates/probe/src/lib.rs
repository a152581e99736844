//! Measurement without tunnels and without root, as `segue probe` offers it ([`Args`], [`run`]), the STAMP
//! reflector that an anchor runs too ([`stamp`]), and metrics for Prometheus ([`metrics`]).
//!
//! The client (`client`) sends the keepalive requests of a tunnel's path, and the listener
//! (`listen`) answers them; two peers (`peer`) agree on their roles. The packets are those of
//! `segue_wire::probe`. A tunnel gets its index and cookie by registration; here the client draws
//! both at random for each target and run, and the listener repeats them. They identify the
//! measurement session, so a restarted client is a new one, and a client with a new address is not.

#![forbid(unsafe_code)]

mod client;
mod dscp;
mod endpoint;
mod guard;
mod icmp;
mod ipdv;
mod listen;
pub mod metrics;
mod opening;
mod peer;
mod refusals;
mod samples;
mod screen;
mod session;
pub mod stamp;
pub mod target;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use nix::net::if_::if_nameindex;
use segue_clock::Span;
use segue_keepalive::{Config, Tau};
use segue_linux::thread::{Precision, prefer_precision};
use segue_text::units;
use segue_wire::{Probe, ProbeKey, TUNNEL_PORT};

/// The shortest and the longest UDP payload of a request.
const PROBE_LENGTH: i64 = Probe::PACKET_LEN as i64;
const PAYLOAD_MAX: i64 = endpoint::LENGTH_MAX as i64;

/// Longest loss interval in probes.
const LOSS_INTERVAL_MAX: i64 = 1_000_000;

/// Measure round-trip time and loss in each direction, without a tunnel.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 if every target answered, 1 if one did not, 2 for any other error.")]
pub struct Args {
    /// Whom to measure; IPv6 addresses with a port in brackets [default port: 5005; STAMP: 862]
    #[arg(value_name = "HOST[:PORT]", required_unless_present_any = ["listen", "peer"])]
    targets: Vec<String>,
    /// Answer the probes of others on this address
    #[arg(
        short,
        long,
        value_name = "ADDR[:PORT]",
        num_args = 0..=1,
        default_missing_value = "[::]",
        conflicts_with_all = ["targets", "count", "deadline", "tau_rise", "tau_fall", "v4", "v6"]
    )]
    listen: Option<String>,
    /// Measure with a peer that does the same: both ends ask, and one becomes the client
    #[arg(long, value_name = "ADDR[:PORT]", conflicts_with_all = ["targets", "listen", "count"])]
    peer: Option<String>,
    /// With --peer, the address that this end uses
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "[::]:5005", requires = "peer")]
    bind: String,
    /// With --listen, answer only these networks
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',', requires = "listen")]
    allow: Vec<String>,
    /// With --listen, answers per second to each address (IPv6: each /64) [STAMP: 2000]
    #[arg(
        long,
        value_name = "N",
        requires = "listen",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rate_limit: Option<u32>,
    /// With --listen, answers per second to all together [STAMP: 20000]
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
    /// Do not give answers the DSCP of their requests
    #[arg(long)]
    no_dscp_echo: bool,
    /// Bytes of UDP payload in a request and its answer, never fragmented
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
    /// Stay an ordinary thread, where the system would allow a realtime one
    #[arg(long)]
    no_realtime: bool,
    /// Send over this interface
    #[arg(short = 'I', long, value_name = "IFACE")]
    interface: Option<String>,
    /// T_KA, the time between requests
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
    /// Probes in a loss interval
    #[arg(
        long,
        value_name = "N",
        default_value = "10",
        value_parser = clap::value_parser!(u32).range(1..=LOSS_INTERVAL_MAX)
    )]
    loss_interval: u32,
    /// Lost probes in a row that make a path down
    #[arg(short, value_name = "K", default_value = "3", value_parser = clap::value_parser!(u8).range(1..))]
    k: u8,
    /// Authenticate probes with the hexadecimal digits in this file, on both ends: 32, or 32 to 128 for
    /// the HMAC of STAMP
    #[arg(long, alias = "key-file", value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Print the summary alone
    #[arg(short, long)]
    quiet: bool,
    /// Speak STAMP (RFC 8762), which routers reflect too, instead of the compact probe
    #[arg(long, conflicts_with_all = ["peer", "tau", "tau_rise", "tau_fall", "loss_interval"])]
    stamp: bool,
    #[command(flatten)]
    stamp_options: stamp::Options,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    v6: bool,
}

/// Runs until everything is sent and answered, or until interrupted.
///
/// # Errors
/// If anything keeps the measurement from starting.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match start(&args) {
        // The reader closed the output: it has seen enough.
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
        Some(path) => read_key(path)?,
        None => ProbeKey::default(),
    };
    if let Some(address) = &args.listen {
        return listen(args, address, key, config, running);
    }
    if let Some(name) = &args.peer {
        return peer(args, name, key, config, running);
    }
    measure(args, key, config, running)
}

fn listen(
    args: &Args,
    address: &str,
    key: ProbeKey,
    config: Config,
    running: Running,
) -> anyhow::Result<ExitCode> {
    let address = target::listen_address(address, TUNNEL_PORT)?;
    let rates = guard::Rates { source: args.rate_limit, total: args.rate_limit_total };
    let options = listen::Options {
        config,
        output: output(args),
        guard: guard::Guard::new(guard::parse_allowed(&args.allow)?, rates),
        echo_dscp: !args.no_dscp_echo,
        running,
    };
    listen::run(address, args.interface.as_deref(), key, options)
}

fn peer(
    args: &Args,
    name: &str,
    key: ProbeKey,
    config: Config,
    running: Running,
) -> anyhow::Result<ExitCode> {
    let interface = args.interface.as_deref();
    let address = target::resolve(name, TUNNEL_PORT, family(args), interface)?;
    let socket = listen::bind(target::listen_address(&args.bind, TUNNEL_PORT)?, interface)?;
    let options = peer::Options {
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
    let options = client::Options {
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
        let address = target::resolve(name, TUNNEL_PORT, family(args), interface)?;
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
        key: args.key.as_deref().map(read_secret).transpose()?,
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
            let address = target::listen_address(address, port)?;
            stamp::reflect(&args.stamp_options, common, address)
        }
        None => stamp::measure(&args.stamp_options, &common, addresses(args, port)?),
    }
}

/// The targets' names and addresses.
fn addresses(args: &Args, default_port: u16) -> anyhow::Result<Vec<(String, SocketAddr)>> {
    let interface = args.interface.as_deref();
    let address = |name: &String| {
        target::resolve(name, default_port, family(args), interface)
            .map(|found| (name.clone(), found))
    };
    args.targets.iter().map(address).collect()
}

fn output(args: &Args) -> screen::Output {
    screen::Output { json: args.json, quiet: args.quiet }
}

fn marks(args: &Args) -> target::Marks {
    target::Marks { dscp: args.dscp, length: args.size.into() }
}

fn family(args: &Args) -> Option<target::Family> {
    match (args.v4, args.v6) {
        (true, _) => Some(target::Family::V4),
        (_, true) => Some(target::Family::V6),
        _ => None,
    }
}

/// The process around a measurement.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Where metrics are served.
    metrics: Option<SocketAddr>,
    /// The measuring thread runs ahead of ordinary ones, if the system allows.
    realtime: bool,
}

impl Running {
    /// Starts serving metrics, if wanted. Call it before [`Running::scheduling`], which the new
    /// thread must not inherit.
    fn metrics(self) -> anyhow::Result<Option<metrics::Server>> {
        self.metrics.map(metrics::Server::start).transpose()
    }

    /// As [`Running::metrics`], and prints the address: the system may have chosen the port.
    fn told_metrics(self, output: screen::Output) -> anyhow::Result<Option<metrics::Server>> {
        let metrics = self.metrics()?;
        if let Some(server) = &metrics {
            screen::metrics(output, server.address())?;
        }
        Ok(metrics)
    }

    /// Prepares the calling thread, and says how.
    fn scheduling(self) -> &'static str {
        if !self.realtime {
            return "ordinary";
        }
        match prefer_precision() {
            Precision::Realtime => "realtime",
            Precision::Nice => "nice",
            Precision::Ordinary => "ordinary",
        }
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

/// Reads the key of compact probes.
fn read_key(path: &Path) -> anyhow::Result<ProbeKey> {
    let text = read_secret(path)?;
    parse_key(&text).with_context(|| {
        format!("key file {} must hold 32 hexadecimal digits and nothing else", path.display())
    })
}

/// Reads a key file, which must not be readable by other users.
pub fn read_secret(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("key file {name}"))?;
    let mode = file.metadata().with_context(|| format!("key file {name}"))?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("key file {name} can be read by others; run: chmod 600 {name}");
    }
    let mut text = String::new();
    // A key has 128 digits at most; reading stops long before a wrong file fills the memory.
    file.take(1_000).read_to_string(&mut text).with_context(|| format!("key file {name}"))?;
    Ok(text)
}

/// The key in the text of a key file: 32 hexadecimal digits, with white space around them at most.
pub fn parse_key(text: &str) -> Option<ProbeKey> {
    let digits: Option<Vec<u32>> = text.trim().chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 32)?;
    Some(ProbeKey(std::array::from_fn(|i| (digits[2 * i] << 4 | digits[2 * i + 1]) as u8)))
}

/// Fails if the interface that the operator named is not there.
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

/// Unpredictable bytes.
fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// An address as people write it: an IPv4-mapped one as IPv4.
fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}
