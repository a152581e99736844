//! Properties of frames for the emulator: traffic of the link itself, and ports.

/// Length of an Ethernet header. Not counted: rates and sizes are those of IP packets.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// Transport protocol and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// 17 for UDP, 6 for TCP.
    pub protocol: u8,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// True for traffic of the link itself, which never passes the first hop: ARP, IPv6 neighbour discovery (types
/// 133 to 137, RFC 4861, 4), link-scope multicast and link-local addresses.
pub fn stays_on_link(frame: &[u8]) -> bool {
    let ip = frame.get(ETHERNET_BYTES..).unwrap_or_default();
    match ether_type(frame) {
        Some(ARP) => true,
        Some(IPV4) => ip.get(16..19) == Some(&[224, 0, 0]),
        Some(IPV6) => {
            let neighbour =
                ip.get(6) == Some(&58) && ip.get(40).is_some_and(|t| (133..=137).contains(t));
            let local = |at: usize| {
                ip.get(at) == Some(&0xfe) && ip.get(at + 1).is_some_and(|b| b & 0xc0 == 0x80)
            };
            neighbour || local(8) || local(24) || ip.get(24..26) == Some(&[0xff, 2])
        }
        _ => false,
    }
}

/// Whether a frame is addressed to the station with this link-layer address or to a group.
pub(crate) fn is_for(mac: [u8; 6], frame: &[u8]) -> bool {
    let group = frame.first().is_some_and(|first| first & 1 == 1);
    group || frame.starts_with(&mac)
}

/// The ports of a UDP or TCP packet; `None` for anything else, fragments and extension headers.
pub fn ports(frame: &[u8]) -> Option<Ports> {
    let (protocol, transport) = transport(frame)?;
    let &[a, b, c, d] = transport.first_chunk()?;
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    [6, 17].contains(&protocol).then_some(Ports { protocol, source, destination })
}

/// The first bytes of a UDP packet's payload. Missing bytes are zero, as are all bytes for other packets.
pub(crate) fn udp_payload<const N: usize>(frame: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    if let Some((17, datagram)) = transport(frame) {
        first.iter_mut().zip(datagram.iter().skip(UDP_BYTES)).for_each(|(to, from)| *to = *from);
    }
    first
}

/// Protocol and payload of the IP packet.
fn transport(frame: &[u8]) -> Option<(u8, &[u8])> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    match ether_type(frame)? {
        IPV4 => {
            let offset = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x1fff;
            let header = usize::from(ip.first()? & 0x0f) * 4;
            (offset == 0).then_some((*ip.get(9)?, ip.get(header..)?))
        }
        IPV6 => Some((*ip.get(6)?, ip.get(40..)?)),
        _ => None,
    }
}

const UDP_BYTES: usize = 8;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

fn ether_type(frame: &[u8]) -> Option<u16> {
    frame.get(12..ETHERNET_BYTES).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ether_type: u16, ip: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(ether_type.to_be_bytes());
        frame.extend(ip);
        frame
    }

    #[test]
    fn ports_are_read_behind_both_ip_headers_and_not_from_later_fragments() {
        let mut v4 = [0u8; 28];
        (v4[0], v4[9]) = (0x46, 17);
        v4[24..].copy_from_slice(&[0x13, 0x8d, 0, 7]);
        let expected = Ports { protocol: 17, source: 5005, destination: 7 };
        assert_eq!(ports(&frame(IPV4, &v4)), Some(expected));
        v4[7] = 1;
        assert_eq!(ports(&frame(IPV4, &v4)), None);
        let mut v6 = [0u8; 44];
        v6[6] = 6;
        v6[40..].copy_from_slice(&[0, 80, 0x13, 0x8d]);
        let expected = Ports { protocol: 6, source: 80, destination: 5005 };
        assert_eq!(ports(&frame(IPV6, &v6)), Some(expected));
    }

    #[test]
    fn of_a_udp_payload_the_first_bytes_are_kept_and_of_other_packets_none() {
        let mut v4 = vec![0u8; 20];
        (v4[0], v4[9]) = (0x45, 17);
        v4.extend([0, 1, 0, 2, 0, 11, 0, 0, 7, 8, 9]);
        assert_eq!(udp_payload(&frame(IPV4, &v4)), [7, 8]);
        assert_eq!(udp_payload(&frame(IPV4, &v4)), [7, 8, 9, 0, 0]);
        assert_eq!(udp_payload(&frame(IPV4, &v4[..24])), [0, 0]);
        v4[9] = 6;
        assert_eq!(udp_payload(&frame(IPV4, &v4)), [0, 0]);
    }

    #[test]
    fn short_frames_and_other_protocols_have_no_ports() {
        for len in 0..40 {
            let mut all = frame(IPV6, &[0; 40]);
            all.truncate(len);
            assert_eq!(ports(&all), None);
            assert!(!stays_on_link(&all));
        }
    }

    #[test]
    fn a_frame_is_for_one_station_or_for_a_group() {
        let (mine, other) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 3]);
        let mut sent = frame(IPV6, &[0; 40]);
        for (destination, expected) in
            [(mine, true), (other, false), ([0xff; 6], true), ([0x33, 0x33, 0, 0, 0, 1], true)]
        {
            sent[..6].copy_from_slice(&destination);
            assert_eq!(is_for(mine, &sent), expected, "{destination:?}");
        }
        assert!(!is_for(mine, &[]));
    }

    #[test]
    fn what_belongs_to_the_link_is_told_from_what_goes_beyond() {
        let mut v6 = [0u8; 44];
        (v6[6], v6[40]) = (58, 135);
        assert!(stays_on_link(&frame(IPV6, &v6)));
        v6[40] = 128;
        assert!(!stays_on_link(&frame(IPV6, &v6)));
        assert!(stays_on_link(&frame(ARP, &[0; 28])));
        // A multicast listener report with a hop-by-hop header, to ff02::16.
        (v6[6], v6[24], v6[25], v6[39]) = (0, 0xff, 2, 0x16);
        assert!(stays_on_link(&frame(IPV6, &v6)));
        v6[25] = 5;
        assert!(!stays_on_link(&frame(IPV6, &v6)));
        (v6[8], v6[9]) = (0xfe, 0x80);
        assert!(stays_on_link(&frame(IPV6, &v6)));
        let mut v4 = [0u8; 20];
        v4[16..].copy_from_slice(&[224, 0, 0, 22]);
        assert!(stays_on_link(&frame(IPV4, &v4)));
        v4[16] = 10;
        assert!(!stays_on_link(&frame(IPV4, &v4)));
    }
}
