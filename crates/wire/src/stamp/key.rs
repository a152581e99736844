//! Integrity protection: HMAC-SHA-256 truncated to 128 bits (RFC 8762, 4.4).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key shared by both ends of a session.
#[derive(Clone)]
pub struct StampKey(Hmac<Sha256>);

impl StampKey {
    /// Length of an HMAC in bytes.
    pub(super) const MAC_LEN: usize = 16;

    /// Creates a key from bytes of any length; RFC 2104 recommends at least 32 bytes for SHA-256.
    ///
    /// # Panics
    /// Never: HMAC takes keys of every length.
    #[must_use]
    pub fn new(secret: &[u8]) -> StampKey {
        StampKey(Hmac::new_from_slice(secret).expect("HMAC takes keys of every length"))
    }

    fn over(&self, text: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        text.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The HMAC of the concatenation of `text`.
    #[must_use]
    pub(super) fn mac(&self, text: &[&[u8]]) -> [u8; StampKey::MAC_LEN] {
        let whole: [u8; 32] = self.over(text).finalize().into_bytes().into();
        core::array::from_fn(|i| whole[i])
    }

    /// Returns whether `mac` is the HMAC of `text`. The time does not depend on the position of a difference.
    #[must_use]
    pub(super) fn verify(&self, text: &[&[u8]], mac: &[u8]) -> bool {
        mac.len() == StampKey::MAC_LEN && self.over(text).verify_truncated_left(mac).is_ok()
    }
}

impl core::fmt::Debug for StampKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("StampKey(…)")
    }
}
