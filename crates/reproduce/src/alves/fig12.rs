//! Fig. 12: how long a flow is interrupted when its access goes down, by number of flows and their rate; and how long a
//! host waits when it attaches to an access.

use std::collections::BTreeMap;

use segue_report::{Plot, Series, Style};

use super::attach::{STEPS, attach};
use super::domain::Domain;
use super::figures::Samples;
use super::moved::{Clock, Handover, Load, handovers};
use crate::experiment::{DataTable, Figure, Line, Outcome, Stage, digits, header, role, row};

/// The flows' rates in kbit/s.
const RATES: [u32; 2] = [100, 1_000];
/// Bars for the delay in ms: median, and 95 %.
const MEDIAN_MS: f64 = 20.0;
const MOST_MS: f64 = 50.0;

/// Handovers, by rate and number of flows.
type Found = BTreeMap<(u32, u16), Vec<Handover>>;

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let (runs, returns) = stage.either((3, 3), (30, 30));
    let steps: &[u16] = stage.either(&[1, 50], &[1, 10, 20, 30, 40, 50]);
    let mut domain = Domain::whole(stage)?;
    domain.attach_both(stage)?;
    let clock = Clock::of_anchor(stage, &mut domain)?;
    let mut found = Found::new();
    for kbit_s in RATES {
        for flows in steps {
            let load = Load { others: *flows, kbit_s };
            found.insert((kbit_s, *flows), handovers(stage, &mut domain, &clock, load, runs)?);
        }
    }
    let servers = match domain.has_radius() {
        true => "A RADIUS server says which hosts are served.",
        false => "FreeRADIUS is not installed: the files say which hosts are served.",
    };
    let attached: Vec<[f64; 5]> =
        (0..returns).map(|_| attach(stage, &mut domain)).collect::<Result<_, _>>()?;
    Ok(Outcome {
        figures: vec![figure(&found)],
        tables: vec![table(&found), steps_table(&attached)],
        lines: lines(&found, &attached),
        conditions: format!(
            "A host with two radios at accesses of two gateways; the one carries as many flows as the figure says, the other one \
             flow, whose access goes without a word; {runs} runs each. All flows have the same rate: at 100 kbit/s packets \
             of 125 bytes every 10 ms, at 1 Mbit/s of 1250 bytes every 10 ms, but of 125 bytes every 1 ms in the flow that \
             is moved. The delay is the distance of the last packet at the old interface and the first at the new one, less \
             the packets' period. The accesses are emulated; each gateway hears of the link's end from a function of IEEE \
             802.21, whose source is the kernel; a radio would notice later. {servers} Steps of attaching: medians of {returns} returns to an access where the anchor still \
             keeps the host's prefix, and the host its address."
        ),
    })
}

fn of(found: &Found, rate: u32, value: impl Fn(&Handover) -> f64) -> Samples {
    let own = found.iter().filter(|((kbit_s, _), _)| *kbit_s == rate);
    Samples::new(own.flat_map(|(_, all)| all.iter().map(&value)).collect())
}

/// Formats with one decimal, without a negative zero.
fn tenths(ms: f64) -> String {
    format!("{:.1}", (ms * 10.0).round() / 10.0 + 0.0)
}

fn name(kbit_s: u32) -> String {
    if kbit_s < 1_000 { format!("{kbit_s} kbit/s") } else { format!("{} Mbit/s", kbit_s / 1_000) }
}

fn lines(found: &Found, attached: &[[f64; 5]]) -> Vec<Line> {
    let mut lines = Vec::new();
    for kbit_s in RATES {
        let rate = name(kbit_s);
        let delay = of(found, kbit_s, |one| one.delay);
        for (what, share, bar) in [("median", 0.5, MEDIAN_MS), ("95 %", 0.95, MOST_MS)] {
            let value = delay.share(share);
            let line = Line::new(
                format!("handover delay of a flow, {rate}, {what}"),
                "50 to 150 ms at most",
                format!("{} ms of {}", tenths(value), delay.count()),
            );
            lines.push(line.judged(format!("at most {bar} ms"), value <= bar));
        }
        let here = format!(
            "{}; the gateway's message is there after {:.1} ms (median)",
            of(found, kbit_s, |one| one.rebound).told("ms"),
            of(found, kbit_s, |one| one.told).median()
        );
        lines.push(Line::new(format!("from the link's end to rebinding, {rate}"), "–", here));
        let lost = of(found, kbit_s, |one| one.lost.into());
        lines.push(Line::new(
            format!("packets lost, {rate}"),
            "a minimum",
            format!("median {:.0}, at most {:.0}", lost.median(), lost.share(1.0)),
        ));
    }
    let whole = Samples::new(attached.iter().map(|steps| steps[4]).collect());
    lines.push(Line::new("attaching, from the link to the first packet", "–", whole.told("ms")));
    lines
}

fn table(found: &Found) -> DataTable {
    let rows = found.iter().map(|((kbit_s, flows), all)| {
        let samples = |value: fn(&Handover) -> f64| Samples::new(all.iter().map(value).collect());
        let delay = samples(|one| one.delay);
        let at = |share| tenths(delay.share(share));
        let rebound = digits(samples(|one| one.rebound).median());
        let told = digits(samples(|one| one.told).median());
        let lost = all.iter().map(|one| one.lost).max().unwrap_or(0);
        row([
            &name(*kbit_s),
            flows,
            &at(0.5),
            &at(0.95),
            &at(1.0),
            &told,
            &rebound,
            &lost,
            &all.len(),
        ])
    });
    DataTable {
        caption: "Handovers of a flow: delay in ms; when the gateway's message was at the anchor and when the anchor sent the other way, in ms after \
                  the link's end (medians); most packets lost in one"
            .into(),
        header: header(&["rate", "flows", "median", "95 %", "most", "told", "rebound", "lost", "runs"]),
        rows: rows.collect(),
    }
}

/// The duration of each step of attaching, from the end of the previous step.
fn steps_table(attached: &[[f64; 5]]) -> DataTable {
    let rows = STEPS.into_iter().enumerate().map(|(step, name)| {
        let before = |steps: &[f64; 5]| step.checked_sub(1).map_or(0.0, |earlier| steps[earlier]);
        let alone =
            Samples::new(attached.iter().map(|steps| steps[step] - before(steps)).collect());
        let until = Samples::new(attached.iter().map(|steps| steps[step]).collect());
        let ms = |s: &Samples, share| format!("{:.2}", s.share(share));
        row([&name, &ms(&alone, 0.5), &ms(&alone, 0.95), &ms(&until, 0.5), &ms(&until, 0.95)])
    });
    DataTable {
        caption: "Attaching to an access: each step from the one before, and from the link, in ms"
            .into(),
        header: header(&["step", "median", "95 %", "from the link, median", "95 %"]),
        rows: rows.collect(),
    }
}

fn figure(found: &Found) -> Figure {
    let mut series = Vec::new();
    for (kbit_s, role) in RATES.into_iter().zip(role::MEASURED) {
        let own = || found.iter().filter(move |((rate, _), _)| *rate == kbit_s);
        let each = own()
            .flat_map(|((_, flows), all)| all.iter().map(|one| (f64::from(*flows), one.delay)));
        let medians = own().map(|((_, flows), all)| {
            (f64::from(*flows), Samples::new(all.iter().map(|one| one.delay).collect()).median())
        });
        let rate = name(kbit_s);
        series.push(Series::new(format!("{rate}, each"), Style::Dots, each.collect()).role(role));
        series.push(
            Series::new(format!("{rate}, median"), Style::Line, medians.collect()).role(role),
        );
    }
    Figure {
        name: "",
        caption: "Delay of a flow when its access goes: gap less the packets' period.".into(),
        plot: Plot {
            title: "Handover delay against number of flows".into(),
            x_label: "flows over the other access".into(),
            y_label: "delay (ms)".into(),
            series,
            y_from_zero: true,
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        let lines = |delay: f64| {
            let one = Handover { delay, told: 1.0, rebound: 1.5, lost: 1 };
            lines(&RATES.map(|rate| ((rate, 1), vec![one; 3])).into(), &[[1.0; 5]])
        };
        TenTimesOff { id: "alves-fig12", right: lines(12.0), wrong: vec![lines(120.0)] }
    }
}
