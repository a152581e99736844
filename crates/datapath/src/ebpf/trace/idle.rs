//! An hour of a path that carries only its probes, on virtual time: the programs' averages of loss at both ends,
//! though each end calls the path down for its losses.

use super::*;

/// Calls an end down after (K + ½)·T_KA, and up after three probes in a row.
#[derive(Default)]
struct Idle {
    last_us: u64,
    newest: u32,
    run: u32,
    down: bool,
    downs: u32,
    /// Averages up and down, the short and the long of each; their means over time.
    now: Option<[f64; 4]>,
    sum: [f64; 4],
    looks: f64,
}

impl Idle {
    fn before(&mut self, kernel: &mut Kernel, k: u64, now_us: u64) {
        let time_out_us = T_KA_MS * 1_000 * (2 * k + 1) / 2;
        if !self.down && self.last_us > 0 && now_us - self.last_us > time_out_us {
            kernel.set_down(Some(Span::from_micros(time_out_us)));
            (self.down, self.run) = (true, 0);
            self.downs += 1;
        }
    }

    fn after(&mut self, kernel: &mut Kernel, seq: u32, now_us: u64, estimates: &Estimates) {
        self.run = if seq == self.newest + 1 { self.run + 1 } else { 1 };
        (self.newest, self.last_us) = (seq, now_us);
        if self.down && self.run >= 3 {
            kernel.set_down(None);
            self.down = false;
        }
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

/// How far the means of both ends' averages are from the loss of both directions, in standard deviations of
/// what an hour of probes can show; how often they called the path down.
fn hour(k: u64, loss: f64, seed: u64) -> ([[f64; 4]; 2], u32) {
    let probing = Probing { taus: plain(), ..Config::default().probing(Encapsulation::Segue) };
    let mut kernels = [Kernel::new(false, probing), Kernel::new(true, probing)];
    let mut ends = [Idle::default(), Idle::default()];
    let mut world = World { idle: true, ..World::new(seed) };
    world.loss = [0, 1].map(|_| Walk { at: loss, low: loss, high: loss });
    let (start_us, mut next_us) = (10_000_000, 10_000_000);
    while next_us < start_us + 3_600_000_000 {
        let arriving = world.flying.peek().map_or(u64::MAX, |Reverse(first)| first.0);
        if arriving > next_us {
            world.request(next_us, None, false);
            next_us += T_KA_MS * 1_000;
            if next_us > start_us + 120_000_000 {
                ends.iter_mut().for_each(Idle::look);
            }
            continue;
        }
        let Some(Reverse((now_us, _, to_client, report, bytes))) = world.flying.pop() else {
            break;
        };
        let (way, probe) = (usize::from(to_client), Probe::parse(&bytes));
        let local_us = now_us + if to_client { CLIENT_AHEAD_US } else { 0 };
        world.received[way] += 1;
        let arrival = arrival(probe, local_us, world.received[way]);
        let (kernel, end) = (&mut kernels[way], &mut ends[way]);
        end.before(kernel, k, now_us);
        let (late, estimates) = kernel.take(&arrival, report, world.requests).unwrap();
        assert!(!late, "delays stay below T_KA");
        end.after(kernel, probe.seq, now_us, &estimates);
        world.answer(now_us, local_us, &arrival, to_client, false);
    }
    let sent = 3_480.0 / (T_KA_MS as f64 / 1e3) * (1.0 - loss);
    let sd = (loss * (1.0 - loss) / sent).sqrt();
    let downs = ends.iter().map(|end| end.downs).sum();
    (ends.map(|end| end.sum.map(|sum| (sum / end.looks - loss) / sd)), downs)
}

#[test]
fn averages_of_an_idle_lossy_path_are_true_though_it_is_called_down() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the eBPF programs need root");
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
