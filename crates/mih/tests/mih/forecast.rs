//! When Link_Going_Down is announced: on walks out of a cell, and while the station stands still.
//!
//! A walk is both paper 5's worst case and an everyday one: out of the room and round a corner. The signal is path loss
//! (exponent 3), minus the loss behind the corner (25 dB over 2 to 4 m), minus shadowing correlated over metres, plus
//! measurement noise. The driver samples ten times a second and rounds to 1 dB. Speeds are 0.8 to 2 m/s, so the signal
//! falls by 5 to 25 dB/s.

use segue_clock::{Rng, Span, Time};
use segue_mih::{Forecast, Forecasting, Outlook};

const LOST_DBM: f64 = Forecasting::USUAL.lost_dbm as f64;
const STEP: Span = Span::from_millis(100);

/// An approximately normal variate: a sum of uniform ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

/// Loss behind a corner, in dB: 25 dB, reached `over` metres behind it.
fn corner_loss(behind: f64, over: f64) -> f64 {
    let x = (behind / over).clamp(0.0, 1.0);
    25.0 * x * x * (3.0 - 2.0 * x)
}

/// Shadowing with a standard deviation of 2 dB and a correlation distance of 2 m.
struct Shadow(f64);

impl Shadow {
    fn over(&mut self, metres: f64, rng: &mut Rng) -> f64 {
        let keep = (-metres / 2.0).exp();
        self.0 = keep * self.0 + (1.0 - keep * keep).sqrt() * 2.0 * normal(rng);
        self.0
    }
}

/// The driver's reading of this signal.
fn read(signal: f64, rng: &mut Rng) -> i16 {
    (signal + 0.5 * normal(rng)).round() as i16
}

/// How many seconds before the loss it was announced; `None` if it was not.
fn walk(seed: u64) -> Option<f64> {
    let mut rng = Rng::new(seed);
    let speed = 0.8 + 1.2 * rng.unit();
    let (corner, over) = (6.0 + 14.0 * rng.unit(), 2.0 + 2.0 * rng.unit());
    let (mut shadow, mut forecast) = (Shadow(0.0), Forecast::new(Forecasting::USUAL));
    let (mut told, mut now, mut way) = (None, Time(1_000_000_000), 1.0);
    for _ in 0..600 {
        way += speed * STEP.as_secs_f64();
        let mean = -38.0 - 30.0 * f64::log10(way) - corner_loss(way - corner, over);
        let signal = mean + shadow.over(speed * STEP.as_secs_f64(), &mut rng);
        if signal < LOST_DBM {
            let told: Time = told?;
            return Some(now.since(told).as_secs_f64());
        }
        match forecast.sample(now, read(signal, &mut rng)) {
            Some(Outlook::GoingDown { .. }) => told = Some(now),
            Some(Outlook::Recovered) => told = None,
            None => {}
        }
        now += STEP;
    }
    panic!("walk {seed} never leaves the cell");
}

#[test]
fn the_end_of_a_hundred_walks_is_told_in_time() {
    let leads: Vec<Option<f64>> = (0..100).map(walk).collect();
    let in_time = leads.iter().flatten().filter(|lead| (0.2..=1.0).contains(*lead)).count();
    let mut sorted: Vec<f64> = leads.iter().flatten().copied().collect();
    sorted.sort_by(f64::total_cmp);
    println!("{in_time} of 100 told 0.2 to 1 s before the loss; all: {sorted:?}");
    assert!(in_time >= 95, "{in_time} of 100: {leads:?}");
}

#[test]
fn ten_minutes_of_standing_are_hardly_ever_taken_for_leaving() {
    for (seed, level) in [(1, -60.0), (2, -70.0), (3, -76.0)] {
        let mut rng = Rng::new(seed);
        let mut forecast = Forecast::new(Forecasting::USUAL);
        let (mut told, mut now, mut shadow) = (0, Time(1_000_000_000), Shadow(0.0));
        for _ in 0..6_000 {
            // People passing by change the shadowing, as slow movement would.
            let signal = level + shadow.over(0.02, &mut rng);
            let outlook = forecast.sample(now, read(signal, &mut rng));
            told += usize::from(matches!(outlook, Some(Outlook::GoingDown { .. })));
            now += STEP;
        }
        println!("standing at {level} dBm: told {told} times");
        assert!(told <= 1, "{told} at {level} dBm");
    }
}
