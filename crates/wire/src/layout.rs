//! Formats as lists of fields: what reads a field writes it too.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serializer;

use crate::WireError;

/// Reads one format's bytes from front to back.
pub(crate) struct Reader<'a> {
    /// The format's name, for errors.
    pub(crate) what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins at `at`, which counts as read.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { what, bytes, at: at.min(bytes.len()) }
    }

    /// Where the next field begins.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (got, min) = (self.bytes.len(), self.at.saturating_add(n));
        let field = self.bytes.get(self.at..min);
        let field = field.ok_or(WireError::TooShort { what: self.what, got, min })?;
        self.at = min;
        Ok(field)
    }

    /// Octets that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// The length of these bytes is none that the format has.
    pub(crate) fn wrong_length(&self) -> WireError {
        WireError::Length { what: self.what, got: self.bytes.len() }
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.left() == 0 { Ok(()) } else { Err(self.wrong_length()) }
    }
}

/// A field, or a list of fields.
pub(crate) trait Wire: Sized {
    /// Takes it from the bytes.
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError>;
    /// Appends its bytes.
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

/// All bytes that are left.
impl Wire for Vec<u8> {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(reader.rest().to_vec())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
}

/// All numbers that are left.
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

/// All that is left, if there is anything.
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

/// Of the family that the number of octets left says, which are all read.
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

/// Defines structs by their fields on the wire, in order. `[n]` before a field, or behind all after a semicolon, is
/// `n` reserved octets: sent as zeros, ignored when read.
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

/// Defines a word of flags. A flag is shown by the letter that its RFC gives it; `[mask = value]` behind the letter
/// says which other flags must be how for the bit to have this meaning.
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

            /// Whether all these flags are set.
            #[must_use]
            pub const fn contains(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// The letters of the set flags, in the order of the bits; bits without a meaning as a number.
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

/// Begins the name of a serialised newtype where that is the name of its value.
pub const VALUE_NAME: char = '=';

/// Defines a code with the names that RFCs give its values. It is serialised as a newtype, named after its value where
/// that has a name ([`VALUE_NAME`]): most formats ignore the name of a newtype, and a serialiser for people shows it.
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

/// Makes a struct around a number a field.
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

/// Shows bytes as hexadecimal digits.
pub(crate) fn hex<S: Serializer>(
    bytes: &impl AsRef<[u8]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: String = digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect();
    serializer.serialize_str(&text)
}

/// Shows a value as the text that it prints as.
pub(crate) fn text<S: Serializer>(
    value: &impl core::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
