//! False positives, simulated and computed, on a working path whose probes are lost at random.
//!
//! Probes are lost independently with probability q. There are two ways to count. Eq. 4 counts *every* period at the
//! end of K unanswered probes: T_fp = T_KA/q^K. Such periods cluster, because a run longer than K contains several. A
//! client goes *down* once per run, every T_KA/((1 − q)·q^K) on average if the first answer brings it up again.

use alloc::vec;
use alloc::vec::Vec;

use segue_clock::{Machine, Rng, Span, Time};
use segue_wire::Probe;

use crate::{Arrival, Client, ClientInput, ClientOutput, Config, State};

/// Both counts over a number of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Periods at the end of K or more unanswered probes.
    pub periods: u64,
    /// Changes to down.
    pub downs: u64,
}

/// Mean and standard deviation of both counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Mean number of periods at the end of K unanswered probes.
    pub periods: f64,
    /// Its standard deviation, with the overlap of neighbouring periods.
    pub periods_sd: f64,
    /// Mean number of changes to down.
    pub downs: f64,
    /// Its standard deviation.
    pub downs_sd: f64,
}

/// Lets a real [`Client`] send `probes` probes in virtual time over a path that loses each packet with probability
/// `loss` in each direction. `up_after` is one, the RTT a fifth of T_KA.
#[must_use]
pub fn observe(loss: f64, k: u8, probes: u64, seed: u64) -> Counts {
    let (t_ka, rtt) = (Span::from_millis(100), Span::from_millis(20));
    let config = Config { k, t_ka, up_after: 1, ..Config::default() };
    let mut client = Client::new(config, Time(0), seed);
    let mut rng = Rng::new(seed);
    let (mut counts, mut unanswered, mut sent) = (Counts::default(), 0_u64, 0);
    while sent < probes {
        let Some((now, _)) = client.deadline() else { break };
        client.tick(now);
        let mut answered = None;
        while let Some(output) = client.poll() {
            match output {
                ClientOutput::State(State::Down) => counts.downs += 1,
                ClientOutput::SendRequest(request) => {
                    sent += 1;
                    let lost = rng.chance(loss) | rng.chance(loss);
                    unanswered = if lost { unanswered + 1 } else { 0 };
                    counts.periods += u64::from(unanswered >= u64::from(k));
                    answered = (!lost).then_some(request.probe);
                }
                _ => {}
            }
        }
        if let Some(probe) = answered {
            answer(&mut client, now, rtt, probe);
        }
    }
    counts
}

fn answer(client: &mut Client, sent: Time, rtt: Span, request: Probe) {
    let probe = Probe { t_sc: sent.micros32(), ss: request.seq, r: request.seq, ..request };
    let at = sent + rtt;
    let received = request.seq;
    let arrival = Arrival::new(probe, at, received);
    client.handle(at, ClientInput::Response(arrival));
    while client.poll().is_some() {}
}

/// Exact means over `probes` probes, each lost with probability `q`, from the Markov chain of the current run's length.
/// The standard deviations follow from the covariances of neighbours.
#[must_use]
pub fn expected(q: f64, k: u8, probes: u64) -> Expected {
    let k = usize::from(k.max(1));
    let mut chain = Chain::new(k);
    let (mut periods, mut downs) = (0.0, 0.0);
    for _ in 0..probes {
        downs += chain.run[k - 1] * q;
        chain.step(q);
        periods += chain.run[k];
    }
    let n = probes as f64;
    let (window, kf) = (libm::pow(q, k as f64), k as f64);
    // Two windows of K probes at distance d are both lost with probability q^(K + d) if they overlap.
    let covariance =
        |d: usize| (n - kf + 1.0 - d as f64) * (libm::pow(q, kf + d as f64) - window * window);
    let overlap: f64 = (1..k).map(covariance).sum();
    let periods_var = periods * (1.0 - window) + 2.0 * overlap;
    // Two runs cannot begin within K probes of each other.
    let run = (1.0 - q) * window;
    let downs_var = downs * (1.0 - run) - 2.0 * kf * n * run * run;
    Expected {
        periods,
        periods_sd: libm::sqrt(periods_var.max(0.0)),
        downs,
        downs_sd: libm::sqrt(downs_var.max(0.0)),
    }
}

/// Exact probabilities of 0, 1, … `most` − 1 periods at the end of K unanswered probes, and of as many changes to down.
/// Larger numbers are omitted.
#[must_use]
pub fn distributions(q: f64, k: u8, probes: u64, most: usize) -> (Vec<f64>, Vec<f64>) {
    let k = usize::from(k.max(1));
    let tally = |each_period: bool| {
        // One chain for each count, updated from the largest down so that a count rises by at most one per step.
        let mut chains = vec![Chain { run: vec![0.0; k + 1] }; most];
        if let Some(first) = chains.first_mut() {
            *first = Chain::new(k);
        }
        for _ in 0..probes {
            for count in (0..most).rev() {
                let enters = chains[count].run[k - 1] * q;
                let stays = chains[count].run[k] * q;
                chains[count].step(q);
                chains[count].run[k] -= enters + if each_period { stays } else { 0.0 };
                if let Some(more) = chains.get_mut(count + 1) {
                    more.run[k] += enters + if each_period { stays } else { 0.0 };
                }
            }
        }
        chains.iter().map(|chain| chain.run.iter().sum()).collect()
    };
    (tally(true), tally(false))
}

/// Probability of each length of the current run; the last element stands for K and more.
#[derive(Clone, Debug)]
struct Chain {
    run: Vec<f64>,
}

impl Chain {
    fn new(k: usize) -> Chain {
        let mut run = vec![0.0; k + 1];
        run[0] = 1.0;
        Chain { run }
    }

    fn step(&mut self, q: f64) {
        let k = self.run.len() - 1;
        let all: f64 = self.run.iter().sum();
        self.run[k] = (self.run[k] + self.run[k - 1]) * q;
        for length in (1..k).rev() {
            self.run[length] = self.run[length - 1] * q;
        }
        self.run[0] = all * (1.0 - q);
    }
}
