//! An hour of a path that carries only its probes, on virtual time: the programs' averages of loss at both ends,
//! although each end declares the path down because of losses.

use super::judge::Verdict;
use super::*;

/// The view of one end.
#[derive(Default)]
struct Idle {
    verdict: Verdict,
    /// Averages up and down, the short and the long one of each; their means over time.
    now: Option<[f64; 4]>,
    sum: [f64; 4],
    looks: f64,
}

impl Idle {
    fn note(&mut self, estimates: &Estimates) {
        let both =
            [&estimates.owl_up, &estimates.owl_down].map(|v| Some([*v.first()?, *v.get(1)?]));
        if let [Some(up), Some(down)] = both {
            self.now = Some([up[0], up[1], down[0], down[1]]);
        }
    }

    fn look(&mut self) {
        if let Some(now) = self.now {
            self.looks += 1.0;
            self.sum.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
        }
    }
}

/// The deviations of both ends' mean averages from the true loss, in standard deviations of what an hour of
/// probes can show; and how often the ends declared the path down.
fn hour(k: u64, loss: f64, seed: u64) -> ([[f64; 4]; 2], u32) {
    let probing = Probing { taus: plain(), ..Config::default().probing(Encapsulation::Segue) };
    let mut kernels = [Kernel::new(false, probing), Kernel::new(true, probing)];
    let mut ends = [Idle::default(), Idle::default()];
    let mut world = World { idle: true, ..World::new(seed) };
    world.loss = [0, 1].map(|_| Walk { at: loss, low: loss, high: loss });
    let (start_us, mut next_us) = (10_000_000, 10_000_000);
    while next_us < start_us + 3_600_000_000 {
        let Some(landed) = world.land(next_us) else {
            world.request(next_us, None, false);
            next_us += T_KA_MS * 1_000;
            if next_us > start_us + 120_000_000 {
                ends.iter_mut().for_each(Idle::look);
            }
            continue;
        };
        let Landed { now_us, to_client, report, arrival, .. } = landed;
        let (way, probe) = (usize::from(to_client), arrival.probe);
        let (kernel, end) = (&mut kernels[way], &mut ends[way]);
        end.verdict.hears(kernel, k, now_us);
        let (late, estimates) = kernel.take(&arrival, report, world.requests).unwrap();
        assert!(!late, "delays stay below T_KA");
        end.verdict.heard(kernel, probe.seq, now_us);
        end.note(&estimates);
        world.answer(&landed, false);
    }
    let sent = 3_480.0 / (T_KA_MS as f64 / 1e3) * (1.0 - loss);
    let sd = (loss * (1.0 - loss) / sent).sqrt();
    let downs = ends.iter().map(|end| end.verdict.downs).sum();
    (ends.map(|end| end.sum.map(|sum| (sum / end.looks - loss) / sd)), downs)
}

#[test]
fn averages_of_an_idle_lossy_path_are_true_though_it_is_called_down() {
    if !may_load() {
        return;
    }
    let mut downs = 0;
    for loss in [0.01, 0.05, 0.2] {
        for k in [2, 3, 4, 6, 8, 12] {
            let (off, called_down) = hour(k, loss, 10 + k);
            assert!(off.as_flattened().iter().all(|z| z.abs() < 4.0), "K {k}, {loss}: {off:.1?}");
            downs += called_down;
        }
    }
    assert!(downs > 1_000, "only {downs}");
}
