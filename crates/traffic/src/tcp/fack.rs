//! FACK (Mathis and Mahdavi 1996): outstanding data are counted from the highest unit that the receiver holds,
//! which is exact without reordering. Recovery begins when that unit is more than the threshold beyond the first
//! hole.

use segue_clock::Time;

use super::config::Halving;
use super::recovery::{Ack, Core, Recovery};
use super::scoreboard::Scoreboard;

/// Forward acknowledgement.
#[derive(Clone, Debug, Default)]
pub(super) struct Fack {
    recovering: bool,
    /// The timer has expired, and the data outstanding at that time are not yet acknowledged: everything is
    /// retransmitted.
    collapsed: bool,
    board: Scoreboard,
    /// First units of holes that were retransmitted and are not yet acknowledged.
    resent: alloc::collections::VecDeque<u64>,
}

impl Recovery for Fack {
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        if ack.next < core.una || core.flight() == 0 {
            return;
        }
        let acked = ack.next - core.una;
        if acked > 0 {
            core.advance(now, ack, true);
        } else {
            core.dupacks += 1;
        }
        if self.collapsed {
            self.collapsed = core.una < core.recover;
            if acked > 0 {
                core.open(acked);
                core.fill(now, core.window(), None);
            }
            return;
        }
        self.board.update(core.una, &ack.sack);
        self.forget_resent(core);
        if self.recovering {
            // Slow start from one segment to the threshold, which is half of the previous window.
            core.open(acked.max(core.smss));
            if core.config.halving == Halving::Flight {
                // ns-2 lets the window grow beyond the threshold; congestion avoidance begins after the recovery.
                core.cwnd = core.cwnd.min(core.ssthresh);
            }
            if core.una >= core.recover {
                self.recovering = false;
                self.resent.clear();
            }
        } else if self.lost(core) {
            self.enter(core, now);
            return;
        } else if acked > 0 {
            core.open(acked);
        } else {
            return;
        }
        self.fill(core, now);
    }

    fn on_timeout(&mut self, core: &mut Core, now: Time) {
        *self = Fack { collapsed: true, ..Fack::default() };
        core.collapse(now);
        core.fill(now, core.window(), None);
    }

    fn fill(&mut self, core: &mut Core, now: Time) {
        let window = core.window();
        if self.collapsed {
            core.fill(now, window, None);
            return;
        }
        loop {
            let resent = self.resent.len() as u64 * core.smss;
            let fack = self.board.forward().max(core.una);
            let outstanding = core.next.saturating_sub(fack) + resent;
            if outstanding + core.smss > window {
                return;
            }
            match self.board.hole(core.una).filter(|_| self.recovering) {
                Some(hole) => {
                    self.board.mark(hole + core.smss);
                    self.resent.push_back(hole);
                    core.transmit(now, hole);
                }
                None if core.may_send_new() => core.transmit(now, core.next),
                None => return,
            }
        }
    }
}

impl Fack {
    fn lost(&self, core: &Core) -> bool {
        let beyond = self.board.forward().saturating_sub(core.una + core.smss);
        beyond >= u64::from(core.config.dupack_threshold) * core.smss && core.may_retransmit_fast()
    }

    fn enter(&mut self, core: &mut Core, now: Time) {
        core.recover = core.max;
        core.sent.fast_retransmits += 1;
        let half = core.window() / 2;
        core.cut_ssthresh();
        if core.config.halving == Halving::Flight {
            // Data that the receiver holds beyond the hole do not count as outstanding: at most the window does.
            core.ssthresh = core.ssthresh.min(half.max(2 * core.smss) as f64);
        }
        core.cwnd = core.smss_f64();
        core.stop_timing();
        core.arm(now);
        self.recovering = true;
        self.board.mark(core.una + core.smss);
        self.resent.push_back(core.una);
        core.transmit(now, core.una);
    }

    fn forget_resent(&mut self, core: &Core) {
        let board = &self.board;
        self.resent.retain(|unit| *unit >= core.una && !board.holds(*unit));
    }
}
