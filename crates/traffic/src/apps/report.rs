//! Names and units of the applications' results.

use alloc::format;

use segue_clock::Time;
use segue_steering::{Class, PathId, PathView, score};

use super::handovers::{Handovers, MOST_LOST};
use super::histogram::Histogram;
use super::meter::Measured;
use super::stream::Kind;
use crate::tcp::Sent;
use segue_sim::results::Results;

/// Thresholds of delay variance and jitter whose exceedance is reported, in microseconds.
const ABOVE_US: [i64; 7] = [0, 500, 1_000, 2_000, 4_000, 8_000, 16_000];

/// Probabilities are reported for each number of lost packets per handover below this; the last one means this
/// many or more.
const LOST: usize = 20;

const _: () = assert!(LOST < MOST_LOST);

const MS: f64 = 1e6;

/// Results common to all streams.
pub(super) fn stream(prefix: &str, kind: Kind, measured: &Measured, results: &mut Results) {
    let (counts, handovers) = (&measured.counts, &measured.handovers);
    for (name, value) in [
        ("sent", counts.sent),
        ("received", counts.received),
        ("lost", counts.lost),
        ("undecided", measured.undecided),
        ("late", counts.late),
        ("duplicates", counts.duplicates),
        ("reordered", counts.reordered),
        ("sent_bytes", counts.sent_bytes),
        ("received_bytes", counts.received_bytes),
        ("hurried", counts.hurried),
        ("handovers", handovers.count()),
        ("handovers_without_packets", handovers.without_packets()),
        ("handover_lost", handovers.lost()),
        ("handover_lost_max", handovers.most_lost()),
    ] {
        results.int(format!("{prefix}{name}"), value);
    }
    let mut float = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            results.float(format!("{prefix}{name}"), value);
        }
    };
    float("loss_ratio", measured.loss_ratio());
    float("reordered_ratio", ratio(counts.reordered, counts.received));
    let seconds = measured.ended.since(measured.began).as_secs_f64();
    float("received_bps", Some(counts.received_bytes as f64 * 8.0 / seconds));
    delays(measured, &mut float);
    match kind {
        Kind::Voice => {
            let r = voice_r(measured);
            float("r_g711", r);
            float("mos_g711", r.map(mos));
        }
        Kind::Video => {
            let frames = counts.frames_whole + counts.frames_broken;
            float("frame_loss_ratio", ratio(counts.frames_broken, frames));
        }
    }
    let base = measured.variance_base_ns() as f64;
    let worst_delay = handovers.mean_worst_delay_ns().map(|ns| (ns - base) / MS);
    float("handover_worst_delay_variance_ms_mean", worst_delay);
    let worst_jitter = handovers.mean_worst_jitter_ns().map(|ns| ns / MS);
    float("handover_worst_jitter_ms_mean", worst_jitter);
    handover_losses(handovers, &mut float);
}

fn delays(measured: &Measured, float: &mut impl FnMut(&str, Option<f64>)) {
    let ms = |ns: Option<i64>| ns.map(|ns| ns as f64 / MS);
    let delay = &measured.delay;
    float("delay_ms_min", ms(delay.min_ns()));
    float("delay_ms_mean", delay.mean_ns().map(|ns| ns / MS));
    float("delay_ms_p50", ms(delay.quantile_ns(0.5)));
    float("delay_ms_p99", ms(delay.quantile_ns(0.99)));
    float("delay_ms_max", ms(delay.max_ns()));
    let base = measured.variance_base_ns();
    let variance = &measured.variance;
    let above = |ns: Option<i64>| ms(ns.map(|ns| ns - base));
    // The two definitions of the forwarding delay have different names, so that they cannot be confused.
    match measured.forwarding {
        Some(forwarding) => float("forwarding_ms_of_links", Some(forwarding.as_millis_f64())),
        None => float("forwarding_ms_minimum", ms(variance.min_ns())),
    }
    float("delay_variance_ms_mean", variance.mean_ns().map(|ns| (ns - base as f64) / MS));
    float("delay_variance_ms_p95", above(variance.quantile_ns(0.95)));
    float("delay_variance_ms_p99", above(variance.quantile_ns(0.99)));
    float("delay_variance_ms_max", above(variance.max_ns()));
    exceedance("delay_variance", variance, base, float);
    let jitter = &measured.jitter;
    float("jitter_ms_min", ms(jitter.min_ns()));
    float("jitter_ms_p99", ms(jitter.quantile_ns(0.99)));
    float("jitter_ms_max", ms(jitter.max_ns()));
    float("jitter_ms_deviation", jitter.deviation_ns().map(|ns| ns / MS));
    exceedance("jitter", jitter, 0, float);
}

fn exceedance(
    name: &str,
    histogram: &Histogram,
    base: i64,
    float: &mut impl FnMut(&str, Option<f64>),
) {
    for us in ABOVE_US {
        let share = histogram.share_above_ns(base + us * 1_000);
        float(&format!("{name}_above_{us}us_ratio"), share);
    }
}

fn handover_losses(handovers: &Handovers, float: &mut impl FnMut(&str, Option<f64>)) {
    let judged = handovers.count() - handovers.without_packets();
    float("handover_lost_mean", ratio(handovers.lost(), judged));
    for lost in 0..LOST {
        float(&format!("handover_lost_{lost}_ratio"), handovers.share_losing(lost));
    }
    let more = (LOST..=MOST_LOST).map(|lost| handovers.share_losing(lost));
    float(&format!("handover_lost_{LOST}_or_more_ratio"), more.sum());
}

/// The E-model's rating for G.711 with loss concealment, as steering computes it: mean one-way delay, a buffer of
/// two standard deviations, and the loss of this direction.
fn voice_r(measured: &Measured) -> Option<f64> {
    let path = PathView {
        id: PathId(0),
        usable: true,
        rtt_s: Some(2.0 * measured.delay.mean_ns()? / 1e9),
        loss_up: measured.loss_ratio()?,
        loss_down: 0.0,
        lossy: false,
        bound_up: 0.0,
        bound_down: 0.0,
        jitter_s: measured.delay.deviation_ns()? / 1e9,
        rate_bps: None,
        price: 0.0,
        since: Time::ZERO,
        preference: 0.0,
    };
    Some(score(Class::Voice, &path).value)
}

/// Mean opinion score of a rating (ITU-T G.107, Annex B).
fn mos(r: f64) -> f64 {
    let r = r.clamp(0.0, 100.0);
    (1.0 + 0.035 * r + 7e-6 * r * (r - 60.0) * (100.0 - r)).max(1.0)
}

pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Counters of the data's sender.
pub(super) fn transport(prefix: &str, sent: &Sent, results: &mut Results) {
    results.int(format!("{prefix}sent"), sent.segments);
    results.int(format!("{prefix}retransmissions"), sent.retransmissions);
    results.int(format!("{prefix}timeouts"), sent.timeouts);
}

/// Transfer times in seconds.
pub(super) fn times(prefix: &str, times: &Histogram, results: &mut Results) {
    let seconds = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e9);
    for (name, value) in [
        ("s_min", seconds(times.min_ns())),
        ("s_mean", times.mean_ns().map(|ns| ns / 1e9)),
        ("s_p50", seconds(times.quantile_ns(0.5))),
        ("s_p95", seconds(times.quantile_ns(0.95))),
        ("s_max", seconds(times.max_ns())),
    ] {
        if let Some(value) = value {
            results.float(format!("{prefix}{name}"), value);
        }
    }
}
