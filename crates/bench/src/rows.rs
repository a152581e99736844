//! Results. `docs/measured.md` documents their JSON form.

use std::fmt;

use serde::Serialize;

use crate::Responder;

/// One quantity over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantity {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Quantity {
    /// Summarises the values of all runs; `None` without values.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Quantity> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Quantity { median, min, max })
    }

    /// For processor times per probe in microseconds: the median and true. If the noise hides it, an upper bound and
    /// false: the maximum of the runs, and at least the noise.
    #[must_use]
    pub fn cost_us(&self) -> (f64, bool) {
        if self.median >= NOISE_US { (self.median, true) } else { (self.max.max(NOISE_US), false) }
    }
}

/// Cost of one responder for requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The responder.
    pub responder: Responder,
    /// Requests that arrive together: 32 or 1.
    pub burst: usize,
    /// Requests per second during the measurement.
    pub rate: f64,
    /// Processor time per answered probe in microseconds, minus that of the same requests into a drop at the same hook.
    pub cpu_us: Quantity,
    /// Total processor time per answered probe in microseconds, including the generator's.
    pub total_us: f64,
    /// Processor time per request into the drop, in microseconds.
    pub drop_us: f64,
    /// Share of answered requests.
    pub answered: f64,
    /// Probes per second that half a processor answers, according to `cpu_us`; `None` if the noise hides it.
    pub rate_at_half_cpu: Option<f64>,
    /// Hosts that half a processor serves, with four probes per second each.
    pub hosts: Option<f64>,
    /// Median turnaround in microseconds.
    pub p50_us: Option<Quantity>,
    /// The 99th percentile of the turnaround, in microseconds.
    pub p99_us: Option<Quantity>,
}

/// Minimum processor time per probe that is distinguishable from noise, in microseconds.
pub(crate) const NOISE_US: f64 = 0.02;

impl Row {
    /// Computes the rates from `cpu_us`; `None` below the noise.
    pub(crate) fn with_rates(mut self) -> Row {
        let known = self.cpu_us.median >= NOISE_US;
        self.rate_at_half_cpu = known.then(|| 0.5e6 / self.cpu_us.median);
        self.hosts = self.rate_at_half_cpu.map(|rate| rate / 4.0);
        self
    }
}

/// Cost of frames without socket buffers, including the generator.
#[derive(Clone, Debug, Serialize)]
pub struct RawRow {
    /// The responder, or `drop`.
    pub responder: &'static str,
    /// Total processor time per frame (answered or dropped) in microseconds.
    pub cpu_us: Quantity,
    /// Share of frames that were answered or reached the drop.
    pub answered: f64,
}

/// Cost of sending the probes of many paths.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sending {
    /// Number of paths, with one probe per path every 500 ms.
    pub paths: u32,
    /// Processor time per probe with `Datapath::send_probes`, without receiving, in microseconds.
    pub batch_us: Quantity,
    /// Processor time per probe with one send call each, without receiving, in microseconds.
    pub single_us: Quantity,
    /// Cost of receiving a frame of the batch at the other end, in microseconds.
    pub batch_receiving_us: f64,
    /// Cost of receiving a packet of the single sends at the other end, in microseconds.
    pub single_receiving_us: f64,
    /// Share of the batch's probes that arrived.
    pub batch_arrived: f64,
    /// Share of the single probes that arrived.
    pub single_arrived: f64,
}

/// The side of a bar on which a result must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Side {
    /// At or above.
    #[serde(rename = "at least")]
    AtLeast,
    /// At or below.
    #[serde(rename = "at most")]
    AtMost,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::AtLeast => "at least",
            Side::AtMost => "at most",
        })
    }
}

/// A requirement on the results.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// The compared quantities.
    pub what: String,
    /// The required ratio.
    pub bar: f64,
    /// Whether the measured ratio must be `at least` or `at most` the required one.
    pub side: Side,
    /// The measured ratio.
    pub measured: f64,
    /// The noise hides the cheaper side: `measured` is a lower bound, from the maximum possible cost.
    pub at_least: bool,
    /// Whether the bar is met; if only the lower bound is known, by the lower bound.
    pub met: bool,
}

impl Bar {
    /// Requires that `dear` costs at least `bar` times as much as `cheap`.
    fn less(what: String, bar: f64, dear: &Quantity, cheap: &Quantity) -> Bar {
        let (cost_us, known) = cheap.cost_us();
        let measured = dear.median / cost_us;
        let side = Side::AtLeast;
        Bar { what, bar, side, measured, at_least: !known, met: measured >= bar }
    }
}

/// A skipped part.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// The part.
    pub what: String,
    /// The reason and the remedy.
    pub why: String,
}

/// All results of one bench.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchReport {
    /// Accounting method for processor time.
    pub method: String,
    /// The processor on which everything ran.
    pub cpu: usize,
    /// Number of paths of the requests.
    pub paths: u32,
    /// Number of runs of each part.
    pub runs: usize,
    /// Duration of each measurement in seconds.
    pub duration_s: f64,
    /// The table.
    pub rows: Vec<Row>,
    /// Raw frames.
    pub raw: Vec<RawRow>,
    /// Sending.
    pub sending: Option<Sending>,
    /// Bars.
    pub bars: Vec<Bar>,
    /// Skipped parts.
    pub skipped: Vec<Skipped>,
}

impl BenchReport {
    /// Compares the results with their bars.
    pub(crate) fn judge(&mut self) {
        let mut bars = Vec::new();
        for (burst, bar) in [(32, 7.0), (1, 10.0)] {
            for kernel in [Responder::Tc, Responder::Xdp] {
                let cost = |responder| {
                    let row = |r: &&Row| r.responder == responder && r.burst == burst;
                    self.rows.iter().find(row).map(|r| r.cpu_us)
                };
                if let (Some(own), Some(plain)) = (cost(kernel), cost(Responder::Syscall)) {
                    let kind = if burst == 1 { "isolated" } else { "in bursts of 32" };
                    let what = format!("{kernel} costs so many times less than syscall, {kind}");
                    bars.push(Bar::less(what, bar, &plain, &own));
                }
            }
        }
        let raw = |name| self.raw.iter().find(|r| r.responder == name).map(|r| r.cpu_us.median);
        if let (Some(own), Some(bare)) = (raw("xdp"), raw("xdp-bare")) {
            let what = "xdp on raw frames costs so many times xdp-bare".into();
            let measured = own / bare;
            let (bar, side) = (2.0, Side::AtMost);
            bars.push(Bar { what, bar, side, measured, at_least: false, met: measured <= bar });
        }
        if let Some(sending) = &self.sending {
            let what = format!("sending {} paths' probes costs so many times less", sending.paths);
            bars.push(Bar::less(what, 5.0, &sending.single_us, &sending.batch_us));
        }
        self.bars = bars;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        let of = |values: &[f64]| Quantity::of(values.to_vec());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(Quantity { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(of(&[4.0, 1.0]), Some(Quantity { median: 2.5, min: 1.0, max: 4.0 }));
    }

    fn row(responder: Responder, burst: usize, us: f64) -> Row {
        let cpu_us = Quantity { median: us, min: us, max: us };
        Row {
            responder,
            burst,
            rate: 1000.0,
            cpu_us,
            total_us: us + 1.0,
            drop_us: 1.0,
            answered: 1.0,
            rate_at_half_cpu: None,
            hosts: None,
            p50_us: None,
            p99_us: None,
        }
        .with_rates()
    }

    #[test]
    fn bars_compare_within_a_kind_and_take_noise_for_the_most_that_it_hides() {
        let rows = vec![
            row(Responder::Syscall, 32, 4.0),
            row(Responder::Tc, 32, 1.0),
            row(Responder::Syscall, 1, 0.1),
            row(Responder::Tc, 1, -0.1),
            row(Responder::Xdp, 1, 0.005),
        ];
        assert_eq!(rows[0].hosts, Some(31_250.0));
        let mut report = BenchReport { rows, ..BenchReport::default() };
        report.judge();
        let judged = |report: &BenchReport| -> Vec<_> {
            report.bars.iter().map(|b| (b.measured, b.at_least, b.met)).collect()
        };
        // 0.1 against noise is at least a factor of five, which is below ten.
        let lost = (5.0, true, false);
        assert_eq!(judged(&report), [(4.0, false, false), lost, lost]);
        report.rows[2].cpu_us = Quantity { median: 4.0, min: 4.0, max: 4.0 };
        report.rows[4].cpu_us.max = 0.5;
        report.judge();
        assert_eq!(judged(&report)[1..], [(200.0, true, true), (8.0, true, false)]);
    }
}
