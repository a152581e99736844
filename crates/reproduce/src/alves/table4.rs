//! Table 4: the main results of the evaluation, part by part, from the runs of the figures.

use std::collections::BTreeMap;

use crate::experiment::{Found, Line, Outcome};

/// A part of the evaluation: its letter, its subject, the paper's result, and the experiments that show it.
struct Part {
    letter: &'static str,
    about: &'static str,
    paper: &'static str,
    shown_by: &'static [&'static str],
}

const PARTS: [Part; 5] = [
    Part {
        letter: "A",
        about: "the way to filter packets",
        paper: "iptables is the best to make and apply a rule for each flow",
        shown_by: &["alves-fig7", "alves-fig8"],
    },
    Part {
        letter: "B",
        about: "the first packets of a flow",
        paper: "the overhead is rapidly diluted after the 5th packet",
        shown_by: &["alves-fig9"],
    },
    Part {
        letter: "C",
        about: "MAG and LMA",
        paper: "the LMA takes twice the MAG's time; NAPI's effect is noticeable at high throughputs alone",
        shown_by: &["alves-fig10"],
    },
    Part {
        letter: "D",
        about: "what a rule for each flow costs",
        paper: "a negligible penalty at the LMA",
        shown_by: &["alves-fig11"],
    },
    Part {
        letter: "E",
        about: "handover delay of a flow",
        paper: "50 to 150 ms",
        shown_by: &["alves-fig12"],
    },
];

/// Sums up the figures' lines, by experiment name. Each verdict appears once on a page: this table shows only those of
/// figures that ran just for this table.
pub(crate) fn outcome(found: &BTreeMap<&'static str, Found>) -> Outcome {
    let mut lines = Vec::new();
    for Part { letter, about, paper, shown_by } in PARTS {
        let all = || shown_by.iter().filter_map(|id| Some((*id, found.get(id)?)));
        let judged = |(id, found): (&'static str, &'_ Found)| {
            let judged = found.lines.iter().filter(|line| line.agrees.is_some()).cloned();
            judged.map(|line| (id, found.on_page, line)).collect::<Vec<_>>()
        };
        let judged: Vec<_> = all().flat_map(judged).collect();
        let met = judged.iter().filter(|(.., line)| line.agrees == Some(true)).count();
        let here = match judged.len() {
            0 => "no bar".to_owned(),
            all => format!("{met} of {all} bars are met ({})", shown_by.join(", ")),
        };
        lines.push(Line::new(format!("{letter}: {about}"), paper, here));
        lines.extend(judged.into_iter().filter(|(_, on_page, _)| !on_page).map(|(id, _, line)| {
            let what = format!("{letter}, {id}: {}", line.what);
            Line { what, ..line }
        }));
    }
    Outcome {
        lines,
        conditions: "From the same runs as the figures on this page, whose verdicts stand there and count once; other figures \
                     ran for this table, and their verdicts stand here."
            .into(),
        ..Outcome::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        let lines = |value: f64| {
            let lines = vec![Line::new("x", "1", "").about(value, 1.0, "ms")];
            outcome(&[("alves-fig7", Found { lines, on_page: false })].into()).lines
        };
        TenTimesOff { id: "alves-table4", right: lines(1.0), wrong: vec![lines(10.0)] }
    }

    #[test]
    fn the_table_counts_the_bars_of_each_part_and_shows_a_verdict_that_stands_nowhere_else() {
        let line = |agrees| Line::new("x", "1", "2").judged("3", agrees);
        let found = |lines, on_page| Found { lines, on_page };
        let all = BTreeMap::from([
            ("alves-fig7", found(vec![line(true), Line::new("y", "", "")], true)),
            ("alves-fig8", found(vec![line(false)], false)),
            ("alves-fig12", found(vec![line(true)], true)),
        ]);
        let outcome = outcome(&all);
        let here: Vec<&str> = outcome.lines.iter().map(|line| line.here.as_str()).collect();
        assert_eq!(here[0], "1 of 2 bars are met (alves-fig7, alves-fig8)");
        assert_eq!(outcome.lines[1].what, "A, alves-fig8: x");
        assert_eq!(here[2..5], ["no bar"; 3]);
        assert_eq!(here[5], "1 of 1 bars are met (alves-fig12)");
        let verdicts: Vec<bool> = outcome.lines.iter().filter_map(|line| line.agrees).collect();
        assert_eq!(verdicts, [false], "the others stand beside their figures");
    }
}
