//! `segue probe`: measurement alone, without tunnels and without root.
//!
//! The client (`client`) sends the keepalive requests of a tunnel's path, and the listener
//! (`listen`) answers them; the packets are those of `segue_wire::probe`. Where a tunnel's index and
//! cookie come from its registration, here the client draws both at random for each target and run,
//! and the listener repeats them: they name the measurement session, so that a client that starts
//! again is a new one, and one whose address changes is not.

mod client;
mod listen;
mod samples;
mod screen;
mod signals;
mod target;

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
use segue_wire::ProbeKey;

use crate::units;

/// Longest loss interval in probes.
const LOSS_INTERVAL_MAX: i64 = 1_000_000;

/// Measure round-trip time and loss in each direction, without a tunnel.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 if every target answered, 1 if one did not, 2 for any other error.")]
pub struct Args {
    /// Whom to measure; IPv6 addresses with a port in brackets [default port: 5005]
    #[arg(value_name = "HOST[:PORT]", required_unless_present = "listen")]
    targets: Vec<String>,
    /// Answer the probes of others on this address
    #[arg(
        short,
        long,
        value_name = "ADDR[:PORT]",
        num_args = 0..=1,
        default_missing_value = "[::]:5005",
        conflicts_with_all = ["targets", "count", "deadline", "tau_rise", "tau_fall", "v4", "v6"]
    )]
    listen: Option<String>,
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
    /// Authenticate probes with the 32 hexadecimal digits in this file, on both ends
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Print the summary alone
    #[arg(short, long)]
    quiet: bool,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    v6: bool,
}

/// Runs until all is sent and answered, or until interrupted.
///
/// # Errors
/// For everything that keeps the measurement from starting.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match start(&args) {
        // Whoever read the output has seen enough.
        Err(error) if broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn start(args: &Args) -> anyhow::Result<ExitCode> {
    let key = match &args.key {
        Some(path) => read_key(path)?,
        None => ProbeKey::default(),
    };
    let output = screen::Output { json: args.json, quiet: args.quiet };
    let config = config(args)?;
    if let Some(name) = &args.interface {
        check_interface(name)?;
    }
    if let Some(address) = &args.listen {
        let address = target::listen_address(address)?;
        return listen::run(address, args.interface.as_deref(), key, config, output);
    }
    let family = match (args.v4, args.v6) {
        (true, _) => Some(target::Family::V4),
        (_, true) => Some(target::Family::V6),
        _ => None,
    };
    let options = client::Options { config, count: args.count, deadline: args.deadline, output };
    let mut targets = Vec::new();
    for name in &args.targets {
        let address = target::resolve(name, family, args.interface.as_deref())?;
        let interface = args.interface.as_deref();
        targets.push(target::Target::new(name, address, interface, key, &options.config)?);
    }
    client::run(targets, &options)
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

/// Reads a key that nobody else may read.
fn read_key(path: &Path) -> anyhow::Result<ProbeKey> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("key file {name}"))?;
    let mode = file.metadata().with_context(|| format!("key file {name}"))?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("key file {name} can be read by others; run: chmod 600 {name}");
    }
    let mut text = String::new();
    // A key has 32 digits; reading stops long before a wrong file fills the memory.
    file.take(1_000).read_to_string(&mut text).with_context(|| format!("key file {name}"))?;
    parse_key(&text).with_context(|| {
        format!("key file {name} must hold 32 hexadecimal digits and nothing else")
    })
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

/// Bytes that nobody can guess.
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
