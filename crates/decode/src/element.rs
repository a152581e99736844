//! [`Element`], the result of decoding one message, and the types that decoders build it from.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use segue_wire::WireError;
use serde::Serialize;

use crate::Tree;

/// A message, or a packet without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Element {
    /// The packet's number in its capture, from 1.
    pub packet: u64,
    /// When it was captured, in UTC. `None` for hexadecimal digits, and if the capture has no timestamp.
    pub time: Option<String>,
    /// Source address of the innermost header around the message, with the port if it has one. For an MIH frame
    /// directly on Ethernet this is the link-layer address. `None` for a message without a packet around it.
    pub source: Option<String>,
    /// Destination address of the same header.
    pub destination: Option<String>,
    /// The tunnels around the message, outermost first.
    pub within: Vec<Within>,
    /// The name from its RFC. `None`: the packet holds no message that we decode, or the message is malformed.
    pub message: Option<&'static str>,
    /// Its fields, with the names from its RFC.
    pub fields: Tree,
    /// Whether encoding the decoded message yields the captured bytes.
    pub reencodes: bool,
    /// How much of the packet was captured, if it was truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Why there is no message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Kind of the packet, if it is not a mobility message; used for counting.
    #[serde(skip)]
    pub other: Option<String>,
}

impl Element {
    /// A packet without a message.
    pub(crate) fn without_message(packet: u64, nothing: Nothing) -> Element {
        let (other, error) = match nothing {
            Nothing::Other { kind, what } => (Some(kind), format!("{what}: not decoded")),
            Nothing::Broken(error) => (None, error),
        };
        Element {
            packet,
            time: None,
            source: None,
            destination: None,
            within: Vec::new(),
            message: None,
            fields: Tree::Object(Vec::new()),
            reencodes: false,
            cut: None,
            error: Some(error),
            other,
        }
    }
}

/// A tunnel around a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Within {
    /// Kind of tunnel, such as `IPv6-in-IPv6`.
    pub tunnel: &'static str,
    /// The outer source.
    pub source: String,
    /// The outer destination.
    pub destination: String,
}

/// Why there is no message.
#[derive(Debug)]
pub(crate) enum Nothing {
    /// A packet that we do not decode: its `kind` for the counts, and a precise description.
    Other { kind: String, what: String },
    /// A malformed message, or a malformed header before one.
    Broken(String),
}

impl Nothing {
    pub(crate) fn other(kind: &str, what: &str) -> Nothing {
        Nothing::Other { kind: kind.to_owned(), what: what.to_owned() }
    }
}

/// Result of a decoder.
pub(crate) type Outcome = Result<Decoded, Nothing>;

/// A decoded message, without the addresses and tunnels around it.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) message: &'static str,
    pub(crate) fields: Tree,
    pub(crate) reencodes: bool,
}

/// The addresses of a packet, with ports if its transport has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) ports: Option<(u16, u16)>,
}

impl Ends {
    pub(crate) fn texts(&self) -> (String, String) {
        let text = |address: IpAddr, port: Option<u16>| match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        };
        let (from, to) = self.ports.unzip();
        (text(self.source, from), text(self.destination, to))
    }
}

/// One item found in a datagram, a segment or a tunnel.
pub(crate) enum Found<'a> {
    /// A decoded message, or the reason why there is none.
    Message(Outcome),
    /// A tunnelled packet, with the kind of tunnel.
    Inner(&'static str, Cow<'a, [u8]>),
    /// The beginning of a packet that an error message quotes, with the name of the message's protocol.
    Quote(&'static str, Cow<'a, [u8]>),
    /// The payload of a tunnel that states an Ethertype: kind of tunnel, Ethertype, payload.
    Typed(&'static str, u16, &'a [u8]),
}

/// Source and destination port of a datagram or a segment, and its contents.
pub(crate) type Ported<'a> = Result<((u16, u16), Vec<Found<'a>>), Nothing>;

/// The parts of the surrounding IPv6 packet that decoding a message requires.
pub(crate) struct Over {
    /// Source address for the checksum's pseudo-header.
    pub(crate) source: Ipv6Addr,
    /// Destination address for the checksum's pseudo-header.
    pub(crate) destination: Ipv6Addr,
    pub(crate) hop_limit: u8,
    /// Neighbour discovery messages in fragments are discarded (RFC 6980).
    pub(crate) is_atomic_fragment: bool,
    /// Only the beginning of the packet was captured.
    pub(crate) is_cut: bool,
    /// The address in the Home Address destination option, if there is one.
    pub(crate) home_address_option: Option<Ipv6Addr>,
    /// The address in the type 2 routing header, if there is one.
    pub(crate) type_2_routing_header: Option<Ipv6Addr>,
}

impl Over {
    /// Adds the mobility headers before the message to its fields.
    pub(crate) fn add_to(&self, fields: &mut Tree) {
        for (name, home_address) in [
            ("home_address_option", self.home_address_option),
            ("type_2_routing_header", self.type_2_routing_header),
        ] {
            if let Some(home_address) = home_address {
                let address = Tree::from(home_address.to_string());
                fields.push(name, Tree::object([("home_address", address)]));
            }
        }
    }
}

/// Prefixes an error with the name of the malformed message, unless the error already begins with it.
pub(crate) fn named(name: &str, error: WireError) -> Nothing {
    let text = error.to_string();
    Nothing::Broken(if text.starts_with(name) { text } else { format!("{name}: {text}") })
}
