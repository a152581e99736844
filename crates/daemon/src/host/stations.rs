//! The access points that the host's Wi-Fi interfaces use, for its event log.

use std::collections::BTreeMap;

use segue_linux::link::mac_text;
use segue_linux::monitor::Device;
use segue_linux::nl80211::{Peer, Wifi};

use crate::control::WifiStatus;

/// The access points at the last look.
#[derive(Default)]
pub(super) struct Stations {
    /// By interface index.
    used: BTreeMap<u32, WifiStatus>,
}

impl Stations {
    /// Reads the access points of these interfaces. Returns the interfaces that have attached, roamed or left, each
    /// with a sentence, the interface's name, and its access point.
    pub(super) fn look<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Device>,
    ) -> Vec<(String, String, Option<WifiStatus>)> {
        let wireless: Vec<&Device> =
            all.filter(|device| is_wireless(&device.interface.name)).collect();
        // Without a Wi-Fi interface, the kernel may have no nl80211 to query.
        let wifi = if wireless.is_empty() { None } else { Wifi::open().ok() };
        let mut changes = Vec::new();
        let mut used = BTreeMap::new();
        for device in wireless {
            let index = device.interface.index;
            let peers = wifi.and_then(|wifi| wifi.peers(index).ok()).unwrap_or_default();
            let now = peers.iter().find(|peer| peer.authorized).map(status);
            let before = self.used.get(&index);
            let name = device.interface.name.clone();
            changes.extend(told(&name, before, now.as_ref()).map(|text| (text, name, now.clone())));
            used.extend(now.map(|now| (index, now)));
        }
        self.used = used;
        changes
    }

    /// The access point of an interface, as of the last look.
    pub(super) fn of(&self, index: u32) -> Option<&WifiStatus> {
        self.used.get(&index)
    }
}

/// Describes a change of an interface's attachment, in a sentence without a full stop.
fn told(name: &str, before: Option<&WifiStatus>, now: Option<&WifiStatus>) -> Option<String> {
    match (before, now) {
        (None, Some(now)) => Some(format!("{name} is at access point {now}")),
        (Some(before), None) => Some(format!("{name} has left access point {before}")),
        (Some(before), Some(now)) if before.access_point != now.access_point => {
            Some(format!("{name} roamed from access point {before} to {now}"))
        }
        _ => None,
    }
}

fn status(peer: &Peer) -> WifiStatus {
    WifiStatus {
        access_point: mac_text(peer.mac),
        signal_dbm: peer.signal_dbm,
        rate_kbps: peer.rate_kbps,
    }
}

/// Returns whether an interface is a Wi-Fi interface.
fn is_wireless(name: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(name).join("phy80211").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_that_comes_roams_and_leaves_is_told_of_once_each() {
        let at = |last: u8, signal_dbm| {
            let mac = [2, 0, 0, 0, 0, last];
            status(&Peer { mac, authorized: true, signal_dbm: Some(signal_dbm), rate_kbps: None })
        };
        let (near, weaker, other) = (at(1, -50), at(1, -77), at(2, -60));
        let told = |before, now| told("wlan0", before, now);
        let came = told(None, Some(&near)).unwrap();
        assert_eq!(came, "wlan0 is at access point 02:00:00:00:00:01 at -50 dBm");
        assert_eq!(told(Some(&near), Some(&weaker)), None);
        let roamed = told(Some(&weaker), Some(&other)).unwrap();
        let wanted = "wlan0 roamed from access point 02:00:00:00:00:01 at -77 dBm to 02:00:00:00:00:02 at -60 dBm";
        assert_eq!(roamed, wanted);
        let left = told(Some(&other), None).unwrap();
        assert_eq!(left, "wlan0 has left access point 02:00:00:00:00:02 at -60 dBm");
    }
}
