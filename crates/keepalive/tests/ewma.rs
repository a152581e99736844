//! Averages: eq. 13 against a plain reference, and their timeliness (sections 6 and 14).

mod common;

use common::{World, config, ms};
use proptest::prelude::*;
use segue_clock::{Rng, Span, Time};
use segue_keepalive::Tau;
use segue_keepalive::ewma::Ewma;

const TAUS_MS: [u64; 4] = [124, 218, 392, 896];

#[test]
fn averages_at_irregular_intervals_equal_the_definition() {
    let taus = [0.124, 1.0, 30.0];
    let mut ewma = Ewma::new();
    let mut rng = Rng::new(3);
    let mut reference = [0.0; 3];
    let (mut t, mut first) = (0.0, true);
    for _ in 0..5_000 {
        let gap = (rng.unit() * 0.9 * 1e9).floor() / 1e9;
        t += gap;
        let x = rng.unit();
        for (s, tau) in reference.iter_mut().zip(taus) {
            // The unsimplified eq. 13 with the reference interval T = 200 ms.
            let alpha = 1.0 - (-0.2_f64 / tau).exp();
            let keep = (1.0 - alpha).powf(gap / 0.2);
            *s = if first { x } else { (1.0 - keep) * x + keep * *s };
        }
        first = false;
        let spans = taus.map(|tau| Tau::symmetric(Span::from_secs_f64(tau)));
        ewma.push(&spans, Time((t * 1e9).round() as u64), x);
        for (got, want) in ewma.values().iter().zip(reference) {
            assert!((got - want).abs() < 1e-6, "{got} against {want}");
        }
    }
}

#[test]
fn the_smoothing_factors_of_the_paper_give_its_time_constants() {
    for (alpha, tau_ms) in [0.8, 0.6, 0.4, 0.2].into_iter().zip(TAUS_MS) {
        let mut ewma = Ewma::new();
        let tau = [Tau::symmetric(ms(tau_ms))];
        ewma.push(&tau, Time(0), 1.0);
        ewma.push(&tau, Time(200_000_000), 0.0);
        assert!((1.0 - ewma.values()[0] - alpha).abs() < 0.002, "tau {tau_ms} ms");
    }
}

#[test]
fn an_asymmetric_average_rises_with_one_time_constant_and_falls_with_the_other() {
    let tau = [Tau { rise: ms(100), fall: ms(1_000) }];
    let mut ewma = Ewma::new();
    ewma.push(&tau, Time(0), 1.0);
    ewma.push(&tau, Time(100_000_000), 2.0);
    let up = ewma.values()[0];
    assert!((up - (2.0 - (-1.0_f64).exp())).abs() < 1e-12);
    ewma.push(&tau, Time(1_100_000_000), 0.0);
    assert!((ewma.values()[0] - up * (-1.0_f64).exp()).abs() < 1e-12);
}

#[test]
fn a_constant_input_is_reproduced_exactly_and_nonsense_is_ignored() {
    let tau = [Tau::symmetric(ms(124)), Tau::symmetric(Span::ZERO)];
    let mut ewma = Ewma::new();
    assert!(ewma.values().is_empty());
    for i in 0..1_000 {
        ewma.push(&tau, Time(i * 123_456_789), 0.1);
        ewma.push(&tau, Time(i * 123_456_789), f64::NAN);
    }
    assert_eq!(ewma.values(), [0.1, 0.1]);
}

#[test]
fn a_sample_out_of_order_has_no_weight_and_does_not_turn_time_back() {
    let tau = [Tau::symmetric(ms(100))];
    let mut ewma = Ewma::new();
    ewma.push(&tau, Time(1_000_000_000), 1.0);
    ewma.push(&tau, Time(500_000_000), 5.0);
    assert_eq!(ewma.values(), [1.0]);
    ewma.push(&tau, Time(1_100_000_000), 0.0);
    assert!((ewma.values()[0] - (-1.0_f64).exp()).abs() < 1e-12);
}

/// The step of Fig. 16 and 21: an RTT of 100 ms rises to 200 ms at `step`. Returns T_tml in seconds.
fn timeliness(t_ka: Span, tau: Span, step: Time) -> f64 {
    let link = move |_, at: Time| Some(if at < step { ms(50) } else { ms(100) });
    let mut config = config(3, t_ka);
    config.taus = vec![Tau::symmetric(tau)];
    let mut world = World::new(config, Time(0), Span::from_secs(1_000), Box::new(link));
    world.run_until(step);
    let before = world.client.estimates().rtt_ewma[0];
    assert!((before - 0.1).abs() < 1e-4, "steady at {before}");
    while world.client.estimates().rtt_ewma[0] < 0.19 {
        world.run_for(ms(1));
    }
    world.now.since(step).as_secs_f64()
}

#[test]
fn timeliness_after_a_step_is_the_papers() {
    for (t_ka, taus_ms) in [(ms(200), TAUS_MS), (ms(2_000), TAUS_MS.map(|tau| tau * 10))] {
        for tau_ms in taus_ms {
            for phase in 0..10 {
                let step = Time(0) + t_ka * 40 + ms(t_ka.0 / 1_000_000 * phase / 10);
                let t_tml = timeliness(t_ka, ms(tau_ms), step);
                let ideal = 10.0_f64.ln() * tau_ms as f64 / 1e3;
                let (low, high) = (ideal - t_ka.as_secs_f64(), ideal + t_ka.as_secs_f64() + 0.2);
                assert!(
                    (low..=high).contains(&t_tml),
                    "T_KA {t_ka}, tau {tau_ms} ms, phase {phase}: {low} {t_tml} {high}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn an_average_stays_between_the_smallest_and_the_largest_sample(
        samples in proptest::collection::vec((any::<u32>(), 0.0..1e3_f64), 1..50),
        rise in any::<u32>(), fall in any::<u32>(),
    ) {
        let tau = [Tau { rise: Span(rise.into()), fall: Span(fall.into()) }];
        let mut ewma = Ewma::new();
        let (mut min, mut max, mut t) = (f64::MAX, f64::MIN, 0);
        for (gap, x) in samples {
            t += u64::from(gap);
            (min, max) = (min.min(x), max.max(x));
            ewma.push(&tau, Time(t), x);
            prop_assert!((min - 1e-9..=max + 1e-9).contains(&ewma.values()[0]));
        }
    }
}
