//! The daemons: each drives one pure machine with sockets, netlink, a datapath and the clock.

pub mod anchor;
pub mod events;
pub mod host;
pub mod packets;
pub mod routing;
pub mod status;

use std::time::Duration;

use anyhow::Context;
use segue_clock::Time;
use segue_linux::clock::monotonic;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Sleeps until an instant of the monotonic clock; for ever if there is none.
pub async fn until(deadline: Option<Time>) {
    match deadline {
        Some(at) => tokio::time::sleep(Duration::from_nanos(at.since(monotonic()).0)).await,
        None => std::future::pending().await,
    }
}

/// Receives once for each SIGINT or SIGTERM.
pub fn termination() -> anyhow::Result<mpsc::Receiver<()>> {
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
