//! What a parser refuses, with the value it refused.

use core::fmt;

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the format needs.
    TooShort {
        /// The format that was expected.
        what: &'static str,
        /// Bytes present.
        got: usize,
        /// Bytes needed.
        min: usize,
    },
    /// A length that the format does not have, or one that disagrees with the bytes present.
    Length {
        /// The format that was expected.
        what: &'static str,
        /// The length found, in bytes.
        got: usize,
    },
    /// A version that this program does not speak.
    Version {
        /// The version found.
        got: u8,
    },
    /// A packet type without a meaning.
    Type {
        /// The type found.
        got: u8,
    },
    /// A field that must be zero is not, or holds a value without a meaning.
    Field {
        /// The field's name.
        field: &'static str,
        /// The value found.
        got: u32,
    },
    /// The probe's authenticator is wrong.
    Mac,
    /// A signalling message does not decode.
    Signal,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::TooShort { what, got, min } => {
                write!(f, "{what}: {got} bytes, at least {min} needed")
            }
            WireError::Length { what, got } => {
                write!(f, "{what}: a length of {got} bytes is wrong")
            }
            WireError::Version { got } => write!(f, "version {got} is not known"),
            WireError::Type { got } => write!(f, "packet type {got} is not known"),
            WireError::Field { field, got } => write!(f, "field {field} holds {got}"),
            WireError::Mac => write!(f, "the probe's authenticator is wrong"),
            WireError::Signal => write!(f, "signalling message does not decode"),
        }
    }
}

impl core::error::Error for WireError {}
