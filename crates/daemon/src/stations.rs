//! The stations at a link: found by the packets that they send, and probed when the link comes up.

use std::io::ErrorKind;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use segue_linux::station::{Heard, HeardStation, Stations};

use crate::sockets::Readiness;

/// When to probe stations after a link has come up: an interface may be up a moment after its peer.
const ASKS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(500)];
/// Most stations taken in a turn.
const A_TURN: usize = 64;

/// A watch on the stations of links.
pub struct Watch {
    /// Sends to stations.
    pub stations: Stations,
    heard: (Heard, Readiness),
    /// Due probes of links.
    asks: Vec<(Instant, u32)>,
    /// Source address of probes.
    from: Ipv6Addr,
}

/// Work that is due.
pub enum Turn {
    /// Stations were heard.
    Heard,
    /// It is time to probe a link's stations.
    Ask(u32),
}

impl Watch {
    /// Watches all interfaces of this namespace; probes come from this address.
    ///
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
    pub fn open(from: Ipv6Addr) -> anyhow::Result<Watch> {
        let heard = Heard::open()?;
        let readiness = Readiness::of(&heard)?;
        let (stations, asks) = (Stations::open()?, Vec::new());
        Ok(Watch { stations, heard: (heard, readiness), asks, from })
    }

    /// Probes a link that has come up: at once and a moment later.
    pub fn is_up(&mut self, interface: u32) {
        let now = Instant::now();
        self.asks.extend(ASKS.map(|after| (now + after, interface)));
    }

    /// Probes the stations of a link after this time, unless a probe is already scheduled.
    pub fn ask_after(&mut self, interface: u32, after: Duration) {
        if !self.asks.iter().any(|(_, of)| *of == interface) {
            self.asks.push((Instant::now() + after, interface));
        }
    }

    /// Waits until work is due.
    pub async fn wait(&self) -> Turn {
        let next = self.asks.iter().min().copied();
        let ask = async {
            match next {
                Some((at, interface)) => {
                    tokio::time::sleep_until(at.into()).await;
                    interface
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            interface = ask => Turn::Ask(interface),
            () = self.heard.1.ready() => Turn::Heard,
        }
    }

    /// Does the work, and returns the stations that were heard, without group addresses.
    ///
    /// # Errors
    /// A socket failed.
    pub fn turn(&mut self, turn: Turn) -> anyhow::Result<Vec<HeardStation>> {
        if let Turn::Ask(interface) = turn {
            let now = Instant::now();
            self.asks.retain(|(at, of)| *of != interface || *at > now);
            // Another probe follows, and hosts send packets unasked.
            let _ = self.stations.ask_all(interface, self.from);
            return Ok(Vec::new());
        }
        let (heard, readiness) = &self.heard;
        let mut all = Vec::new();
        while all.len() < A_TURN {
            let next = || heard.next()?.ok_or(ErrorKind::WouldBlock.into());
            match readiness.take(next) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                heard => all.push(heard?),
            }
        }
        all.retain(|heard: &HeardStation| heard.mac[0] & 1 == 0);
        Ok(all)
    }
}
