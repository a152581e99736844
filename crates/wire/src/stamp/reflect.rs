//! The answers of a Session-Reflector.

use super::tlv::{
    ClassOfService, DirectMeasurement, FollowUp, HEADER_LEN, flags, is_padding, kind, tlvs,
};
use super::{ErrorEstimate, ReflectorPacket, SenderPacket, StampKey, Timestamp, half, put};
use crate::WireError;

/// A request whose length and HMAC were checked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    bytes: &'a [u8],
    key: Option<&'a StampKey>,
    /// Its base packet.
    pub packet: SenderPacket,
}

/// The reflector's state and the facts about a request's arrival.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// T2 in NTP format.
    pub receive: Timestamp,
    /// TTL or hop limit of the request on arrival.
    pub ttl: u8,
    /// DSCP and ECN of the request on arrival, as in the IP header.
    pub tos: u8,
    /// Accuracy of the reflector's clock.
    pub error: ErrorEstimate,
    /// Next sequence number of the session; `None` for a stateless reflector, which repeats the sender's.
    pub seq: Option<u32>,
    /// Packets received in the session, including this one.
    pub received: u32,
    /// Packets sent in the session, including the answer.
    pub sent: u32,
    /// The previous answer of the session, if any.
    pub follow_up: Option<FollowUp>,
    /// Bit *n* is set if answers may use DSCP *n*.
    pub dscps: u64,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its length, equal to that of the request.
    pub len: usize,
    /// The DSCP for sending it.
    pub dscp: u8,
}

impl<'a> Request<'a> {
    /// Checks the length and HMAC of a UDP payload.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Mac`].
    pub fn open(bytes: &'a [u8], key: Option<&'a StampKey>) -> Result<Request<'a>, WireError> {
        let (packet, _) = SenderPacket::parse(bytes, key)?;
        Ok(Request { bytes, key, packet })
    }

    /// Writes the answer to the start of `out`; `None` if `out` is shorter than the request. `transmit` returns T3 in
    /// NTP format, and is called as late as possible.
    #[must_use]
    pub fn answer(
        &self,
        facts: &Facts,
        transmit: impl FnOnce() -> Timestamp,
        out: &mut [u8],
    ) -> Option<Answer> {
        let len = self.bytes.len();
        let out = out.get_mut(..len)?;
        out.copy_from_slice(self.bytes);
        let seq = facts.seq.unwrap_or(self.packet.seq);
        let (base, rest) = out.split_at_mut(len.min(super::base_len(self.key)));
        let mut dscp = facts.tos >> 2;
        if !is_padding(rest) {
            self.extend(rest, seq, facts, &mut dscp);
        }
        let packet = ReflectorPacket {
            seq,
            timestamp: transmit(),
            error: facts.error,
            ssid: self.packet.ssid,
            receive: facts.receive,
            sender_seq: self.packet.seq,
            sender_timestamp: self.packet.timestamp,
            sender_error: self.packet.error,
            sender_ttl: facts.ttl,
        };
        packet.emit(self.key, base)?;
        Some(Answer { len, dscp })
    }

    /// Fills in the extensions; `rest` is a copy of those in the request.
    fn extend(&self, rest: &mut [u8], seq: u32, facts: &Facts, dscp: &mut u8) {
        let sealed = match verify(rest, self.packet.seq, self.key) {
            Ok(sealed) => sealed,
            Err(WireError::Mac) => {
                return each(rest, |head, _, _| {
                    *head = flags::INTEGRITY;
                    true
                });
            }
            Err(_) => None,
        };
        each(rest, |head, kind, value| {
            *head = fill(kind, value, facts, dscp);
            *head != flags::MALFORMED
        });
        if let (Some(at), Some(key)) = (sealed, self.key) {
            let mac = key.mac(&[&seq.to_be_bytes(), &rest[..at]]);
            put(rest, at + HEADER_LEN, &mac);
        }
    }
}

/// Checks the HMAC of the extensions and returns the offset of its TLV.
///
/// # Errors
/// [`WireError::Mac`] if the HMAC is wrong, missing or misplaced.
pub(super) fn verify(
    rest: &[u8],
    seq: u32,
    key: Option<&StampKey>,
) -> Result<Option<usize>, WireError> {
    let (mut at, mut sealed, mut count, mut padding) = (0, None, 0, 0);
    for tlv in tlvs(rest) {
        let Ok(tlv) = tlv else {
            // The bytes behind it cannot be parsed. Without a key there was nothing to check.
            return if key.is_some() || sealed.is_some() { Err(WireError::Mac) } else { Ok(None) };
        };
        count += 1;
        padding += usize::from(tlv.kind == kind::EXTRA_PADDING);
        match (tlv.kind, sealed) {
            (kind::HMAC, None) => {
                let key = key.ok_or(WireError::Mac)?;
                if !key.verify(&[&seq.to_be_bytes(), &rest[..at]], tlv.value) {
                    return Err(WireError::Mac);
                }
                sealed = Some(at);
            }
            (kind::EXTRA_PADDING, _) | (_, None) => {}
            _ => return Err(WireError::Mac),
        }
        at += HEADER_LEN + tlv.value.len();
    }
    // "with the sole exception of when there is only one TLV present and it is the [Extra] Padding
    // TLV" (RFC 8972, 4.8)
    if key.is_some() && sealed.is_none() && !(count == 1 && padding == 1) {
        return Err(WireError::Mac);
    }
    Ok(sealed)
}

/// Calls `change` with the flags, type and value of each extension until it returns false. An extension that does not
/// fit is marked as malformed, and everything behind it stays unchanged.
fn each(rest: &mut [u8], mut change: impl FnMut(&mut u8, u8, &mut [u8]) -> bool) {
    let mut at = 0;
    while at < rest.len() {
        let tlv = &mut rest[at..];
        let end = tlv.get(..HEADER_LEN).map(|head| HEADER_LEN + usize::from(half(head, 2)));
        let Some(end) = end.filter(|end| *end <= tlv.len()) else {
            tlv[0] = flags::MALFORMED;
            return;
        };
        let (head, value) = tlv[..end].split_at_mut(HEADER_LEN);
        let kind = head[1];
        if !change(&mut head[0], kind, value) {
            return;
        }
        at += end;
    }
}

/// Fills in one extension and returns its flags.
fn fill(kind: u8, value: &mut [u8], facts: &Facts, dscp: &mut u8) -> u8 {
    let known = match kind {
        kind::EXTRA_PADDING => Some(()),
        kind::CLASS_OF_SERVICE => class_of_service(value, facts, dscp),
        kind::DIRECT_MEASUREMENT => direct_measurement(value, facts),
        kind::FOLLOW_UP => follow_up(value, facts),
        kind::HMAC => (value.len() == StampKey::MAC_LEN).then_some(()),
        _ => return flags::UNRECOGNISED,
    };
    if known.is_some() { 0 } else { flags::MALFORMED }
}

fn class_of_service(value: &mut [u8], facts: &Facts, dscp: &mut u8) -> Option<()> {
    let asked = ClassOfService::parse(value)?;
    let permitted = facts.dscps >> asked.dscp1 & 1 != 0;
    if permitted {
        *dscp = asked.dscp1;
    }
    let told = ClassOfService {
        dscp1: asked.dscp1,
        dscp2: facts.tos >> 2,
        ecn: facts.tos & 3,
        rp: u8::from(!permitted),
    };
    value.copy_from_slice(&told.emit());
    Some(())
}

fn direct_measurement(value: &mut [u8], facts: &Facts) -> Option<()> {
    let asked = DirectMeasurement::parse(value)?;
    let (reflector_rx, reflector_tx) = (facts.received, facts.sent);
    let told = DirectMeasurement { reflector_rx, reflector_tx, ..asked };
    value.copy_from_slice(&told.emit());
    Some(())
}

fn follow_up(value: &mut [u8], facts: &Facts) -> Option<()> {
    if value.len() != FollowUp::LEN {
        // "MUST zero the Sequence Number and Follow-Up Timestamp fields" (RFC 8972, 4.7)
        let fields = value.len().min(12);
        value[..fields].fill(0);
        return None;
    }
    let told = facts.follow_up.filter(|_| facts.seq.is_some()).unwrap_or_default();
    value.copy_from_slice(&told.emit());
    Some(())
}
