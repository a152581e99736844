//! Cookies, keys and nonces from a seed.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A cryptographic random number generator (ChaCha20). A daemon seeds it from the operating system, the simulator from
/// its own seed.
///
/// It keeps only the seed and its place in the sequence. The generator itself holds a buffer of 256 bytes, and a secret is
/// drawn seldom.
#[derive(Clone)]
pub struct Secrets {
    seed: [u8; 32],
    /// Number of 32-bit words drawn.
    drawn: u128,
}

impl Secrets {
    /// Creates a generator. Its output cannot be predicted without the seed.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Secrets {
        Secrets { seed, drawn: 0 }
    }

    fn draw<T>(&mut self, draw: impl FnOnce(&mut ChaCha20Rng) -> T) -> T {
        let mut generator = ChaCha20Rng::from_seed(self.seed);
        generator.set_word_pos(self.drawn);
        let drawn = draw(&mut generator);
        self.drawn = generator.get_word_pos();
        drawn
    }

    /// A cookie, never 0, because 0 marks an unset table entry.
    pub fn cookie(&mut self) -> u64 {
        loop {
            let cookie = self.draw(RngCore::next_u64);
            if cookie != 0 {
                return cookie;
            }
        }
    }

    /// A key of `N` bytes.
    pub fn key<const N: usize>(&mut self) -> [u8; N] {
        let mut key = [0; N];
        self.draw(|generator| generator.fill_bytes(&mut key));
        key
    }

    /// A seed for a generator that need not be cryptographic.
    pub fn seed(&mut self) -> u64 {
        self.draw(RngCore::next_u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three of each kind.
    fn drawn(seed: u8) -> [([u8; 16], u64, u64); 3] {
        let mut secrets = Secrets::new([seed; 32]);
        core::array::from_fn(|_| (secrets.key(), secrets.cookie(), secrets.seed()))
    }

    #[test]
    fn the_secrets_are_the_words_of_one_generator_whatever_is_drawn() {
        let (mut secrets, mut all) = (Secrets::new([7; 32]), ChaCha20Rng::from_seed([7; 32]));
        for n in 0..200 {
            let mut key = [0; 16];
            let mut odd = [0; 5];
            all.fill_bytes(&mut key);
            assert_eq!(secrets.key(), key, "{n}");
            all.fill_bytes(&mut odd);
            assert_eq!(secrets.key(), odd, "{n}");
            assert_eq!([secrets.cookie(), secrets.seed()], [all.next_u64(), all.next_u64()], "{n}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_secrets_and_no_secret_comes_twice() {
        let (one, other) = (drawn(1), drawn(2));
        assert_eq!(one, drawn(1));
        let all = || one.iter().chain(&other);
        for (i, a) in all().enumerate() {
            for b in all().skip(i + 1) {
                assert!(a.0 != b.0 && a.1 != b.1 && a.2 != b.2, "{a:?} {b:?}");
            }
            assert!(a.1 != 0 && a.1 != a.2 && a.0 != [0; 16], "{a:?}");
        }
    }
}
