//! The location of an anchor: an address, or a name that resolves to addresses.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest name (RFC 1035, 2.3.4), and longest label of it.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// An anchor's signalling address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// An address with its port.
    Address(SocketAddr),
    /// A name in the DNS, and the port.
    Name(String, u16),
}

impl Locator {
    /// Reads `ADDR`, `ADDR:PORT`, `[ADDR]:PORT`, `NAME` or `NAME:PORT`; `port` is the default.
    ///
    /// # Errors
    /// The text has none of these forms.
    pub fn parse(text: &str, port: u16) -> anyhow::Result<Locator> {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Locator::Address(SocketAddr::new(ip, port)));
        }
        if let Ok(address) = text.parse() {
            return Ok(Locator::Address(address));
        }
        let neither = || format!("{text:?} is neither an address nor a name, with or without port");
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, port.parse().with_context(neither)?),
            None => (text, port),
        };
        if !is_name(name) {
            bail!(neither());
        }
        Ok(Locator::Name(name.trim_end_matches('.').to_ascii_lowercase(), port))
    }
}

/// Returns whether this can be a host's name (RFC 1123, 2.1, and underscores). Text that ends in digits is a mistyped
/// address.
fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= MAX_LABEL
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(fits)
    };
    let digits = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    text.len() <= MAX_NAME
        && text.split('.').all(label)
        && !text.rsplit('.').next().is_some_and(digits)
}

impl From<SocketAddr> for Locator {
    fn from(address: SocketAddr) -> Locator {
        Locator::Address(address)
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locator::Address(address) => address.fmt(f),
            Locator::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// The form in a join line and in the host's state. The first two variants match serde's `SocketAddr`, which earlier
/// versions stored.
#[derive(Serialize, Deserialize)]
enum Stored {
    V4(SocketAddrV4),
    V6(SocketAddrV6),
    Name(String, u16),
}

impl Serialize for Locator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        match self.clone() {
            Locator::Address(SocketAddr::V4(v4)) => Stored::V4(v4),
            Locator::Address(SocketAddr::V6(v6)) => Stored::V6(v6),
            Locator::Name(name, port) => Stored::Name(name, port),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Locator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Locator, D::Error> {
        use serde::de::Error;
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            return Locator::parse(&text, segue_wire::SIGNAL_PORT).map_err(D::Error::custom);
        }
        match Stored::deserialize(deserializer)? {
            Stored::V4(v4) => Ok(Locator::Address(v4.into())),
            Stored::V6(v6) => Ok(Locator::Address(v6.into())),
            Stored::Name(name, port) if is_name(&name) => Ok(Locator::Name(name, port)),
            Stored::Name(name, _) => Err(D::Error::custom(format!("{name:?} is no name"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Locator::parse(text, 5_006).ok().map(|locator| locator.to_string())
    }

    #[test]
    fn addresses_and_names_are_read_with_and_without_port() {
        for (text, means) in [
            ("192.0.2.1", "192.0.2.1:5006"),
            ("192.0.2.1:7", "192.0.2.1:7"),
            ("2001:db8::1", "[2001:db8::1]:5006"),
            ("[2001:db8::1]", "[2001:db8::1]:5006"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
            ("anchor.Example.net", "anchor.example.net:5006"),
            ("anchor.example.net.:7", "anchor.example.net:7"),
            ("router", "router:5006"),
            ("7_of-9.example", "7_of-9.example:5006"),
        ] {
            assert_eq!(read(text).as_deref(), Some(means), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = ["abcdefg."; 32].concat() + "example";
        for text in [
            "",
            ".",
            "a..b",
            "-a.example",
            "a-.example",
            "a b",
            "a/b",
            "ä.example",
            "name:",
            "name:65536",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.1:65536",
            "name:7:8",
            "\u{1b}[2J",
            &long,
            &longer,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_are_stored_as_they_were_before_there_were_names() {
        for text in ["192.0.2.1:5006", "[2001:db8::1]:7"] {
            let former: SocketAddr = text.parse().unwrap();
            let locator = Locator::Address(former);
            assert_eq!(postcard::to_allocvec(&locator), postcard::to_allocvec(&former));
        }
        for text in ["192.0.2.1:5006", "[2001:db8::1]:7", "anchor.example.net:8"] {
            let locator = Locator::parse(text, 0).unwrap();
            let bytes = postcard::to_allocvec(&locator).unwrap();
            assert_eq!(postcard::from_bytes(&bytes), Ok(locator.clone()));
            let json = serde_json::to_string(&locator).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Locator>(&json).unwrap(), locator);
        }
        let forged = postcard::to_allocvec(&(2u8, "\u{1b}[2J", 7u16)).unwrap();
        assert!(postcard::from_bytes::<Locator>(&forged).is_err());
    }
}
