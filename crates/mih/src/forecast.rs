//! Predicts when a signal will be lost: fits a line to its latest values (least squares), and extrapolates to the
//! threshold.

use alloc::collections::VecDeque;

use segue_clock::{Span, Time};

use crate::config::Forecasting;

/// Maximum number of values kept.
const MOST: usize = 256;
/// Minimum number of values for a fit.
const FEWEST: usize = 5;
/// A second fit over this shorter window reacts earlier when the signal bends, as it does behind a corner.
const LAST_PART: Span = Span::from_millis(450);
/// Minimum decline for a prediction, in dB/s.
const SLOWEST: f64 = 2.0;
/// A signal this far above the threshold, in dB, that falls more slowly than `SLOWEST` cancels a prediction.
const RECOVERED: f64 = 3.0;
/// Confidence: the slope must lie this many standard errors below `-SLOWEST`.
const SURE: f64 = 1.5;

/// The signal of one attachment.
#[derive(Clone, Debug)]
pub struct Forecast {
    config: Forecasting,
    values: VecDeque<(Time, f64)>,
    told: bool,
}

/// The consequence of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The signal will be lost soon.
    GoingDown {
        /// Time until then, in milliseconds.
        within_ms: u16,
    },
    /// An earlier prediction is cancelled.
    Recovered,
}

/// A fitted line.
struct Line {
    /// Level now, in dBm.
    level: f64,
    /// In dB/s.
    slope: f64,
    /// Standard error of the slope, in dB/s.
    error: f64,
}

impl Forecast {
    /// A forecast without samples.
    #[must_use]
    pub fn new(config: Forecasting) -> Forecast {
        Forecast { config, values: VecDeque::new(), told: false }
    }

    /// Adds a sample in dBm, not older than the previous one.
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

    /// Fits a line to the values within `of` before `now`; `None` if there are too few.
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

/// The square root of a number >= 0, by Newton's method: `core` has none.
fn root(of: f64) -> f64 {
    let mut guess = if of > 1.0 { of } else { 1.0 };
    for _ in 0..60 {
        guess = 0.5 * (guess + of / guess);
    }
    guess
}
