//! Drawn scenarios for two ends, apart from single faults: changes of settings, and stalled ends.

use alloc::format;

use segue_clock::Rng;
use segue_sim::net::LinkFault;

use super::super::tunnel::shape::Period;
use super::AT;
use super::settings::Settings;
use crate::Schedule;
use crate::fault::{Entry, Fault, Node, Way};

/// Starts a flow. Unless the client's driver is always late: changes K and T_KA in half of the runs, stalls an
/// end now and then in a third, and in a sixth stalls the client repeatedly just when answers were missing.
pub(super) fn more(schedule: &mut Schedule) {
    schedule.entries.push(Entry::own(1_000, "flow 0 0 start"));
    if Settings::of(&schedule.hosts[0]).late_ms > 0 {
        return;
    }
    let mut rng = Rng::new(schedule.seed ^ 0x7065_7269_6f64);
    if rng.chance(0.5) {
        periods(&mut rng, schedule);
    }
    match rng.below(6) {
        0 | 1 => stalls(&mut rng, schedule),
        2 => stalls_in_silence(&mut rng, schedule),
        _ => {}
    }
}

/// Changes K and T_KA one to four times, half of them while packets overtake each other.
fn periods(rng: &mut Rng, schedule: &mut Schedule) {
    for _ in 0..1 + rng.below(4) {
        let at_ms = 1_000 + rng.below(schedule.quiet_ms - 1_000);
        schedule.entries.push(Entry::own(at_ms, format!("period {AT} {}", Period::draw(rng))));
        if rng.chance(0.5) {
            let overtakes = Fault::Link(AT, Way::Up, LinkFault::Reorder(500, 100));
            schedule.entries.push(Entry { at_ms, fault: overtakes });
        }
    }
}

/// Stalls an end one to six times.
fn stalls(rng: &mut Rng, schedule: &mut Schedule) {
    for _ in 0..1 + rng.below(6) {
        let at_ms = 1_000 + rng.below(schedule.quiet_ms - 1_000);
        let node = if rng.chance(0.5) { Node::Host(0) } else { Node::Fixed(0) };
        let fault = Fault::Stall(node, 10 + rng.below(1_500) as u16);
        schedule.entries.push(Entry { at_ms, fault });
        if rng.chance(0.3) {
            // An order during the stall may be processed first, and may change nothing.
            let same = Settings::of(&schedule.hosts[0]).period;
            let period = if rng.chance(0.5) { same } else { Period::draw(rng) };
            schedule.entries.push(Entry::own(at_ms, format!("period {AT} {period}")));
        }
    }
}

/// After everything was mended, eight times: answers are missing for about a timeout and return, and the client
/// stalls before it has read one.
fn stalls_in_silence(rng: &mut Rng, schedule: &mut Schedule) {
    let mut at_ms = schedule.quiet_ms;
    schedule.entries.push(Entry { at_ms, fault: Fault::MendAll });
    let period = Settings::of(&schedule.hosts[0]).period;
    let (k, t_ka) = (u64::from(period.k), u64::from(period.t_ka_ms));
    for _ in 0..8 {
        at_ms += 2_000;
        schedule.entries.push(Entry { at_ms, fault: Fault::Link(AT, Way::Down, LinkFault::Cut) });
        at_ms += k * t_ka + rng.below(t_ka);
        schedule.entries.push(Entry { at_ms, fault: Fault::Link(AT, Way::Both, LinkFault::Mend) });
        at_ms += rng.below(t_ka);
        let fault = Fault::Stall(Node::Host(0), (t_ka + rng.below(3 * t_ka)) as u16);
        schedule.entries.push(Entry { at_ms, fault });
    }
    schedule.quiet_ms = at_ms + 1_000;
}
