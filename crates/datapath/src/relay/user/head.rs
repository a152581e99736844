//! Outer headers as bytes: written for packets that enter a tunnel, parsed on packets that leave one. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::{Form, Tunnel};

use crate::checksum::set_ipv4;
use crate::relay::end::{End, Front};

/// Longest outer headers: IPv6, then GRE with a key or UDP.
pub(super) const HEAD_MAX: usize = 40 + 8;
/// Hop limit of outer packets.
const TTL: u8 = 64;
/// "Do not fragment" (RFC 791).
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
/// Mask of the more-fragments flag and the fragment offset.
const FRAGMENT: u16 = 0x3fff;
/// GRE flags and version with a key present (RFC 2890).
const GRE_KEY: [u8; 2] = [0x20, 0];
const ETHERTYPE_V4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];
/// Tunnel Encapsulation Limit: a destination option that Linux adds in its own tunnels (RFC 2473, 4.1.1).
const ENCAPSULATION_LIMIT: u8 = 4;

pub(in crate::relay) const IPV4: u8 = 4;
pub(in crate::relay) const UDP: u8 = 17;
pub(in crate::relay) const IPV6: u8 = 41;
pub(in crate::relay) const GRE: u8 = 47;
pub(super) const OPTIONS: u8 = 60;

/// The outer headers for an inner packet of `len` bytes and this class (DSCP and ECN, which are copied to the outer
/// header): the buffer, and the length used in it. `None` if the packet becomes too long, the ends are of different
/// families, or the form has no outer headers.
pub(super) fn write(
    tunnel: &Tunnel,
    v6: bool,
    class: u8,
    len: usize,
) -> Option<([u8; HEAD_MAX], usize)> {
    let mut head = [0; HEAD_MAX];
    let ip = if tunnel.remote.is_ipv6() { 40 } else { 20 };
    let (protocol, shim) = match tunnel.form {
        Form::Ip => (if v6 { IPV6 } else { IPV4 }, 0),
        Form::Gre { send, .. } => {
            head[ip + 2..ip + 4].copy_from_slice(if v6 { &ETHERTYPE_V6 } else { &ETHERTYPE_V4 });
            if let Some(key) = send {
                head[ip..ip + 2].copy_from_slice(&GRE_KEY);
                head[ip + 4..ip + 8].copy_from_slice(&key.to_be_bytes());
            }
            (GRE, if send.is_some() { 8 } else { 4 })
        }
        // No UDP checksum: RFC 768, and RFC 6935 for tunnels over IPv6.
        Form::Udp { local, remote } => {
            let udp = u16::try_from(len + 8).ok()?;
            head[ip..ip + 2].copy_from_slice(&local.to_be_bytes());
            head[ip + 2..ip + 4].copy_from_slice(&remote.to_be_bytes());
            head[ip + 4..ip + 6].copy_from_slice(&udp.to_be_bytes());
            (UDP, 8)
        }
        Form::Optimized { .. } => return None,
    };
    match (tunnel.local, tunnel.remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            let total = u16::try_from(ip + shim + len).ok()?;
            head[..2].copy_from_slice(&[0x45, class]);
            head[2..4].copy_from_slice(&total.to_be_bytes());
            head[6..8].copy_from_slice(&DONT_FRAGMENT);
            head[8..10].copy_from_slice(&[TTL, protocol]);
            head[12..16].copy_from_slice(&local.octets());
            head[16..20].copy_from_slice(&remote.octets());
            set_ipv4(&mut head[..20]);
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let payload = u16::try_from(shim + len).ok()?;
            head[..2].copy_from_slice(&[0x60 | class >> 4, class << 4]);
            head[4..6].copy_from_slice(&payload.to_be_bytes());
            head[6..8].copy_from_slice(&[protocol, TTL]);
            head[8..24].copy_from_slice(&local.octets());
            head[24..40].copy_from_slice(&remote.octets());
        }
        _ => return None,
    }
    Some((head, ip + shim))
}

/// The outer headers of a packet that may belong to a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) end: End,
    /// DSCP and ECN of the outer header.
    pub(super) class: u8,
    /// Bytes in front of the inner packet.
    pub(super) len: usize,
}

/// Parses the outer headers of an IP packet. `None` for fragments, for other protocols, and for headers that tunnels do
/// not use.
pub(super) fn read(packet: &[u8]) -> Option<Read> {
    let (local, remote, class, protocol, ip) = match packet.first()? >> 4 {
        4 => {
            let head: &[u8; 20] = packet.first_chunk()?;
            let fragment = u16::from_be_bytes([head[6], head[7]]) & FRAGMENT != 0;
            if head[0] & 15 != 5 || fragment {
                return None;
            }
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *head;
            let (from, to) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
            (to.into(), from.into(), head[1], head[9], 20)
        }
        6 => {
            let (head, rest) = packet.split_first_chunk::<40>()?;
            let address = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&head[at..at + 16]);
                IpAddr::from(Ipv6Addr::from(octets))
            };
            let (protocol, len) = match (head[6], rest) {
                (OPTIONS, [next, 0, ENCAPSULATION_LIMIT, ..]) => (*next, 48),
                (protocol, _) => (protocol, 40),
            };
            (address(24), address(8), head[0] << 4 | head[1] >> 4, protocol, len)
        }
        _ => return None,
    };
    let rest = packet.get(ip..)?;
    let (front, shim) = match protocol {
        IPV4 | IPV6 => (Front::Ip, 0),
        GRE => gre(rest)?,
        UDP => {
            let (head, inner) = rest.split_first_chunk::<8>()?;
            // Not IP: for a socket that listens on this port.
            if !matches!(inner.first()? >> 4, 4 | 6) {
                return None;
            }
            let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            (Front::Udp { local: port(2), remote: port(0) }, 8)
        }
        _ => return None,
    };
    Some(Read { end: End { local, remote, front }, class, len: ip + shim })
}

/// Parses a GRE header without checksum and sequence number, the only kind that these tunnels use.
fn gre(bytes: &[u8]) -> Option<(Front, usize)> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    if head[2..] != ETHERTYPE_V4 && head[2..] != ETHERTYPE_V6 {
        return None;
    }
    match [head[0], head[1]] {
        [0, 0] => Some((Front::Gre { key: None }, 4)),
        GRE_KEY => {
            let key = u32::from_be_bytes(*rest.first_chunk()?);
            Some((Front::Gre { key: Some(key) }, 8))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    const ENDS: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];
    const FORMS: [Form; 4] = [
        Form::Ip,
        Form::Gre { send: None, receive: None },
        Form::Gre { send: Some(7), receive: Some(7) },
        Form::Udp { local: 5437, remote: 4191 },
    ];

    fn tunnels() -> impl Iterator<Item = Tunnel> {
        ENDS.into_iter().flat_map(|ends| {
            let [local, remote] = ends.map(|end| end.parse().unwrap());
            FORMS.map(|form| Tunnel { number: 1, local, remote, interface: None, form })
        })
    }

    #[test]
    fn heads_are_as_another_parser_reads_them() {
        for tunnel in tunnels() {
            let inner = [0x60; 100];
            let (head, len) = write(&tunnel, true, 0b1011_1001, inner.len()).unwrap();
            let packet = [&head[..len], &inner].concat();
            let sliced = SlicedPacket::from_ip(&packet).unwrap();
            let protocol = match sliced.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    let ip = ip.header();
                    assert_eq!((ip.dcp().value(), ip.ecn().value()), (0b10_1110, 0b01));
                    assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
                    assert_eq!((ip.ttl(), ip.dont_fragment()), (64, true));
                    assert_eq!(IpAddr::from(ip.source_addr()), tunnel.local);
                    assert_eq!(usize::from(ip.total_len()), packet.len());
                    ip.protocol().0
                }
                NetSlice::Ipv6(ip) => {
                    let ip = ip.header();
                    assert_eq!((ip.traffic_class(), ip.hop_limit()), (0b1011_1001, 64));
                    assert_eq!(IpAddr::from(ip.destination_addr()), tunnel.remote);
                    assert_eq!(usize::from(ip.payload_length()) + 40, packet.len());
                    ip.next_header().0
                }
                NetSlice::Arp(_) => unreachable!(),
            };
            match tunnel.form {
                Form::Udp { local, remote } => {
                    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!() };
                    assert_eq!((udp.source_port(), udp.destination_port()), (local, remote));
                    assert_eq!((usize::from(udp.length()), udp.checksum()), (108, 0));
                }
                Form::Gre { .. } => assert_eq!(protocol, GRE),
                _ => assert_eq!(protocol, IPV6),
            }
        }
    }

    #[test]
    fn what_one_end_writes_the_other_reads_and_no_cut_packet_is_read_as_longer() {
        for tunnel in tunnels() {
            let Tunnel { local, remote, .. } = tunnel;
            let form = match tunnel.form {
                Form::Udp { local, remote } => Form::Udp { local: remote, remote: local },
                form => form,
            };
            let other = Tunnel { local: remote, remote: local, form, ..tunnel };
            let (head, len) = write(&other, false, 3, 60).unwrap();
            let packet = [&head[..len], &[0x45; 60]].concat();
            let read_back = read(&packet).unwrap();
            assert_eq!(read_back, Read { end: End::of(&tunnel), class: 3, len });
            for cut in 0..packet.len() {
                assert!(read(&packet[..cut]).is_none_or(|read| read.len <= cut));
            }
        }
    }

    #[test]
    fn fragments_and_other_headers_are_no_tunnels() {
        let tunnel = tunnels().next().unwrap();
        let (head, len) = write(&tunnel, false, 0, 8).unwrap();
        let packet = [&head[..len], &[0x45; 8]].concat();
        let changed = |at: usize, to: u8| {
            let mut packet = packet.clone();
            packet[at] = to;
            read(&packet)
        };
        assert!(changed(1, 1).is_some());
        assert_eq!([changed(0, 0x46), changed(6, 0x20), changed(7, 1), changed(9, 6)], [None; 4]);
        let gre = tunnels().nth(1).unwrap();
        let (mut head, len) = write(&gre, false, 0, 8).unwrap();
        assert!(read(&head[..len]).is_some());
        head[20] = 0x80;
        assert_eq!(read(&head[..len]), None, "a checksum");
        // A header that Linux adds in its own tunnels.
        let v6 = tunnels().nth(4).unwrap();
        let (head, _) = write(&v6, false, 0, 16).unwrap();
        let mut packet = [&head[..40], &[IPV4, 0, ENCAPSULATION_LIMIT, 1, 4, 1, 0, 0]].concat();
        packet[6] = OPTIONS;
        let turned = End { local: v6.remote, remote: v6.local, front: Front::Ip };
        assert_eq!(read(&packet), Some(Read { end: turned, class: 0, len: 48 }));
        packet[42] = 0xc9;
        assert_eq!(read(&packet), None);
    }

    #[test]
    fn a_packet_that_would_become_too_long_is_refused() {
        for tunnel in tunnels() {
            assert!(write(&tunnel, true, 0, 65_400).is_some());
            assert!(write(&tunnel, true, 0, 65_536).is_none());
        }
    }
}
