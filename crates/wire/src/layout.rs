//! Formats as lists of fields: one definition serves reading and writing.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serializer;

use crate::WireError;

/// Reads the bytes of one format from front to back.
pub(crate) struct Reader<'a> {
    /// Name of the format, for errors.
    pub(crate) what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at offset `at`; earlier bytes count as read.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { what, bytes, at: at.min(bytes.len()) }
    }

    /// Offset of the next field.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Takes the next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (got, min) = (self.bytes.len(), self.at.saturating_add(n));
        let field = self.bytes.get(self.at..min);
        let field = field.ok_or(WireError::TooShort { what: self.what, got, min })?;
        self.at = min;
        Ok(field)
    }

    /// Number of bytes left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Takes all bytes left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// The error that the format does not allow this length.
    pub(crate) fn wrong_length(&self) -> WireError {
        WireError::Length { what: self.what, got: self.bytes.len() }
    }

    /// Fails if bytes are left.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.left() == 0 { Ok(()) } else { Err(self.wrong_length()) }
    }
}

/// A field or a list of fields.
pub(crate) trait Wire: Sized {
    /// Reads the value.
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError>;
    /// Appends the value's bytes.
    fn write(&self, out: &mut Vec<u8>);
}

impl<const N: usize> Wire for [u8; N] {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut field = [0; N];
        field.copy_from_slice(reader.take(N)?);
        Ok(field)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
}

/// All bytes left.
impl Wire for Vec<u8> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(reader.rest().to_vec())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
}

/// All bytes left, as 16-bit numbers.
impl Wire for Vec<u16> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        if !reader.left().is_multiple_of(2) {
            return Err(reader.wrong_length());
        }
        let words = reader.rest().chunks_exact(2);
        Ok(words.map(|word| u16::from_be_bytes([word[0], word[1]])).collect())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.iter().flat_map(|word| word.to_be_bytes()));
    }
}

/// A value, if any bytes are left.
impl<T: Wire> Wire for Option<T> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        if reader.left() == 0 { Ok(None) } else { T::read(reader).map(Some) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(field) = self {
            field.write(out);
        }
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl Wire for $number {
            fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                Ok(<$number>::from_be_bytes(Wire::read(reader)?))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }
        }
    )* };
}
numbers!(u8 u16 u32 u64);

macro_rules! addresses {
    ($($address:ty: $octets:literal,)*) => { $(
        impl Wire for $address {
            fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                Ok(<$address>::from(<[u8; $octets]>::read(reader)?))
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.octets());
            }
        }
    )* };
}
addresses!(Ipv4Addr: 4, Ipv6Addr: 16,);

/// All bytes left; their number determines the address family.
impl Wire for IpAddr {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match reader.left() {
            4 => Ipv4Addr::read(reader).map(IpAddr::V4),
            16 => Ipv6Addr::read(reader).map(IpAddr::V6),
            _ => Err(reader.wrong_length()),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            IpAddr::V4(address) => address.write(out),
            IpAddr::V6(address) => address.write(out),
        }
    }
}

/// Defines structs by their fields on the wire, in order. `[n]` before a field, or after the last one behind a
/// semicolon, stands for `n` reserved bytes: sent as zeros, ignored on receipt.
macro_rules! layout {
    ($( $(#[$meta:meta])* pub struct $name:ident {
        $( $(#[$field_meta:meta])* $([$reserved:literal])? $field:ident: $ty:ty ),* $(,)?
        $(; [$tail:literal])?
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $ty, )*
        }

        impl $crate::layout::Wire for $name {
            fn read(
                reader: &mut $crate::layout::Reader<'_>,
            ) -> Result<Self, $crate::WireError> {
                $( $( reader.take($reserved)?; )? let $field = $crate::layout::Wire::read(reader)?; )*
                $( reader.take($tail)?; )?
                let _ = reader;
                Ok($name { $($field),* })
            }

            fn write(&self, out: &mut alloc::vec::Vec<u8>) {
                $(
                    $( out.extend([0; $reserved]); )?
                    $crate::layout::Wire::write(&self.$field, out);
                )*
                $( out.extend([0; $tail]); )?
                let _ = out;
            }
        }
    )* };
}
pub(crate) use layout;

/// Defines a word of flags. A flag is displayed as the letter from its RFC. `[mask = value]` behind the letter states
/// the other flags that must be set or clear for the bit to have this meaning.
macro_rules! flags {
    ($( $(#[$meta:meta])* pub struct $name:ident($int:ty) {
        $( $(#[$flag_meta:meta])* $flag:ident = $bit:literal $letter:literal
            $([$mask:literal = $value:literal])?, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $int);

        impl $name {
            $( $(#[$flag_meta])* pub const $flag: $name = $name($bit); )*

            /// Returns whether all these flags are set.
            #[must_use]
            pub const fn contains(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// The letters of the set flags in the order of the bits; unknown bits as one number.
            pub fn letters(self) -> impl Iterator<Item = alloc::borrow::Cow<'static, str>> {
                let known = [$( ($bit, $letter, (0 $(| $mask)?, 0 $(| $value)?)) ),*];
                let set = move |bit: $int, (mask, value): ($int, $int)| {
                    self.0 & bit != 0 && self.0 & mask == value
                };
                let rest = known.iter().fold(self.0, |rest, (bit, ..)| rest & !bit);
                let letters = known.into_iter().filter(move |(bit, _, when)| set(*bit, *when));
                let rest = (rest != 0).then(|| alloc::format!("{rest:#x}").into());
                letters.map(|(_, letter, _)| letter.into()).chain(rest)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.letters())
            }
        }

        $crate::layout::number!($name);
    )* };
}
pub(crate) use flags;

/// First character of a newtype's serialised name if that is the name of its value.
pub const VALUE_NAME: char = '=';

/// Defines a code with the RFC's names for its values. It is serialised as a newtype that is named after its value, if
/// that has a name ([`VALUE_NAME`]). Most formats ignore the name of a newtype; a serialiser for human-readable output
/// shows it.
macro_rules! codes {
    ($( $(#[$meta:meta])* pub struct $name:ident($int:ty) {
        $( $(#[$code_meta:meta])* $code:ident = $value:literal $text:literal, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let name = match self.0 {
                    $( $value => concat!("=", $text), )*
                    _ => stringify!($name),
                };
                serializer.serialize_newtype_struct(name, &self.0)
            }
        }

        impl $name {
            $( $(#[$code_meta])* #[doc = $text] pub const $code: $name = $name($value); )*

            /// The value's name, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some($text), )*
                    _ => None,
                }
            }
        }

        $crate::layout::number!($name);
    )* };
}
pub(crate) use codes;

/// Implements [`Wire`] for a struct around a number.
macro_rules! number {
    ($name:ident) => {
        impl $crate::layout::Wire for $name {
            fn read(reader: &mut $crate::layout::Reader<'_>) -> Result<Self, $crate::WireError> {
                Ok($name($crate::layout::Wire::read(reader)?))
            }

            fn write(&self, out: &mut alloc::vec::Vec<u8>) {
                $crate::layout::Wire::write(&self.0, out);
            }
        }
    };
}
pub(crate) use number;

/// Serialises bytes as hexadecimal digits.
pub(crate) fn hex<S: Serializer>(
    bytes: &impl AsRef<[u8]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: String = digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect();
    serializer.serialize_str(&text)
}

/// Serialises a value as its display text.
pub(crate) fn text<S: Serializer>(
    value: &impl core::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
