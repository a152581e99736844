//! Congestion control for senders whose recovery does not determine the window: Reno (RFC 5681) or CUBIC (RFC
//! 9438).

use segue_clock::Time;

use super::config::{Config, Congestion};
use super::cubic::Cubic;
use super::recovery::Core;

/// The congestion control.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// `None` is Reno.
    cubic: Option<Cubic>,
    /// The first missing unit at the last timeout.
    timed_out: Option<u64>,
}

impl Control {
    pub(super) fn new(config: &Config) -> Control {
        let cubic = match config.congestion {
            Congestion::Reno => None,
            Congestion::Cubic => Some(Cubic::new(config.cubic)),
        };
        Control { cubic, timed_out: None }
    }

    /// Opens the window for `acked` units; `limited`: the window was limiting the sender.
    pub(super) fn open(&mut self, core: &mut Core, now: Time, acked: u64, limited: bool) {
        let avoids = core.cwnd >= core.ssthresh;
        let Some(cubic) = self.cubic.as_mut().filter(|_| avoids) else { return core.open(acked) };
        let smss = core.smss_f64();
        let rtt = core.rtt.srtt().unwrap_or_default();
        let cwnd = cubic.avoid(now, core.cwnd / smss, acked as f64 / smss, rtt, limited) * smss;
        let most = if core.config.clamp { core.max_window() as f64 } else { f64::INFINITY };
        core.cwnd = cwnd.min(most);
    }

    /// Reduces window and threshold after a loss.
    pub(super) fn reduce(&mut self, core: &mut Core) {
        core.ssthresh = self.threshold(core, false);
        core.cwnd = core.ssthresh;
    }

    /// Retransmission timeout: reduces the window to one segment and restarts from the first hole. If the timer
    /// had already retransmitted the missing segment, the threshold stays (RFC 5681, section 3.1).
    pub(super) fn collapse(&mut self, core: &mut Core, now: Time) {
        let again = self.timed_out == Some(core.una);
        let ssthresh = if again { core.ssthresh } else { self.threshold(core, true) };
        self.timed_out = Some(core.una);
        core.collapse(now);
        core.ssthresh = ssthresh;
    }

    /// Half of the outstanding data, or CUBIC's share of them; at least two segments. Data that Limited Transmit
    /// sent beyond the window do not count (RFC 5681, section 3.2, step 2).
    fn threshold(&mut self, core: &Core, timeout: bool) -> f64 {
        let smss = core.smss_f64();
        let (cwnd, flight) = (core.cwnd / smss, core.cwnd.min(core.flight() as f64) / smss);
        let ssthresh = match &mut self.cubic {
            None => flight / 2.0,
            Some(cubic) if timeout => cubic.on_timeout(cwnd, flight),
            Some(cubic) => cubic.on_loss(cwnd, flight),
        };
        ssthresh.max(2.0) * smss
    }
}
