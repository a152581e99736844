//! Wi-Fi interfaces: attached peers, scan results, and notifications when either changes. The few nl80211 attributes
//! that these need are defined here: a dependency for all of nl80211 would be disproportionate.
//!
//! The peer of an interface in station mode is its access point. The peers of an access point's interface are its
//! stations.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use rtnetlink::packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NetlinkDeserializable, NetlinkHeader,
    NetlinkSerializable, NlasIterator,
};
use rtnetlink::sys::Socket;
use rtnetlink::sys::protocols::NETLINK_GENERIC;

use crate::error::{LinuxError, Result};
use crate::netlink::{exchange, read_datagram};

/// The family that resolves all others (linux/genetlink.h).
mod control {
    pub(super) const FAMILY: u16 = 16;
    pub(super) const GET_FAMILY: u8 = 3;
    pub(super) const FAMILY_ID: u16 = 1;
    pub(super) const FAMILY_NAME: u16 = 2;
    pub(super) const GROUPS: u16 = 7;
    pub(super) const GROUP_NAME: u16 = 1;
    pub(super) const GROUP_ID: u16 = 2;
}

/// Length of an attribute's header: length and type.
const NLA_HEADER: usize = 4;

/// linux/nl80211.h.
const GET_STATION: u8 = 17;
const NEW_STATION: u8 = 19;
const DEL_STATION: u8 = 20;
const GET_SCAN: u8 = 32;
const NEW_SCAN_RESULTS: u8 = 34;
const CONNECT: u8 = 46;
const ROAM: u8 = 47;
const DISCONNECT: u8 = 48;
const IFINDEX: u16 = 3;
const MAC: u16 = 6;
const STA_INFO: u16 = 21;
const BSS: u16 = 47;
const SIGNAL: u16 = 7;
const TX_BITRATE: u16 = 8;
const STA_FLAGS: u16 = 17;
const AUTHORIZED: u32 = 1 << 1;
const BITRATE: u16 = 1;
const BITRATE32: u16 = 5;
const BSSID: u16 = 1;
const ELEMENTS: u16 = 6;
const SIGNAL_MBM: u16 = 7;

/// A peer of an interface: the access point, or a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Whether it may exchange data.
    pub authorized: bool,
    /// Signal strength of its last frame.
    pub signal_dbm: Option<i16>,
    /// Transmit rate towards it, in kbit/s.
    pub rate_kbps: Option<u32>,
}

/// An access point found by a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its BSSID.
    pub bssid: [u8; 6],
    /// The name of its network; empty if hidden.
    pub ssid: Vec<u8>,
    /// Signal strength.
    pub signal_dbm: Option<i16>,
}

/// What may have changed on an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The attached peers.
    pub peers: bool,
    /// The scan results.
    pub scan: bool,
}

/// A generic netlink message.
#[derive(Debug)]
struct Message {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl Message {
    fn new(family: u16, command: u8, attributes: &[DefaultNla]) -> Message {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        Message { family, command, attributes: bytes }
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        4 + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // struct genlmsghdr: command, version, reserved.
        buffer[..4].copy_from_slice(&[self.command, 1, 0, 0]);
        buffer[4..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = Infallible;

    fn deserialize(
        header: &NetlinkHeader,
        payload: &[u8],
    ) -> std::result::Result<Self, Infallible> {
        let (command, attributes) = (payload.first().copied(), payload.get(4..));
        let (command, attributes) = (command.unwrap_or(0), attributes.unwrap_or_default().to_vec());
        Ok(Message { family: header.message_type, command, attributes })
    }
}

/// The value of the first attribute of this kind.
fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = NlasIterator::new(attributes).map_while(std::result::Result::ok);
    let found = all.find(|of| of.kind() == kind)?;
    let length = found.value_length();
    found.into_inner().get(NLA_HEADER..NLA_HEADER + length)
}

fn u16_of(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?))
}

fn u32_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn mac_of(value: &[u8]) -> Option<[u8; 6]> {
    value.get(..6)?.try_into().ok()
}

/// Parses the attributes of a station; `None` without an address.
#[must_use]
pub fn peer_of(attributes: &[u8]) -> Option<Peer> {
    let mac = mac_of(attribute(attributes, MAC)?)?;
    let info = attribute(attributes, STA_INFO).unwrap_or_default();
    let signal = attribute(info, SIGNAL).and_then(|value| value.first().copied());
    // struct nl80211_sta_flag_update: mask of known flags, then the flags.
    let flags = attribute(info, STA_FLAGS).and_then(|value| u32_of(value.get(4..)?));
    let rate = attribute(info, TX_BITRATE).and_then(|rate| {
        let short = || u16_of(attribute(rate, BITRATE)?).map(u32::from);
        attribute(rate, BITRATE32).and_then(u32_of).or_else(short)
    });
    Some(Peer {
        mac,
        authorized: flags.is_some_and(|flags| flags & AUTHORIZED != 0),
        signal_dbm: signal.map(|signal| signal.cast_signed().into()),
        rate_kbps: rate.map(|rate| rate.saturating_mul(100)),
    })
}

/// Parses the attributes of a scan result; `None` without a BSSID.
#[must_use]
pub fn found_of(attributes: &[u8]) -> Option<Found> {
    let bss = attribute(attributes, BSS)?;
    let bssid = mac_of(attribute(bss, BSSID)?)?;
    let signal = attribute(bss, SIGNAL_MBM).and_then(u32_of);
    let signal_dbm = signal.and_then(|mbm| i16::try_from(mbm.cast_signed() / 100).ok());
    let ssid = attribute(bss, ELEMENTS).and_then(ssid_of).unwrap_or_default().to_vec();
    Some(Found { bssid, ssid, signal_dbm })
}

/// Finds the SSID among information elements (IEEE 802.11), each with its number and length.
fn ssid_of(mut elements: &[u8]) -> Option<&[u8]> {
    const SSID: u8 = 0;
    const SSID_MAX: usize = 32;
    loop {
        let [number, length, rest @ ..] = elements else { return None };
        let value = rest.get(..usize::from(*length))?;
        if *number == SSID {
            return Some(value).filter(|name| name.len() <= SSID_MAX);
        }
        elements = &rest[value.len()..];
    }
}

/// The kernel's Wi-Fi in the calling thread's namespace.
#[derive(Clone, Copy, Debug)]
pub struct Wifi {
    family: u16,
    /// Multicast groups for attachments and for scans.
    groups: [u32; 2],
}

impl Wifi {
    /// Resolves the nl80211 family.
    ///
    /// # Errors
    /// The kernel has no Wi-Fi support.
    pub fn open() -> Result<Wifi> {
        let name = DefaultNla::new(control::FAMILY_NAME, b"nl80211\0".to_vec());
        let ask = Message::new(control::FAMILY, control::GET_FAMILY, &[name]);
        let none = |error| LinuxError::refused("speak to the kernel's Wi-Fi (nl80211)", error);
        let answers: Vec<Message> = exchange(NETLINK_GENERIC, ask, NLM_F_ACK).map_err(none)?;
        let wifi = answers.first().and_then(|answer| Wifi::read(&answer.attributes));
        wifi.ok_or_else(|| none(ErrorKind::InvalidData.into()))
    }

    fn read(attributes: &[u8]) -> Option<Wifi> {
        let family = attribute(attributes, control::FAMILY_ID).and_then(u16_of)?;
        let all = attribute(attributes, control::GROUPS)?;
        let group = |name: &[u8]| {
            let named =
                NlasIterator::new(all).map_while(std::result::Result::ok).find(|group| {
                    let of = attribute(group.value(), control::GROUP_NAME);
                    of.is_some_and(|of| of.strip_suffix(&[0]) == Some(name))
                })?;
            attribute(named.value(), control::GROUP_ID).and_then(u32_of)
        };
        Some(Wifi { family, groups: [group(b"mlme")?, group(b"scan")?] })
    }

    fn list(&self, command: u8, interface: u32) -> io::Result<Vec<Message>> {
        let of = DefaultNla::new(IFINDEX, interface.to_ne_bytes().to_vec());
        exchange(NETLINK_GENERIC, Message::new(self.family, command, &[of]), NLM_F_DUMP)
    }

    /// The peers of an interface.
    ///
    /// # Errors
    /// An error of the kernel: no such interface, or not a Wi-Fi interface.
    pub fn peers(&self, interface: u32) -> io::Result<Vec<Peer>> {
        let all = self.list(GET_STATION, interface)?;
        Ok(all.iter().filter_map(|of| peer_of(&of.attributes)).collect())
    }

    /// The results of the interface's last scans.
    ///
    /// # Errors
    /// As for [`Wifi::peers`].
    pub fn found(&self, interface: u32) -> io::Result<Vec<Found>> {
        let all = self.list(GET_SCAN, interface)?;
        Ok(all.iter().filter_map(|of| found_of(&of.attributes)).collect())
    }

    /// Ends an attachment: disconnects a station, or leaves the access point.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn part(&self, interface: u32, from: [u8; 6]) -> io::Result<()> {
        let of = || DefaultNla::new(IFINDEX, interface.to_ne_bytes().to_vec());
        let give = |command, attributes: &[DefaultNla]| {
            let message = Message::new(self.family, command, attributes);
            exchange::<Message>(NETLINK_GENERIC, message, NLM_F_ACK).map(drop)
        };
        // Works on an access point's interface; an interface in station mode rejects it.
        give(DEL_STATION, &[of(), DefaultNla::new(MAC, from.to_vec())])
            .or_else(|_| give(DISCONNECT, &[of()]))
    }

    /// Subscribes to changes of an interface's attachments and scans.
    ///
    /// # Errors
    /// The netlink socket cannot be opened.
    pub fn notices(&self, interface: u32) -> Result<Notices> {
        let refused = |error| LinuxError::refused("hear of Wi-Fi (nl80211)", error);
        let mut socket = Socket::new(NETLINK_GENERIC).map_err(refused)?;
        socket.bind_auto().map_err(refused)?;
        for group in self.groups {
            socket.add_membership(group).map_err(refused)?;
        }
        socket.set_non_blocking(true).map_err(refused)?;
        Ok(Notices { socket, interface })
    }
}

/// Notifications about one interface.
#[derive(Debug)]
pub struct Notices {
    socket: Socket,
    interface: u32,
}

impl Notices {
    /// Returns what may have changed since the last call.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn take(&self) -> io::Result<Changed> {
        let mut changed = Changed::default();
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => {
                    let mut messages = Vec::new();
                    read_datagram::<Message>(&datagram, &mut messages)?;
                    messages.iter().for_each(|message| self.note(message, &mut changed));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Notifications were lost.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changed = Changed { peers: true, scan: true };
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&self, message: &Message, changed: &mut Changed) {
        let of = attribute(&message.attributes, IFINDEX).and_then(u32_of);
        if of != Some(self.interface) {
            return;
        }
        match message.command {
            NEW_STATION | DEL_STATION | CONNECT | ROAM | DISCONNECT => changed.peers = true,
            NEW_SCAN_RESULTS => changed.scan = true,
            _ => {}
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(attributes: &[DefaultNla]) -> Vec<u8> {
        Message::new(0, 0, attributes).attributes
    }

    fn nested(kind: u16, inner: &[DefaultNla]) -> DefaultNla {
        DefaultNla::new(kind, bytes(inner))
    }

    #[test]
    fn a_stations_signal_rate_and_authorization_are_read() {
        let flags = [0xffu32, AUTHORIZED].map(u32::to_ne_bytes).concat();
        let rate = nested(TX_BITRATE, &[DefaultNla::new(BITRATE, 540u16.to_ne_bytes().to_vec())]);
        let info = [
            DefaultNla::new(SIGNAL, vec![(-66i8).cast_unsigned()]),
            rate,
            DefaultNla::new(STA_FLAGS, flags),
        ];
        let mac = [2, 0, 0, 0, 0, 1];
        let of_it = [DefaultNla::new(MAC, mac.to_vec()), nested(STA_INFO, &info)];
        let whole = bytes(&of_it);
        let (signal_dbm, rate_kbps) = (Some(-66), Some(54_000));
        assert_eq!(peer_of(&whole), Some(Peer { mac, authorized: true, signal_dbm, rate_kbps }));
        // Truncated anywhere, it yields less but never panics.
        for length in 0..whole.len() {
            assert_ne!(peer_of(&whole[..length]), peer_of(&whole), "{length} octets");
        }
        assert_eq!(peer_of(&bytes(&of_it[1..])), None);
    }

    #[test]
    fn an_access_points_name_and_signal_are_read_from_a_scan() {
        let bssid = [2, 0, 0, 0, 0, 9];
        let elements = [&[1, 2, 0x82, 0x84, 0, 5][..], b"segue", &[3, 1, 6]].concat();
        let bss = [
            DefaultNla::new(BSSID, bssid.to_vec()),
            DefaultNla::new(ELEMENTS, elements),
            DefaultNla::new(SIGNAL_MBM, (-7_250i32).to_ne_bytes().to_vec()),
        ];
        let (ssid, signal_dbm) = (b"segue".to_vec(), Some(-72));
        let found = found_of(&bytes(&[nested(BSS, &bss)]));
        assert_eq!(found, Some(Found { bssid, ssid, signal_dbm }));
        // An element longer than the remaining bytes, and one that is too long for an SSID.
        for elements in [vec![0, 5, 1], [&[0, 33][..], &[b'x'; 33]].concat()] {
            let bss = [bss[0].clone(), DefaultNla::new(ELEMENTS, elements)];
            assert_eq!(found_of(&bytes(&[nested(BSS, &bss)])).unwrap().ssid, b"");
        }
    }
}
