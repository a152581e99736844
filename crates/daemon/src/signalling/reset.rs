//! Stateless resets that hosts accept from a restarted anchor (RFC 9000, section 10.3).
//!
//! The tokens derive from the anchor's secret, which survives a restart. Connection IDs are random and not tied to a
//! key, so the anchor also answers the IDs of an earlier run.

use std::time::Duration;

use anyhow::Context;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator};
use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::ring::default_provider;
use rustls::crypto::tls13::{Hkdf, OkmBlock};

use crate::identity::Authority;

/// Bytes of a connection ID.
const ID_BYTES: usize = 8;
/// Bytes of an HMAC-SHA-256.
const TAG_BYTES: usize = 32;

/// The key of an anchor's reset tokens.
pub(super) struct Key {
    hkdf: &'static dyn Hkdf,
    key: OkmBlock,
}

impl Key {
    /// Derived from the anchor's private key.
    pub(super) fn of(authority: &Authority) -> anyhow::Result<Key> {
        // Another kind exists only with TLS 1.2 compiled in.
        #[allow(unreachable_patterns)]
        let suite = match TLS13_AES_128_GCM_SHA256 {
            SupportedCipherSuite::Tls13(suite) => Some(suite),
            _ => None,
        };
        let hkdf = suite.context("no TLS 1.3")?.hkdf_provider;
        let expander = hkdf.extract_from_secret(None, &authority.anchor.key);
        Ok(Key { hkdf, key: expander.expand_block(&[b"segue stateless reset"]) })
    }
}

impl HmacKey for Key {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        let tag = self.hkdf.hmac_sign(&self.key, data);
        signature_out.copy_from_slice(tag.as_ref());
    }

    fn signature_len(&self) -> usize {
        TAG_BYTES
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let tag = self.hkdf.hmac_sign(&self.key, data);
        let differ = tag.as_ref().iter().zip(signature).fold(0, |all, (a, b)| all | (a ^ b));
        let same = differ == 0 && signature.len() == TAG_BYTES;
        if same { Ok(()) } else { Err(CryptoError) }
    }
}

/// Random connection IDs.
pub(super) struct AnyId;

impl ConnectionIdGenerator for AnyId {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        default_provider().secure_random.fill(&mut id).expect("the system gives random numbers");
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
