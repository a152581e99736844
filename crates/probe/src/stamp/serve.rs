//! The main loop of `segue probe --listen --stamp`, and its output.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::Context;
use segue_clock::Span;
use segue_datapath::{StampAnswers, StampCounts};
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use serde::Serialize;

use super::reflector::{Reflector, SessionReport};
use crate::guard::RATE_LIMIT;
use crate::listen::{Listener, print_clients};
use crate::metrics::{Label, Page, Server as Metrics, names};
use crate::running::Running;
use crate::screen::{self, Output, print, print_drops, print_json};
use crate::session::ClientReport;

/// Interval at which the kernel's answers are refreshed.
const REFRESH: Span = Span::from_secs(1);
/// Refused: a duplicate request.
const REPLAY: &str = "replay";

/// Refused datagrams by reason.
type Drops = BTreeMap<&'static str, u64>;

/// The eBPF program that answers before packets reach the sockets.
pub(super) struct Kernel {
    /// The program.
    pub answers: StampAnswers,
    /// Receives compact probes that the program passes on, if it answers any.
    pub probes: Option<Listener>,
}

#[derive(Serialize)]
struct Listening {
    r#type: &'static str,
    protocol: &'static str,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    protocol: &'static str,
    sessions: Vec<SessionReport>,
    /// Number of answers by the kernel, which no session counts.
    kernel_answers: u64,
    drops: Drops,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<Probes>,
}

/// The compact probes that are answered alongside STAMP.
#[derive(Serialize)]
struct Probes {
    /// Number of answers by the kernel, which no client counts.
    kernel_answers: u64,
    clients: Vec<ClientReport>,
    drops: Drops,
}

/// Answers requests until interrupted.
///
/// # Errors
/// Signals, sockets or output fail.
pub(super) fn run(
    mut reflector: Reflector,
    mut kernel: Option<Kernel>,
    running: Running,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let signals = StopSignals::take()?;
    let metrics = running.metrics()?;
    if let Some(kernel) = &mut kernel {
        kernel.refresh()?;
    }
    let probes = kernel.as_ref().and_then(|kernel| kernel.probes.as_ref());
    let probe_address = probes.map(Listener::local_addr).transpose()?;
    let metrics_address = metrics.as_ref().map(Metrics::address);
    tell_start(output, reflector.local_addr()?, probe_address, metrics_address)?;
    let mut due = clock::monotonic() + REFRESH;
    loop {
        reflector.serve()?;
        let now = clock::monotonic();
        if due <= now {
            if let Some(kernel) = &mut kernel {
                kernel.refresh()?;
            }
            due = now + REFRESH;
        }
        let wake = match kernel.as_mut().and_then(|kernel| kernel.probes.as_mut()) {
            Some(probes) => due.min(probes.turn()?),
            None => due,
        };
        if let Some(metrics) = &metrics {
            metrics.answer(|| page(&reflector, kernel.as_ref()));
        }
        let probes = kernel.as_ref().and_then(|kernel| kernel.probes.as_ref());
        let sockets = [reflector.as_fd()].into_iter().chain(probes.map(AsFd::as_fd));
        if signals.wait(sockets.chain(metrics.as_ref().map(AsFd::as_fd)), Some(wake))? {
            break;
        }
    }
    // Requests that arrived before the signal are still answered.
    reflector.serve()?;
    if let Some(probes) = kernel.as_mut().and_then(|kernel| kernel.probes.as_mut()) {
        probes.turn()?;
    }
    summary(&reflector, kernel.as_ref()).print(output)?;
    Ok(ExitCode::SUCCESS)
}

fn tell_start(
    output: Output,
    address: SocketAddr,
    probes: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
) -> io::Result<()> {
    if output.json {
        return print_json(&Listening {
            r#type: "listening",
            protocol: "stamp",
            address: address.to_string(),
            probe_address: probes.map(|address| address.to_string()),
            metrics: metrics.map(|address| address.to_string()),
        });
    }
    if output.quiet {
        return Ok(());
    }
    print(&format!("reflecting STAMP on {address}"))?;
    if let Some(address) = probes {
        print(&format!("listening on {address}"))?;
    }
    metrics.map_or(Ok(()), |address| screen::metrics(output, address))
}

impl Kernel {
    fn refresh(&mut self) -> anyhow::Result<()> {
        self.answers.refresh().context("cannot set the kernel's clock")
    }

    fn counts(&self) -> StampCounts {
        self.answers.counts()
    }
}

/// Datagrams refused by program and sockets: of STAMP, including compact probes over the rate limit, and of compact
/// probes.
fn drops(reflector: &Reflector, kernel: Option<&Kernel>) -> (Drops, Drops) {
    let counts = kernel.map(Kernel::counts).unwrap_or_default();
    let probes = kernel.and_then(|kernel| kernel.probes.as_ref());
    let with = |drops: Option<&Drops>, reason, more| {
        let mut drops = drops.cloned().unwrap_or_default();
        if more > 0 {
            *drops.entry(reason).or_default() += more;
        }
        drops
    };
    (
        with(Some(reflector.drops()), RATE_LIMIT, counts.limited),
        with(probes.map(Listener::drops), REPLAY, counts.replayed),
    )
}

fn page(reflector: &Reflector, kernel: Option<&Kernel>) -> String {
    let mut page = Page::default();
    let [stamp, probe]: [[Label; 1]; 2] =
        ["stamp", "probe"].map(|protocol| [("protocol", protocol.to_owned())]);
    let (stamp_drops, probe_drops) = drops(reflector, kernel);
    reflector.measured(&mut page, &stamp);
    page.drops(&stamp, &stamp_drops);
    if let Some(kernel) = kernel {
        let counts = kernel.counts();
        page.add(&names::KERNEL_ANSWERS, &stamp, &[], counts.answered as f64);
        if let Some(probes) = &kernel.probes {
            page.add(&names::KERNEL_ANSWERS, &probe, &[], counts.probes as f64);
            probes.measured(&mut page, &probe);
            page.drops(&probe, &probe_drops);
        }
    }
    page.text()
}

fn summary(reflector: &Reflector, kernel: Option<&Kernel>) -> Summary {
    let counts = kernel.map(Kernel::counts).unwrap_or_default();
    let (stamp_drops, probe_drops) = drops(reflector, kernel);
    let probes = kernel.and_then(|kernel| kernel.probes.as_ref());
    Summary {
        r#type: "summary",
        protocol: "stamp",
        sessions: reflector.reports(),
        kernel_answers: counts.answered,
        drops: stamp_drops,
        probes: probes.map(|probes| Probes {
            kernel_answers: counts.probes,
            clients: probes.reports(),
            drops: probe_drops,
        }),
    }
}

impl Summary {
    fn print(&self, output: Output) -> io::Result<()> {
        if output.json {
            return print_json(self);
        }
        print(&format!("\n--- {} sessions ---", self.sessions.len()))?;
        for s in &self.sessions {
            print(&format!(
                "{} ssid {}: {} received, {} sent",
                s.client, s.ssid, s.received, s.sent
            ))?;
        }
        let in_kernel = |answers: u64| match answers {
            0 => Ok(()),
            n => print(&format!("{n} answered in the kernel")),
        };
        in_kernel(self.kernel_answers)?;
        print_drops(&self.drops)?;
        if let Some(probes) = &self.probes {
            print_clients(&probes.clients, &probes.drops)?;
            in_kernel(probes.kernel_answers)?;
        }
        Ok(())
    }
}
