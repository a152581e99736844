//! The daemons: one loop ([`run`]) drives each role's pure machine ([`host`], [`anchor`]) with sockets, netlink, a
//! datapath and the clock. The crate also holds everything that only daemons need: configuration files ([`config`]),
//! the control socket ([`control`]), signalling ([`signalling`]), credentials and join lines ([`identity`]), and an
//! anchor's address or name ([`locator`]). Other programs talk to a daemon over its control socket.

#![forbid(unsafe_code)]

pub mod anchor;
pub mod clamp;
pub mod config;
pub mod control;
pub mod echo;
pub mod ends;
pub mod engine;
pub mod events;
mod fair;
mod fitted;
pub mod forwarding;
pub mod history;
pub mod host;
pub mod identity;
pub mod kept;
pub mod lacks;
pub mod ledger;
pub mod locator;
pub mod mih;
pub mod nat;
mod notify;
pub mod number;
pub mod packets;
pub mod past;
pub mod pmip;
pub mod relayed;
pub mod rivals;
pub mod routers;
pub mod routing;
pub mod run;
pub mod scrape;
pub mod seldom;
pub mod settings;
pub mod shares;
mod shield;
pub mod signalling;
pub mod sockets;
pub mod stamp;
pub mod stations;
pub mod status;
pub mod streams;
pub mod trouble;
pub mod turns;
pub mod wall;
pub mod ways;

use std::time::Duration;

use anyhow::{Context, bail};
use segue_clock::Time;
use segue_linux::clock::monotonic;
use segue_linux::monitor::Device;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// 32 random bytes from the system's generator.
fn random_seed() -> anyhow::Result<[u8; 32]> {
    use std::io::Read;
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .context("the system gives no random numbers")?;
    Ok(seed)
}

/// Sleeps until a time of the monotonic clock; forever for `None`.
pub async fn until(deadline: Option<Time>) {
    match deadline {
        Some(at) => tokio::time::sleep(Duration::from_nanos(at.since(monotonic()).0)).await,
        None => std::future::pending().await,
    }
}

/// Receives one item per SIGINT or SIGTERM, even if the parent process had blocked these signals.
pub fn termination() -> anyhow::Result<mpsc::Receiver<()>> {
    use nix::sys::signal::{SigSet, Signal};
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGINT);
    blocked.add(Signal::SIGTERM);
    blocked.thread_unblock().context("signals cannot be unblocked")?;
    let (sender, receiver) = mpsc::channel(2);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut stream = signal(kind).context("signals cannot be caught")?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                let _ = sender.send(()).await;
            }
        });
    }
    Ok(receiver)
}

/// Fails with advice if this process may not set up devices and routes (`CAP_NET_ADMIN`).
pub fn check_permission(what: &str) -> anyhow::Result<()> {
    const NET_ADMIN: u32 = 12;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if effective.is_some_and(|mask| mask & 1 << NET_ADMIN == 0) {
        bail!("not permitted to {what}: run as root, or with the capability CAP_NET_ADMIN");
    }
    Ok(())
}

/// Fails if one of the interfaces that the operator named does not exist.
pub fn check_interfaces(named: &[String], present: &[Device]) -> anyhow::Result<()> {
    let is_there = |name: &&String| present.iter().any(|device| device.interface.name == **name);
    let Some(missing) = named.iter().find(|name| !is_there(name)) else {
        return Ok(());
    };
    let names = present.iter().filter(|d| !d.loopback).map(|d| d.interface.name.as_str());
    let names: Vec<&str> = names.collect();
    bail!("there is no interface {missing:?} here; there are {}", names.join(", "))
}
