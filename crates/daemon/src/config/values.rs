//! Values of the daemons' files.

use std::fmt;

use anyhow::bail;
use segue_grammar::described;
use serde::Deserialize;
use serde::de::{Error, Unexpected, Visitor};

/// Defines a text with a default, and the kind of text in one word.
macro_rules! text_key {
    ($name:ident, $value:literal, $default:literal) => {
        #[doc = concat!("A ", $value, ".")]
        #[derive(
            Clone, Debug, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema,
        )]
        #[serde(transparent)]
        #[schemars(inline, extend("x-value" = $value))]
        struct $name(String);

        impl Default for $name {
            fn default() -> $name {
                $name($default.into())
            }
        }
    };
}

pub(super) use text_key;

/// Checks that a link-layer address is of one interface, and not a group address, which never sends.
pub(super) fn one_station(text: &str, address: &[u8]) -> anyhow::Result<()> {
    if address.first().is_some_and(|first| first & 1 == 1) {
        bail!("{text} is the address of a group, not of one interface");
    }
    Ok(())
}

/// A service: off, on, or on this port, as in `true` or `8862`. The parameter is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnPort<const DEFAULT: bool> {
    /// Off.
    Off,
    /// On its usual port.
    Usual,
    /// On this one.
    Port(u16),
}

impl<const DEFAULT: bool> OnPort<DEFAULT> {
    /// The port, if the service runs; `usual` is its usual one.
    pub(super) fn port(self, usual: u16) -> Option<u16> {
        match self {
            OnPort::Off => None,
            OnPort::Usual => Some(usual),
            OnPort::Port(port) => Some(port),
        }
    }
}

impl<const DEFAULT: bool> Default for OnPort<DEFAULT> {
    fn default() -> Self {
        if DEFAULT { OnPort::Usual } else { OnPort::Off }
    }
}

struct OnPortVisitor<const DEFAULT: bool>;

impl<const DEFAULT: bool> Visitor<'_> for OnPortVisitor<DEFAULT> {
    type Value = OnPort<DEFAULT>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("true, false or a port from 1 to 65535")
    }
    fn visit_bool<E: Error>(self, on: bool) -> Result<Self::Value, E> {
        Ok(if on { OnPort::Usual } else { OnPort::Off })
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        port.map(OnPort::Port).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

impl<'de, const DEFAULT: bool> Deserialize<'de> for OnPort<DEFAULT> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnPortVisitor)
    }
}

described!(@[const DEFAULT: bool] OnPort<DEFAULT>, {
    "type": ["boolean", "integer"],
    "minimum": 1,
    "maximum": 65_535,
    "x-value": "true, false, port",
    "x-default": DEFAULT,
});
