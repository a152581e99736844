//! Walks through a packet from the link layer inwards: IP, extension headers, tunnels, and finally the messages.

use std::net::{IpAddr, Ipv4Addr};

use segue_wire::extension::{Chain, FRAGMENT, IPV6_LEN};
use segue_wire::{mobility, nd};

use crate::element::{Decoded, Ends, Found, Nothing, Outcome, Over, Ported};
use crate::link::{Inside, behind_type};
use crate::{Element, Link, Within, icmpv6, mh, mih, own, radius, tcp, udp};

/// IP protocols.
const ICMP: u8 = 1;
const IPV4: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const ESP: u8 = 50;
const NO_NEXT_HEADER: u8 = 59;
/// Mobility Header, by the protocol number that implementations used before RFC 3775.
const OLD_MOBILITY: u8 = 62;

/// Maximum depth of nested tunnels.
const TUNNELS_MAX: usize = 16;

/// Decodes a captured packet that had `length` bytes on the wire. Returns at least one [`Element`].
#[must_use]
pub fn packet(number: u64, link: Link, frame: &[u8], length: usize) -> Vec<Element> {
    let mut walk = Walk::new(number);
    if frame.len() < length {
        walk.short = Some(format!("by the capture, {} of {length} bytes", frame.len()));
    }
    walk.inside(link.inside(frame), link.ends(frame), &[]);
    walk.elements
}

/// The kind of a message that comes without a packet around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// A Mobility Header.
    MobilityHeader,
    /// An ICMPv6 message.
    Icmpv6,
    /// The UDP payload of a Segue or UPMT packet.
    Segue,
    /// An MIH frame.
    Mih,
    /// A RADIUS packet.
    Radius,
}

/// Decodes a message without a packet around it.
#[must_use]
pub fn bare(kind: Bare, bytes: &[u8]) -> Vec<Element> {
    let mut walk = Walk::new(1);
    match kind {
        Bare::MobilityHeader => walk.say(None, &[], mh::decode(bytes, None)),
        Bare::Icmpv6 => walk.say(None, &[], icmpv6::decode(bytes, None)),
        Bare::Mih => walk.say(None, &[], mih::decode(bytes)),
        Bare::Radius => walk.say(None, &[], radius::decode(bytes, false)),
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
    /// Why the bytes may hold only the beginning of a packet.
    short: Option<String>,
    /// Why the packet being decoded is known to be truncated.
    cut: Option<String>,
    elements: Vec<Element>,
}

impl Walk {
    fn new(number: u64) -> Walk {
        Walk { number, short: None, cut: None, elements: Vec::new() }
    }

    /// Adds an element for a message, or for the reason why there is no message.
    fn say(&mut self, ends: Option<&Ends>, within: &[Within], outcome: Outcome) {
        self.tell(ends.map(Ends::texts), within, outcome);
    }

    /// The same for addresses of any kind, already as text.
    fn tell(&mut self, ends: Option<(String, String)>, within: &[Within], outcome: Outcome) {
        let (source, destination) = ends.unzip();
        let broken = Nothing::Broken(String::new());
        let mut element = match outcome {
            Ok(Decoded { message, fields, reencodes }) => Element {
                message: Some(message),
                fields,
                reencodes,
                error: None,
                ..Element::without_message(self.number, broken)
            },
            Err(nothing) => Element::without_message(self.number, nothing),
        };
        (element.source, element.destination, element.within) =
            (source, destination, within.to_vec());
        element.cut.clone_from(&self.cut);
        if let (Some(error), None) = (&element.error, &element.other)
            && let Some(cut) = self.cut.as_ref().or(self.short.as_ref())
        {
            element.error = Some(format!("cut {cut}: {error}"));
        }
        self.elements.push(element);
    }

    /// Continues with the contents of a link-layer frame.
    fn inside(
        &mut self,
        inside: Result<Inside<'_>, Nothing>,
        ends: Option<(String, String)>,
        within: &[Within],
    ) {
        match inside {
            Ok(Inside::Ip(packet)) => self.ip(packet, within),
            Ok(Inside::Mih(frame)) => self.tell(ends, within, mih::padded(frame)),
            Err(nothing) => self.tell(None, within, Err(nothing)),
        }
    }

    /// An IP packet of either version.
    fn ip(&mut self, packet: &[u8], within: &[Within]) {
        let cut = self.cut.clone();
        let result = match packet.first().map(|byte| byte >> 4) {
            _ if within.len() > TUNNELS_MAX => Err("too many tunnels in each other".into()),
            Some(4) => self.ipv4(packet, within),
            Some(6) => self.ipv6(packet, within),
            Some(other) => {
                let what = format!("an IP packet of version {other}");
                self.say(None, within, Err(Nothing::other("neither IPv4 nor IPv6", &what)));
                Ok(())
            }
            None => Err("no packet".into()),
        };
        if let Err(error) = result {
            self.say(None, within, Err(Nothing::Broken(error)));
        }
        self.cut = cut;
    }

    fn ipv4(&mut self, packet: &[u8], within: &[Within]) -> Result<(), String> {
        let Some(header) = packet.first_chunk::<20>() else {
            return Err(format!("IPv4 header: {} bytes, at least 20 needed", packet.len()));
        };
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (header_len, total) = (usize::from(header[0] & 15) * 4, usize::from(half(2)));
        // With segmentation offload, the total length is zero in the capture.
        let total = if total == 0 { packet.len() } else { total };
        let end = self.end(packet, total);
        if header_len < 20 || header_len > end {
            return Err(format!("IPv4 header: a length of {header_len} bytes is wrong"));
        }
        let address = |at: usize| {
            IpAddr::from(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]))
        };
        let ends = Ends { source: address(12), destination: address(16), ports: None };
        if half(6) & 0x3fff != 0 {
            self.say(Some(&ends), within, Err(Nothing::other("fragments", "a fragment")));
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
        // Zero with segmentation offload, as in IPv4.
        let stated = if stated == IPV6_LEN { packet.len() } else { stated };
        let end = self.end(packet, stated);
        // The parser checks the length field: make it match the captured part.
        let mut packet = packet[..end].to_vec();
        let length = u16::try_from(end - IPV6_LEN).unwrap_or(u16::MAX);
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        let chain = Chain::parse(&packet).map_err(|error| error.to_string())?;
        let (source, destination) = (chain.source.into(), chain.destination.into());
        let ends = Ends { source, destination, ports: None };
        let over = Over {
            source: chain.checksum_source(),
            destination: chain.checksum_destination(),
            hop_limit: header[7],
            is_atomic_fragment: chain.is_atomic_fragment,
            is_cut: end < stated,
            home_address_option: chain.home_address,
            type_2_routing_header: chain.routing_home_address,
        };
        self.payload(chain.next_header, chain.payload(&packet), ends, within, Some(&over));
        Ok(())
    }

    /// End of a packet within the captured bytes; notes in `cut` if the packet is longer.
    fn end(&mut self, packet: &[u8], stated: usize) -> usize {
        let got = packet.len();
        if got < stated && self.cut.is_none() {
            let short = self.short.clone();
            self.cut = short.or_else(|| Some(format!("before its end, {got} of {stated} bytes")));
        }
        stated.min(got)
    }

    /// Continues with the payload of an IP packet.
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
            UDP => return self.ported(udp::datagram(bytes, self.cut.is_some()), ends, within),
            nd::NEXT_HEADER => match over {
                Some(over) => return self.found(icmpv6::found(bytes, over), Some(&ends), within),
                None => Err(Nothing::other("IP protocol 58", "ICMPv6 in IPv4")),
            },
            mobility::NEXT_HEADER | OLD_MOBILITY if v6 => mh::decode(bytes, over),
            FRAGMENT if v6 => Err(Nothing::other("fragments", "a fragment")),
            ICMP if !v6 => match bytes {
                // Error messages, which quote a packet.
                [3 | 4 | 5 | 11 | 12, _, _, _, _, _, _, _, quote @ ..] if !quote.is_empty() => {
                    return self.quote("ICMP", quote, &ends, within);
                }
                _ => Err(Nothing::other("ICMP", "ICMP")),
            },
            ESP => Err(Nothing::other("ESP", "ESP, encrypted")),
            NO_NEXT_HEADER => Err(Nothing::other("packets without payload", "no payload")),
            other => {
                let what = format!("IP protocol {other}");
                Err(Nothing::other(&what, &what))
            }
        };
        self.say(Some(&ends), within, outcome);
    }

    /// Continues with the payload of a transport that has ports.
    fn ported(&mut self, read: Ported<'_>, ends: Ends, within: &[Within]) {
        match read {
            Ok((ports, found)) => {
                let ends = Ends { ports: Some(ports), ..ends };
                self.found(found, Some(&ends), within);
            }
            Err(error) => self.say(Some(&ends), within, Err(error)),
        }
    }

    /// Continues with the contents of a datagram or a segment.
    fn found(&mut self, found: Vec<Found<'_>>, ends: Option<&Ends>, within: &[Within]) {
        for found in found {
            match (found, ends) {
                (Found::Message(outcome), _) => self.say(ends, within, outcome),
                (Found::Inner(tunnel, packet), Some(ends)) => {
                    self.enter(tunnel, &packet, ends, within);
                }
                (Found::Quote(by, packet), Some(ends)) => self.quote(by, &packet, ends, within),
                (Found::Typed(tunnel, ethertype, bytes), Some(ends)) => {
                    let within = deeper(tunnel, ends, within);
                    self.inside(behind_type(ethertype, bytes), None, &within);
                }
                (Found::Inner(_, packet) | Found::Quote(_, packet), None) => {
                    self.ip(&packet, within);
                }
                (Found::Typed(_, ethertype, bytes), None) => {
                    self.inside(behind_type(ethertype, bytes), None, within);
                }
            }
        }
    }

    /// Continues with the packet in a tunnel.
    fn enter(&mut self, tunnel: &'static str, inner: &[u8], ends: &Ends, within: &[Within]) {
        self.ip(inner, &deeper(tunnel, ends, within));
    }

    /// Decodes the beginning of a packet that an error message quotes.
    fn quote(&mut self, by: &'static str, quote: &[u8], ends: &Ends, within: &[Within]) {
        let before = self.short.replace(format!("by its quotation in {by}"));
        self.ip(quote, &deeper(by, ends, within));
        self.short = before;
    }

    /// GRE (RFC 2784) with key and sequence number (RFC 2890), and PPTP's enhanced GRE (RFC 2637).
    fn gre(&mut self, bytes: &[u8], ends: &Ends, within: &[Within]) {
        let inner = bytes.first_chunk().and_then(|[flags, version, high, low]: &[u8; 4]| {
            let at = match version & 7 {
                0 => 4 + 4 * [0x80, 0x20, 0x10].iter().filter(|f| *flags & **f != 0).count(),
                _ => 8 + 4 * (usize::from(flags & 0x10 != 0) + usize::from(version & 0x80 != 0)),
            };
            bytes.get(at..).map(|inner| (u16::from_be_bytes([*high, *low]), inner))
        });
        match inner {
            Some((ethertype, inner)) => {
                let within = deeper("GRE", ends, within);
                self.inside(behind_type(ethertype, inner), None, &within);
            }
            None => {
                self.say(Some(ends), within, Err(Nothing::Broken("GRE: a short header".into())))
            }
        }
    }
}

/// The list of tunnels, extended by one.
fn deeper(tunnel: &'static str, ends: &Ends, within: &[Within]) -> Vec<Within> {
    let (source, destination) = ends.texts();
    [within, &[Within { tunnel, source, destination }]].concat()
}
