//! The programs' measurements as [`Reading`]s.

use segue_clock::{Span, Time};
use segue_keepalive::{Counted, Estimates, Reading, Traffic};
use segue_wire::Mode;

use super::skel::{host_state, known, loss, path_state};
use crate::STAMP_TO_WIRE;

/// Fields of the word `newest`, as in segue.bpf.h.
const T_KA_SHIFT: u32 = 32;
const K_SHIFT: u32 = 48;
const RUN_SHIFT: u32 = 56;
const RUN_MAX: u64 = 127;
/// Field of the word `guard`: how many responses rode.
const RODE_SHIFT: u32 = 16;

/// Units of the programs' averages.
const UNITS: f64 = (1u64 << 32) as f64;

/// A path's packet counters in 64 bits, extended from the programs' 32. Correct as long as fewer than 2³² packets
/// pass between two readings. Also the number of responses that rode, in 32 bits, extended from 16.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    seen: [u32; 4],
    wraps: [u32; 4],
    rode: u32,
}

impl Totals {
    fn extend(&mut self, now: [u32; 4]) -> [u64; 4] {
        for ((seen, wraps), now) in self.seen.iter_mut().zip(&mut self.wraps).zip(now) {
            *wraps += u32::from(now < *seen);
            *seen = now;
        }
        std::array::from_fn(|i| u64::from(self.wraps[i]) << 32 | u64::from(self.seen[i]))
    }

    fn extend_rode(&mut self, now: u16) -> u32 {
        let new = now.wrapping_sub(self.rode as u16);
        self.rode = self.rode.wrapping_add(new.into());
        self.rode
    }
}

/// The reading of a path. `host` is the state that exists only at a host.
pub(super) fn read(
    state: &path_state,
    host: Option<&host_state>,
    mode: Mode,
    totals: &mut Totals,
    at: Time,
) -> Reading {
    let field = |shift: u32, mask: u64| state.newest >> shift & mask;
    let t_ka_ms = field(T_KA_SHIFT, 0xffff);
    let last_received = instant(state.received_ns);
    Reading {
        at,
        // An anchor answers each request that counts.
        sent: host.map_or(state.received, |host| host.sent),
        rode: match host {
            Some(host) => host.rode,
            None => totals.extend_rode((state.guard >> RODE_SHIFT) as u16),
        },
        last_sent: host.map_or(last_received, |host| instant(host.sent_ns)),
        received: state.received,
        last_received,
        last_heard: host.and_then(|host| instant(host.heard_ns)),
        watched: host.and_then(|host| instant(host.watch_ns)),
        run: field(RUN_SHIFT, RUN_MAX) as u8,
        k: field(K_SHIFT, 0xff) as u8,
        t_ka: (t_ka_ms > 0).then(|| Span::from_millis(t_ka_ms)),
        traffic: host.map_or_else(Traffic::default, |host| Traffic {
            sent_at: instant(host.data_out_ns),
            received_at: instant(host.data_in_ns),
            heard_back: instant(host.heard_back_ns),
            received: host.data_packets,
            bytes: state.tx_bytes + state.rx_bytes,
        }),
        estimates: estimates(state, host, mode, totals),
    }
}

fn instant(ns: u64) -> Option<Time> {
    (ns > 0).then_some(Time(ns))
}

fn estimates(
    state: &path_state,
    host: Option<&host_state>,
    mode: Mode,
    totals: &mut Totals,
) -> Estimates {
    let mut estimates = Estimates {
        duplicates: host.map_or(0, |host| host.duplicates.into()),
        reordered: host.map_or(0, |host| host.reordered.into()),
        ..Estimates::default()
    };
    if has(state.known, known::KNOWN_RTT) {
        let us = |us: u32| Some(Span::from_micros(us.into()));
        estimates.rtt_last = us(state.rtt_last_us);
        estimates.uncertainty = STAMP_TO_WIRE;
        estimates.rtt_min = us(state.rtt_min_us);
        estimates.rtt_max = us(state.rtt_max_us);
        estimates.rtt_ewma = state.rtt.map(|us| us as f64 / UNITS / 1e6).to_vec();
        estimates.rtt_jitter = f64::from(state.jitter) / 16.0 / 1e6;
    }
    let up = averages(state.known, known::KNOWN_UP_AVERAGE, &state.up);
    let rtl = host.map(|host| averages(host.known, known::KNOWN_UP_AVERAGE, &host.round_trip));
    match (mode, rtl) {
        // An anchor has only the host's report: one average of each kind, and no sample.
        (Mode::Reports, None) => {
            let one = |averages: Vec<f64>| averages.into_iter().take(1).collect();
            let (rtt_ewma, rtl) = (one(estimates.rtt_ewma), one(up));
            Estimates { rtt_ewma, rtl, ..Estimates::default() }
        }
        (Mode::RoundTripLoss, rtl) => Estimates { rtl: rtl.unwrap_or(up), ..estimates },
        (Mode::Both | Mode::Client | Mode::Reports, rtl) => {
            let owl_down = averages(state.known, known::KNOWN_DOWN_AVERAGE, &state.down);
            let (sent_up, sent_down) = counted(state, totals);
            Estimates {
                owl_up: up,
                owl_down,
                up: sent_up,
                down: sent_down,
                rtl: rtl.unwrap_or_default(),
                ..estimates
            }
        }
    }
}

fn has(bits: u8, what: known) -> bool {
    u32::from(bits) & what.0 != 0
}

fn averages(bits: u8, what: known, loss: &loss) -> Vec<f64> {
    if has(bits, what) { loss.average.map(|x| f64::from(x) / UNITS).to_vec() } else { Vec::new() }
}

fn counted(state: &path_state, totals: &mut Totals) -> (Counted, Counted) {
    let since = |what, loss: &loss| {
        if !has(state.known, what) {
            return [0; 2];
        }
        let sent = loss.sent.wrapping_sub(loss.base_sent.into());
        [sent, loss.received.wrapping_sub(loss.base_received.into())]
    };
    let up = since(known::KNOWN_UP, &state.up);
    let down = since(known::KNOWN_DOWN, &state.down);
    let all = totals.extend([up[0], up[1], down[0], down[1]]);
    let of = |sent, received| Counted { sent, received };
    (of(all[0], all[1]), of(all[2], all[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_where_the_counters_of_the_programs_wrap() {
        let mut totals = Totals::default();
        assert_eq!(totals.extend([5, 0, 0, u32::MAX]), [5, 0, 0, u64::from(u32::MAX)]);
        assert_eq!(totals.extend([4, 1, 0, 0]), [(1 << 32) + 4, 1, 0, 1 << 32]);
    }

    #[test]
    fn the_count_of_rides_goes_on_where_the_programs_count_wraps() {
        let mut totals = Totals::default();
        let counts = [3, 65_535, 2, 2].map(|now| totals.extend_rode(now));
        assert_eq!(counts, [3, 65_535, 65_538, 65_538]);
    }
}
