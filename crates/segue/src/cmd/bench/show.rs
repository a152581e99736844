//! Prints the results for people and for other programs.

use std::fmt::Write as _;

use segue_bench::{BenchReport, Quantity, Row};

/// Probes per second at half a CPU as the papers report them, with their machine (a Core 2 Quad at
/// 2.66 GHz, in VirtualBox).
const PAPERS: &str = "The papers, at 50 % of a CPU of their time: SIP 100, Java 278, C 3 000, kernel 46 512 \
                      probes/s (25, 70, 750 and 11 600 hosts).";

const COLUMNS: [&str; 15] = [
    "responder",
    "burst",
    "rate_per_s",
    "cpu_us",
    "cpu_us_min",
    "cpu_us_max",
    "total_us",
    "drop_us",
    "answered",
    "rate_at_half_cpu",
    "hosts",
    "p50_us",
    "p99_us",
    "p99_us_min",
    "p99_us_max",
];

/// The table as CSV, one line per row.
pub(super) fn csv(report: &BenchReport) -> String {
    let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
    segue_report::csv(&COLUMNS, &rows)
}

fn cells(row: &Row) -> Vec<String> {
    let number = |x: f64| format!("{x:.4}");
    let some = |x: Option<f64>| x.map(number).unwrap_or_default();
    vec![
        row.responder.name().into(),
        row.burst.to_string(),
        number(row.rate),
        number(row.cpu_us.median),
        number(row.cpu_us.min),
        number(row.cpu_us.max),
        number(row.total_us),
        number(row.drop_us),
        number(row.answered),
        some(row.rate_at_half_cpu),
        some(row.hosts),
        some(row.p50_us.map(|q| q.median)),
        some(row.p99_us.map(|q| q.median)),
        some(row.p99_us.map(|q| q.min)),
        some(row.p99_us.map(|q| q.max)),
    ]
}

/// The whole report as text.
pub(super) fn table(report: &BenchReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "Processor {}: {}. Medians of {} runs of {} s; {} paths.",
        report.cpu, report.method, report.runs, report.duration_s, report.paths
    );
    rows(&mut text, report);
    if !report.raw.is_empty() {
        let _ =
            writeln!(text, "\nRaw frames, generator included: CPU \u{b5}s a frame (least to most)");
        for row in &report.raw {
            let share = row.answered * 100.0;
            let _ =
                writeln!(text, "  {:<9}{}  {share:.1} % came", row.responder, span(&row.cpu_us));
        }
    }
    if let Some(s) = &report.sending {
        let (batch, single) = (s.batch_arrived * 100.0, s.single_arrived * 100.0);
        let _ = writeln!(
            text,
            "\nSending the probes of {} paths: CPU \u{b5}s a probe, without what receiving costs",
            s.paths
        );
        let mut way = |name, cost: &Quantity, receiving: f64, came: f64| {
            let cost = span(cost);
            let _ = writeln!(text, "  {name:<9} {cost}  (and {receiving:.2})  {came:.1} % came");
        };
        way("at once", &s.batch_us, s.batch_receiving_us, batch);
        way("one call", &s.single_us, s.single_receiving_us, single);
    }
    if !report.bars.is_empty() {
        text.push_str("\nBars\n");
    }
    for bar in &report.bars {
        let least = if bar.at_least { "at least " } else { "" };
        let measured = format!("{least}{:.2}", bar.measured);
        let verdict = if bar.met { "met" } else { "missed" };
        let _ =
            writeln!(text, "  {}: {measured}: {verdict}; bar: {} {}", bar.what, bar.side, bar.bar);
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "\nLeft out: {}: {}", skipped.what, skipped.why);
    }
    text
}

fn rows(text: &mut String, report: &BenchReport) {
    let mut burst = 0;
    let mut sorted: Vec<&Row> = report.rows.iter().collect();
    sorted.sort_by_key(|row| (std::cmp::Reverse(row.burst), row.responder));
    for row in sorted {
        if row.burst != burst {
            burst = row.burst;
            let kind = match burst {
                1 => "Isolated requests".into(),
                burst => format!("Requests in bursts of {burst}"),
            };
            let _ = writeln!(
                text,
                "\n{kind}\n  {:<9}{:>24}{:>12}{:>10}{:>10}{:>10}{:>10}",
                "",
                "CPU \u{b5}s (least to most)",
                "at 50 %/s",
                "hosts",
                "p50 \u{b5}s",
                "p99 \u{b5}s",
                "answered"
            );
        }
        let whole = |x: Option<f64>| x.map_or("(noise)".into(), |x| format!("{x:.0}"));
        let micro = |q: Option<Quantity>| q.map_or("-".into(), |q| format!("{:.1}", q.median));
        let _ = writeln!(
            text,
            "  {:<9}{:>24}{:>12}{:>10}{:>10}{:>10}{:>9.1}%",
            row.responder.name(),
            span(&row.cpu_us),
            whole(row.rate_at_half_cpu),
            whole(row.hosts),
            micro(row.p50_us),
            micro(row.p99_us),
            row.answered * 100.0
        );
    }
    if !report.rows.is_empty() {
        let _ = writeln!(text, "\n{PAPERS}");
    }
}

/// Median, least and most.
fn span(q: &Quantity) -> String {
    format!("{:.2} ({:.2} to {:.2})", q.median, q.min, q.max)
}

#[cfg(test)]
mod tests {
    use segue_bench::{Bar, Side};

    use super::*;

    #[test]
    fn each_verdict_stands_beside_its_bar_and_the_side_of_it() {
        let bar = |side, met| Bar {
            what: "this costs".into(),
            bar: 7.0,
            side,
            measured: 6.5,
            at_least: false,
            met,
        };
        let bars = vec![bar(Side::AtLeast, false), bar(Side::AtMost, true)];
        let text = table(&BenchReport { bars, ..BenchReport::default() });
        assert!(text.contains("this costs: 6.50: missed; bar: at least 7\n"), "{text}");
        assert!(text.contains("this costs: 6.50: met; bar: at most 7\n"), "{text}");
    }
}
