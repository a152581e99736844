//! Maps the sender's units to bytes.

use alloc::collections::VecDeque;

use super::config::{Config, Counting};

/// Maps the sender's units to bytes. If windows count whole segments, each offer of the application is divided
/// into separate segments, the last of which may be short.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    mss: u64,
    counting: Counting,
    /// Offers not yet acknowledged, oldest first.
    offers: VecDeque<Offer>,
    units: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Offer {
    unit: u64,
    byte: u64,
    bytes: u64,
}

impl Stream {
    pub(super) fn new(config: &Config) -> Stream {
        let (mss, counting) = (u64::from(config.mss), config.counting);
        Stream { mss, counting, offers: VecDeque::new(), units: 0, bytes: 0 }
    }

    /// Adds bytes of the application, and returns their number of units.
    pub(super) fn offer(&mut self, bytes: u64) -> u64 {
        self.offers.push_back(Offer { unit: self.units, byte: self.bytes, bytes });
        self.bytes += bytes;
        let units = match self.counting {
            Counting::Bytes => bytes,
            Counting::Packets => bytes.div_ceil(self.mss),
        };
        self.units += units;
        units
    }

    /// Number of bytes offered.
    pub(super) fn offered(&self) -> u64 {
        self.bytes
    }

    /// The byte at which a unit starts.
    pub(super) fn byte(&self, unit: u64) -> u64 {
        if self.counting == Counting::Bytes {
            return unit;
        }
        if unit >= self.units {
            return self.bytes;
        }
        let offer = self.newest(|o| o.unit <= unit);
        offer.map_or(0, |o| o.byte + (unit - o.unit) * self.mss)
    }

    /// The unit that contains a byte; the unit after the last for the byte after the last.
    pub(super) fn unit(&self, byte: u64) -> u64 {
        if self.counting == Counting::Bytes {
            return byte;
        }
        if byte >= self.bytes {
            return self.units;
        }
        let offer = self.newest(|o| o.byte <= byte);
        offer.map_or(0, |o| o.unit + (byte - o.byte) / self.mss)
    }

    /// The newest offer that matches; usually it is the newest of all.
    #[inline]
    fn newest(&self, matches: impl Fn(&Offer) -> bool) -> Option<&Offer> {
        let last = self.offers.back().filter(|offer| matches(offer));
        last.or_else(|| self.offers.iter().rev().find(|offer| matches(offer)))
    }

    /// Forgets offers that end before this byte.
    pub(super) fn forget_before(&mut self, byte: u64) {
        while self.offers.front().is_some_and(|o| o.byte + o.bytes <= byte) && self.offers.len() > 1
        {
            self.offers.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Variant;

    #[test]
    fn offers_are_cut_into_segments_of_their_own() {
        let mut stream = Stream::new(&Config { mss: 10, ..Config::ns2_35(Variant::Reno) });
        assert_eq!((stream.offer(25), stream.offer(10), stream.offer(1)), (3, 1, 1));
        let bytes: alloc::vec::Vec<_> = (0..=5).map(|unit| stream.byte(unit)).collect();
        assert_eq!(bytes, [0, 10, 20, 25, 35, 36]);
        assert!((0..=5).all(|unit| stream.unit(stream.byte(unit)) == unit));
        stream.forget_before(25);
        assert_eq!((stream.unit(25), stream.byte(4), stream.unit(30)), (3, 35, 3));
    }
}
