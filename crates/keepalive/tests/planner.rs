//! The planner against the paper, against an exhaustive search, and its rejections.

use proptest::prelude::*;
use segue_clock::{Rng, Span};
use segue_keepalive::planner::{
    BITS_PER_EXCHANGE, K_MAX, Responsiveness, T_KA_MIN, Warning, false_positive,
};
use segue_keepalive::{Config, Infeasible, Targets, evaluate, plan};

/// Section 4.3: RTT_avg = 100 ms, loss 5 %, T_Ravg 500 ms, T_fp 10⁵ s.
fn example() -> Targets {
    Targets {
        rtt_avg: 0.1,
        rtt_max: None,
        loss_up: 0.05,
        loss_down: 0.05,
        loss: None,
        burst: None,
        rides: false,
        responsiveness: Responsiveness::Avg(0.5),
        fp_interval: 1e5,
        t_ka_min: T_KA_MIN,
        k_max: K_MAX,
    }
}

#[test]
fn the_papers_example_gives_k_7_and_60_ms() {
    let plan = plan(&example()).unwrap();
    assert_eq!(plan.k, 7);
    assert!((plan.t_ka - 0.06).abs() < 1e-12);
    assert!((plan.t_to - 0.42).abs() < 1e-12);
    assert!((plan.t_r_avg - 0.5).abs() < 1e-12);
    assert!((plan.t_r_max - 0.58).abs() < 1e-12);
    assert!((plan.t_fp / (0.06 / 0.0975_f64.powi(7)) - 1.0).abs() < 1e-9);
    assert!((plan.probes_per_s - 1.0 / 0.06).abs() < 1e-9);
    assert!((plan.bits_per_s - BITS_PER_EXCHANGE / 0.06).abs() < 1e-6);
    assert_eq!(plan.warnings, [Warning::RttNotBelowPeriod { rtt_max: 0.1, t_ka: plan.t_ka }]);
    assert_eq!(Config::from_plan(&plan).t_ka, Span::from_millis(60));
    assert_eq!(Config::from(&plan).k, 7);
}

#[test]
fn a_period_may_be_the_shortest_allowed_and_must_be_longer_than_false_positives_allow() {
    let found = plan(&example()).unwrap();
    // The plan has 60 ms, regardless of the last bit.
    for t_ka_min in [found.t_ka, 0.06, 0.06 * (1.0 + 1e-12)] {
        assert_eq!(plan(&Targets { t_ka_min, ..example() }).map(|plan| plan.k), Ok(7));
    }
    let refused = plan(&Targets { t_ka_min: 0.06 * (1.0 + 1e-6), ..example() });
    assert!(matches!(refused, Err(Infeasible::PeriodBelowMinimum { k: 7, .. })), "{refused:?}");
    // Eq. 8 requires strictly more.
    let rarest = found.t_fp;
    for (fp_interval, k) in [(rarest * (1.0 - 1e-6), 7), (rarest, 8), (rarest * (1.0 + 1e-6), 8)] {
        let targets = Targets { fp_interval, ..example() };
        assert_eq!(plan(&targets).map(|plan| plan.k), Ok(k), "{fp_interval}");
    }
}

#[test]
fn the_period_is_rounded_down_to_what_a_probe_can_state() {
    let at = |t_ka| Config::from_plan(&evaluate(3, t_ka, &example())).t_ka;
    assert_eq!(at(0.0818), Span::from_millis(81));
    assert_eq!(at(0.059_999_999_999_8), Span::from_millis(60));
    assert_eq!(at(0.000_3), Span::from_millis(1));
    assert_eq!(at(100.0), Span::from_millis(65_535));
}

/// K* and T_KA* from a search over all periods on a fine grid, with eq. 2 and 4 in their original form.
fn search(t: &Targets) -> (u8, f64) {
    let Responsiveness::Avg(wanted) = t.responsiveness else { panic!("average only") };
    let step = 1e-5;
    let mut best = (0, 0.0);
    for k in 1..=30_i32 {
        let loss = 2.0 * t.loss_up - t.loss_up * t.loss_up;
        let meets = |t_ka: f64| {
            (f64::from(k) + 0.5) * t_ka + t.rtt_avg / 2.0 < wanted
                && t_ka / loss.powi(k) > t.fp_interval
        };
        let longest = (1..200_000).map(|i| f64::from(i) * step).rfind(|t_ka| meets(*t_ka));
        if let Some(t_ka) = longest
            && t_ka > best.1
        {
            best = (k as u8, t_ka);
        }
    }
    best
}

#[test]
fn figures_9_to_11_agree_with_a_search_over_all_periods() {
    let mut cases = Vec::new();
    for loss in [0.005, 0.01, 0.02, 0.04, 0.05, 0.06, 0.08] {
        cases.push(Targets { loss_up: loss, loss_down: loss, ..example() });
    }
    for fp_interval in [1e2, 1e3, 1e4, 1e5, 1e6] {
        cases.push(Targets { fp_interval, ..example() });
    }
    for t in [0.08, 0.15, 0.25, 0.5, 1.0, 2.0] {
        cases.push(Targets { responsiveness: Responsiveness::Avg(t), ..example() });
    }
    for targets in cases {
        let targets = Targets { t_ka_min: 0.001, ..targets };
        let (plan, (k, t_ka)) = (plan(&targets).unwrap(), search(&targets));
        assert_eq!(plan.k, k, "{targets:?}");
        assert!((plan.t_ka - t_ka).abs() < 2.1e-5, "{} {t_ka} {targets:?}", plan.t_ka);
    }
}

#[test]
fn a_boundary_that_is_only_equal_does_not_hold() {
    // With K = 1 both sides of eq. 8 are 0.3: 0.45/1.5, and 10 s · 0.03.
    let loss = 1.0 - 0.97_f64.sqrt();
    let targets = Targets { loss_up: loss, loss_down: loss, fp_interval: 10.0, ..example() };
    assert_eq!(plan(&targets).unwrap().k, 2);
    assert_eq!(plan(&Targets { fp_interval: 9.999, ..targets }).unwrap().k, 1);
}

#[test]
fn planning_on_the_worst_case_meets_equation_1_exactly() {
    let targets =
        Targets { rtt_max: Some(0.15), responsiveness: Responsiveness::Max(0.5), ..example() };
    let plan = plan(&targets).unwrap();
    assert!((plan.t_r_max - 0.5).abs() < 1e-12);
    assert!(plan.t_fp > 1e5);
}

#[test]
fn a_path_without_loss_needs_one_probe() {
    let plan = plan(&Targets { loss_up: 0.0, loss_down: 0.0, ..example() }).unwrap();
    assert_eq!((plan.k, plan.t_fp), (1, f64::INFINITY));
    assert!((plan.t_ka - 0.3).abs() < 1e-12);
    assert!(plan.warnings.is_empty(), "the RTT is below the period");
}

#[test]
fn each_direction_has_its_own_loss() {
    let one = Targets { loss_up: 0.0975, loss_down: 0.0, ..example() };
    assert!((false_positive(3, &one) - false_positive(3, &example())).abs() < 1e-15);
    let swapped = Targets { loss_up: 0.0, loss_down: 0.0975, ..example() };
    assert_eq!(plan(&one).unwrap().k, plan(&swapped).unwrap().k);
}

#[test]
fn bursts_of_the_independent_length_change_nothing() {
    let q = 0.0975;
    let targets = Targets { burst: Some(1.0 / (1.0 - q)), ..example() };
    for k in 1..20 {
        let (a, b) = (false_positive(k, &targets), false_positive(k, &example()));
        assert!((a / b - 1.0).abs() < 1e-9, "K {k}");
    }
    assert_eq!(plan(&targets).unwrap().k, 7);
}

#[test]
fn the_burst_formula_is_the_share_of_probes_that_end_k_losses_of_a_gilbert_chain() {
    let targets = Targets { loss_up: 0.1, loss_down: 0.1, burst: Some(2.5), ..example() };
    let (q, leave) = (0.19, 1.0 / 2.5);
    let enter = leave * q / (1.0 - q);
    let (mut rng, mut bad, mut run) = (Rng::new(5), false, 0_usize);
    let mut ended = [0_u32; 6];
    let probes = 2_000_000;
    for _ in 0..probes {
        bad = if bad { !rng.chance(leave) } else { rng.chance(enter) };
        run = if bad { run + 1 } else { 0 };
        for count in ended.iter_mut().take(run) {
            *count += 1;
        }
    }
    for (k, count) in (1..).zip(ended) {
        let (got, want) = (f64::from(count) / f64::from(probes), false_positive(k, &targets));
        assert!((got / want - 1.0).abs() < 0.03, "K {k}: {got}, formula {want}");
    }
}

#[test]
fn a_burst_is_at_least_as_long_as_so_much_loss_makes_it() {
    // q = 0.8: even if a lost probe followed each one that arrived, the mean burst would be 4 long.
    let with = |burst| Targets { loss: Some(0.8), burst: Some(burst), ..example() };
    let refused = |burst| {
        matches!(plan(&with(burst)), Err(Infeasible::BadValue { what: "burst length", .. }))
    };
    assert!(refused(3.999) && !refused(4.001));
    // With bursts that long, a loss follows a loss with probability 1 − 1/4.
    let targets = with(4.0);
    for k in 1..6 {
        let expected = 0.8 * 0.75_f64.powi(i32::from(k) - 1);
        assert!((false_positive(k, &targets) / expected - 1.0).abs() < 1e-12, "K {k}");
    }
}

#[test]
fn with_rides_the_bounds_are_those_of_the_machine_and_the_targets_are_kept() {
    let span = Span::from_secs_f64;
    for (k, t_ka, rides) in [(1, 0.02, true), (3, 0.2, true), (255, 0.065, true), (3, 0.2, false)] {
        let targets = Targets { rides, rtt_max: Some(0.15), ..example() };
        let plan = evaluate(k, t_ka, &targets);
        let config = Config { rides, ..Config::from_plan(&plan) };
        let near = |a: Span, b: f64| (a.as_secs_f64() - b).abs() < 1e-6;
        assert!(near(config.t_r_max(span(0.15)), plan.t_r_max), "{plan:?}");
        assert!(near(config.t_r_avg(span(0.1)), plan.t_r_avg), "{plan:?}");
        assert!(near(config.time_out() - config.t_ka.half(), plan.t_to), "{plan:?}");
    }
    let avg = plan(&Targets { rides: true, ..example() }).unwrap();
    assert_eq!(avg.k, 7);
    assert!((avg.t_ka - 0.45 / 10.0).abs() < 1e-12 && (avg.t_r_avg - 0.5).abs() < 1e-12);
    let worst = Targets { responsiveness: Responsiveness::Max(0.5), rides: true, ..example() };
    let worst = plan(&worst).unwrap();
    assert!((worst.t_ka - 0.4 / 10.5).abs() < 1e-12 && (worst.t_r_max - 0.5).abs() < 1e-12);
}

#[test]
fn the_round_trips_own_loss_goes_before_that_of_the_directions() {
    let known = Targets { loss: Some(0.05), ..example() };
    let one = Targets { loss_up: 0.05, loss_down: 0.0, ..example() };
    for k in 1..10 {
        assert!((false_positive(k, &known) / false_positive(k, &one) - 1.0).abs() < 1e-12);
    }
    assert!(plan(&known).unwrap().k < plan(&example()).unwrap().k);
}

#[test]
fn a_constraint_that_cannot_be_met_is_named() {
    let short = plan(&Targets { responsiveness: Responsiveness::Avg(0.05), ..example() });
    assert_eq!(
        short,
        Err(Infeasible::ResponsivenessBelowRtt { responsiveness: 0.05, rtt_share: 0.05 })
    );
    let short = plan(&Targets { responsiveness: Responsiveness::Max(0.09), ..example() });
    assert!(matches!(short, Err(Infeasible::ResponsivenessBelowRtt { .. })));
    let lossy = Targets { loss_up: 0.5, loss_down: 0.5, ..example() };
    assert!(matches!(
        plan(&lossy),
        Err(Infeasible::PeriodBelowMinimum { t_ka, t_ka_min, .. }) if t_ka < t_ka_min
    ));
    let few = plan(&Targets { k_max: 4, ..lossy });
    assert!(matches!(few, Err(Infeasible::FalsePositives { k_max: 4, t_fp, .. }) if t_fp < 1e5));
    let endless = plan(&Targets { burst: Some(1e6), ..example() });
    assert!(matches!(endless, Err(Infeasible::FalsePositives { .. })));
}

#[test]
fn values_without_a_meaning_are_named() {
    let e = example();
    for (targets, field) in [
        (Targets { rtt_avg: -1.0, ..e }, "RTT"),
        (Targets { rtt_avg: f64::NAN, ..e }, "RTT"),
        (Targets { rtt_max: Some(0.05), ..e }, "largest RTT"),
        (Targets { loss_up: 1.0, ..e }, "loss up"),
        (Targets { loss_down: -0.1, ..e }, "loss down"),
        (Targets { loss: Some(1.0), ..e }, "round-trip loss"),
        (Targets { burst: Some(0.9), ..e }, "burst length"),
        // If half of all probes were lost individually, they would have to alternate, or more.
        (Targets { loss_up: 0.6, loss_down: 0.6, burst: Some(1.0), ..e }, "burst length"),
        (Targets { responsiveness: Responsiveness::Avg(f64::INFINITY), ..e }, "responsiveness"),
        (Targets { fp_interval: 0.0, ..e }, "false positive interval"),
        (Targets { t_ka_min: 0.0, ..e }, "minimum period"),
        (Targets { k_max: 0, ..e }, "largest K"),
    ] {
        match plan(&targets) {
            Err(Infeasible::BadValue { what, .. }) => assert_eq!(what, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn a_plan_meets_its_targets_and_harder_targets_never_give_a_longer_period(
        rtt in 0.0..0.3_f64, up in 0.0..0.4_f64, down in 0.0..0.4_f64,
        wanted in 0.2..5.0_f64, fp in 1.0..1e7_f64, more in 1.0..3.0_f64,
    ) {
        let targets = Targets {
            rtt_avg: rtt, loss_up: up, loss_down: down, fp_interval: fp,
            responsiveness: Responsiveness::Avg(wanted), ..example()
        };
        if let Ok(found) = plan(&targets) {
            prop_assert!(found.t_r_avg <= wanted * (1.0 + 1e-9));
            prop_assert!(found.t_fp > fp);
            prop_assert!(found.t_ka >= T_KA_MIN * (1.0 - 1e-6));
            for harder in [
                Targets { fp_interval: fp * more, ..targets },
                Targets { loss_up: (up * more).min(0.9), ..targets },
                Targets { responsiveness: Responsiveness::Avg(wanted / more), ..targets },
                Targets { rtt_avg: rtt * more, ..targets },
            ] {
                if let Ok(other) = plan(&harder) {
                    prop_assert!(other.t_ka <= found.t_ka * (1.0 + 1e-9), "{:?}", harder);
                }
            }
        }
    }

    #[test]
    fn no_values_make_the_planner_panic(
        values in proptest::array::uniform8(any::<f64>()), burst in any::<Option<f64>>(),
        k_max in any::<u8>(), [worst, loss, rides] in any::<[bool; 3]>(),
    ) {
        let [rtt_avg, rtt_max, loss_up, loss_down, wanted, fp_interval, t_ka_min, q] = values;
        let targets = Targets {
            rtt_avg, rtt_max: Some(rtt_max), loss_up, loss_down, burst, fp_interval, t_ka_min,
            loss: loss.then_some(q), rides,
            responsiveness: if worst { Responsiveness::Max(wanted) } else { Responsiveness::Avg(wanted) },
            k_max,
        };
        match plan(&targets) {
            Ok(plan) => prop_assert!(plan.t_ka > 0.0 && plan.k > 0),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
