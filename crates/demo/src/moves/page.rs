//! The page of the mobility demonstration: the effect of each step on the traffic, with plots.

use segue_report::{Band, Mark, Page, Plot, Series, Style, Timeline, made};

use super::{END, Outcome, PAUSE_MAX_MS, Row};
use crate::page::{TIME, rate, silences};
use crate::traffic::Seen;

/// Renders the page.
#[must_use]
pub fn render(outcome: &Outcome, seen: &Seen) -> Page {
    let mut page = Page::new(
        "Segue demonstration: network-based mobility",
        "A stock host with two radios, which runs nothing of Segue's, has a call and a download while its accesses go and come. \
         An anchor and four gateways of Proxy Mobile IPv6 move its flows. All on this machine, in namespaces.",
        made(),
    );
    page.set_verdict(outcome.verdict());
    let marks: Vec<Mark> = outcome
        .steps
        .iter()
        .map(|row| Mark { x: row.at_s, label: format!("to {}", row.to) })
        .collect();
    page.push_heading("What happened");
    push_steps(&mut page, outcome);
    let timeline = Timeline {
        title: "Where packets for the host's address go".into(),
        x_label: TIME.into(),
        x_range: (0.0, END),
        rows: vec![Band { name: "access".into(), intervals: accesses(&outcome.steps) }],
        marks: marks.clone(),
    };
    page.push_timeline("accesses", "From when the anchor sends there.", &timeline);
    page.push_heading("What the traffic saw");
    let placed = |plot: Plot| Plot {
        x_label: TIME.into(),
        x_range: Some((0.0, END)),
        marks: marks.clone(),
        y_from_zero: true,
        ..plot
    };
    let download = Plot {
        title: "TCP download".into(),
        y_label: "received in Mbit/s".into(),
        series: vec![Series::new("received", Style::Step, rate(seen, END))],
        ..Plot::default()
    };
    page.push_plot("download", "", &placed(download));
    let gaps = Plot {
        title: "Call: time since the packet before, beyond its 20 ms".into(),
        y_label: "gap in ms".into(),
        series: vec![
            Series::new("at the correspondent node (up)", Style::Dots, silences(&seen.up)),
            Series::new("at the host (down)", Style::Dots, silences(&seen.down)),
        ],
        ..Plot::default()
    };
    page.push_plot("call", "", &placed(gaps));
    page.push_heading("Files");
    page.push_links(&[
        ("result.json", "the numbers of this page"),
        ("lma.log", "what the anchor said"),
        ("wlan1.log", "what the gateway of the first Wi-Fi said; the others' logs are beside it"),
    ]);
    page
}

fn push_steps(page: &mut Page, outcome: &Outcome) {
    let rows: Vec<[String; 8]> = outcome
        .steps
        .iter()
        .map(|row| {
            let verdict = if row.holds() { "holds" } else { "too long" };
            [
                verdict.into(),
                format!("{:.1} s: {}", row.at_s, row.what),
                row.cause.replace('_', " "),
                format!("{:.1} ms", row.rebinding_ms),
                format!("{:.0} ms", row.pause_ms[0]),
                format!("{:.0} ms", row.pause_ms[1]),
                format!("{} and {}", row.lost[0], row.lost[1]),
                format!("{:.0} ms", row.download_pause_ms),
            ]
        })
        .collect();
    let header = [
        "verdict",
        "step",
        "why the anchor moved flows",
        "rebound in",
        "call's pause down",
        "call's pause up",
        "lost down and up",
        "download's pause",
    ];
    page.push_verdicts("Each step, and the pauses and losses around it", &header, &rows);
    page.push_text(&format!(
        "The bar of each step: no pause of the call to the host is longer than {PAUSE_MAX_MS} ms. Rebound in: from when the \
         anchor heard of it until it sent the other way. The packets of the call are 20 ms apart."
    ));
}

/// The access that packets take, from each handover to the next: from, to, name.
fn accesses(steps: &[Row]) -> Vec<(f64, f64, String)> {
    let moved = steps.iter().map(|row| (row.at_s + row.rebinding_ms / 1e3, row.to));
    let begins: Vec<(f64, &str)> = [(0.0, super::FIRST)].into_iter().chain(moved).collect();
    let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([END]);
    begins.iter().zip(ends).map(|((from, access), to)| (*from, to, (*access).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_at_an_access_from_one_move_to_the_next() {
        let step = |at_s, to| Row { at_s, to, rebinding_ms: 500.0, ..Row::default() };
        let all = accesses(&[step(3.0, "lte2"), step(6.0, "wlan1")]);
        let expected = [(0.0, 3.5, "wlan1"), (3.5, 6.5, "lte2"), (6.5, END, "wlan1")];
        assert_eq!(all, expected.map(|(from, to, access)| (from, to, access.to_owned())));
    }
}
