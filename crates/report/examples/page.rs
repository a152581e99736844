//! Writes a page with sample figures into a directory, for visual inspection: `cargo run -p segue-report --example page
//! -- DIR`.

use std::path::Path;

use segue_report::{Band, Made, Mark, Page, Plot, Series, Style, Timeline};

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    std::fs::create_dir_all(&directory)?;
    let made = Made {
        at: "2026-01-31 14:05:00Z".into(),
        by: "An example".into(),
        command: "cargo run -p segue-report --example page".into(),
    };
    let mut page = Page::new(
        "A silent outage",
        "Made-up figures. The Wi-Fi fell silent at 10 s and came back at 20 s; no connection broke.",
        made,
    );
    page.set_verdict("It held: the silence was found in 131 ms (bar: at most 150 ms).");
    page.push_table(
        "One row per handover.",
        &["at", "from", "to", "cause", "detected after", "bound", "packets lost"],
        &[
            ["10.131 s", "wifi", "lte", "the path in use went down", "131 ms", "150 ms", "7"],
            ["20.640 s", "lte", "wifi", "better by 10.5 points for 500 ms", "–", "–", "0"],
        ],
    );
    page.push_plot("rtt", "Lines are measured, broken lines imposed.", &rtt());
    let rows = [
        row("tcp download", &[(0.0, 10.13, "wifi"), (10.13, 20.64, "lte"), (20.64, 30.0, "wifi")]),
        row("voice up", &[(0.0, 10.13, "wifi"), (10.13, 20.64, "lte"), (20.64, 30.0, "wifi")]),
        row("voice down", &[(0.0, 10.15, "wifi"), (10.15, 20.66, "lte"), (20.66, 30.0, "wifi")]),
    ];
    let timeline = Timeline {
        title: "Path of each flow".into(),
        x_label: "time in s".into(),
        x_range: (0.0, 30.0),
        rows: rows.into(),
        marks: marks(),
    };
    page.push_timeline("paths", "", &timeline);
    page.push_heading("Throughput and gaps");
    page.push_text("Text may contain <tags> & such.\n\nA second paragraph.");
    page.push_plot("throughput", "", &throughput());
    let empty = Plot { title: "Empty".into(), ..Plot::default() };
    page.push_plot("empty", "A figure without data.", &empty);
    page.write(Path::new(&directory), "page.html")
}

fn marks() -> Vec<Mark> {
    [(10.0, "wifi silent"), (10.13, "handover"), (20.0, "wifi back"), (20.64, "handover")]
        .map(|(x, label)| Mark { x, label: label.into() })
        .into()
}

fn row(name: &str, intervals: &[(f64, f64, &str)]) -> Band {
    let own = |(from, to, label): &(f64, f64, &str)| (*from, *to, (*label).to_owned());
    Band { name: name.into(), intervals: intervals.iter().map(own).collect() }
}

/// Reproducible values that look like noise.
fn noise(i: u32, seed: u32) -> f64 {
    f64::from(i.wrapping_mul(2_654_435_761).wrapping_add(seed * 97).wrapping_mul(40_503) >> 16)
        / 65_536.0
}

fn rtt() -> Plot {
    let samples = |base: f64, seed, gap: bool| {
        (0..600)
            .map(|i| {
                let t = f64::from(i) * 0.05;
                let silent = gap && (10.0..20.0).contains(&t);
                (t, if silent { f64::NAN } else { base + 6.0 * noise(i, seed) })
            })
            .collect()
    };
    Plot {
        title: "Round-trip time".into(),
        x_label: "time in s".into(),
        y_label: "RTT in ms".into(),
        series: vec![
            Series::new("wifi", Style::Line, samples(20.0, 1, true)),
            Series::new("lte", Style::Line, samples(60.0, 2, false)),
            Series::new("wifi imposed", Style::Dashed, vec![(0.0, 20.0), (30.0, 20.0)])
                .role("wifi"),
            Series::new("lte imposed", Style::Dashed, vec![(0.0, 60.0), (30.0, 60.0)]).role("lte"),
        ],
        bands: vec![row("", &[(10.0, 20.0, "wifi silent")])],
        marks: marks(),
        y_from_zero: true,
        ..Plot::default()
    }
}

fn throughput() -> Plot {
    let rate = |i: u32| {
        let t = f64::from(i) * 0.5;
        let rate = if (10.0..20.5).contains(&t) { 17.0 } else { 44.0 };
        (t, rate + 4.0 * noise(i, 3))
    };
    let lost = [(10.02, 2.0), (10.04, 2.0), (10.06, 2.0), (10.08, 2.0), (10.1, 2.0)];
    Plot {
        title: "TCP download".into(),
        x_label: "time in s".into(),
        y_label: "Mbit/s".into(),
        series: vec![
            Series::new("goodput", Style::Step, (0..=60).map(rate).collect()),
            Series::new("lost voice packets", Style::Dots, lost.to_vec()),
        ],
        marks: marks(),
        y_from_zero: true,
        y_max: Some(45.0),
        ..Plot::default()
    }
}
