//! Times of the requests.

use segue_clock::{Rng, Span, Time};

/// The grid of T_KA, and the requests that left.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// End of the current period. A bare request leaves then if none rode in the period.
    pub(super) next: Time,
    /// When the last request left.
    pub(super) last: Option<Time>,
    /// After a change to a longer period: the old period, and the number of requests that still use it. They announce
    /// the change to the server before it would miss them.
    pub(super) announce: Option<(Span, u8)>,
    /// When the last ride left.
    last_ride: Option<Time>,
    begun: bool,
    /// Share by which the first interval is shorter, in units of 2⁻¹⁹; less than an eighth.
    phase: u16,
}

impl Schedule {
    /// A schedule whose first request is due at `now`.
    pub(super) fn new(now: Time, jitter_seed: u64) -> Schedule {
        let phase = Rng::new(jitter_seed).below(1 << 16) as u16;
        Schedule { next: now, last: None, announce: None, last_ride: None, begun: false, phase }
    }

    /// Restarts the schedule at `now`.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Schedule { next: now, phase: self.phase, ..Schedule::new(now, 0) };
    }

    /// Records when the datapath sent the last request, and whether one has ridden since the previous report.
    pub(super) fn on_sent(&mut self, now: Time, last_sent: Time, rode: bool) {
        let at = last_sent.min(now);
        self.last = self.last.map(|last| last.max(at));
        if rode {
            self.last_ride = Some(at);
        }
    }

    /// The current period. A longer one begins after its announcement.
    pub(super) fn period(&self, t_ka: Span) -> Span {
        self.announce.map_or(t_ka, |(old, _)| old)
    }

    /// Whether a request rode in the last completed period. A bare request at a point of the grid belongs to the period
    /// before it, so that two requests are at most 2·T_KA apart.
    pub(super) fn rode(&self, now: Time, t_ka: Span) -> bool {
        let missed = now.since(self.next).0 / t_ka.0.max(1);
        let end = self.next + t_ka * missed;
        self.begun && self.last_ride.is_some_and(|at| at + t_ka > end)
    }

    /// Recomputes the end of the current period after a time without updates. It is at most 2·T_KA after the last
    /// request.
    pub(super) fn catch_up(&mut self, now: Time, t_ka: Span) {
        if self.next > now {
            return;
        }
        let passed = now.since(self.next).0 / t_ka.0.max(1);
        let end = self.next + t_ka * (passed + 1);
        let latest = self.last.map_or(end, |last| (last + t_ka * 2).max(now));
        self.next = end.min(latest);
    }

    /// Starts a shorter period at the last request.
    pub(super) fn hasten(&mut self, t_ka: Span) {
        if let Some(last) = self.last {
            self.next = self.next.min(last + t_ka);
        }
    }

    /// Ends the current period at `now` at the latest.
    pub(super) fn hasten_to(&mut self, now: Time) {
        self.next = self.next.min(now);
    }

    /// See [`super::Client::align`].
    pub(super) fn align(&mut self, now: Time, point: Time, t_ka: Span) {
        if !self.begun || self.announce.is_some() || t_ka == Span::ZERO {
            return;
        }
        let ahead = self.next.since(point).0 % t_ka.0;
        let behind = point.since(self.next).0 % t_ka.0;
        let early = if behind == 0 { ahead } else { t_ka.0 - behind };
        let aligned = self.next - Span(early.min(t_ka.0 / 2));
        if aligned > now {
            self.next = aligned;
        }
    }

    /// Ends the current period at `now`.
    pub(super) fn advance(&mut self, now: Time, t_ka: Span) {
        let period = match &mut self.announce {
            Some((old, left)) if *left > 1 => {
                *left -= 1;
                *old
            }
            _ => {
                self.announce = None;
                t_ka
            }
        };
        self.next = if self.begun {
            let missed = now.since(self.next).0 / period.0.max(1);
            self.next + period * (missed + 1)
        } else {
            let left_out = (u128::from(period.0) * u128::from(self.phase)) >> 19;
            now + (period - Span(left_out as u64))
        };
        self.begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_moved_to_the_points_of_another_and_never_later() {
        let t_ka = Span(100);
        for (point, next) in
            [(1_030, 1_030), (30, 1_030), (5_030, 1_030), (1_060, 1_060), (1_061, 1_061)]
        {
            let mut schedule = Schedule::new(Time(860), 0);
            schedule.advance(Time(860), t_ka);
            schedule.next = Time(1_060);
            schedule.advance(Time(1_000), t_ka);
            schedule.next = Time(1_060).max(Time(next));
            schedule.align(Time(1_000), Time(point), t_ka);
            assert_eq!(schedule.next, Time(next), "point {point}");
        }
    }

    #[test]
    fn requests_stay_half_a_period_apart_on_the_way_to_another_grid() {
        let t_ka = Span(100);
        let mut schedule = Schedule::new(Time(1_000), 0);
        schedule.begun = true;
        schedule.next = Time(1_000);
        let mut sent = Time(1_000);
        for expected in [1_050, 1_110, 1_210] {
            schedule.advance(sent, t_ka);
            schedule.align(sent, Time(1_010), t_ka);
            assert_eq!(schedule.next, Time(expected));
            sent = schedule.next;
        }
    }

    #[test]
    fn a_point_that_has_passed_moves_nothing() {
        let mut schedule = Schedule::new(Time(1_000), 0);
        schedule.advance(Time(1_000), Span(100));
        let next = schedule.next;
        schedule.align(next - Span(1), next - Span(2), Span(100));
        assert_eq!(schedule.next, next);
    }

    #[test]
    fn a_grid_that_has_not_begun_is_announced_or_has_no_period_is_not_moved() {
        let aligned = |change: fn(&mut Schedule), t_ka| {
            let mut schedule = Schedule::new(Time(1_000), 0);
            (schedule.begun, schedule.next) = (true, Time(1_060));
            change(&mut schedule);
            schedule.align(Time(1_000), Time(1_030), t_ka);
            schedule.next
        };
        assert_eq!(aligned(|_| {}, Span(100)), Time(1_030));
        assert_eq!(aligned(|schedule| schedule.begun = false, Span(100)), Time(1_060));
        let announced = |schedule: &mut Schedule| schedule.announce = Some((Span(50), 2));
        assert_eq!(aligned(announced, Span(100)), Time(1_060));
        assert_eq!(aligned(|_| {}, Span::ZERO), Time(1_060));
    }
}
