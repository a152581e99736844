//! The shared secret and the operations with it.

use alloc::vec::Vec;

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};

/// A secret shared by a client and a server.
#[derive(Clone)]
pub struct Secret {
    bytes: Vec<u8>,
    hmac: Hmac<Md5>,
}

impl Secret {
    /// Creates a secret from its bytes.
    ///
    /// # Panics
    /// Never: HMAC takes keys of every length.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Secret {
        let hmac = Hmac::new_from_slice(bytes).expect("HMAC takes keys of every length");
        Secret { bytes: bytes.to_vec(), hmac }
    }

    /// MD5 of the concatenation of `text` and the secret.
    pub(super) fn digest(&self, text: &[&[u8]]) -> [u8; 16] {
        let mut md5 = Md5::new();
        text.iter().for_each(|part| md5.update(part));
        md5.update(&self.bytes);
        md5.finalize().into()
    }

    fn over(&self, text: &[&[u8]]) -> Hmac<Md5> {
        let mut mac = self.hmac.clone();
        text.iter().for_each(|part| mac.update(part));
        mac
    }

    /// HMAC-MD5 of the concatenation of `text`.
    pub(super) fn mac(&self, text: &[&[u8]]) -> [u8; 16] {
        self.over(text).finalize().into_bytes().into()
    }

    /// Returns whether `mac` is the HMAC-MD5 of `text`. The time does not depend on the position of a difference.
    pub(super) fn verify(&self, text: &[&[u8]], mac: &[u8]) -> bool {
        self.over(text).verify_slice(mac).is_ok()
    }

    /// Hides a User-Password (RFC 2865, 5.2). Passwords are truncated to 128 bytes.
    #[must_use]
    pub fn hide(&self, password: &[u8], authenticator: &[u8; 16]) -> Vec<u8> {
        let password = &password[..password.len().min(128)];
        let mut padded = password.to_vec();
        padded.resize(password.len().div_ceil(16).max(1) * 16, 0);
        let mut before = *authenticator;
        for block in padded.chunks_exact_mut(16) {
            let mut md5 = Md5::new();
            md5.update(&self.bytes);
            md5.update(before);
            let pad: [u8; 16] = md5.finalize().into();
            block.iter_mut().zip(pad).for_each(|(octet, pad)| *octet ^= pad);
            before.copy_from_slice(block);
        }
        padded
    }
}

impl core::fmt::Debug for Secret {
    /// Never shows the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(…)")
    }
}
