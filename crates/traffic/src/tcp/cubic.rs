//! CUBIC's window calculation (RFC 9438), in segments, as pure functions of acknowledgements and losses. Slow
//! start and recovery belong to the sender.
//!
//! Not implemented: HyStart++ (RFC 9406), which RFC 9438 recommends for slow start, and the reversal of a
//! spurious reduction (section 4.9).

use segue_clock::{Span, Time};

/// The constant C, in segments per cubic second (section 5).
pub const C: f64 = 0.4;
/// Factor of the window after a loss: β_cubic (section 4.6).
pub const BETA: f64 = 0.7;
/// Minimum window after a loss, in segments (section 4.6).
const MIN_SSTHRESH: f64 = 2.0;

/// Configurable parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// C, in segments per cubic second.
    pub c: f64,
    /// β_cubic.
    pub beta: f64,
    /// Fast convergence: a flow whose window shrinks from loss to loss releases bandwidth faster (section 4.7).
    pub fast_convergence: bool,
    /// Never slower than Reno (section 4.3).
    pub reno_friendly: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters { c: C, beta: BETA, fast_convergence: true, reno_friendly: true }
    }
}

/// A stage of congestion avoidance: from a loss, or the end of slow start, to the next loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// t: time for which the window has limited the sender.
    elapsed: Span,
    /// Time of the previous acknowledgement, if the window limited the sender then.
    limited_at: Option<Time>,
    k: f64,
    w_est: f64,
}

/// State apart from the window itself.
#[derive(Clone, Debug)]
pub struct Cubic {
    parameters: Parameters,
    /// W_max; `None` before the first loss and after a timeout.
    w_max: Option<f64>,
    /// The window before the newest loss.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

impl Default for Cubic {
    fn default() -> Self {
        Cubic::new(Parameters::default())
    }
}

impl Cubic {
    /// The state before the first loss.
    #[must_use]
    pub fn new(parameters: Parameters) -> Cubic {
        Cubic { parameters, w_max: None, cwnd_prior: f64::INFINITY, epoch: None }
    }

    /// The window after an acknowledgement in congestion avoidance. `acked` segments are newly acknowledged, and
    /// `rtt` is the smoothed RTT. If `limited` is false, something other than the window limited the sender, and
    /// neither t nor the window grows (sections 4.2 and 5.8).
    ///
    /// The RFC adds (target - cwnd)/cwnd per acknowledgement; this function adds it per acknowledged segment, so
    /// that the window also follows W_cubic with delayed acknowledgements.
    pub fn avoid(&mut self, now: Time, cwnd: f64, acked: f64, rtt: Span, limited: bool) -> f64 {
        let Parameters { c, beta, reno_friendly, .. } = self.parameters;
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin(cwnd));
        let w_max = self.w_max.unwrap_or(cwnd);
        if let Some(before) = epoch.limited_at.filter(|_| limited) {
            epoch.elapsed = epoch.elapsed + now.since(before);
        }
        epoch.limited_at = limited.then_some(now);
        let mut next = cwnd;
        if limited {
            // Equation 4; above the old window as fast as Reno itself.
            let alpha = if epoch.w_est < self.cwnd_prior { reno_alpha(beta) } else { 1.0 };
            epoch.w_est += alpha * acked / cwnd;
            let t = epoch.elapsed.as_secs_f64();
            if reno_friendly && w_cubic(c, t, epoch.k, w_max) < epoch.w_est {
                // A window that W_cubic has already raised further for the coming round trip is kept.
                next = cwnd.max(epoch.w_est);
            } else {
                let target = w_cubic(c, t + rtt.as_secs_f64(), epoch.k, w_max);
                next = cwnd + (target.clamp(cwnd, 1.5 * cwnd) - cwnd) * (acked / cwnd).min(1.0);
            }
        }
        self.epoch = Some(epoch);
        next
    }

    /// ssthresh after a loss with a window of `cwnd` and `flight` segments in flight (sections 4.6, 4.7).
    pub(crate) fn on_loss(&mut self, cwnd: f64, flight: f64) -> f64 {
        let Parameters { beta, fast_convergence, .. } = self.parameters;
        let shrinks = fast_convergence && self.w_max.is_some_and(|w_max| cwnd < w_max);
        self.w_max = Some(if shrinks { cwnd * (1.0 + beta) / 2.0 } else { cwnd });
        self.cwnd_prior = cwnd;
        self.epoch = None;
        (flight * beta).max(MIN_SSTHRESH)
    }

    /// ssthresh after a retransmission timeout (section 4.8): W_max is no longer valid, so the next stage starts
    /// flat at its own window.
    pub(crate) fn on_timeout(&mut self, cwnd: f64, flight: f64) -> f64 {
        let ssthresh = self.on_loss(cwnd, flight);
        self.w_max = None;
        ssthresh
    }

    /// W_max, in segments.
    #[must_use]
    pub fn w_max(&self) -> Option<f64> {
        self.w_max
    }

    /// t and K of the current stage, in seconds.
    #[must_use]
    pub fn stage(&self) -> Option<(f64, f64)> {
        self.epoch.map(|epoch| (epoch.elapsed.as_secs_f64(), epoch.k))
    }

    fn begin(&mut self, cwnd: f64) -> Epoch {
        let w_max = *self.w_max.get_or_insert(cwnd);
        // Slow start without a loss, and a window that already exceeds W_max, start flat (section 4.10).
        if cwnd > w_max {
            self.w_max = Some(cwnd);
        }
        let k = k(self.parameters.c, w_max, cwnd);
        Epoch { elapsed: Span::ZERO, limited_at: None, k, w_est: cwnd }
    }
}

/// Equation 1: the window `t` seconds after the start of the stage.
#[must_use]
pub fn w_cubic(c: f64, t: f64, k: f64, w_max: f64) -> f64 {
    let x = t - k;
    c * x * x * x + w_max
}

/// Equation 2: time until the window has grown from `cwnd_epoch` back to `w_max`, in seconds.
#[must_use]
pub fn k(c: f64, w_max: f64, cwnd_epoch: f64) -> f64 {
    libm::cbrt((w_max - cwnd_epoch).max(0.0) / c)
}

/// α_cubic (section 4.3): with it, additive increase by α and decrease to β are as fast as Reno.
#[must_use]
pub(crate) fn reno_alpha(beta: f64) -> f64 {
    3.0 * (1.0 - beta) / (1.0 + beta)
}

/// Equation 5: the average window in segments, with exactly one loss in every 1/p segments. The window at a loss
/// is 4 / (3 + β) times as large, and is the same at every loss; a flow that starts elsewhere approaches it
/// slowly, since W_cubic is flat there.
#[must_use]
pub fn average_window(c: f64, beta: f64, rtt_s: f64, p: f64) -> f64 {
    libm::pow(c * (3.0 + beta) / (4.0 * (1.0 - beta)), 0.25) * libm::pow(rtt_s / p, 0.75)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_of_the_rfc_come_out() {
        assert!((reno_alpha(BETA) - 9.0 / 17.0).abs() < 1e-12);
        // Equation 6 with β = 0.7, and the RFC's values for an RTT of 0.1 s.
        assert!((average_window(C, BETA, 1.0, 1.0) - libm::pow(C * 3.7 / 1.2, 0.25)).abs() < 1e-12);
        let at = |p| average_window(C, BETA, 0.1, p);
        assert!((at(1e-4) - 187.0).abs() < 1.0, "{}", at(1e-4));
        assert!((at(1e-8) / at(1e-4) - 1_000.0).abs() < 1e-6);
    }

    #[test]
    fn after_a_loss_the_window_is_back_at_w_max_after_k() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.on_loss(400.0, 400.0), 280.0);
        let (rtt, mut cwnd, mut now) = (Span::from_millis(100), 280.0, Time::ZERO);
        cubic.avoid(now, cwnd, 0.0, rtt, true);
        let (_, k) = cubic.stage().unwrap();
        assert!((k - libm::cbrt(120.0 / 0.4)).abs() < 1e-12);
        let mut acks = 0;
        while now.as_secs_f64() < 2.0 * k {
            // One acknowledgement per segment, i.e. cwnd of them per round trip.
            now += Span::from_secs_f64(0.1 / cwnd);
            cwnd = cubic.avoid(now, cwnd, 1.0, rtt, true);
            let expected = w_cubic(C, now.as_secs_f64(), k, 400.0);
            assert!((cwnd - expected).abs() < 1.0, "{now:?}: {cwnd}, W_cubic {expected}");
            acks += 1;
        }
        assert!(acks > 1_000 && (cwnd - 520.0).abs() < 1.0, "convex like concave: {cwnd}");
    }

    #[test]
    fn a_short_round_trip_makes_it_as_fast_as_reno() {
        let mut cubic = Cubic::default();
        let (rtt, mut now, mut cwnd) =
            (Span::from_millis(5), Time::ZERO, cubic.on_loss(20.0, 20.0));
        for _ in 0..200 {
            for _ in 0..cwnd as u32 {
                now += Span::from_secs_f64(0.005 / cwnd);
                cwnd = cubic.avoid(now, cwnd, 1.0, rtt, true);
            }
        }
        // From 14 to 20 takes 11.3 round trips with 9/17 of a segment each; from there one segment per round
        // trip.
        let expected = 20.0 + (200.0 - 6.0 * 17.0 / 9.0);
        assert!((cwnd - expected).abs() < 0.02 * expected, "{cwnd}, not {expected}");
    }

    #[test]
    fn time_in_which_the_window_did_not_limit_does_not_count() {
        let run = |pause_s: u64| {
            let mut cubic = Cubic::default();
            let (rtt, mut now, mut cwnd) =
                (Span::from_millis(100), Time::ZERO, cubic.on_loss(100.0, 100.0));
            for step in 0..200 {
                if step == 100 {
                    now += Span::from_secs(pause_s);
                    let before = cwnd;
                    cwnd = cubic.avoid(now, cwnd, 1.0, rtt, false);
                    assert_eq!(cwnd, before);
                }
                now += Span::from_millis(10);
                cwnd = cubic.avoid(now, cwnd, 1.0, rtt, true);
            }
            cwnd
        };
        assert_eq!(run(1), run(60));
    }

    #[test]
    fn a_second_loss_below_w_max_leaves_room() {
        let mut cubic = Cubic::default();
        cubic.on_loss(100.0, 100.0);
        cubic.on_loss(80.0, 80.0);
        assert_eq!(cubic.w_max(), Some(68.0));
        let mut stubborn =
            Cubic::new(Parameters { fast_convergence: false, ..Parameters::default() });
        stubborn.on_loss(100.0, 100.0);
        stubborn.on_loss(80.0, 80.0);
        assert_eq!(stubborn.w_max(), Some(80.0));
    }

    #[test]
    fn after_a_timeout_and_after_slow_start_the_stage_begins_flat() {
        let mut cubic = Cubic::default();
        cubic.on_loss(100.0, 100.0);
        assert_eq!(cubic.on_timeout(60.0, 40.0), 28.0);
        let rtt = Span::from_millis(100);
        let cwnd = cubic.avoid(Time::ZERO, 28.0, 1.0, rtt, true);
        assert_eq!((cubic.stage().unwrap().1, cubic.w_max()), (0.0, Some(28.0)));
        assert!((28.0..28.1).contains(&cwnd));
    }

    #[test]
    fn a_window_never_grows_by_more_than_half_in_a_round_trip_and_never_falls() {
        let mut cubic = Cubic::default();
        cubic.on_loss(1_000.0, 10.0);
        let (rtt, mut now, mut cwnd) = (Span::from_millis(100), Time::ZERO, 7.0);
        for _ in 0..500 {
            let before = cwnd;
            let mut acked = 0.0;
            while acked < before {
                now += Span::from_secs_f64(0.1 / before);
                let next = cubic.avoid(now, cwnd, 1.0, rtt, true);
                assert!(next >= cwnd);
                cwnd = next;
                acked += 1.0;
            }
            assert!(cwnd <= before * 1.75, "{before} to {cwnd}");
        }
    }
}
