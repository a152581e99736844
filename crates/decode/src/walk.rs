//! A packet from its link layer inwards: IP, extension headers, tunnels, and the messages at the end.

use std::net::{IpAddr, Ipv4Addr};

use segue_wire::extension::{Chain, FRAGMENT, IPV6_LEN};
use segue_wire::{mobility, nd};

use crate::element::{Decoded, Ends, Found, Outcome, Over, Ported};
use crate::link::Inside;
use crate::{Element, Link, Within, icmpv6, mh, mih, own, radius, tcp, udp};

/// IP protocols.
const IPV4: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const GRE: u8 = 47;

/// Tunnels in each other: more are not followed.
const TUNNELS_MAX: usize = 16;

/// The messages of a packet of a capture: at least one [`Element`].
#[must_use]
pub fn packet(number: u64, link: Link, frame: &[u8], cut: bool) -> Vec<Element> {
    let mut walk = Walk { number, cut, elements: Vec::new() };
    match link.inside(frame) {
        Ok(Inside::Ip(packet)) => walk.ip(packet, &[]),
        Ok(Inside::Mih(frame_of_mih)) => {
            walk.tell(link.ends(frame), &[], mih::padded(frame_of_mih));
        }
        Err(error) => walk.say(None, &[], Err(error)),
    }
    walk.elements
}

/// What a message that was given by itself is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// A Mobility Header.
    MobilityHeader,
    /// An ICMPv6 message.
    Icmpv6,
    /// The UDP payload of a packet of Segue's or of UPMT's.
    Segue,
    /// An MIH frame.
    Mih,
    /// A RADIUS packet.
    Radius,
}

/// The messages in a message that was given by itself.
#[must_use]
pub fn bare(kind: Bare, bytes: &[u8]) -> Vec<Element> {
    let mut walk = Walk { number: 1, cut: false, elements: Vec::new() };
    match kind {
        Bare::MobilityHeader => walk.say(None, &[], mh::decode(bytes, None)),
        Bare::Icmpv6 => walk.say(None, &[], icmpv6::decode(bytes, None)),
        Bare::Mih => walk.say(None, &[], mih::decode(bytes)),
        Bare::Radius => walk.say(None, &[], radius::decode(bytes)),
        Bare::Segue => {
            let found = own::payload(bytes, bytes.len());
            walk.found(found, None, &[]);
        }
    }
    walk.elements
}

/// A walk through one packet.
struct Walk {
    number: u64,
    /// The capture kept only the packet's beginning.
    cut: bool,
    elements: Vec<Element>,
}

impl Walk {
    /// Notes a message, or why there is none.
    fn say(&mut self, ends: Option<&Ends>, within: &[Within], outcome: Outcome) {
        self.tell(ends.map(Ends::texts), within, outcome);
    }

    /// The same between addresses of any kind.
    fn tell(&mut self, ends: Option<(String, String)>, within: &[Within], outcome: Outcome) {
        let (source, destination) = ends.unzip();
        let mut element = Element::without_message(self.number, String::new());
        (element.source, element.destination, element.within) =
            (source, destination, within.to_vec());
        match outcome {
            Ok(Decoded { message, fields, reencodes }) => {
                (element.message, element.fields) = (Some(message), fields);
                (element.reencodes, element.error) = (reencodes, None);
            }
            Err(error) => element.error = Some(error),
        }
        self.elements.push(element);
    }

    /// An IP packet of either version.
    fn ip(&mut self, packet: &[u8], within: &[Within]) {
        let result = match packet.first().map(|byte| byte >> 4) {
            _ if within.len() > TUNNELS_MAX => Err("too many tunnels in each other".into()),
            Some(4) => self.ipv4(packet, within),
            Some(6) => self.ipv6(packet, within),
            Some(other) => Err(format!("an IP packet of version {other}: not decoded")),
            None => Err("no packet".into()),
        };
        if let Err(error) = result {
            self.say(None, within, Err(error));
        }
    }

    fn ipv4(&mut self, packet: &[u8], within: &[Within]) -> Result<(), String> {
        let Some(header) = packet.first_chunk::<20>() else {
            return Err(format!("IPv4 header: {} bytes, at least 20 needed", packet.len()));
        };
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (header_len, total) = (usize::from(header[0] & 15) * 4, usize::from(half(2)));
        // A packet that its interface cuts into segments says nothing of its length.
        let total = if total == 0 { packet.len() } else { total };
        let end = self.end("IPv4 packet", packet, total)?;
        if header_len < 20 || header_len > end {
            return Err(format!("IPv4 header: a length of {header_len} bytes is wrong"));
        }
        let address = |at: usize| {
            IpAddr::from(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]))
        };
        let ends = Ends { source: address(12), destination: address(16), ports: None };
        if half(6) & 0x3fff != 0 {
            self.say(Some(&ends), within, Err("a fragment: not decoded".into()));
            return Ok(());
        }
        self.payload(header[9], &packet[header_len..end], ends, within, None);
        Ok(())
    }

    fn ipv6(&mut self, packet: &[u8], within: &[Within]) -> Result<(), String> {
        let Some(header) = packet.first_chunk::<IPV6_LEN>() else {
            return Err(format!("IPv6 header: {} bytes, at least {IPV6_LEN} needed", packet.len()));
        };
        let stated = usize::from(u16::from_be_bytes([header[4], header[5]])) + IPV6_LEN;
        let end = self.end("IPv6 packet", packet, stated)?;
        // Of a packet that was cut, what is there is the packet.
        let mut packet = packet[..end].to_vec();
        packet[4..6].copy_from_slice(&((end - IPV6_LEN) as u16).to_be_bytes());
        let chain = Chain::parse(&packet).map_err(|error| error.to_string())?;
        let (source, destination) = (chain.source.into(), chain.destination.into());
        let ends = Ends { source, destination, ports: None };
        let over = Over {
            source: chain.checksum_source(),
            destination: chain.checksum_destination(),
            hop_limit: header[7],
            home_address_option: chain.home_address,
            type_2_routing_header: chain.routing_home_address,
        };
        self.payload(chain.next_header, chain.payload(&packet), ends, within, Some(&over));
        Ok(())
    }

    /// Where a packet ends in what was captured.
    fn end(&self, what: &str, packet: &[u8], stated: usize) -> Result<usize, String> {
        match packet.len() {
            got if got < stated && !self.cut => {
                Err(format!("{what}: {got} bytes, at least {stated} needed"))
            }
            got => Ok(stated.min(got)),
        }
    }

    /// What an IP packet carries.
    fn payload(
        &mut self,
        protocol: u8,
        bytes: &[u8],
        ends: Ends,
        within: &[Within],
        over: Option<&Over>,
    ) {
        let v6 = ends.source.is_ipv6();
        let outcome = match protocol {
            IPV4 | IPV6 => {
                let form = match (protocol, v6) {
                    (IPV4, false) => "IPv4-in-IPv4",
                    (IPV4, true) => "IPv4-in-IPv6",
                    (_, false) => "IPv6-in-IPv4",
                    (_, true) => "IPv6-in-IPv6",
                };
                return self.enter(form, bytes, &ends, within);
            }
            GRE => return self.gre(bytes, &ends, within),
            TCP => return self.ported(tcp::segment(bytes), ends, within),
            UDP => return self.ported(udp::datagram(bytes, self.cut), ends, within),
            nd::NEXT_HEADER if v6 => icmpv6::decode(bytes, over),
            mobility::NEXT_HEADER if v6 => mh::decode(bytes, over),
            FRAGMENT if v6 => Err("a fragment: not decoded".into()),
            1 => Err("ICMP: not decoded".into()),
            50 => Err("ESP: encrypted, not decoded".into()),
            59 => Err("no payload".into()),
            other => Err(format!("IP protocol {other}: not decoded")),
        };
        self.say(Some(&ends), within, outcome);
    }

    /// What a transport with ports carries.
    fn ported(&mut self, read: Ported<'_>, ends: Ends, within: &[Within]) {
        match read {
            Ok((ports, found)) => {
                let ends = Ends { ports: Some(ports), ..ends };
                self.found(found, Some(&ends), within);
            }
            Err(error) => self.say(Some(&ends), within, Err(error)),
        }
    }

    /// What a datagram or a segment holds.
    fn found(&mut self, found: Vec<Found<'_>>, ends: Option<&Ends>, within: &[Within]) {
        for found in found {
            match (found, ends) {
                (Found::Message(outcome), _) => self.say(ends, within, outcome),
                (Found::Inner(tunnel, packet), Some(ends)) => {
                    self.enter(tunnel, &packet, ends, within);
                }
                (Found::Inner(_, packet), None) => self.ip(&packet, within),
            }
        }
    }

    /// Goes into a tunnel.
    fn enter(&mut self, tunnel: &'static str, inner: &[u8], ends: &Ends, within: &[Within]) {
        let (source, destination) = ends.texts();
        let mut within = within.to_vec();
        within.push(Within { tunnel, source, destination });
        self.ip(inner, &within);
    }

    /// GRE (RFC 2784) with key and sequence number (RFC 2890).
    fn gre(&mut self, bytes: &[u8], ends: &Ends, within: &[Within]) {
        let inner = bytes.first_chunk().and_then(|[flags, version, high, low]: &[u8; 4]| {
            let optional = [0x80, 0x20, 0x10].iter().filter(|flag| *flags & **flag != 0).count();
            let is_ip = matches!(u16::from_be_bytes([*high, *low]), 0x0800 | 0x86dd);
            (version & 7 == 0 && is_ip).then(|| bytes.get(4 + 4 * optional..)).flatten()
        });
        match inner {
            Some(inner) => self.enter("GRE", inner, ends, within),
            None => {
                self.say(Some(ends), within, Err("GRE without an IP packet: not decoded".into()));
            }
        }
    }
}
