//! `segue probe --stamp`: STAMP (RFC 8762, RFC 8972) towards routers that reflect it ([`sender`]), and for senders that
//! measure this machine ([`reflector`]).

mod common;
pub mod reflector;
mod sender;
mod serve;
mod session;
mod stamps;
mod stats;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, anyhow, ensure};
use nix::net::if_::if_nametoindex;
use segue_datapath::{DatapathError, StampAnswers, StampOptions};
use segue_linux::udp::UdpError;
use segue_wire::stamp::StampKey;
use segue_wire::{ProbeKey, TUNNEL_PORT};

use super::guard::Guard;
use super::listen::{self, Listener};
pub use common::Common;

/// Maximum length of a key in bytes: a block of SHA-256. HMAC would hash a longer key to 32 bytes.
const KEY_MAX_BYTES: usize = 64;
/// Minimum length of a key in bytes: the length of the truncated HMAC.
const KEY_MIN_BYTES: usize = 16;

/// What STAMP adds to the options of a probe.
#[derive(clap::Args)]
pub struct StampArgs {
    /// Session identifier (SSID) to send [default: none]
    #[arg(
        long,
        value_name = "N",
        requires = "stamp",
        conflicts_with = "listen",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    session_id: Option<u16>,
    /// Ask for packet counters (Direct Measurement), which show the loss in each direction
    #[arg(long, requires = "stamp", conflicts_with = "listen")]
    direct: bool,
    /// Ask for the true departure times of answers (Follow-Up Telemetry)
    #[arg(long, requires = "stamp", conflicts_with = "listen")]
    follow_up: bool,
    /// Ask for answers with this DSCP (Class of Service)
    #[arg(
        long,
        value_name = "DSCP",
        requires = "stamp",
        conflicts_with = "listen",
        value_parser = super::dscp::parse
    )]
    reply_dscp: Option<u8>,
    /// Answer without keeping sessions
    #[arg(long, requires_all = ["stamp", "listen"])]
    stateless: bool,
    /// Answer in the kernel, on the interface given with -I (root): STAMP, and the compact probe on its own port
    #[arg(long, requires_all = ["stamp", "listen", "interface"])]
    kernel: bool,
}

/// Measures towards `targets`.
///
/// # Errors
/// The measurement cannot start, or fails.
pub fn measure(
    options: &StampArgs,
    common: &Common<'_>,
    targets: Vec<(String, SocketAddr)>,
) -> anyhow::Result<ExitCode> {
    let wishes = session::Wishes {
        key: key(common)?,
        ssid: options.session_id.unwrap_or(0),
        direct: options.direct,
        follow_up: options.follow_up,
        reply_dscp: options.reply_dscp,
        dscp: common.dscp,
        size: common.size,
    };
    let mut sessions = Vec::new();
    for (name, address) in targets {
        sessions.push(session::Session::new(name, address, common.interface, wishes.clone())?);
    }
    sender::run(sessions, common)
}

/// Answers requests on `address`.
///
/// # Errors
/// The reflector cannot start, or fails.
pub fn reflect(
    options: &StampArgs,
    common: Common<'_>,
    address: SocketAddr,
) -> anyhow::Result<ExitCode> {
    let wanted = if options.kernel { Some(in_kernel(&common)?) } else { None };
    let settings = reflector::Settings {
        key: key(&common)?,
        stateful: !options.stateless,
        echo_dscp: common.echo_dscp,
        guard: common.guard,
        ..reflector::Settings::default()
    };
    let (running, output) = (common.running, common.output);
    let reflector = reflector::Reflector::bind(address, common.interface, settings);
    let reflector = reflector.map_err(|error| match is_in_use(&error) {
        true => error.context(
            "another program answers there already, such as an anchor with `stamp = true`; give another port: \
             --listen [::]:8862",
        ),
        false => error,
    })?;
    let answers = StampOptions {
        port: reflector.local_addr()?.port(),
        stateful: !options.stateless,
        rate: common.rates.total.unwrap_or(reflector::RATE_MAX),
        source_rate: common.rates.source.unwrap_or(reflector::SOURCE_RATE_MAX),
        echo_dscp: common.echo_dscp,
    };
    let kernel = match wanted {
        Some(ifindex) => {
            let passed_on = listen::ListenOptions {
                config: common.config,
                output,
                guard: Guard::new(Vec::new(), common.rates),
                echo_dscp: common.echo_dscp,
                running,
            };
            Some(kernel(ifindex, answers, address.ip(), common.interface, passed_on)?)
        }
        None => None,
    };
    serve::run(reflector, kernel, running, output)
}

/// Answers requests in the kernel, and listens for compact probes that the eBPF program passes on.
fn kernel(
    ifindex: u32,
    answers: StampOptions,
    address: IpAddr,
    interface: Option<&str>,
    options: listen::ListenOptions,
) -> anyhow::Result<serve::Kernel> {
    // A port that the operator assigned to STAMP remains STAMP's.
    let port = Some(TUNNEL_PORT).filter(|port| *port != answers.port);
    let output = options.output;
    let listen = |port| {
        let address = SocketAddr::new(address, port);
        Listener::open(address, interface, ProbeKey::default(), options)
    };
    let probes = match port.map(listen).transpose() {
        // An anchor or a listener uses the port, and answers compact probes itself.
        Err(error) if is_in_use(&error) => {
            if !output.quiet {
                eprintln!(
                    "segue: UDP port {TUNNEL_PORT} is in use by another program, such as an anchor: compact \
                     probes are left to it"
                );
            }
            None
        }
        probes => probes.context("cannot answer the compact probe")?,
    };
    let port = port.filter(|_| probes.is_some());
    let answers = StampAnswers::attach(ifindex, answers, port).map_err(|error| match &error {
        DatapathError::Kernel { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            anyhow!("--kernel is for root (or CAP_BPF and CAP_NET_ADMIN)")
        }
        _ => anyhow::Error::from(error).context("cannot answer in the kernel"),
    })?;
    Ok(serve::Kernel { answers, probes })
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(UdpError::InUse { .. }))
}

/// The interface on which the kernel answers.
fn in_kernel(common: &Common<'_>) -> anyhow::Result<u32> {
    ensure!(
        common.key.is_none(),
        "--kernel answers unauthenticated requests only: leave out --key"
    );
    ensure!(common.guard.is_open(), "--kernel answers everybody: leave out --allow");
    let name = common.interface.context("--kernel needs an interface: -I IFACE")?;
    if_nametoindex(name).with_context(|| format!("there is no interface {name}"))
}

fn key(common: &Common<'_>) -> anyhow::Result<Option<StampKey>> {
    common.key.as_deref().map(read_key).transpose()
}

/// Like [`parse_key`].
///
/// # Errors
/// One line that shows the form of a key file.
pub fn read_key(text: &str) -> anyhow::Result<StampKey> {
    let (min, max) = (2 * KEY_MIN_BYTES, 2 * KEY_MAX_BYTES);
    parse_key(text).with_context(|| {
        format!(
            "a key file for STAMP must hold {min} to {max} hexadecimal digits, two for each byte"
        )
    })
}

/// Parses the text of a key file: 32 to 128 hexadecimal digits, possibly surrounded by whitespace.
pub fn parse_key(text: &str) -> Option<StampKey> {
    let digits: Option<Vec<u32>> = text.trim().chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|two| (two[0] << 4 | two[1]) as u8).collect();
    (KEY_MIN_BYTES..=KEY_MAX_BYTES).contains(&bytes.len()).then(|| StampKey::new(&bytes))
}
