//! Proportional rate reduction (RFC 6937): during recovery a sender sends in proportion to delivered data, so
//! that at the end the data in flight equal the new window. Uses the slow-start reduction bound, SSRB.

/// One recovery, in units.
#[derive(Clone, Copy, Debug)]
pub struct Prr {
    /// Data outstanding at its start: RecoverFS.
    flight: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    /// Starts a recovery with `flight` units outstanding.
    #[must_use]
    pub fn new(flight: u64) -> Prr {
        Prr { flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// Notes that `units` were sent.
    pub fn sent(&mut self, units: u64) {
        self.out += units;
    }

    /// The window after an acknowledgement that reports `delivered` units, with `pipe` in flight.
    pub fn window(&mut self, delivered: u64, pipe: u64, ssthresh: u64, smss: u64) -> u64 {
        self.delivered += delivered;
        let sndcnt = if pipe > ssthresh {
            (self.delivered * ssthresh).div_ceil(self.flight).saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + smss;
            (ssthresh - pipe).min(limit)
        };
        pipe + sndcnt
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_recovery_sends_in_proportion_and_ends_at_the_threshold() {
        // 20 segments in flight, the first is lost, ssthresh 10 (RFC 6937, section 4): almost every second
        // acknowledgement sends a segment.
        let (mut prr, mut pipe, mut sent) = (Prr::new(20), 19, Vec::new());
        for _ in 0..19 {
            pipe -= 1;
            let window = prr.window(1, pipe, 10, 1);
            sent.push(window - pipe);
            prr.sent(window - pipe);
            pipe = window;
        }
        assert_eq!(sent, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]);
        assert_eq!(pipe, 10);
    }

    #[test]
    fn after_heavy_losses_the_flight_grows_to_the_threshold_as_in_slow_start() {
        // 15 of 20 lost: 4 in flight, below the threshold. Each acknowledgement sends two until the threshold is
        // reached.
        let (mut prr, mut pipe, mut most) = (Prr::new(20), 4, 0);
        for _ in 0..12 {
            pipe -= 1;
            let window = prr.window(1, pipe, 10, 1);
            most = most.max(window - pipe);
            prr.sent(window - pipe);
            pipe = window;
        }
        assert_eq!((most, pipe), (2, 10));
    }
}
