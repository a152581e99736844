//! Sources of events about the stations of a link: hostapd, the kernel's Wi-Fi, or the radios of a test network. Each
//! source is a task, which reconnects when its peer goes away.

mod wifi;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use segue_linux::link;
use segue_linux::nl80211::{Found, Peer};
use segue_mih::{Action, What};
use segue_wire::mih::OctetString;
use segue_wire::mih::codes::{
    GenericParameter, LinkActionResult, LinkActionType, LinkDownReason, LinkGoingDownReason,
    MihCapability, NetworkCapabilities,
};
use segue_wire::mih::identity::{LinkAddress, LinkId, LinkTupleId};
use segue_wire::mih::link::{LinkDetectedInfo, ParameterType, SignalStrength};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixDatagram, UnixStream};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::settings::{MihLink, MihSource};

/// Delay before a source reconnects.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval at which the signal and the data rate of each station are read.
const LOOK: Duration = Duration::from_millis(100);
/// How long hostapd has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most access points reported per scan: as many as fit into one datagram.
const DETECTED_MAX: usize = 12;
/// Orders that may be queued.
const ORDERS: usize = 16;

/// An event of a source.
#[derive(Debug)]
pub enum Told {
    /// Something happened to a station.
    Event([u8; 6], What),
    /// Parameters of a station, in the standard's units.
    Measured([u8; 6], Vec<(ParameterType, u16)>),
    /// The results of a scan.
    Found(Vec<Found>),
    /// All stations have left, as far as is known.
    Gone,
    /// The result of an order.
    Acted(u64, LinkActionResult),
}

type Tell = mpsc::Sender<(usize, Told)>;

/// The queue of orders to a link.
#[derive(Debug)]
pub struct Orders(mpsc::Sender<(u64, Action)>);

impl Orders {
    /// Queues an order. Returns the result if it is known at once.
    #[must_use]
    pub fn give(&self, number: u64, action: &Action) -> Option<LinkActionResult> {
        // A test network takes no orders.
        if self.0.is_closed() {
            return Some(LinkActionResult::FAILURE);
        }
        let order = (number, action.clone());
        if action.after_ms == 0 {
            return self.0.try_send(order).err().map(|_| LinkActionResult::FAILURE);
        }
        // Delayed in a separate task, so that the source's events need not wait.
        let (sender, after) = (self.0.clone(), Duration::from_millis(action.after_ms.into()));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = sender.send(order).await;
        });
        None
    }
}

/// Starts the source of a link, and returns the queue of orders to it.
///
/// # Errors
/// Never fails: a source that cannot connect keeps trying.
pub fn start(link: &MihLink, place: usize, tell: &Tell) -> anyhow::Result<Orders> {
    let tell = tell.clone();
    match &link.source {
        MihSource::Wire => {
            let (orders, ordered) = mpsc::channel(ORDERS);
            tokio::spawn(wire(link.interface.clone(), place, tell, ordered));
            Ok(Orders(orders))
        }
        MihSource::Lab(path) => {
            tokio::spawn(lab(path.clone(), link.interface.clone(), place, tell));
            let (orders, _) = mpsc::channel(1);
            Ok(Orders(orders))
        }
        MihSource::Nl80211 => {
            let (orders, ordered) = mpsc::channel(ORDERS);
            let wifi = wifi::Source { interface: link.interface.clone(), place, tell };
            tokio::spawn(wifi.run(ordered));
            Ok(Orders(orders))
        }
        MihSource::Hostapd(path) => {
            let (orders, ordered) = mpsc::channel(ORDERS);
            let hostapd = Hostapd { path: path.clone(), place, tell };
            tokio::spawn(hostapd.run(ordered));
            Ok(Orders(orders))
        }
    }
}

/// Carries out the only actions that any interface supports: going down and coming up.
fn act_on_wire(interface: &str, action: &Action) -> LinkActionResult {
    let up = match action.action {
        LinkActionType::POWER_DOWN => false,
        LinkActionType::POWER_UP => true,
        _ => return LinkActionResult::INCAPABLE,
    };
    match link::set_up(interface, up) {
        Ok(()) => LinkActionResult::SUCCESS,
        Err(_) => LinkActionResult::FAILURE,
    }
}

/// Carries out the orders to a wire.
async fn wire(
    interface: String,
    place: usize,
    tell: Tell,
    mut ordered: mpsc::Receiver<(u64, Action)>,
) {
    while let Some((number, action)) = ordered.recv().await {
        let result = act_on_wire(&interface, &action);
        if tell.send((place, Told::Acted(number, result))).await.is_err() {
            return;
        }
    }
}

/// A station's measurements, as links report them.
fn values_of(peer: &Peer) -> Vec<(ParameterType, u16)> {
    let signal =
        peer.signal_dbm.map(|dbm| (GenericParameter::SIGNAL_STRENGTH, dbm.cast_unsigned()));
    let rate = peer.rate_kbps.map(|kbps| {
        // Faster rates are reported as the largest value.
        (GenericParameter::DATA_RATE, u16::try_from(kbps).unwrap_or(u16::MAX))
    });
    let all = signal.into_iter().chain(rate);
    all.map(|(parameter, value)| (ParameterType::Generic(parameter), value)).collect()
}

/// The report of a scan (Link_Detected): the access points with the strongest signals.
#[must_use]
pub fn detected(link: &LinkId, mut found: Vec<Found>) -> Vec<LinkDetectedInfo> {
    found.sort_by_key(|found| std::cmp::Reverse(found.signal_dbm));
    let info = |found: Found| LinkDetectedInfo {
        link: LinkTupleId { link: link.clone(), poa: Some(LinkAddress::mac(found.bssid)) },
        network_id: OctetString(found.ssid),
        network_aux_id: OctetString::default(),
        // An unknown signal counts as weaker than any that can be heard.
        signal: SignalStrength::Dbm(
            found.signal_dbm.and_then(|dbm| i8::try_from(dbm).ok()).unwrap_or(i8::MIN),
        ),
        sinr: 0,
        data_rate_kbps: 0,
        mih_capability: MihCapability(0),
        network_capabilities: NetworkCapabilities(0),
    };
    found.into_iter().take(DETECTED_MAX).map(info).collect()
}

/// Waits until it is time to reconnect. Orders that arrive meanwhile fail, because they must not be carried out late.
async fn refuse_for_now(
    (place, tell): (usize, &Tell),
    ordered: &mut mpsc::Receiver<(u64, Action)>,
) -> anyhow::Result<()> {
    let until = tokio::time::Instant::now() + AGAIN;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(until) => return Ok(()),
            Some((number, _)) = ordered.recv() => {
                tell.send((place, Told::Acted(number, LinkActionResult::FAILURE))).await?;
            }
        }
    }
}

/// Parses a link-layer address.
#[must_use]
pub fn mac_of(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

/// A line from a test network (docs/lab.md).
#[derive(Debug, Deserialize)]
struct Announcement {
    what: String,
    #[serde(default)]
    within_ms: u64,
    mac: String,
    router_interface: String,
}

impl Announcement {
    fn told(&self) -> Option<Told> {
        let what = match self.what.as_str() {
            "attached" => What::Up,
            "detached" => What::Down(LinkDownReason::EXPLICIT_DISCONNECT),
            "leaving" => What::GoingDown {
                within_ms: self.within_ms.try_into().unwrap_or(u16::MAX),
                reason: LinkGoingDownReason::LINK_PARAMETER_DEGRADING,
            },
            _ => return None,
        };
        Some(Told::Event(mac_of(&self.mac)?, what))
    }
}

/// Follows the radios in the cell of this interface.
async fn lab(path: PathBuf, interface: String, place: usize, tell: Tell) {
    let mut warned = false;
    loop {
        match UnixStream::connect(&path).await {
            Ok(stream) => {
                info!("{}: hearing of {interface}", path.display());
                warned = false;
                let mut lines = BufReader::new(stream).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let read: Result<Announcement, _> = serde_json::from_str(&line);
                    let own = read.ok().filter(|of| of.router_interface == interface);
                    if let Some(told) = own.and_then(|of| of.told())
                        && tell.send((place, told)).await.is_err()
                    {
                        return;
                    }
                }
                if tell.send((place, Told::Gone)).await.is_err() {
                    return;
                }
            }
            Err(error) if !warned => {
                warn!("{}: {error}; trying again", path.display());
                warned = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The control interface of hostapd: commands and answers, and events whose lines begin with `<`.
struct Hostapd {
    path: PathBuf,
    place: usize,
    tell: Tell,
}

/// Our end of hostapd's socket; dropping it removes the socket's file.
struct Connection {
    socket: UnixDatagram,
    own: PathBuf,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.own);
    }
}

impl Connection {
    fn open(path: &Path, place: usize, number: u64) -> anyhow::Result<Connection> {
        // Each connection has a new path, so that a late answer reaches no later connection.
        let id = std::process::id();
        let own = std::env::temp_dir().join(format!("segue-hostapd-{id}-{place}-{number}"));
        let _ = std::fs::remove_file(&own);
        let socket = UnixDatagram::bind(&own).context("a socket for hostapd")?;
        let connection = Connection { socket, own };
        connection.socket.connect(path)?;
        Ok(connection)
    }

    async fn receive(&self) -> std::io::Result<String> {
        let mut buffer = vec![0; 4_096];
        let len = self.socket.recv(&mut buffer).await?;
        Ok(String::from_utf8_lossy(&buffer[..len]).into_owned())
    }
}

/// The event in a line of hostapd, if it concerns stations.
fn event_of(line: &str) -> Option<Told> {
    let text = line.strip_prefix('<')?.split_once('>')?.1;
    let mut words = text.split_whitespace();
    let what = match words.next()? {
        "AP-STA-CONNECTED" => What::Up,
        "AP-STA-DISCONNECTED" => What::Down(LinkDownReason::EXPLICIT_DISCONNECT),
        "AP-DISABLED" | "CTRL-EVENT-TERMINATING" => return Some(Told::Gone),
        _ => return None,
    };
    Some(Told::Event(mac_of(words.next()?)?, what))
}

/// Parses hostapd's answer about a station.
fn station_of(answer: &str) -> Option<Peer> {
    let mut lines = answer.lines();
    let mac = mac_of(lines.next()?.trim())?;
    let mut peer = Peer { mac, authorized: false, signal_dbm: None, rate_kbps: None };
    for line in lines {
        match line.split_once('=') {
            Some(("flags", flags)) => peer.authorized = flags.contains("[AUTHORIZED]"),
            Some(("signal", dbm)) => peer.signal_dbm = dbm.trim().parse().ok(),
            // In units of 100 kbit/s, or 0 if unknown; the modulation follows.
            Some(("tx_rate_info", rate)) => {
                let rate: Option<u32> = rate.split(' ').next().and_then(|rate| rate.parse().ok());
                peer.rate_kbps = rate.filter(|rate| *rate > 0).map(|rate| rate.saturating_mul(100));
            }
            _ => {}
        }
    }
    Some(peer)
}

impl Hostapd {
    async fn run(self, mut ordered: mpsc::Receiver<(u64, Action)>) {
        let (mut warned, mut number) = (false, 0);
        loop {
            let path = self.path.display();
            number += 1;
            match Connection::open(&self.path, self.place, number) {
                Ok(connection) => {
                    info!("{path}: hearing of stations");
                    warned = false;
                    let Err(error) = self.listen(&connection, &mut ordered).await;
                    warn!("{path}: {error:#}; trying again");
                    if self.tell.send((self.place, Told::Gone)).await.is_err() {
                        return;
                    }
                }
                Err(error) if !warned => {
                    warn!("{path}: {error:#}; trying again");
                    warned = true;
                }
                Err(_) => {}
            }
            if refuse_for_now((self.place, &self.tell), &mut ordered).await.is_err() {
                return;
            }
        }
    }

    async fn told(&self, told: Told) -> anyhow::Result<()> {
        self.tell.send((self.place, told)).await.map_err(|_| anyhow::anyhow!("the daemon ends"))
    }

    /// Sends a command and waits for its answer; events that arrive first are forwarded.
    async fn command(
        &self,
        connection: &Connection,
        stations: &mut Vec<[u8; 6]>,
        command: &str,
    ) -> anyhow::Result<String> {
        connection.socket.send(command.as_bytes()).await?;
        loop {
            let line = tokio::time::timeout(PATIENCE, connection.receive()).await;
            let line = line.context("hostapd does not answer")??;
            if !line.starts_with('<') {
                return Ok(line);
            }
            self.event(stations, &line).await?;
        }
    }

    async fn event(&self, stations: &mut Vec<[u8; 6]>, line: &str) -> anyhow::Result<()> {
        let Some(told) = event_of(line) else { return Ok(()) };
        match &told {
            Told::Event(station, What::Up) if !stations.contains(station) => {
                stations.push(*station);
            }
            Told::Event(station, What::Down(_)) => stations.retain(|known| known != station),
            Told::Gone => stations.clear(),
            _ => {}
        }
        self.told(told).await
    }

    async fn listen(
        &self,
        connection: &Connection,
        ordered: &mut mpsc::Receiver<(u64, Action)>,
    ) -> Result<std::convert::Infallible, anyhow::Error> {
        let mut stations = Vec::new();
        let answer = self.command(connection, &mut stations, "ATTACH").await?;
        anyhow::ensure!(answer.trim() == "OK", "it says {:?} to ATTACH", answer.trim());
        let mut next = self.command(connection, &mut stations, "STA-FIRST").await?;
        while let Some(Peer { mac: station, authorized, .. }) = station_of(&next) {
            if authorized && !stations.contains(&station) {
                stations.push(station);
                self.told(Told::Event(station, What::Up)).await?;
            }
            let after = format!("STA-NEXT {}", link::mac_text(station));
            next = self.command(connection, &mut stations, &after).await?;
        }
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = connection.receive() => self.event(&mut stations, &line?).await?,
                Some((number, action)) = ordered.recv() => {
                    let done = self.act(connection, &mut stations, &action).await;
                    let result = *done.as_ref().unwrap_or(&LinkActionResult::FAILURE);
                    self.told(Told::Acted(number, result)).await?;
                    done?;
                }
                _ = look.tick() => {
                    // Without stations, nothing else would show that hostapd has gone.
                    if stations.is_empty() {
                        self.command(connection, &mut stations, "PING").await?;
                    }
                    for station in stations.clone() {
                        let ask = format!("STA {}", link::mac_text(station));
                        let answer = self.command(connection, &mut stations, &ask).await?;
                        match station_of(&answer) {
                            Some(peer) => {
                                let values = values_of(&peer);
                                if !values.is_empty() {
                                    self.told(Told::Measured(peer.mac, values)).await?;
                                }
                            }
                            // The event of its departure was missed.
                            None if stations.contains(&station) => {
                                stations.retain(|known| *known != station);
                                let what = What::Down(LinkDownReason::PACKET_TIMEOUT);
                                self.told(Told::Event(station, what)).await?;
                            }
                            None => {}
                        }
                    }
                }
            }
        }
    }

    async fn act(
        &self,
        connection: &Connection,
        stations: &mut Vec<[u8; 6]>,
        action: &Action,
    ) -> anyhow::Result<LinkActionResult> {
        let station = action.station.as_ref().and_then(|station| station.as_mac());
        let command = match (action.action, station) {
            (LinkActionType::DISCONNECT, Some(mac)) => {
                format!("DEAUTHENTICATE {}", link::mac_text(mac))
            }
            (LinkActionType::POWER_DOWN, _) => "DISABLE".to_owned(),
            (LinkActionType::POWER_UP, _) => "ENABLE".to_owned(),
            _ => return Ok(LinkActionResult::INCAPABLE),
        };
        let answer = self.command(connection, stations, &command).await?;
        let done = answer.trim() == "OK";
        Ok(if done { LinkActionResult::SUCCESS } else { LinkActionResult::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hostapd_says_of_a_station_is_its_signal_and_its_rate() {
        let answer = |rate| {
            format!(
                "02:00:00:00:02:00\nflags=[AUTH][ASSOC][AUTHORIZED]\naid=1\nsignal=-61\n\
                 rx_rate_info=10\ntx_rate_info={rate}\nconnected_time=5\n"
            )
        };
        let peer = station_of(&answer("720 mcs 7 shortGI")).unwrap();
        assert!(peer.authorized);
        assert_eq!(peer.mac, [2, 0, 0, 0, 2, 0]);
        let of = ParameterType::Generic;
        let signal = (of(GenericParameter::SIGNAL_STRENGTH), (-61i16).cast_unsigned());
        // More than a report can express.
        let rate = (of(GenericParameter::DATA_RATE), 65_535);
        assert_eq!(values_of(&peer), [signal.clone(), rate]);
        let slow = station_of(&answer("540")).unwrap();
        let rate = (of(GenericParameter::DATA_RATE), 54_000);
        assert_eq!(values_of(&slow), [signal.clone(), rate]);
        assert_eq!(values_of(&station_of(&answer("0")).unwrap()), [signal]);
        assert_eq!(station_of("FAIL\n"), None);
    }
}
