//! When a signal will be lost: a straight line through its last values (least squares), and where it meets the threshold.

use alloc::collections::VecDeque;

use segue_clock::{Span, Time};

use crate::config::Forecasting;

/// Most values that are looked at.
const MOST: usize = 256;
/// Values that a line needs.
const FEWEST: usize = 5;
/// Where a signal bends, as behind a corner, its last part alone tells earlier.
const LAST_PART: Span = Span::from_millis(450);
/// A signal that falls more slowly, in dB a second, does not say when it will be lost.
const SLOWEST: f64 = 2.0;
/// A signal that is this much above the threshold, in dB, and does not fall is not about to be lost any more.
const RECOVERED: f64 = 3.0;
/// How many standard errors a slope has to lie below zero.
const SURE: f64 = 1.5;

/// The signal of one attachment.
#[derive(Clone, Debug)]
pub struct Forecast {
    config: Forecasting,
    values: VecDeque<(Time, f64)>,
    told: bool,
}

/// What follows from a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The signal will be lost in so many milliseconds.
    GoingDown {
        /// In how many milliseconds.
        within_ms: u16,
    },
    /// It will not, after it was told that it would.
    Recovered,
}

/// A line through some values.
struct Line {
    /// In dBm, now.
    level: f64,
    /// In dB a second.
    slope: f64,
    /// The standard error of the slope.
    error: f64,
}

impl Forecast {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(config: Forecasting) -> Forecast {
        Forecast { config, values: VecDeque::new(), told: false }
    }

    /// Takes a value, in dBm, that is not older than the one before.
    pub fn sample(&mut self, now: Time, dbm: i16) -> Option<Outlook> {
        self.values.push_back((now, f64::from(dbm)));
        while self.values.len() > MOST
            || self.values.front().is_some_and(|(at, _)| now.since(*at) > self.config.window)
        {
            self.values.pop_front();
        }
        let lost = f64::from(self.config.lost_dbm);
        let (all, last) = (self.line(now, self.config.window), self.line(now, LAST_PART));
        if self.told {
            let line = last.or(all)?;
            let recovered = line.level > lost + RECOVERED && line.slope > -SLOWEST;
            self.told = !recovered;
            return recovered.then_some(Outlook::Recovered);
        }
        let left = |line: Option<Line>| {
            let line = line.filter(|line| line.slope + SURE * line.error < -SLOWEST)?;
            Some(((line.level - lost) / -line.slope).max(0.0))
        };
        let within = match (left(all), left(last)) {
            (Some(all), Some(last)) => all.min(last),
            (all, last) => all.or(last)?,
        };
        if within > self.config.ahead.as_secs_f64() {
            return None;
        }
        self.told = true;
        Some(Outlook::GoingDown { within_ms: (within * 1_000.0) as u16 })
    }

    /// The line through the values of this time.
    fn line(&self, now: Time, of: Span) -> Option<Line> {
        let values = self.values.iter().filter(|(at, _)| now.since(*at) <= of);
        let points = values.map(|(at, dbm)| (-now.since(*at).as_secs_f64(), *dbm));
        let (mut n, mut sum_t, mut sum_y) = (0.0, 0.0, 0.0);
        for (t, y) in points.clone() {
            (n, sum_t, sum_y) = (n + 1.0, sum_t + t, sum_y + y);
        }
        if n < FEWEST as f64 {
            return None;
        }
        let (mean_t, mean_y) = (sum_t / n, sum_y / n);
        let (mut spread, mut together) = (0.0, 0.0);
        for (t, y) in points.clone() {
            spread += (t - mean_t) * (t - mean_t);
            together += (t - mean_t) * (y - mean_y);
        }
        if spread <= 0.0 {
            return None;
        }
        let slope = together / spread;
        let level = mean_y - slope * mean_t;
        let misses = points.map(|(t, y)| y - level - slope * t);
        let squares: f64 = misses.map(|miss| miss * miss).sum();
        Some(Line { level, slope, error: root(squares / (n - 2.0) / spread) })
    }
}

/// The square root of what is not negative (Newton): `core` has none.
fn root(of: f64) -> f64 {
    let mut guess = if of > 1.0 { of } else { 1.0 };
    for _ in 0..60 {
        guess = 0.5 * (guess + of / guess);
    }
    guess
}
