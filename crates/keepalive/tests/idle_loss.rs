//! Loss of a path that carries only its probes: averages approach the link's loss, regardless of how often the losses
//! take the path down.

mod common;

use common::{Dir, Log, World, at_ms, config, ms};
use segue_clock::{Rng, Span, Time};
use segue_keepalive::questions::{Silence, questions};
use segue_keepalive::{Config, Counted, Estimates, State};

/// Time for the averages to forget their start, and the interval of samples afterwards.
const WARM: Span = Span::from_secs(120);
const LOOK: Span = Span::from_secs(1);

/// Means over time of one end's averages.
#[derive(Clone, Copy, Default)]
struct Means {
    sum: [f64; 2],
    looks: f64,
}

impl Means {
    /// Adds the up and down averages with time constant number `which`.
    fn look(&mut self, estimates: &Estimates, which: usize) {
        let now = [&estimates.owl_up, &estimates.owl_down].map(|v| v.get(which).copied());
        let [Some(up), Some(down)] = now else { return };
        self.sum = [self.sum[0] + up, self.sum[1] + down];
        self.looks += 1.0;
    }
}

/// Runs an hour of an idle path with this loss. Returns by how many standard deviations each direction's mean differs
/// from the true loss, for each end and for the short and the long average, and how often the client declared the path
/// down.
fn hour(config: Config, loss: f64, seed: u64) -> ([[[f64; 2]; 2]; 2], usize) {
    let mut rng = Rng::new(seed);
    let link = Box::new(move |_: Dir, at: Time| {
        let (lost, jitter) = (rng.chance(loss), rng.below(2_000_000));
        (!lost || at < at_ms(50)).then_some(ms(9) + Span(jitter))
    });
    let mut world = World::new(config, at_ms(0), Span::from_secs(7), link);
    world.keep_samples = false;
    world.run_until(Time::ZERO + WARM);
    let mut means = [[Means::default(); 2]; 2];
    while world.now < Time::ZERO + WARM + Span::from_secs(3_600) {
        world.run_for(LOOK);
        let ends = [world.client.estimates(), world.server.estimates()];
        for (end, means) in ends.iter().zip(&mut means) {
            means.iter_mut().enumerate().for_each(|(which, means)| means.look(end, which));
        }
    }
    let downs = world.count_of(Log::Client(State::Down));
    let t_ka = world.client.config().t_ka.as_secs_f64();
    let sent = [3_600.0 / t_ka, 3_600.0 / t_ka * (1.0 - loss)];
    let deviation = |means: Means, way: usize| {
        let sd = (loss * (1.0 - loss) / sent[way]).sqrt();
        (means.sum[way] / means.looks - loss) / sd
    };
    (means.map(|end| end.map(|m| [deviation(m, 0), deviation(m, 1)])), downs)
}

#[test]
fn averages_of_an_idle_lossy_path_are_true_at_both_ends_though_it_is_called_down() {
    let mut called_down = 0;
    for loss in [0.01, 0.05, 0.1, 0.2] {
        for k in 2..=12 {
            let (off, downs) = hour(config(k, ms(200)), loss, u64::from(k));
            called_down += downs;
            // A time constant of a second gives an interval of two nearly full weight, regardless of its number of
            // packets. That average is slightly biased towards the shorter ones.
            for [short, long] in off {
                let (short, long) = (short.map(f64::abs), long.map(f64::abs));
                assert!(short.iter().all(|z| *z < 5.0), "{loss}, K {k}: {off:.1?}");
                assert!(long.iter().all(|z| *z < 4.0), "{loss}, K {k}: {off:.1?}");
            }
        }
    }
    assert!(called_down > 1_000, "{called_down}");
}

/// Duration of the test for a path that carries only its probes, and the period of the probes.
const WATCHED: Span = Span::from_secs(200 * 3_600);
const IDLE_T_KA: Span = Span::from_millis(4_800);

/// A path whose detection follows use, with the number of questions that a host asks for this loss.
fn asking(loss: f64) -> Config {
    let silence = Silence {
        answer: 0.03,
        loss: 1.0 - (1.0 - loss) * (1.0 - loss),
        burst: None,
        longest: 0.0,
        requests: 4.0,
        pauses: 1.0,
        fp_interval: 1e5,
        k_max: 20,
    };
    Config { doubt: Some(questions(&silence).asking()), ..config(4, IDLE_T_KA) }
}

/// A request or its answer is lost, and questions follow until one is answered. Losses therefore cause packets, and if
/// questions counted, the mean of the intervals would be below the loss of all packets.
#[test]
fn questions_about_lost_probes_do_not_lower_the_averages_of_an_idle_path() {
    for (seed, loss) in (1..).zip([0.01, 0.05, 0.1, 0.2]) {
        let mut rng = Rng::new(seed);
        let link = Box::new(move |_: Dir, at: Time| {
            let lost = rng.chance(loss) && at >= at_ms(50);
            (!lost).then_some(ms(10))
        });
        let mut world = World::new(asking(loss), at_ms(0), Span::from_secs(7), link);
        (world.keep_samples, world.keep_log) = (false, false);
        world.run_until(Time::ZERO + WARM);
        let mut means = [Means::default(); 2];
        while world.now < Time::ZERO + WARM + WATCHED {
            world.run_for(IDLE_T_KA);
            let ends = [world.client.estimates(), world.server.estimates()];
            ends.iter().zip(&mut means).for_each(|(end, means)| means.look(end, 1));
        }
        let (client, server) = (world.client.estimates(), world.server.estimates());
        // Excluding questions: one request per period, or slightly more.
        let periods = (WARM + WATCHED).0 / IDLE_T_KA.0;
        let asked = world.requests - periods;
        assert!(asked as f64 > 1.5 * loss * periods as f64, "{loss}: {asked} questions");
        assert!(client.up.sent < periods + periods / 50, "{loss}: {:?} of {periods}", client.up);
        for (end, (means, estimates)) in means.iter().zip([client, server]).enumerate() {
            for (way, counted) in [estimates.up, estimates.down].into_iter().enumerate() {
                // The loss of this run, so that its random deviation is on both sides.
                let truth = share_lost(counted);
                let mean = means.sum[way] / means.looks;
                println!("loss {loss}, end {end}, way {way}: {mean:.4} of {truth:.4}");
                assert!((mean / truth - 1.0).abs() < 0.03, "{loss} {end} {way}: {mean} of {truth}");
                let sd = (loss * (1.0 - loss) / counted.sent as f64).sqrt();
                assert!((truth - loss).abs() < 4.0 * sd, "{loss} {end} {way}: {truth}, {sd}");
            }
        }
    }
}

fn share_lost(counted: Counted) -> f64 {
    1.0 - counted.received as f64 / counted.sent as f64
}
