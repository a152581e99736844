//! Parameters chosen by users: targets of the planner, properties of links.

use segue_clock::{Span, Time};
use segue_keepalive::Config;
use segue_keepalive::planner::{Responsiveness, Targets, plan as make};
use segue_netem::{Change, Jitter, LinkModel, LinkSpec, Loss, Profile, Queue, Verdict};

use crate::take::take;

/// A number with arbitrary bits, or an ordinary one, so that both are frequent.
fn number(data: &mut &[u8]) -> f64 {
    let [tame, bits @ ..]: [u8; 9] = take(data);
    let bits = u64::from_be_bytes(bits);
    match tame % 3 {
        0 => f64::from_bits(bits),
        1 => bits as f64 / 18_446_744_073_709_551_616.0,
        _ => (bits >> 40) as f64 / 1e4,
    }
}

/// The planner: a plan meets its targets, within rounding, and is usable.
pub(crate) fn plan(data: &[u8]) {
    let mut data = data;
    let [choice, k_max] = take(&mut data);
    let time = number(&mut data);
    let targets = Targets {
        rtt_avg: number(&mut data),
        rtt_max: (choice & 1 != 0).then(|| number(&mut data)),
        loss_up: number(&mut data),
        loss_down: number(&mut data),
        loss: (choice & 8 != 0).then(|| number(&mut data)),
        burst: (choice & 2 != 0).then(|| number(&mut data)),
        rides: choice & 16 != 0,
        responsiveness: if choice & 4 == 0 {
            Responsiveness::Avg(time)
        } else {
            Responsiveness::Max(time)
        },
        fp_interval: number(&mut data),
        t_ka_min: number(&mut data),
        k_max,
    };
    let plan = match make(&targets) {
        Ok(plan) => plan,
        Err(error) => return assert!(!error.to_string().contains(char::is_control)),
    };
    assert_eq!(targets.check(), Ok(()));
    let near = 1.0 + 1e-6;
    assert!((1..=k_max).contains(&plan.k), "{plan:?}");
    assert!(plan.t_ka * near >= targets.t_ka_min, "{plan:?}");
    assert!(plan.t_fp * near >= targets.fp_interval, "{plan:?}");
    match targets.responsiveness {
        Responsiveness::Avg(asked) => assert!(plan.t_r_avg <= asked * near, "{plan:?}"),
        Responsiveness::Max(asked) => assert!(plan.t_r_max <= asked * near, "{plan:?}"),
    }
    let config = Config::from(&plan);
    assert!(config.k == plan.k && config.t_ka >= Span::from_millis(1));
}

fn span(data: &mut &[u8]) -> Span {
    let [scale, bytes @ ..]: [u8; 5] = take(data);
    Span(u64::from(u32::from_be_bytes(bytes)) << (scale % 33))
}

fn loss(data: &mut &[u8]) -> Loss {
    let [kind, n] = take(data);
    match kind % 4 {
        0 => Loss::None,
        1 => Loss::Bernoulli(number(data)),
        2 => Loss::GilbertElliott {
            p: number(data),
            r: number(data),
            loss_good: number(data),
            loss_bad: number(data),
        },
        _ => Loss::Exact((0..n % 8).map(|_| u64::from(take::<1>(data)[0])).collect()),
    }
}

fn link_spec(data: &mut &[u8]) -> LinkSpec {
    let [choice, queue, steps] = take(data);
    LinkSpec {
        rate_bps: (choice & 1 != 0).then(|| u64::from_be_bytes(take(data))),
        delay: span(data),
        jitter: match choice >> 1 & 3 {
            0 => Jitter::None,
            1 => Jitter::Uniform(span(data)),
            _ => Jitter::Normal(span(data)),
        },
        reordering: choice & 8 != 0,
        queue: match choice >> 4 & 3 {
            0 => Queue::Unbounded,
            1 => Queue::Packets(queue.into()),
            2 => Queue::Bytes(u64::from(queue) * 100),
            _ => Queue::Delay(Span(u64::from(queue) << 16)),
        },
        loss: loss(data),
        silent: choice & 64 != 0,
        profile: Profile {
            steps: (0..steps % 4)
                .map(|_| {
                    let [what] = take(data);
                    let change = Change {
                        delay: (what & 1 != 0).then(|| span(data)),
                        loss: (what & 2 != 0).then(|| loss(data)),
                        rate_bps: (what & 4 != 0)
                            .then(|| (what & 8 != 0).then(|| u64::from_be_bytes(take(data)))),
                        silent: (what & 16 != 0).then_some(what & 32 != 0),
                    };
                    (span(data), change)
                })
                .collect(),
            period: (choice & 128 != 0).then(|| span(data)),
        },
    }
}

/// A link: a valid one carries packets, gives a reason for each loss and, unless it may reorder, delivers in order.
pub(crate) fn link(data: &[u8]) {
    let mut data = data;
    let spec = link_spec(&mut data);
    let reordering = spec.reordering;
    let Ok(mut link) = LinkModel::new(spec.clone(), 1, Time(1_000_000)) else {
        return assert!(spec.check().is_err());
    };
    let (mut now, mut last, mut dropped) = (Time(1_000_000), Time::ZERO, 0);
    let mut offered = 0;
    while !data.is_empty() && offered < 200 {
        now += span(&mut data);
        let [high, low] = take(&mut data);
        offered += 1;
        match link.offer(now, u16::from_be_bytes([high, low]).into()) {
            Verdict::Deliver { start, at } => {
                assert!(start >= now && (at >= start || matches!(spec.jitter, Jitter::Normal(_))));
                assert!(reordering || at >= last);
                last = at;
            }
            Verdict::Drop(_) => dropped += 1,
        }
    }
    let c = link.counters();
    assert_eq!((c.offered, c.offered - c.delivered), (offered, dropped));
    assert_eq!(c.lost + c.queue_full + c.silenced, dropped);
}
