//! The two messages that enrol a host, on a separate QUIC connection: the anchor authenticates with its certificate,
//! the host with the token of its join line. Framing and encoding are those of [`crate::signal`].

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Version of these messages. Hosts with another version are refused.
pub const ENROL_VERSION: u16 = 1;
/// ALPN name of the connection.
pub const ALPN: &[u8] = b"segue-enrol/1";
/// Length of a token in bytes.
pub const TOKEN_LEN: usize = 16;

/// Authorizes one enrolment of a host. Secret until it is used.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(pub [u8; TOKEN_LEN]);

impl core::fmt::Debug for Token {
    /// Never shows the token.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Messages from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToEnrol {
    /// Enrols the host with a key that the host generated.
    Enrol {
        /// [`ENROL_VERSION`].
        version: u16,
        /// The host's name in its join line.
        name: String,
        /// The token in its join line.
        token: Token,
        /// The certificate request (PKCS #10, DER).
        request: Vec<u8>,
    },
}

/// Messages from the anchor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enrolled {
    /// The host is enrolled.
    Certificate {
        /// The certificate in DER.
        certificate: Vec<u8>,
    },
    /// The host is not enrolled.
    Refused {
        /// The reason.
        reason: EnrolRefusal,
    },
}

/// Why a host is not enrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnrolRefusal {
    /// The host speaks another version of the messages.
    Version {
        /// The anchor's version.
        speaks: u16,
    },
    /// No such join line: it never existed, was replaced by a later one, or its host was removed.
    Unknown,
    /// The join line was used with another key.
    Used,
    /// The join line was not used in time.
    Expired,
    /// The certificate request does not parse, or its key type is not supported.
    Request,
    /// The anchor cannot store its state or is overloaded: the host may try again.
    Later,
}

impl EnrolRefusal {
    /// Returns whether another attempt with the same join line is pointless.
    #[must_use]
    pub fn is_final(self) -> bool {
        self != EnrolRefusal::Later
    }
}

impl core::fmt::Display for EnrolRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            EnrolRefusal::Version { speaks } => {
                write!(f, "the anchor speaks version {speaks} of the enrolment")
            }
            EnrolRefusal::Unknown => f.write_str(
                "the anchor does not know this join line; a newer one took its place, or the host was removed",
            ),
            EnrolRefusal::Used => f.write_str("this join line has been used already"),
            EnrolRefusal::Expired => f.write_str("this join line was not used in time"),
            EnrolRefusal::Request => f.write_str("the anchor does not take the host's key"),
            EnrolRefusal::Later => f.write_str("the anchor cannot enrol hosts at the moment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{decode, encode};
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn messages_round_trip_and_show_no_token() {
        let ask = ToEnrol::Enrol {
            version: ENROL_VERSION,
            name: "laptop".into(),
            token: Token([0xaa; TOKEN_LEN]),
            request: vec![1, 2, 3],
        };
        let mut bytes = encode(&ask).unwrap();
        assert_eq!(decode(&mut bytes), Ok(Some(ask.clone())));
        assert!(bytes.is_empty());
        let shown = alloc::format!("{ask:?}");
        assert!(shown.contains("laptop") && !shown.contains("170"), "{shown}");
        let answer = Enrolled::Refused { reason: EnrolRefusal::Version { speaks: 9 } };
        assert_eq!(decode(&mut encode(&answer).unwrap()), Ok(Some(answer)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<ToEnrol>(&mut bytes.clone());
            let _ = decode::<Enrolled>(&mut bytes.clone());
        }
    }
}
