//! Cookies and probe keys, from a seed given at construction.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A cryptographic generator (ChaCha20). A daemon seeds it from the system, the simulator from its
/// own seed.
#[derive(Clone)]
pub(crate) struct Secrets(ChaCha20Rng);

impl Secrets {
    pub(crate) fn new(seed: [u8; 32]) -> Secrets {
        Secrets(ChaCha20Rng::from_seed(seed))
    }

    /// A cookie, never zero: zero is what an unset table entry holds.
    pub(crate) fn cookie(&mut self) -> u64 {
        loop {
            let cookie = self.0.next_u64();
            if cookie != 0 {
                return cookie;
            }
        }
    }

    pub(crate) fn key(&mut self) -> [u8; 16] {
        let mut key = [0; 16];
        self.0.fill_bytes(&mut key);
        key
    }

    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }
}
