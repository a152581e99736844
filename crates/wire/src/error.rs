//! Parse errors, with the offending value.

use core::fmt;

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the format requires.
    TooShort {
        /// Name of the format.
        what: &'static str,
        /// Bytes present.
        got: usize,
        /// Bytes needed.
        min: usize,
    },
    /// A length that the format does not allow, or that disagrees with the bytes present.
    Length {
        /// Name of the format.
        what: &'static str,
        /// The length found, in bytes.
        got: usize,
    },
    /// An unsupported version.
    Version {
        /// The version found.
        got: u8,
    },
    /// An unknown packet type.
    Type {
        /// The type found.
        got: u8,
    },
    /// A field that must be zero is not, or its value is undefined.
    Field {
        /// The field's name.
        field: &'static str,
        /// The value found.
        got: u32,
    },
    /// The authenticator is wrong.
    Mac,
    /// A signalling message cannot be encoded or decoded.
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
