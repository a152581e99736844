//! Encoding rules for values (IEEE 802.21-2008, annexes F and L; ODTONE, `archive.cpp`): a SEQUENCE is the
//! concatenation of its members, a CHOICE is a selector byte and the selected member, and a LIST is its count and the
//! elements.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};

use super::profile::BitOrder;
use crate::WireError;
use crate::layout::{Reader, Wire};

/// A value in a TLV, or a part of one.
pub(super) trait Value: Sized {
    /// Reads the value.
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError>;
    /// Appends the value's bytes.
    fn encode(&self, order: BitOrder, out: &mut Vec<u8>);
}

/// The largest length or count in the one-byte form.
const SHORT_MAX: usize = 128;
/// Maximum number of bytes in the long form. Two suffice in a frame, but leading zeros are accepted.
const LENGTH_OCTETS_MAX: u8 = 4;

/// Reads the length of a TLV or an OCTET_STRING, or the count of a LIST: one byte for values up to 128; otherwise 0x80
/// + k, then k bytes with the value minus 128.
pub(super) fn read_length(reader: &mut Reader<'_>) -> Result<usize, WireError> {
    let first = u8::read(reader)?;
    if usize::from(first) <= SHORT_MAX {
        return Ok(first.into());
    }
    let octets = first & 0x7f;
    if octets > LENGTH_OCTETS_MAX {
        return Err(WireError::Field { field: "number of length octets", got: octets.into() });
    }
    let rest = reader.take(octets.into())?;
    let rest = rest.iter().fold(0_usize, |rest, octet| rest << 8 | usize::from(*octet));
    Ok(rest.saturating_add(SHORT_MAX))
}

/// Appends a length or a count in the shortest form.
pub(super) fn write_length(length: usize, out: &mut Vec<u8>) {
    match length.checked_sub(SHORT_MAX) {
        None | Some(0) => out.push(length as u8),
        Some(rest) => {
            let octets = rest.to_be_bytes();
            let zeros = octets.iter().take_while(|octet| **octet == 0).count();
            out.push(0x80 | (octets.len() - zeros) as u8);
            out.extend(&octets[zeros..]);
        }
    }
}

/// An OCTET_STRING: the name of a function or network, usually text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OctetString(pub Vec<u8>);

impl From<&str> for OctetString {
    fn from(text: &str) -> OctetString {
        OctetString(text.as_bytes().to_vec())
    }
}

/// Serialised as text, with bytes other than printable ASCII escaped.
impl Serialize for OctetString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.escape_ascii())
    }
}

impl Value for OctetString {
    fn decode(reader: &mut Reader<'_>, _: BitOrder) -> Result<Self, WireError> {
        let length = read_length(reader)?;
        Ok(OctetString(reader.take(length)?.to_vec()))
    }

    fn encode(&self, _: BitOrder, out: &mut Vec<u8>) {
        write_length(self.0.len(), out);
        out.extend(&self.0);
    }
}

/// A LIST. A false count cannot cause a large allocation, because each element must be present.
impl<T: Value> Value for Vec<T> {
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError> {
        let count = read_length(reader)?;
        (0..count).map(|_| T::decode(reader, order)).collect()
    }

    fn encode(&self, order: BitOrder, out: &mut Vec<u8>) {
        write_length(self.len(), out);
        self.iter().for_each(|element| element.encode(order, out));
    }
}

/// A CHOICE of NULL (0) and a value (1).
impl<T: Value> Value for Option<T> {
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError> {
        match u8::read(reader)? {
            0 => Ok(None),
            1 => T::decode(reader, order).map(Some),
            got => Err(WireError::Field { field: "choice of an optional value", got: got.into() }),
        }
    }

    fn encode(&self, order: BitOrder, out: &mut Vec<u8>) {
        out.push(self.is_some().into());
        if let Some(value) = self {
            value.encode(order, out);
        }
    }
}

impl Value for bool {
    fn decode(reader: &mut Reader<'_>, _: BitOrder) -> Result<Self, WireError> {
        match u8::read(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(WireError::Field { field: "BOOLEAN", got: got.into() }),
        }
    }

    fn encode(&self, _: BitOrder, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Value for i8 {
    fn decode(reader: &mut Reader<'_>, _: BitOrder) -> Result<Self, WireError> {
        u8::read(reader).map(u8::cast_signed)
    }

    fn encode(&self, _: BitOrder, out: &mut Vec<u8>) {
        out.push(self.cast_unsigned());
    }
}

/// IP_ADDR: IANA's address family number (1 or 2), then the address as an OCTET_STRING.
impl Value for IpAddr {
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError> {
        let family = u16::read(reader)?;
        let OctetString(octets) = OctetString::decode(reader, order)?;
        let wrong = || WireError::Length { what: "IP_ADDR", got: octets.len() };
        match family {
            1 => octets
                .first_chunk()
                .filter(|_| octets.len() == 4)
                .ok_or_else(wrong)
                .map(|octets: &[u8; 4]| Ipv4Addr::from(*octets).into()),
            2 => octets
                .first_chunk()
                .filter(|_| octets.len() == 16)
                .ok_or_else(wrong)
                .map(|octets: &[u8; 16]| Ipv6Addr::from(*octets).into()),
            got => Err(WireError::Field { field: "address family of IP_ADDR", got: got.into() }),
        }
    }

    fn encode(&self, _: BitOrder, out: &mut Vec<u8>) {
        match self {
            IpAddr::V4(address) => {
                out.extend([0, 1, 4]);
                out.extend(address.octets());
            }
            IpAddr::V6(address) => {
                out.extend([0, 2, 16]);
                out.extend(address.octets());
            }
        }
    }
}

/// Implements [`Value`] for fields that do not depend on the profile.
macro_rules! plain {
    ($($plain:ty)*) => { $(
        impl $crate::mih::value::Value for $plain {
            fn decode(
                reader: &mut $crate::layout::Reader<'_>,
                _: $crate::mih::BitOrder,
            ) -> Result<Self, $crate::WireError> {
                $crate::layout::Wire::read(reader)
            }

            fn encode(&self, _: $crate::mih::BitOrder, out: &mut alloc::vec::Vec<u8>) {
                $crate::layout::Wire::write(self, out);
            }
        }
    )* };
}
pub(super) use plain;

plain!(u8 u16 u32 [u8; 3]);

/// Implements [`Value`] for structs around a BITMAP. Bit 0 is the least significant bit of the number.
macro_rules! bitmaps {
    ($($bitmap:ident)*) => { $(
        impl $crate::mih::value::Value for $bitmap {
            fn decode(
                reader: &mut $crate::layout::Reader<'_>,
                order: $crate::mih::BitOrder,
            ) -> Result<Self, $crate::WireError> {
                let bits = $crate::layout::Wire::read(reader).map(|$bitmap(bits)| bits)?;
                Ok($bitmap(match order {
                    $crate::mih::BitOrder::LeastFirst => bits,
                    $crate::mih::BitOrder::MostFirst => bits.reverse_bits(),
                }))
            }

            fn encode(&self, order: $crate::mih::BitOrder, out: &mut alloc::vec::Vec<u8>) {
                let bits = $bitmap(match order {
                    $crate::mih::BitOrder::LeastFirst => self.0,
                    $crate::mih::BitOrder::MostFirst => self.0.reverse_bits(),
                });
                $crate::layout::Wire::write(&bits, out);
            }
        }
    )* };
}
pub(super) use bitmaps;

/// Defines SEQUENCEs by their members in order.
macro_rules! sequence {
    ($( $(#[$meta:meta])* pub struct $name:ident {
        $( $(#[$field_meta:meta])* $field:ident: $ty:ty, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $ty, )*
        }

        impl $crate::mih::value::Value for $name {
            fn decode(
                reader: &mut $crate::layout::Reader<'_>,
                order: $crate::mih::BitOrder,
            ) -> Result<Self, $crate::WireError> {
                $( let $field = $crate::mih::value::Value::decode(reader, order)?; )*
                Ok($name { $($field),* })
            }

            fn encode(&self, order: $crate::mih::BitOrder, out: &mut alloc::vec::Vec<u8>) {
                $( $crate::mih::value::Value::encode(&self.$field, order, out); )*
            }
        }
    )* };
}
pub(super) use sequence;

/// Defines CHOICEs by selector bytes and members. The string is the standard's name.
macro_rules! choice {
    ($( $(#[$meta:meta])* pub enum $name:ident $text:literal {
        $( $(#[$member_meta:meta])* $selector:literal $member:ident($ty:ty), )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $( $(#[$member_meta])* $member($ty), )*
        }

        impl $crate::mih::value::Value for $name {
            fn decode(
                reader: &mut $crate::layout::Reader<'_>,
                order: $crate::mih::BitOrder,
            ) -> Result<Self, $crate::WireError> {
                match <u8 as $crate::layout::Wire>::read(reader)? {
                    $( $selector => {
                        $crate::mih::value::Value::decode(reader, order).map($name::$member)
                    } )*
                    got => Err($crate::WireError::Field {
                        field: concat!("choice of ", $text),
                        got: got.into(),
                    }),
                }
            }

            fn encode(&self, order: $crate::mih::BitOrder, out: &mut alloc::vec::Vec<u8>) {
                match self { $(
                    $name::$member(member) => {
                        out.push($selector);
                        $crate::mih::value::Value::encode(member, order, out);
                    }
                )* }
            }
        }
    )* };
}
pub(super) use choice;
