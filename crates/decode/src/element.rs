//! What is said of a message.

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
    /// When it was captured, in UTC. None of digits, and where a capture does not say.
    pub time: Option<String>,
    /// Source address on the wire, with its port if there is one: of the header next to the message, which is that of
    /// the link for an MIH frame behind it. None of a message that was given by itself.
    pub source: Option<String>,
    /// Destination on the wire.
    pub destination: Option<String>,
    /// The tunnels around it, outermost first.
    pub within: Vec<Within>,
    /// The name that its RFC gives it. `None`: nothing to decode here, or it is broken.
    pub message: Option<&'static str>,
    /// Its fields by their RFC's names.
    pub fields: Tree,
    /// Whether what was read is written as the same bytes.
    pub reencodes: bool,
    /// What there is of the packet, where that is not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Why there is no message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the packet is, where it is none of ours.
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
    /// Its form.
    pub tunnel: &'static str,
    /// The outer source.
    pub source: String,
    /// The outer destination.
    pub destination: String,
}

/// Why there is no message.
#[derive(Debug)]
pub(crate) enum Nothing {
    /// Something else is there: of which kind, as packets are counted, and what precisely.
    Other { kind: String, what: String },
    /// What should be a message, or lead to one, cannot be read.
    Broken(String),
}

impl Nothing {
    pub(crate) fn other(kind: &str, what: &str) -> Nothing {
        Nothing::Other { kind: kind.to_owned(), what: what.to_owned() }
    }
}

/// What a decoder makes of bytes: a message, or why there is none.
pub(crate) type Outcome = Result<Decoded, Nothing>;

/// A message without its surroundings.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) message: &'static str,
    pub(crate) fields: Tree,
    pub(crate) reencodes: bool,
}

/// Addresses on the wire, with ports where there are any.
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

/// What a datagram, a segment or a tunnel holds.
pub(crate) enum Found<'a> {
    /// A message, or why there is none.
    Message(Outcome),
    /// A packet in a tunnel of this form.
    Inner(&'static str, Cow<'a, [u8]>),
    /// The beginning of a packet, quoted by such a message.
    Quote(&'static str, Cow<'a, [u8]>),
    /// What is behind such a tunnel's header, by its Ethertype.
    Typed(&'static str, u16, &'a [u8]),
}

/// The ports of a datagram or a segment, and what it holds.
pub(crate) type Ported<'a> = Result<((u16, u16), Vec<Found<'a>>), Nothing>;

/// What a message takes from the IPv6 packet that it is in.
pub(crate) struct Over {
    /// The source that checksums count.
    pub(crate) source: Ipv6Addr,
    /// The destination that checksums count.
    pub(crate) destination: Ipv6Addr,
    pub(crate) hop_limit: u8,
    /// Neighbour discovery is void in it.
    pub(crate) is_atomic_fragment: bool,
    /// Of the packet, only the beginning is there.
    pub(crate) is_cut: bool,
    /// The address in such an option.
    pub(crate) home_address_option: Option<Ipv6Addr>,
    /// The address in such a header.
    pub(crate) type_2_routing_header: Option<Ipv6Addr>,
}

impl Over {
    /// Adds the headers that mobility puts before a message to its fields.
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

/// An error with the name of what is broken, which many errors begin with.
pub(crate) fn named(name: &str, error: WireError) -> Nothing {
    let text = error.to_string();
    Nothing::Broken(if text.starts_with(name) { text } else { format!("{name}: {text}") })
}
