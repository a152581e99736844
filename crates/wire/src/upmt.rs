//! UPMT's packets (Salsano et al. 2018, Fig. 13): the inner packet directly in UDP, probes on reserved inner ports (A),
//! and probe data behind an inner packet whose version field is 15 (B). Extended to IPv6. Specified in
//! `docs/wire/upmt.md`.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{fold, sum};
use crate::{MAX_PATHS, Probe, WireError};

/// Inner port of the anchor's end of a probe.
pub const PROBE_PORT: u16 = 50_049;
/// The same, for a report (request) or an unsolicited response.
const FLAGGED_PORT: u16 = 50_048;
/// Inner port of the host's end for path 0; add the path number.
const PATH_PORT: u16 = 50_050;
/// Version in the first byte of an inner packet with a trailing probe.
pub const RIDE_VERSION: u8 = 15;
/// Length of Fig. 14 with the sequence number, in bytes: the first seven words of a [`Probe`].
pub const DATA_LEN: usize = 28;

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;

/// The type of a UDP payload on the tunnel's port, by its first four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An inner packet or a bare probe.
    Inner,
    /// An inner packet with a trailing probe.
    Ride,
    /// Not a UPMT packet.
    Other,
}

impl Form {
    /// Reads the type from the first byte.
    #[must_use]
    pub fn of(payload: &[u8]) -> Form {
        match payload.first().map(|byte| byte >> 4) {
            Some(4 | 6) => Form::Inner,
            Some(RIDE_VERSION) => Form::Ride,
            _ => Form::Other,
        }
    }
}

/// A bare probe (Fig. 13 A).
///
/// `heard` is carried in the Identification field of IPv4, and in the lower 16 bits of IPv6's flow label. K and T_KA
/// are agreed at set-up: `t_ka_ms` is not sent, and reads as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePacket {
    /// Inner address of the host, by which the anchor identifies it.
    pub host: IpAddr,
    /// Inner address of the anchor: the tunnel's address, or unspecified if that is of the other family.
    pub anchor: IpAddr,
    /// The host's number of the path, below [`MAX_PATHS`].
    pub path: u8,
    /// True if the anchor sends it.
    pub response: bool,
    /// True for a report (request) or an unsolicited response.
    pub flagged: bool,
    /// The measurement data.
    pub probe: Probe,
}

impl ProbePacket {
    /// The bytes of the inner packet. If the anchor's address is not of the host's family, it is written as
    /// unspecified.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let host_port = PATH_PORT + u16::from(self.path);
        let anchor_port = if self.flagged { FLAGGED_PORT } else { PROBE_PORT };
        let (source, destination) =
            if self.response { (anchor_port, host_port) } else { (host_port, anchor_port) };
        let mut packet = self.ip_header();
        let at = packet.len();
        let length = (UDP_HEADER + DATA_LEN) as u16;
        for field in [source, destination, length, 0] {
            packet.extend(field.to_be_bytes());
        }
        packet.extend_from_slice(&self.probe.emit()[..DATA_LEN]);
        // Zero would mean that there is no checksum.
        let sum = match !udp_sum(&packet, at) {
            0 => 0xffff,
            sum => sum,
        };
        packet[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn ip_header(&self) -> Vec<u8> {
        let length = (UDP_HEADER + DATA_LEN) as u16;
        let mut packet = Vec::with_capacity(40 + UDP_HEADER + DATA_LEN);
        match (self.host, self.anchor) {
            (IpAddr::V4(host), anchor) => {
                let anchor = match anchor {
                    IpAddr::V4(anchor) => anchor,
                    IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
                };
                let (source, destination) = order(self.response, host, anchor);
                packet.extend([0x45, 0]);
                for field in [20 + length, self.probe.heard, DONT_FRAGMENT] {
                    packet.extend(field.to_be_bytes());
                }
                packet.extend([HOP_LIMIT, UDP, 0, 0]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
                let sum = !sum(&packet);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(host), anchor) => {
                let anchor = match anchor {
                    IpAddr::V6(anchor) => anchor,
                    IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
                };
                let (source, destination) = order(self.response, host, anchor);
                packet.extend([0x60, 0]);
                packet.extend(self.probe.heard.to_be_bytes());
                packet.extend(length.to_be_bytes());
                packet.extend([UDP, HOP_LIMIT]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
            }
        }
        packet
    }

    /// Reads an inner packet; `None` if its ports are not those of a probe.
    ///
    /// # Errors
    /// [`WireError::Field`] if the ports match, but a length or checksum is wrong.
    pub fn parse(packet: &[u8]) -> Option<Result<ProbePacket, WireError>> {
        let (at, source, destination, heard) = addresses(packet)?;
        let udp: &[u8; UDP_HEADER] = packet.get(at..)?.first_chunk()?;
        let word = |i: usize| u16::from_be_bytes([udp[i], udp[i + 1]]);
        let (path, flagged, response) = match (roles(word(2), word(0)), roles(word(0), word(2))) {
            (Some((flagged, path)), _) => (path, flagged, false),
            (None, Some((flagged, path))) => (path, flagged, true),
            (None, None) => return None,
        };
        if packet.len() != at + UDP_HEADER + DATA_LEN
            || usize::from(word(4)) != UDP_HEADER + DATA_LEN
        {
            return Some(Err(WireError::Field { field: "length", got: packet.len() as u32 }));
        }
        if word(6) == 0 || udp_sum(packet, at) != 0xffff {
            return Some(Err(WireError::Field { field: "checksum", got: word(6).into() }));
        }
        let mut data = [0; Probe::LEN];
        data[..DATA_LEN].copy_from_slice(&packet[at + UDP_HEADER..]);
        let (host, anchor) = order(response, source, destination);
        let probe = Probe { heard, ..Probe::parse(&data) };
        Some(Ok(ProbePacket { host, anchor, path, response, flagged, probe }))
    }
}

fn order<T>(swap: bool, a: T, b: T) -> (T, T) {
    if swap { (b, a) } else { (a, b) }
}

/// Matches the ports of the anchor's and the host's end. Returns whether the probe is flagged, and the path.
fn roles(anchor: u16, host: u16) -> Option<(bool, u8)> {
    let path = host.checked_sub(PATH_PORT).filter(|path| usize::from(*path) < MAX_PATHS)?;
    let path = u8::try_from(path).ok()?;
    match anchor {
        PROBE_PORT => Some((false, path)),
        FLAGGED_PORT => Some((true, path)),
        _ => None,
    }
}

/// The offset of UDP in a complete datagram without IP options, its addresses, and `heard`.
fn addresses(packet: &[u8]) -> Option<(usize, IpAddr, IpAddr, u16)> {
    if packet.first()? >> 4 == 6 {
        let head: &[u8; 40] = packet.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        if head[6] != UDP || packet.len() != 40 + length {
            return None;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&head[at..at + 16]);
            IpAddr::from(Ipv6Addr::from(octets))
        };
        return Some((40, address(8), address(24), u16::from_be_bytes([head[2], head[3]])));
    }
    let head: &[u8; 20] = packet.first_chunk()?;
    let [first, _, l0, l1, i0, i1, f0, f1, _, protocol, _, _, s @ .., d0, d1, d2, d3] = *head;
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    if first != 0x45 || protocol != UDP || fragment || packet.len() != length || sum(head) != 0xffff
    {
        return None;
    }
    let source = Ipv4Addr::from(s);
    let destination = Ipv4Addr::new(d0, d1, d2, d3);
    Some((20, source.into(), destination.into(), u16::from_be_bytes([i0, i1])))
}

/// The sum for UDP's checksum: addresses, protocol, length, and everything from `at` on.
fn udp_sum(packet: &[u8], at: usize) -> u16 {
    let addresses = if at == 40 { 8 } else { 12 };
    let length = (packet.len() - at) as u64;
    let parts = [sum(&packet[addresses..at]), sum(&packet[at..])];
    fold(parts.iter().map(|part| u64::from(*part)).sum::<u64>() + u64::from(UDP) + length)
}

/// The bytes behind the inner packet of a ride (Fig. 13 B).
///
/// ```text
/// +---------------------------------------------------------------+
/// |       Fig. 14 with the sequence number: seven words           |
/// +-------+-------+---------------+-------------------------------+
/// |Version| Flags |  Path number  |            heard              |
/// +-------+-------+---------------+-------------------------------+
/// |          Complement           |
/// +-------------------------------+
/// ```
///
/// Its length is even and its one's-complement sum is zero, so that a checksum over the inner packet and the trailer is
/// also correct for the inner packet alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The inner packet's version.
    pub version: u8,
    /// True if the anchor sends it.
    pub response: bool,
    /// True for a request with a report.
    pub report: bool,
    /// The host's number for the path.
    pub path: u8,
    /// The measurement data, without `t_ka_ms`.
    pub probe: Probe,
}

impl Trailer {
    /// Length in bytes.
    pub const LEN: usize = DATA_LEN + 6;
    const RESPONSE: u8 = 1;
    const REPORT: u8 = 2;

    /// The trailer's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Trailer::LEN] {
        let mut bytes = [0; Trailer::LEN];
        bytes[..DATA_LEN].copy_from_slice(&self.probe.emit()[..DATA_LEN]);
        let flags =
            u8::from(self.response) * Trailer::RESPONSE + u8::from(self.report) * Trailer::REPORT;
        bytes[28] = self.version << 4 | flags;
        bytes[29] = self.path;
        bytes[30..32].copy_from_slice(&self.probe.heard.to_be_bytes());
        let complement = !sum(&bytes[..32]);
        bytes[32..].copy_from_slice(&complement.to_be_bytes());
        bytes
    }

    /// Splits a ride into the trailer and the inner packet. The inner packet still has the version [`RIDE_VERSION`];
    /// [`restored`](Trailer::restored) gives the right first byte.
    ///
    /// # Errors
    /// [`WireError::TooShort`]; [`WireError::Field`] for a sum other than zero, a version other than 4 or 6, an
    /// undefined flag, or an invalid path number.
    pub fn split(payload: &[u8]) -> Result<(Trailer, &[u8]), WireError> {
        let (got, min) = (payload.len(), Trailer::LEN + 1);
        let Some((inner, bytes)) =
            payload.split_last_chunk::<{ Trailer::LEN }>().filter(|(inner, _)| !inner.is_empty())
        else {
            return Err(WireError::TooShort { what: "ride", got, min });
        };
        let total = sum(bytes);
        if total != 0xffff {
            return Err(WireError::Field { field: "complement", got: total.into() });
        }
        let (version, flags, path) = (bytes[28] >> 4, bytes[28] & 15, bytes[29]);
        if !matches!(version, 4 | 6) {
            return Err(WireError::Field { field: "version", got: version.into() });
        }
        let (response, report) = (flags & Trailer::RESPONSE != 0, flags & Trailer::REPORT != 0);
        if flags > 3 || response && report {
            return Err(WireError::Field { field: "flags", got: flags.into() });
        }
        if usize::from(path) >= MAX_PATHS {
            return Err(WireError::Field { field: "path", got: path.into() });
        }
        let mut data = [0; Probe::LEN];
        data[..DATA_LEN].copy_from_slice(&bytes[..DATA_LEN]);
        let heard = u16::from_be_bytes([bytes[30], bytes[31]]);
        let probe = Probe { heard, ..Probe::parse(&data) };
        Ok((Trailer { version, response, report, path, probe }, inner))
    }

    /// The first byte of the inner packet with its original version.
    #[must_use]
    pub fn restored(&self, first: u8) -> u8 {
        self.version << 4 | first & 15
    }
}

#[cfg(test)]
mod tests;
