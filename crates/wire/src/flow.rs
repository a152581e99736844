//! Reads the flow key of an inner packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::FlowKey;

use crate::DropReason;

/// The properties of an inner packet that the packet path uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// The flow.
    pub key: FlowKey,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Length stated in the packet's own header, in bytes.
    pub len: usize,
    /// IPv6 flow label; 0 for IPv4.
    pub label: u32,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const DCCP: u8 = 33;
const UDPLITE: u8 = 136;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Maximum number of IPv6 extension headers followed to find the ports.
const MAX_EXTENSIONS: usize = 4;

impl Inner {
    /// Reads an inner IPv4 or IPv6 packet.
    ///
    /// # Errors
    /// [`DropReason::InnerPacket`] if the packet is neither, or is shorter than its header states.
    pub fn parse(packet: &[u8]) -> Result<Inner, DropReason> {
        match packet.first().map(|b| b >> 4) {
            Some(4) => parse_v4(packet),
            Some(6) => parse_v6(packet),
            _ => Err(DropReason::InnerPacket),
        }
    }

    /// The same with the flow label in its key even if the packet has ports: the 6-tuple of RFC 6437. Some senders
    /// change a connection's label; Linux does so at each TCP timeout.
    #[must_use]
    pub fn labelled(self) -> Inner {
        Inner { key: FlowKey { label: self.label, ..self.key }, ..self }
    }
}

fn parse_v4(packet: &[u8]) -> Result<Inner, DropReason> {
    let head: &[u8; 20] = packet.first_chunk().ok_or(DropReason::InnerPacket)?;
    let header_len = usize::from(head[0] & 15) * 4;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if header_len < 20 || len < header_len || packet.len() < len {
        return Err(DropReason::InnerPacket);
    }
    let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    let protocol = head[9];
    let (sport, dport) =
        if fragment { (0, 0) } else { ports(protocol, &packet[header_len..len]).unwrap_or((0, 0)) };
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *head;
    Ok(Inner {
        key: FlowKey {
            src: Ipv4Addr::new(s0, s1, s2, s3).into(),
            dst: Ipv4Addr::new(d0, d1, d2, d3).into(),
            sport,
            dport,
            protocol,
            label: 0,
        },
        label: 0,
        dscp: head[1] >> 2,
        len,
    })
}

fn parse_v6(packet: &[u8]) -> Result<Inner, DropReason> {
    let head: &[u8; 40] = packet.first_chunk().ok_or(DropReason::InnerPacket)?;
    let len = 40 + usize::from(u16::from_be_bytes([head[4], head[5]]));
    if packet.len() < len {
        return Err(DropReason::InnerPacket);
    }
    let (protocol, ports) = upper_layer(head[6], &packet[40..len]);
    let flow_label = u32::from_be_bytes([0, head[1] & 15, head[2], head[3]]);
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&head[at..at + 16]);
        IpAddr::from(Ipv6Addr::from(octets))
    };
    let (sport, dport) = ports.unwrap_or((0, 0));
    Ok(Inner {
        key: FlowKey {
            src: address(8),
            dst: address(24),
            sport,
            dport,
            protocol,
            label: if ports.is_some() { 0 } else { flow_label },
        },
        label: flow_label,
        dscp: (u16::from_be_bytes([head[0], head[1]]) >> 6 & 63) as u8,
        len,
    })
}

/// Follows at most [`MAX_EXTENSIONS`] extension headers. Returns the protocol, and the ports if they were found.
fn upper_layer(mut next: u8, mut rest: &[u8]) -> (u8, Option<(u16, u16)>) {
    for _ in 0..MAX_EXTENSIONS {
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let [following, units, ..] = *rest else { return (next, None) };
                let Some(after) = rest.get(8 + usize::from(units) * 8..) else {
                    return (next, None);
                };
                next = following;
                rest = after;
            }
            FRAGMENT => return (rest.first().copied().unwrap_or(next), None),
            _ => break,
        }
    }
    (next, ports(next, rest))
}

fn ports(protocol: u8, payload: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP | SCTP | DCCP | UDPLITE) {
        return None;
    }
    let [a, b, c, d, ..] = *payload else { return None };
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn v4(fragment: u16) -> [u8; 28] {
        let mut p = [0; 28];
        p[0] = 0x45;
        p[1] = 46 << 2;
        p[3] = 28;
        p[6..8].copy_from_slice(&fragment.to_be_bytes());
        p[9] = UDP;
        p[12..16].copy_from_slice(&[10, 0, 0, 1]);
        p[16..20].copy_from_slice(&[10, 0, 0, 2]);
        p[20..24].copy_from_slice(&[0x30, 0x39, 0, 53]);
        p
    }

    #[test]
    fn an_ipv4_datagram_gives_its_ports_and_reverses() {
        let inner = Inner::parse(&v4(0)).unwrap();
        assert_eq!(inner.key.to_string(), "udp 10.0.0.1:12345 > 10.0.0.2:53");
        assert_eq!(inner.key.reversed().to_string(), "udp 10.0.0.2:53 > 10.0.0.1:12345");
        assert_eq!((inner.dscp, inner.len), (46, 28));
    }

    #[test]
    fn all_fragments_of_a_packet_have_no_ports() {
        for fragment in [0x2000, 0x2010, 0x0010] {
            let key = Inner::parse(&v4(fragment)).unwrap().key;
            assert_eq!((key.sport, key.dport), (0, 0));
        }
    }

    #[test]
    fn ipv6_ports_are_found_behind_extension_headers_and_the_label_only_counts_without_ports() {
        let mut p = vec![0u8; 40];
        p[0] = 0x60;
        p[3] = 5;
        p[6] = DESTINATION;
        p[23] = 1;
        p[39] = 2;
        p.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
        p.extend([0, 80, 0, 81, 0, 8, 0, 0]);
        p[5] = 16;
        let key = Inner::parse(&p).unwrap().key;
        assert_eq!(key.to_string(), "udp [::1]:80 > [::2]:81");
        assert_eq!(key.label, 0);
        // Make the extension header 24 bytes long.
        let mut long = p.clone();
        long[41] = 2;
        long.splice(48..48, [0xff; 16]);
        long[5] = 32;
        assert_eq!(Inner::parse(&long).unwrap().key, key);
        p[40] = 50;
        let key = Inner::parse(&p).unwrap().key;
        assert_eq!((key.sport, key.protocol, key.label), (0, 50, 5));
    }

    #[test]
    fn a_packet_shorter_than_it_says_is_refused() {
        let p = v4(0);
        for n in 0..p.len() {
            assert_eq!(Inner::parse(&p[..n]), Err(DropReason::InnerPacket));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), v in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()]) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = v; }
            let _ = Inner::parse(&bytes);
        }
    }
}
