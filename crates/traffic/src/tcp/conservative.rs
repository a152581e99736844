//! Recovery by scoreboard (RFC 6675): the data known to have arrived determine which segments are sent during
//! recovery, and the data known to be in flight determine how many.
//!
//! After a timeout the scoreboard is cleared (RFC 2018, section 8), and everything outstanding is retransmitted
//! in slow start, except data covered by blocks that arrive in the meantime (RFC 6675, section 5.1).

use segue_clock::Time;

use super::config::{Config, Counting};
use super::control::Control;
use super::recovery::{Ack, Core, Recovery};
use super::rfc6675::{Next, Scoreboard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No known losses.
    Open,
    /// Losses are being repaired until this unit is acknowledged: the RFC's RecoveryPoint.
    Recovery(u64),
    /// As `Recovery`, after a timeout.
    Loss(u64),
}

/// The sender of `sack` and `cubic` with a scoreboard.
#[derive(Clone, Debug)]
pub(super) struct Conservative {
    board: Scoreboard,
    control: Control,
    phase: Phase,
}

impl Conservative {
    pub(super) fn new(config: &Config) -> Conservative {
        let smss = match config.counting {
            Counting::Packets => 1,
            Counting::Bytes => config.mss,
        };
        Conservative {
            board: Scoreboard::new(config.dupack_threshold, smss),
            control: Control::new(config),
            phase: Phase::Open,
        }
    }
}

impl Recovery for Conservative {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next < core.una {
            return;
        }
        let limited = core.flight() + core.smss > core.cwnd as u64;
        let acked = ack.next - core.una;
        let news = self.board.update(ack.next, ack.sack.blocks(), core.max);
        if acked > 0 {
            core.advance(now, ack, true);
        }
        let before = self.phase;
        match self.phase {
            Phase::Recovery(point) | Phase::Loss(point) if core.una >= point => {
                self.phase = Phase::Open;
                self.board.end();
            }
            _ => {}
        }
        // Section 2: a duplicate acknowledgement is one with new information beyond its number.
        core.dupacks = if news > 0 { core.dupacks + 1 } else { core.dupacks };
        let lost = core.dupacks >= core.config.dupack_threshold || self.board.is_lost(core.una);
        // A receiver may renege on reported data (RFC 2018, section 8). The first hole then seems to be held and
        // there is nothing to send, until the timer clears the scoreboard.
        let held = self.board.hole_end(core.una) <= core.una;
        match self.phase {
            Phase::Open if news > 0 && lost && !held => return self.enter(core, now),
            // Data covered by the acknowledgement that ends a recovery arrived long before, so it does not open
            // the window.
            Phase::Open | Phase::Loss(_) if acked > 0 && before == self.phase => {
                self.control.open(core, now, acked, limited);
            }
            _ => {}
        }
        self.fill(core, now);
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        self.board.clear();
        self.control.collapse(core, now);
        self.phase = Phase::Loss(core.max);
        self.fill(core, now);
    }

    fn fill(&mut self, core: &mut Core, now: Time) {
        match self.phase {
            Phase::Open => self.send_new(core, now),
            Phase::Recovery(point) => self.send_next(core, now, point),
            Phase::Loss(_) => self.send_again(core, now),
        }
    }
}

impl Conservative {
    /// Enters recovery (section 5, step 4).
    fn enter(&mut self, core: &mut Core, now: Time) {
        let point = core.max;
        self.phase = Phase::Recovery(point);
        core.recover = point;
        core.sent.fast_retransmits += 1;
        core.stop_timing();
        core.arm(now);
        self.control.reduce(core);
        let end = self.board.hole_end(core.una).min(core.max);
        core.transmit_range(now, core.una, end);
        self.board.begin(end);
        self.send_next(core, now, point);
    }

    /// Sends during recovery (section 5, step C).
    fn send_next(&mut self, core: &mut Core, now: Time, point: u64) {
        let mut pipe = self.board.pipe(core.max);
        while core.cwnd as u64 >= pipe + core.smss {
            let unsent = core.unsent();
            let Some(next) = self.board.next_segment(core.max, unsent) else { break };
            let (start, end) = match next {
                Next::Lost(start, end) | Next::Hole(start, end) | Next::Rescue(start, end) => {
                    (start, end)
                }
                Next::New(units) => (core.max, core.max + units),
            };
            core.transmit_range(now, start, end);
            self.board.sent(next, point);
            pipe += end - start;
        }
    }

    /// Sends new segments while there are no known losses. Data in reported blocks have left the network, which
    /// yields Limited Transmit (section 5, step 3).
    fn send_new(&mut self, core: &mut Core, now: Time) {
        let mut pipe =
            if core.config.limited_transmit { self.board.pipe(core.max) } else { core.flight() };
        while core.cwnd as u64 >= pipe + core.smss {
            let units = core.unsent().min(core.smss);
            if units == 0 {
                break;
            }
            core.transmit(now, core.max);
            pipe += units;
        }
    }

    /// After a timeout: retransmits from the first hole on, skipping data known to have arrived.
    fn send_again(&mut self, core: &mut Core, now: Time) {
        loop {
            core.next = self.board.past(core.next).min(core.max);
            let pipe = core.next - core.una - self.board.sacked_between(core.una, core.next);
            if pipe > 0 && (core.cwnd as u64) < pipe + core.smss {
                break;
            }
            if core.next < core.max {
                let end = self.board.hole_end(core.next).min(core.max);
                core.transmit_range(now, core.next, end);
            } else if core.unsent() > 0 {
                core.transmit(now, core.max);
            } else {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use segue_clock::{Machine, Span, Time};

    use crate::tcp::recovery::Ack;
    use crate::tcp::segment::Sack;
    use crate::tcp::sender::{Input, Sender};
    use crate::tcp::{Config, Variant};

    /// A sender with ten segments of 1000 bytes in flight.
    struct Sending(Sender, Time);

    impl Sending {
        fn new() -> Sending {
            let config = Config { mss: 1_000, window: 40, ..Config::modern(Variant::Sack) };
            let mut sending = Sending(Sender::new(config), Time(1_000_000_000));
            assert_eq!(sending.tell(Input::Offer(100_000)), []);
            let first = sending.tell(Input::Start);
            assert_eq!((first.len(), first[9]), (10, 9));
            sending
        }

        /// Passes an input; returns the numbers of the segments sent.
        fn tell(&mut self, input: Input) -> Vec<u64> {
            self.1 += Span::from_millis(1);
            self.0.handle(self.1, input);
            self.sent()
        }

        /// Ticks the sender; returns the numbers of the segments sent.
        fn tick(&mut self) -> Vec<u64> {
            self.1 += Span::from_millis(1);
            self.0.tick(self.1);
            self.sent()
        }

        fn sent(&mut self) -> Vec<u64> {
            core::iter::from_fn(|| self.0.poll())
                .map(|sent| {
                    assert_eq!(sent.end - sent.start, 1_000, "{sent:?}");
                    sent.start / 1_000
                })
                .collect()
        }

        /// Acknowledges everything before segment `next` and reports these segments.
        fn ack(&mut self, next: u64, blocks: &[(u64, u64)]) -> Vec<u64> {
            let mut sack = Sack::default();
            blocks.iter().for_each(|(start, end)| sack.push(start * 1_000, end * 1_000));
            self.tell(Input::Ack(Ack { next: next * 1_000, sack, echo: None }))
        }
    }

    #[test]
    fn in_a_recovery_as_much_leaves_as_the_pipe_is_below_the_window() {
        let mut sending = Sending::new();
        // Three segments beyond the first: the first is lost, the window is half of ten, and with the
        // retransmission seven are in the pipe.
        assert_eq!(sending.ack(0, &[(1, 4)]), [0]);
        assert_eq!(sending.ack(0, &[(1, 5)]), [], "six are left, five may be");
        assert_eq!(sending.ack(0, &[(1, 6)]), [], "five");
        assert_eq!(sending.ack(0, &[(1, 7)]), [10], "four");
        assert_eq!(sending.ack(0, &[(1, 9)]), [11, 12], "two arrived at once");
        // A second hole: 10 and 11 are missing, and 10 is lost once more than two segments beyond it have
        // arrived.
        assert_eq!(sending.ack(0, &[(12, 13), (1, 10)]), [13, 14]);
        assert_eq!(sending.ack(0, &[(12, 15), (1, 10)]), [10, 11, 15, 16]);
    }

    #[test]
    fn what_arrived_beyond_a_hole_makes_room_for_as_much_before_anything_is_lost() {
        let mut sending = Sending::new();
        assert_eq!(sending.ack(0, &[(1, 2)]), [10]);
        assert_eq!(sending.ack(0, &[(1, 3)]), [11]);
        // An acknowledgement without news changes nothing.
        assert_eq!(sending.ack(0, &[(1, 3)]), []);
    }

    #[test]
    fn after_a_timeout_slow_start_counts_what_was_sent_again_and_has_not_arrived() {
        let mut sending = Sending::new();
        let (at, _) = sending.0.deadline().unwrap();
        sending.1 = at;
        assert_eq!(sending.tick(), [0]);
        assert_eq!(sending.ack(1, &[]), [1, 2]);
        // Segments 3 and 4 had arrived: they are skipped and not in the pipe.
        assert_eq!(sending.ack(2, &[(3, 5)]), [5, 6]);
        assert_eq!(sending.ack(5, &[]), [7, 8, 9]);
    }
}
