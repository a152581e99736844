//! Table 4: what the evaluation shows, part by part, from the runs of the figures.

use std::collections::BTreeMap;

use crate::experiment::{Line, Outcome};

/// A part of the evaluation: its letter, what it is about, the paper's result, and the experiments that show it.
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

/// What the figures' lines come to, by the names of their experiments.
pub(crate) fn outcome(found: &BTreeMap<&'static str, Vec<Line>>) -> Outcome {
    let mut lines = Vec::new();
    for Part { letter, about, paper, shown_by } in PARTS {
        let all = || shown_by.iter().filter_map(|id| Some((*id, found.get(id)?)));
        let judged = all().flat_map(|(id, lines)| lines.iter().map(move |line| (id, line)));
        let judged: Vec<(&str, &Line)> = judged.filter(|(_, line)| line.agrees.is_some()).collect();
        let met = judged.iter().filter(|(_, line)| line.agrees == Some(true)).count();
        let here = match judged.len() {
            0 => "no bar".to_owned(),
            all => format!("{met} of {all} bars are met ({})", shown_by.join(", ")),
        };
        lines.push(Line::new(format!("{letter}: {about}"), paper, here));
        // With their verdicts, which the page's headline counts.
        lines.extend(judged.into_iter().map(|(id, line)| {
            let what = format!("{letter}, {id}: {}", line.what);
            Line { what, ..line.clone() }
        }));
    }
    Outcome {
        lines,
        conditions: "From the same runs as the figures that ran before; the others ran for this table. Each bar is judged \
                     there, and stands here again."
            .into(),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_bars_of_each_part_and_judges_none_again() {
        let line = |agrees| Line::new("x", "1", "2").judged("3", agrees);
        let found = BTreeMap::from([
            ("alves-fig7", vec![line(true), Line::new("y", "", "")]),
            ("alves-fig8", vec![line(false)]),
            ("alves-fig12", vec![line(true)]),
        ]);
        let outcome = outcome(&found);
        let here: Vec<&str> = outcome.lines.iter().map(|line| line.here.as_str()).collect();
        assert_eq!(here[0], "1 of 2 bars are met (alves-fig7, alves-fig8)");
        assert_eq!(outcome.lines[1].what, "A, alves-fig7: x");
        assert_eq!(here[3..6], ["no bar"; 3]);
        assert_eq!(here[6], "1 of 1 bars are met (alves-fig12)");
        let verdicts: Vec<bool> = outcome.lines.iter().filter_map(|line| line.agrees).collect();
        assert_eq!(verdicts, [true, false, true], "each that stands on the page");
    }
}
