//! A sequence of nonces.

use alloc::collections::VecDeque;

use segue_clock::{Span, Time};

use crate::Secrets;

/// A nonce of a correspondent node.
pub type Nonce = [u8; 8];

/// The nonces from which a correspondent node derives its keygen tokens (RFC 6275, section 5.2.2), by index: the
/// current one and its predecessors that are still valid. They let a correspondent node verify a token without storing
/// state for each peer.
///
/// A nonce is used for 30 s and valid for MAX_NONCE_LIFETIME, 240 s, so a token stays valid for at least
/// MAX_TOKEN_LIFETIME, 210 s. There are at most eight nonces, and without requests there is nothing to do.
#[derive(Clone)]
pub struct Nonces {
    secrets: Secrets,
    /// Index of the newest nonce; before the first one, its predecessor. Starts at a random value, so that an index
    /// from before a restart is probably invalid.
    index: u16,
    /// Consecutive nonces with the start of their use; the newest is last.
    kept: VecDeque<(Time, Nonce)>,
}

/// The nonce with this index is no longer valid, or never was (RFC 6275, section 9.5.1: status 136 for the home nonce
/// index, 137 for the care-of nonce index, 138 for both).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceExpired;

/// How long new tokens are derived from a nonce.
const USED: Span = Span::from_secs(30);
/// MAX_NONCE_LIFETIME.
const LIFETIME: Span = Span::from_secs(240);

impl Nonces {
    /// Creates an empty sequence.
    #[must_use]
    pub fn new(mut secrets: Secrets) -> Nonces {
        let index = secrets.seed() as u16;
        Nonces { secrets, index, kept: VecDeque::new() }
    }

    /// The nonce for tokens issued at `now`, and its index.
    pub fn current(&mut self, now: Time) -> (u16, Nonce) {
        while self.kept.front().is_some_and(|(since, _)| now.since(*since) >= LIFETIME) {
            self.kept.pop_front();
        }
        match self.kept.back() {
            Some((since, nonce)) if now.since(*since) < USED => (self.index, *nonce),
            _ => {
                self.index = self.index.wrapping_add(1);
                let nonce = self.secrets.key();
                self.kept.push_back((now, nonce));
                (self.index, nonce)
            }
        }
    }

    /// The nonce with this index, to verify a token at `now`.
    ///
    /// # Errors
    /// [`NonceExpired`].
    pub fn get(&self, now: Time, index: u16) -> Result<Nonce, NonceExpired> {
        let behind = usize::from(self.index.wrapping_sub(index));
        let (since, nonce) = self.kept.iter().rev().nth(behind).ok_or(NonceExpired)?;
        if now.since(*since) < LIFETIME { Ok(*nonce) } else { Err(NonceExpired) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(s: u64) -> Time {
        Time(s * 1_000_000_000)
    }

    fn nonces() -> Nonces {
        Nonces::new(Secrets::new([7; 32]))
    }

    #[test]
    fn a_token_is_good_for_210_s_at_least_and_240_s_at_most_and_eight_nonces_are_kept() {
        let (mut nonces, mut made, mut good_s) = (nonces(), Vec::new(), [0; 1_000]);
        for now in 0..1_000 {
            made.push(nonces.current(at(now)));
            for ((index, nonce), good_s) in made.iter().zip(&mut good_s) {
                if let Ok(found) = nonces.get(at(now), *index) {
                    assert_eq!(found, *nonce);
                    *good_s += 1;
                }
            }
            assert_eq!(nonces.kept.len(), 8.min(1 + now as usize / 30));
        }
        // The first second counts as well.
        let range = good_s[..700].iter().min().zip(good_s[..700].iter().max());
        assert_eq!(range, Some((&211, &240)));
    }

    #[test]
    fn indices_pass_the_end_of_their_sixteen_bits() {
        let mut nonces = Nonces { index: u16::MAX - 2, ..nonces() };
        let made = [0, 30, 60, 90].map(|s| nonces.current(at(s)));
        assert_eq!(made.map(|(index, _)| index), [u16::MAX - 1, u16::MAX, 0, 1]);
        for (index, nonce) in made {
            assert_eq!(nonces.get(at(90), index), Ok(nonce));
        }
        for index in [u16::MAX - 2, 2, 0x8000] {
            assert_eq!(nonces.get(at(90), index), Err(NonceExpired), "{index}");
        }
    }

    #[test]
    fn after_a_long_silence_nothing_from_before_counts_and_the_index_goes_on() {
        let mut nonces = nonces();
        let (first, _) = nonces.current(at(0));
        assert_eq!(nonces.get(at(240), first), Err(NonceExpired));
        let (next, nonce) = nonces.current(at(5_000));
        assert_eq!((next, nonces.kept.len()), (first.wrapping_add(1), 1));
        assert_eq!(nonces.get(at(5_000), first), Err(NonceExpired));
        assert_eq!(nonces.get(at(5_239), next), Ok(nonce));
    }

    #[test]
    fn no_nonce_comes_twice_and_each_start_begins_elsewhere() {
        let (mut one, mut other) = (nonces(), Nonces::new(Secrets::new([8; 32])));
        let made: Vec<_> =
            (0..50).flat_map(|n| [one.current(at(n * 30)), other.current(at(n * 30))]).collect();
        assert_ne!(made[0].0, made[1].0);
        for (n, (_, nonce)) in made.iter().enumerate() {
            assert!(made[..n].iter().all(|(_, before)| before != nonce));
        }
    }
}
