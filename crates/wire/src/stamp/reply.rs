//! Parses answers at a Session-Sender.

use super::reflect::verify;
use super::tlv::{ClassOfService, DirectMeasurement, FollowUp, flags, is_padding, kind, tlvs};
use super::{ReflectorPacket, StampKey};
use crate::WireError;

/// An answer whose length and HMAC were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its base packet.
    pub packet: ReflectorPacket,
    /// The content of its extensions.
    pub extensions: Extensions,
}

/// The extensions that the reflector has processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Class of Service.
    pub class_of_service: Option<ClassOfService>,
    /// Direct Measurement.
    pub direct: Option<DirectMeasurement>,
    /// Follow-Up Telemetry.
    pub follow_up: Option<FollowUp>,
    /// Number of extensions with the U flag, which were skipped.
    pub unrecognised: u32,
    /// True if one had the M flag or did not fit: extensions behind it were not read.
    pub malformed: bool,
    /// True if one had the I flag or the HMAC is wrong: no extension was read.
    pub integrity: bool,
}

impl Reply {
    /// Checks and reads a UDP payload.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Mac`].
    pub fn open(bytes: &[u8], key: Option<&StampKey>) -> Result<Reply, WireError> {
        let (packet, rest) = ReflectorPacket::parse(bytes, key)?;
        let extensions =
            if is_padding(rest) { Extensions::default() } else { read(rest, packet.seq, key) };
        Ok(Reply { packet, extensions })
    }
}

fn read(rest: &[u8], seq: u32, key: Option<&StampKey>) -> Extensions {
    let mut found = Extensions::default();
    let flagged = |tlv: Result<super::tlv::Tlv<'_>, WireError>| {
        tlv.is_ok_and(|tlv| tlv.flags & flags::INTEGRITY != 0)
    };
    if tlvs(rest).any(flagged) || verify(rest, seq, key) == Err(WireError::Mac) {
        return Extensions { integrity: true, ..found };
    }
    for tlv in tlvs(rest) {
        let Some(tlv) = tlv.ok().filter(|tlv| tlv.flags & flags::MALFORMED == 0) else {
            found.malformed = true;
            break;
        };
        if tlv.flags & flags::UNRECOGNISED != 0 {
            found.unrecognised += 1;
            continue;
        }
        let taken = match tlv.kind {
            kind::CLASS_OF_SERVICE => {
                found.class_of_service = ClassOfService::parse(tlv.value);
                found.class_of_service.is_some()
            }
            kind::DIRECT_MEASUREMENT => {
                found.direct = DirectMeasurement::parse(tlv.value);
                found.direct.is_some()
            }
            kind::FOLLOW_UP => {
                found.follow_up = FollowUp::parse(tlv.value);
                found.follow_up.is_some()
            }
            _ => true,
        };
        if !taken {
            found.malformed = true;
            break;
        }
    }
    found
}
