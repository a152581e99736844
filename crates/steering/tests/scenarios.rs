//! Steering on virtual time: outages, recoveries, flapping, noise, requests.

use proptest::prelude::*;
use segue_clock::{Rng, Span, Time};
use segue_steering::{Class, Config, Decision, PathId, PathView, Reason, Steering};

const WIFI: PathId = PathId(0);
const LTE: PathId = PathId(1);
const STEP: Span = Span::from_millis(20);

/// A free Wi-Fi path of 20 ms, and a metered LTE path of 60 ms; Wi-Fi is better for every class.
struct World {
    now: Time,
    steering: Steering,
    wifi: PathView,
    lte: PathView,
}

fn path(id: PathId, rtt_s: f64, price: f64) -> PathView {
    PathView {
        id,
        usable: true,
        rtt_s: Some(rtt_s),
        loss_up: 0.0,
        loss_down: 0.0,
        lossy: false,
        bound_up: 0.0,
        bound_down: 0.0,
        jitter_s: 0.001,
        rate_bps: None,
        price,
        since: Time::ZERO,
        preference: 0.0,
    }
}

impl World {
    fn new(config: Config) -> World {
        World {
            now: Time::ZERO + Span::from_secs(1),
            steering: Steering::new(config),
            wifi: path(WIFI, 0.02, 0.0),
            lte: path(LTE, 0.06, 1.0),
        }
    }

    fn choose(&mut self) -> Option<Decision> {
        self.steering.choose(self.now, Class::Voice, &[self.wifi, self.lte])
    }

    fn wifi_usable(&mut self, usable: bool) {
        self.wifi.usable = usable;
        self.wifi.since = self.now;
    }

    /// Chooses in steps until flows move or `span` has passed; returns the time taken and the move.
    fn run(&mut self, span: Span) -> Option<(Span, Decision)> {
        let start = self.now;
        while self.now < start + span {
            self.now += STEP;
            let decision = self.choose();
            if let Some(decision) = decision.filter(Decision::is_move) {
                return Some((self.now.since(start), decision));
            }
        }
        None
    }

    /// Fails and restores Wi-Fi; returns how long it took until Wi-Fi was used again.
    fn fail_and_recover(&mut self, longest: Span) -> Span {
        self.wifi_usable(false);
        assert_eq!(self.choose().map(|decision| decision.path), Some(LTE));
        self.now += Span::from_secs(1);
        self.wifi_usable(true);
        assert_eq!(self.choose().map(|decision| decision.path), Some(LTE));
        self.run(longest).expect("the path is used again").0
    }
}

#[test]
fn the_first_choice_is_the_best_path() {
    let decision = World::new(Config::default()).choose().unwrap();
    assert_eq!((decision.path, decision.previous, decision.reason), (WIFI, None, Reason::First));
    assert_eq!(decision.scores.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [WIFI, LTE]);
}

#[test]
fn a_dead_first_path_does_not_delay_the_start_and_is_used_once_it_lives() {
    let mut world = World::new(Config::default());
    world.wifi_usable(false);
    assert_eq!(world.choose().unwrap().path, LTE);
    world.wifi_usable(true);
    let (after, decision) = world.run(Span::from_secs(2)).unwrap();
    assert_eq!(decision.path, WIFI);
    assert!(after <= Config::default().hold + STEP, "{after}");
}

#[test]
fn the_loss_of_the_path_in_use_moves_its_flows_at_once() {
    let mut world = World::new(Config::default());
    world.choose();
    world.wifi_usable(false);
    let decision = world.choose().unwrap();
    assert_eq!(
        (decision.path, decision.previous, decision.reason),
        (LTE, Some(WIFI), Reason::Down)
    );
    assert_eq!(decision.reason.to_string(), "the path in use went down");
}

#[test]
fn a_path_that_is_taken_away_is_left_at_once() {
    let mut world = World::new(Config::default());
    world.choose();
    let decision = world.steering.choose(world.now, Class::Voice, &[world.lte]).unwrap();
    assert_eq!((decision.path, decision.reason), (LTE, Reason::Removed));
}

#[test]
fn a_path_that_comes_back_the_first_time_is_used_again_after_its_hold() {
    let mut world = World::new(Config::default());
    world.choose();
    world.wifi_usable(false);
    world.choose();
    world.now += Span::from_secs(10);
    world.wifi_usable(true);
    world.choose();
    let due = world.steering.deadline();
    assert_eq!(due, Some(world.now + Config::default().hold));
    world.now = due.unwrap();
    let decision = world.choose().unwrap();
    assert_eq!(decision.path, WIFI);
    assert_eq!(decision.reason.to_string(), "better by 10.5 points for 500 ms");
    assert_eq!(world.steering.deadline(), None);
}

#[test]
fn a_path_that_keeps_failing_waits_twice_as_long_each_time_up_to_a_bound() {
    let config = Config { max_hold: Span::from_secs(3), ..Config::default() };
    let mut world = World::new(config);
    world.choose();
    let waits: Vec<_> = (0..5).map(|_| world.fail_and_recover(Span::from_secs(40))).collect();
    assert_eq!(waits, [500, 1_000, 2_000, 3_000, 3_000].map(Span::from_millis));
}

#[test]
fn old_failures_are_forgiven() {
    let mut world = World::new(Config::default());
    world.choose();
    for _ in 0..3 {
        world.fail_and_recover(Span::from_secs(40));
    }
    world.now += Config::default().forgive * 3;
    assert_eq!(world.choose().unwrap().reason, Reason::Unchanged);
    assert_eq!(world.fail_and_recover(Span::from_secs(40)), Config::default().hold);
}

#[test]
fn an_interface_that_comes_and_goes_counts_as_a_path_that_fails() {
    let mut world = World::new(Config::default());
    world.choose();
    for _ in 0..2 {
        world.steering.choose(world.now, Class::Voice, &[world.lte]);
        world.now += Span::from_secs(1);
        world.wifi_usable(true);
        world.choose();
        world.run(Span::from_secs(40));
    }
    assert_eq!(world.fail_and_recover(Span::from_secs(40)), Config::default().hold * 4);
}

#[test]
fn when_a_path_fails_a_steady_path_is_taken_before_a_better_one_that_flaps() {
    let mut world = World::new(Config::default());
    world.choose();
    for _ in 0..3 {
        world.fail_and_recover(Span::from_secs(40));
    }
    // When LTE fails, Wi-Fi is better but has only just returned; the third path is steady.
    world.wifi_usable(false);
    world.choose();
    world.now += STEP;
    world.wifi_usable(true);
    world.lte.usable = false;
    let steady = path(PathId(2), 0.1, 1.0);
    let paths = [world.wifi, world.lte, steady];
    let decision = world.steering.choose(world.now, Class::Voice, &paths).unwrap();
    assert_eq!((decision.path, decision.scores[0].0), (PathId(2), WIFI));
}

#[test]
fn a_lead_that_breaks_starts_again_from_zero() {
    let mut world = World::new(Config::default());
    world.wifi.rtt_s = Some(0.7);
    assert_eq!(world.choose().unwrap().path, LTE);
    for _ in 0..20 {
        world.wifi.rtt_s = Some(0.02);
        assert!(world.run(Span::from_millis(1_900)).is_none());
        world.wifi.rtt_s = Some(0.7);
        assert!(world.run(STEP).is_none());
    }
    world.wifi.rtt_s = Some(0.02);
    // The lead starts at the first observation, one step later.
    assert_eq!(world.run(Span::from_secs(3)).unwrap().0, Config::default().settle + STEP);
}

#[test]
fn a_path_that_comes_up_late_is_used_after_the_short_hold_and_one_that_was_there_after_the_long() {
    for (late, expected) in [(true, Config::default().hold), (false, Config::default().settle)] {
        let mut world = World::new(Config::default());
        world.wifi.usable = !late;
        world.wifi.rtt_s = Some(0.7);
        assert_eq!(world.choose().unwrap().path, LTE);
        world.now += Span::from_secs(10);
        world.wifi.rtt_s = Some(0.02);
        if late {
            world.wifi_usable(true);
        }
        assert!(!world.choose().unwrap().is_move());
        assert_eq!(world.run(Span::from_secs(5)).unwrap().0, expected, "late {late}");
    }
}

#[test]
fn two_moves_by_choice_are_apart_by_the_least_stay_but_a_failure_does_not_wait() {
    let config = Config { min_stay: Span::from_secs(4), ..Config::default() };
    let mut world = World::new(config.clone());
    world.lte.preference = -50.0;
    world.choose();
    world.lte.preference = 50.0;
    assert_eq!(world.run(Span::from_secs(5)).unwrap().1.path, LTE);
    world.lte.preference = -50.0;
    let (after, _) = world.run(Span::from_secs(5)).unwrap();
    assert_eq!(after, config.min_stay);
    world.wifi_usable(false);
    assert_eq!(world.choose().unwrap().reason, Reason::Down);
}

#[test]
fn without_a_usable_path_there_is_no_decision_and_the_old_path_is_remembered() {
    let mut world = World::new(Config::default());
    world.choose();
    world.wifi_usable(false);
    world.lte.usable = false;
    assert_eq!(world.choose(), None);
    assert_eq!(world.steering.current(Class::Voice), Some(WIFI));
    world.wifi_usable(true);
    assert_eq!(world.choose().unwrap().reason, Reason::Unchanged);
}

#[test]
fn a_request_is_carried_out_at_once_and_kept_and_released() {
    let mut world = World::new(Config::default());
    world.choose();
    world.steering.pin(None, Some(LTE));
    let decision = world.choose().unwrap();
    assert_eq!((decision.path, decision.reason), (LTE, Reason::Requested));
    assert!(world.run(Span::from_secs(10)).is_none());
    assert_eq!(world.steering.pinned(Class::Bulk), Some(LTE));
    world.steering.pin(Some(Class::Voice), None);
    assert_eq!(world.run(Span::from_secs(10)).unwrap().1.path, WIFI);
    assert_eq!(world.steering.pinned(Class::Bulk), Some(LTE));
}

#[test]
fn a_pinned_path_that_fails_is_left_and_taken_again_when_it_is_back() {
    let mut world = World::new(Config::default());
    world.wifi.preference = -50.0;
    world.steering.pin(Some(Class::Voice), Some(WIFI));
    assert_eq!(world.choose().unwrap().path, WIFI);
    world.wifi_usable(false);
    assert_eq!(world.choose().unwrap().reason, Reason::Down);
    world.now += Span::from_secs(1);
    world.wifi_usable(true);
    assert_eq!(world.choose().unwrap().path, LTE);
    assert_eq!(world.steering.deadline(), Some(world.now + Config::default().hold));
    let (after, decision) = world.run(Span::from_secs(2)).unwrap();
    assert_eq!((after, decision.reason), (Config::default().hold, Reason::Requested));
}

#[test]
fn an_order_for_a_path_that_has_just_come_back_is_carried_out_at_once() {
    let mut world = World::new(Config::default());
    world.choose();
    world.wifi_usable(false);
    assert_eq!(world.choose().unwrap().path, LTE);
    world.now += Span::from_secs(1);
    world.wifi_usable(true);
    assert_eq!(world.choose().unwrap().path, LTE, "by itself it would be waited for");
    world.steering.pin(Some(Class::Voice), Some(WIFI));
    let decision = world.choose().unwrap();
    assert_eq!((decision.path, decision.reason), (WIFI, Reason::Requested));
}

#[test]
fn classes_choose_for_themselves() {
    let mut world = World::new(Config::default());
    world.wifi.loss_down = 0.2;
    world.lte.price = 2.0;
    assert_eq!(world.choose().unwrap().path, LTE);
    let paths = [world.wifi, world.lte];
    let bulk = world.steering.choose(world.now, Class::Bulk, &paths).unwrap();
    assert_eq!(bulk.path, WIFI);
    assert_eq!(world.steering.current(Class::Voice), Some(LTE));
}

#[test]
fn noise_within_the_margin_moves_nothing_and_large_noise_moves_no_more_often_than_the_least_stay() {
    let config = Config::default();
    for (noise, most) in [(0.5 * config.margin, 0), (30.0, 30)] {
        let mut rng = Rng::new(7);
        let mut world = World::new(Config { hold: STEP, settle: STEP, ..config.clone() });
        world.lte = path(LTE, 0.02, 0.0);
        world.choose();
        let mut moves = 0;
        for _ in 0..60 * 50 {
            world.now += STEP;
            world.wifi.preference = noise * (2.0 * rng.unit() - 1.0);
            world.lte.preference = noise * (2.0 * rng.unit() - 1.0);
            moves += usize::from(world.choose().unwrap().is_move());
        }
        assert!(moves <= most, "{moves} moves in 60 s with noise {noise}");
        assert_eq!(moves == 0, most == 0, "noise {noise}");
    }
}

fn any_paths() -> impl Strategy<Value = Vec<PathView>> {
    let one = (any::<bool>(), 0.001..0.5f64, 0.0..0.3f64, -20.0..20.0f64);
    proptest::collection::vec(one, 3).prop_map(|paths| {
        let ids = (0..).map(PathId);
        let view = |(id, (usable, rtt_s, loss_up, preference))| PathView {
            usable,
            loss_up,
            preference,
            ..path(id, rtt_s, 0.0)
        };
        ids.zip(paths).map(view).collect()
    })
}

proptest! {
    #[test]
    fn an_unusable_path_is_never_chosen_and_a_usable_one_always_is(
        steps in proptest::collection::vec((0u64..3_000, any_paths(), 0usize..12), 1..60),
    ) {
        let mut steering = Steering::new(Config::default());
        let mut again = Steering::new(Config::default());
        let mut now = Time::ZERO;
        let mut up = [None; 3];
        for (ms, mut paths, pin) in steps {
            now += Span::from_millis(ms);
            for (since, path) in up.iter_mut().zip(&mut paths) {
                *since = path.usable.then_some(since.unwrap_or(now));
                path.since = since.unwrap_or(now);
            }
            if pin < 4 {
                let path = (pin < 3).then_some(PathId(pin as u8));
                steering.pin(Some(Class::Bulk), path);
                again.pin(Some(Class::Bulk), path);
            }
            for class in Class::ALL {
                let before = steering.current(class);
                let decision = steering.choose(now, class, &paths);
                prop_assert_eq!(decision.is_some(), paths.iter().any(|path| path.usable));
                if let Some(decision) = &decision {
                    prop_assert!(paths.iter().any(|x| x.id == decision.path && x.usable));
                    prop_assert_eq!(decision.previous, before);
                    prop_assert_eq!(steering.current(class), Some(decision.path));
                    prop_assert_eq!(decision.is_move(), decision.reason != Reason::Unchanged);
                }
                paths.reverse();
                prop_assert_eq!(again.choose(now, class, &paths), decision, "order matters");
                paths.reverse();
            }
            prop_assert!(steering.deadline().is_none_or(|at| at > now));
        }
    }
}

/// Two or three paths with few distinct values, mostly usable, so that one often dominates another.
fn similar_paths() -> impl Strategy<Value = Vec<PathView>> {
    let one = (
        prop_oneof![9 => Just(true), 1 => Just(false)],
        prop_oneof![1 => Just(None), 12 => (1..4_u8).prop_map(|n| Some(f64::from(n) * 0.04))],
        prop_oneof![4 => Just(0.0), 1 => Just(0.1), 1 => Just(f64::NAN)],
        prop_oneof![4 => Just(0.0), 1 => Just(1.0)],
        prop_oneof![4 => Just(0.0), 1 => Just(8.0)],
        prop_oneof![4 => Just(None), 1 => (1e5..1e8f64).prop_map(Some)],
    );
    proptest::collection::vec(one, 2..4).prop_map(|paths| {
        let view = |(id, (usable, rtt_s, loss_down, price, preference, rate_bps))| PathView {
            usable,
            rate_bps,
            rtt_s,
            loss_down,
            preference,
            ..path(PathId(id), 0.0, price)
        };
        (0..).zip(paths).map(view).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn all_classes_at_once_move_as_each_does_alone(
        steps in proptest::collection::vec((0u64..3_000, similar_paths(), 0usize..60), 1..60),
    ) {
        let mut steering = Steering::new(Config::default());
        let mut alone = Steering::new(Config::default());
        let mut now = Time::ZERO;
        let mut up = [None; 3];
        for (ms, mut paths, pin) in steps {
            now += Span::from_millis(ms);
            for (since, path) in up.iter_mut().zip(&mut paths) {
                *since = path.usable.then_some(since.unwrap_or(now));
                path.since = since.unwrap_or(now);
            }
            if pin < 4 {
                let path = (pin < 3).then_some(PathId(pin as u8));
                steering.pin(Some(Class::Bulk), path);
                alone.pin(Some(Class::Bulk), path);
            }
            let mut moves = Vec::new();
            steering.choose_all(now, &paths, |class, decision| moves.push((class, decision)));
            let each = Class::ALL.map(|class| (class, alone.choose(now, class, &paths)));
            let each: Vec<_> =
                each.into_iter().filter_map(|(class, decision)| Some((class, decision?))).collect();
            let moved: Vec<_> = each.into_iter().filter(|(_, d)| d.is_move()).collect();
            prop_assert_eq!(moves, moved);
            prop_assert_eq!(steering.deadline(), alone.deadline());
            for class in Class::ALL {
                prop_assert_eq!(steering.current(class), alone.current(class));
            }
        }
    }
}

#[test]
fn beside_a_path_stands_the_best_other_one_that_is_usable() {
    let [first, second, third] = [PathId(1), PathId(2), PathId(3)];
    let mut paths = vec![path(third, 0.06, 0.0), path(first, 0.02, 0.0), path(second, 0.06, 0.0)];
    let beside = |paths: &[PathView], but| Steering::beside(Class::Default, paths, but);
    assert_eq!(beside(&paths, first), Some(second), "of equals the lowest number");
    assert_eq!(beside(&paths, second), Some(first));
    paths[2].usable = false;
    assert_eq!(beside(&paths, first), Some(third));
    paths[0].usable = false;
    assert_eq!(beside(&paths, first), None);
}
