//! Who is at a link: stations that are heard there, and that are asked to show themselves when it comes up.

use std::io::ErrorKind;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use segue_linux::station::{Heard, HeardStation, Stations};

use crate::sockets::Readiness;

/// When stations are asked after a link has come up: an interface may be up a moment after its other end.
const ASKS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(500)];
/// Stations that are taken in a turn.
const A_TURN: usize = 64;

/// A watch on the stations of links.
pub struct Watch {
    /// What is sent to them.
    pub stations: Stations,
    heard: (Heard, Readiness),
    /// Links whose stations are to be asked to show themselves, and when.
    asks: Vec<(Instant, u32)>,
    /// Whose question it is.
    from: Ipv6Addr,
}

/// What is to be done.
pub enum Turn {
    /// Stations were heard.
    Heard,
    /// It is time to ask a link's stations to show themselves.
    Ask(u32),
}

impl Watch {
    /// Over all interfaces of this namespace; it asks from this address.
    ///
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
    pub fn open(from: Ipv6Addr) -> anyhow::Result<Watch> {
        let heard = Heard::open()?;
        let readiness = Readiness::of(&heard)?;
        let (stations, asks) = (Stations::open()?, Vec::new());
        Ok(Watch { stations, heard: (heard, readiness), asks, from })
    }

    /// A link has come up: its stations are asked now and a moment later.
    pub fn is_up(&mut self, interface: u32) {
        let now = Instant::now();
        self.asks.extend(ASKS.map(|after| (now + after, interface)));
    }

    /// The stations of a link are asked after this time, if they are not to be asked anyway.
    pub fn ask_after(&mut self, interface: u32, after: Duration) {
        if !self.asks.iter().any(|(_, of)| *of == interface) {
            self.asks.push((Instant::now() + after, interface));
        }
    }

    /// Waits until something is to be done.
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

    /// Does it, and gives the stations that were heard. Groups are left out.
    ///
    /// # Errors
    /// The kernel's.
    pub fn turn(&mut self, turn: Turn) -> anyhow::Result<Vec<HeardStation>> {
        if let Turn::Ask(interface) = turn {
            let now = Instant::now();
            self.asks.retain(|(at, of)| *of != interface || *at > now);
            // Another try follows, and hosts speak up by themselves.
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
