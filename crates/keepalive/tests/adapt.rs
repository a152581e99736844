//! The settings of a path follow its measurements and its use.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use segue_clock::Span;
use segue_keepalive::adapt::{Look, Why};
use segue_keepalive::{Adaptive, Aims, Counted, Estimates, Lapses};

/// A path with a round trip of 20 ms that has carried `packets`, of which `lost` were lost each way.
fn estimates(packets: u64, lost: u64) -> Estimates {
    let counted = Counted { sent: packets, received: packets - lost };
    Estimates {
        rtt_ewma: vec![0.02],
        rtt_max: Some(Span::from_millis(25)),
        up: counted,
        down: counted,
        ..Estimates::default()
    }
}

fn look<'a>(estimates: &'a Estimates, used: bool, rate: f64) -> Look<'a> {
    Look {
        estimates,
        round_trips: Counted::default(),
        lapses: Lapses::default(),
        answer: Span::from_millis(32),
        used,
        rate,
        is_up: true,
    }
}

/// The settings of a path that has been like this for some time.
fn chosen(aims: Aims, packets: u64, lost: u64, change: impl Fn(&mut Look<'_>)) -> Why {
    let mut adaptive = Adaptive::new(aims);
    for n in 1..=20 {
        let estimates = estimates(packets * n, lost * n);
        let mut look = look(&estimates, false, 0.0);
        change(&mut look);
        adaptive.update(look);
    }
    *adaptive.why().unwrap()
}

#[test]
fn an_idle_path_keeps_its_aim_and_costs_less_than_four_megabytes_a_day() {
    let why = chosen(Aims::default(), 100, 0, |_| {});
    assert!((why.detection - 2.5).abs() < 1e-9, "{why}");
    // Request and response have 104 bytes each over IPv6.
    assert!(208.0 / why.t_ka * 86_400.0 <= 4e6, "{why}");
    let quick = chosen(Aims { idle: 0.5, ..Aims::default() }, 100, 0, |_| {});
    assert!((quick.detection - 0.5).abs() < 1e-9, "{quick}");
    let frugal = chosen(Aims { idle: 600.0, ..Aims::default() }, 100, 0, |_| {});
    assert!(frugal.t_ka <= 65.5, "a probe cannot state more: {frugal}");
}

#[test]
fn what_a_used_path_is_probed_with_is_a_share_of_what_it_carries() {
    for (rate, t_ka) in [(625_000.0, 0.25), (20_000.0, 0.25), (3_000.0, 1.0), (1_000.0, 2.0)] {
        let why = chosen(Aims::default(), 100, 0, |look| (look.used, look.rate) = (true, rate));
        assert!((why.t_ka - t_ka).abs() < 1e-9, "{rate} bytes a second: {why}");
        assert!(168.0 / why.t_ka <= 0.1 * rate || why.t_ka <= 0.25, "{why}");
    }
    let trickle = chosen(Aims::default(), 100, 0, |look| (look.used, look.rate) = (true, 10.0));
    let idle = chosen(Aims::default(), 100, 0, |_| {});
    assert!((trickle.t_ka - idle.t_ka).abs() < 0.2, "not less than without data");
}

#[test]
fn the_budget_of_probes_holds() {
    let aims = Aims { probes_per_s: 2.0, ..Aims::default() };
    let why = chosen(aims, 100, 0, |look| (look.used, look.rate) = (true, 1e6));
    assert!(why.t_ka >= 0.5, "{why}");
}

#[test]
fn losses_and_bursts_ask_for_more_questions() {
    let clean = chosen(Aims::default(), 100, 0, |_| {});
    let lossy = chosen(Aims::default(), 100, 20, |_| {});
    assert_eq!(clean.questions.k, 3);
    assert!(lossy.questions.k > 10 && lossy.questions.t_d < 0.2, "{lossy}");
    assert!(!clean.is_given_up() && !lossy.is_given_up());
    let lapses = Lapses { doubts: 9, weight: 5.0, lasted: 0.25, longest: 0.1, ..Lapses::default() };
    let bursty = chosen(Aims::default(), 100, 1, |look| look.lapses = lapses);
    let spread = f64::from(bursty.questions.k - 1) * bursty.questions.spacing;
    assert!(spread > 0.1 && bursty.questions.t_fp >= 1e5, "{bursty}");
    let hopeless = chosen(Aims { k_max: 3, ..Aims::default() }, 100, 50, |_| {});
    assert!(hopeless.is_given_up() && hopeless.to_string().contains("given up"), "{hopeless}");
}

#[test]
fn nothing_changes_while_nothing_does_and_nothing_is_learned_of_an_outage() {
    let mut adaptive = Adaptive::new(Aims::default());
    let mut changes = 0;
    for n in 1..100 {
        let estimates = estimates(100 * n, 0);
        changes += usize::from(adaptive.update(look(&estimates, false, 0.0)).is_some());
    }
    assert_eq!(changes, 1);
    let before = *adaptive.why().unwrap();
    let outage = estimates(20_000, 5_000);
    assert!(adaptive.update(Look { is_up: false, ..look(&outage, false, 0.0) }).is_none());
    assert!(adaptive.update(look(&outage, false, 0.0)).is_none());
    assert_eq!(*adaptive.why().unwrap(), before);
}
