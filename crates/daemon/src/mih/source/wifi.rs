//! The kernel's Wi-Fi as a source. In station mode it reports the access point; on an access point it reports the
//! stations.

use anyhow::Context;
use segue_linux::link;
use segue_linux::nl80211::{Notices, Peer, Wifi};
use segue_mih::{Action, What};
use segue_wire::mih::codes::{LinkActionResult, LinkActionType, LinkDownReason};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{LOOK, Tell, Told, act_on_wire, refuse_for_now, values_of};
use crate::sockets::Readiness;

/// A Wi-Fi interface.
pub(super) struct Source {
    pub(super) interface: String,
    pub(super) place: usize,
    pub(super) tell: Tell,
}

/// An interface that exists.
struct There {
    wifi: Wifi,
    notices: Notices,
    ready: Readiness,
    index: u32,
    /// The stations at the other end.
    peers: Vec<[u8; 6]>,
}

impl There {
    fn open(interface: &str) -> anyhow::Result<There> {
        let all = link::links()?;
        let of = all.iter().find(|link| link.name == interface).context("no such interface")?;
        let (wifi, index) = (Wifi::open()?, of.index);
        // Subscribe before the first look, so that no change between the two is missed.
        let notices = wifi.notices(index)?;
        wifi.peers(index).context("it is not known as a Wi-Fi interface")?;
        let ready = Readiness::of(&notices)?;
        Ok(There { wifi, notices, ready, index, peers: Vec::new() })
    }

    /// Reads the list of stations, and returns what has changed and what is measured. The list decides; notices only
    /// trigger a look.
    fn look(&mut self) -> anyhow::Result<Vec<Told>> {
        let all = self.wifi.peers(self.index)?;
        let all: Vec<Peer> = all.into_iter().filter(|peer| peer.authorized).collect();
        let mut told = Vec::new();
        self.peers.retain(|known| {
            let stays = all.iter().any(|peer| peer.mac == *known);
            if !stays {
                told.push(Told::Event(*known, What::Down(LinkDownReason::EXPLICIT_DISCONNECT)));
            }
            stays
        });
        for peer in all {
            if !self.peers.contains(&peer.mac) {
                self.peers.push(peer.mac);
                told.push(Told::Event(peer.mac, What::Up));
            }
            let values = values_of(&peer);
            if !values.is_empty() {
                told.push(Told::Measured(peer.mac, values));
            }
        }
        Ok(told)
    }

    /// Handles notices.
    fn hear(&mut self) -> anyhow::Result<Vec<Told>> {
        let changed = self.ready.take(|| {
            let changed = self.notices.take()?;
            match changed.peers || changed.scan {
                true => Ok(changed),
                // About other interfaces; wait for readiness again.
                false => Err(std::io::ErrorKind::WouldBlock.into()),
            }
        });
        let changed = match changed {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(Vec::new()),
            other => other?,
        };
        let mut told = if changed.peers { self.look()? } else { Vec::new() };
        if changed.scan {
            let found = self.wifi.found(self.index)?;
            told.extend((!found.is_empty()).then_some(Told::Found(found)));
        }
        Ok(told)
    }

    fn act(&self, interface: &str, action: &Action) -> LinkActionResult {
        let station = action.station.as_ref().and_then(|station| station.as_mac());
        let done = match (action.action, station) {
            (LinkActionType::DISCONNECT, Some(mac)) => self.wifi.part(self.index, mac),
            _ => return act_on_wire(interface, action),
        };
        done.map_or(LinkActionResult::FAILURE, |()| LinkActionResult::SUCCESS)
    }
}

impl Source {
    pub(super) async fn run(self, mut ordered: mpsc::Receiver<(u64, Action)>) {
        let mut warned = false;
        loop {
            let interface = &self.interface;
            match There::open(interface) {
                Ok(there) => {
                    info!("{interface}: hearing of it from the kernel");
                    warned = false;
                    let Err(error) = self.listen(there, &mut ordered).await;
                    warn!("{interface}: {error:#}; trying again");
                    if self.tell.send((self.place, Told::Gone)).await.is_err() {
                        return;
                    }
                }
                Err(error) if !warned => {
                    warn!("{interface}: {error:#}; trying again");
                    warned = true;
                }
                Err(_) => {}
            }
            if refuse_for_now((self.place, &self.tell), &mut ordered).await.is_err() {
                return;
            }
        }
    }

    async fn listen(
        &self,
        mut there: There,
        ordered: &mut mpsc::Receiver<(u64, Action)>,
    ) -> Result<std::convert::Infallible, anyhow::Error> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let told = tokio::select! {
                _ = look.tick() => there.look()?,
                () = there.ready.ready() => there.hear()?,
                Some((number, action)) = ordered.recv() => {
                    vec![Told::Acted(number, there.act(&self.interface, &action))]
                }
            };
            for told in told {
                self.tell.send((self.place, told)).await?;
            }
        }
    }
}
