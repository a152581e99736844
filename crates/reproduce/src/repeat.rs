//! Runs an experiment several times. Each number in its lines becomes the median of the runs, with minimum and maximum.

use super::average::spread;
use super::experiment::{Experiment, Line, Needs, Outcome, Stage};

/// Runs an experiment `runs` times. Calculations are deterministic and run only once.
///
/// # Errors
/// This machine lacks a requirement ([`Skipped`](super::experiment::Skipped)), or a run fails.
pub(crate) fn run(experiment: &Experiment, stage: &Stage, runs: u32) -> anyhow::Result<Outcome> {
    experiment.needs.check()?;
    let mut outcome = (experiment.run)(stage)?;
    if runs < 2 || experiment.needs == Needs::Nothing {
        return Ok(outcome);
    }
    let mut all: Vec<Vec<Line>> = vec![std::mem::take(&mut outcome.lines)];
    for _ in 1..runs {
        stage.check()?;
        all.push((experiment.run)(stage)?.lines);
    }
    outcome.lines = merged(&all);
    outcome.conditions = format!(
        "{runs} runs: numbers are medians, with the least and the greatest in brackets where they differ; a bar holds if more \
         than half of the runs meet it; figures and tables are those of the first run. {}",
        outcome.conditions
    );
    Ok(outcome)
}

/// The lines of the first run, merged with the results of the others.
fn merged(runs: &[Vec<Line>]) -> Vec<Line> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of = |line: &Line| {
        let same = runs.iter().filter_map(|run| run.iter().find(|other| other.what == line.what));
        let same: Vec<&Line> = same.collect();
        let here: Vec<&str> = same.iter().map(|line| line.here.as_str()).collect();
        let met = same.iter().filter(|line| line.agrees == Some(true)).count();
        Line {
            here: in_one(&here),
            bar: line.bar.as_ref().map(|bar| format!("{bar}; met in {met} of {} runs", same.len())),
            agrees: line.agrees.map(|_| 2 * met > same.len()),
            ..line.clone()
        }
    };
    first.iter().map(of).collect()
}

/// Merges texts that differ only in their numbers; concatenates other texts.
fn in_one(texts: &[&str]) -> String {
    let parts: Vec<Vec<(bool, &str)>> = texts.iter().map(|text| parts(text)).collect();
    let Some(first) = parts.first() else { return String::new() };
    let words = |parts: &[(bool, &str)]| -> Vec<String> {
        parts
            .iter()
            .map(|(number, part)| if *number { String::new() } else { (*part).into() })
            .collect()
    };
    if parts.iter().any(|other| words(other) != words(first)) {
        return texts.join(" | ");
    }
    let merged = first.iter().enumerate().map(|(i, (number, part))| {
        let all: Vec<&str> = parts.iter().map(|parts| parts[i].1).collect();
        if !number || all.iter().all(|other| other == part) {
            return (*part).to_owned();
        }
        // Compares numbers but keeps their spelling, so that they keep their digits.
        let value = |text: &str| text.parse().unwrap_or(f64::NAN);
        let values = spread(all.iter().map(|text| value(text))).unwrap_or([f64::NAN; 3]);
        let written =
            |wanted: f64| all.iter().find(|text| value(text) == wanted).map_or("", |text| *text);
        let [least, median, greatest] = values.map(written);
        format!("{median} ({least} to {greatest})")
    });
    merged.collect()
}

/// Splits a text into parts, each marked as number or not.
fn parts(text: &str) -> Vec<(bool, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digit = |c: char| c.is_ascii_digit();
        let start = rest.find(digit).unwrap_or(rest.len());
        // A sign belongs to a number unless a word or a number precedes it.
        let before = &rest[..start];
        let signed = before.ends_with(['-', '+'])
            && !before[..before.len() - 1].ends_with(|c: char| c.is_alphanumeric());
        let (words, tail) = rest.split_at(start - usize::from(signed));
        if !words.is_empty() {
            parts.push((false, words));
        }
        let sign = usize::from(signed);
        let whole = tail[sign..].find(|c| !digit(c)).map_or(tail.len(), |end| end + sign);
        let fraction = tail[whole..]
            .strip_prefix('.')
            .map_or(0, |f| f.len() - f.trim_start_matches(digit).len());
        let end = if fraction > 0 { whole + 1 + fraction } else { whole };
        if end > 0 {
            parts.push((true, &tail[..end]));
        }
        rest = &tail[end..];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_becomes_the_median_of_the_runs_with_the_least_and_the_greatest() {
        let texts = [
            "median 2125 ms, 1.5 % of 8",
            "median 90.5 ms, 1.5 % of 8",
            "median 2300 ms, 1.5 % of 8",
        ];
        assert_eq!(in_one(&texts), "median 2125 (90.5 to 2300) ms, 1.5 % of 8");
        assert_eq!(in_one(&["-3 % (K-2)", "+4 % (K-2)"]), "+4 (-3 to +4) % (K-2)");
        assert_eq!(in_one(&["7", "lost in the noise", "8"]), "7 | lost in the noise | 8");
        assert_eq!(in_one(&["the same 5."; 3]), "the same 5.");
    }

    #[test]
    fn a_bar_holds_if_more_than_half_of_the_runs_meet_it() {
        let run = |here: &str, agrees| {
            vec![Line::new("a", "9", here).judged("8 to 10", agrees), Line::new("b", "", "x")]
        };
        let [a, b] = &merged(&[run("9", true), run("11", false), run("10", true)])[..] else {
            unreachable!()
        };
        assert_eq!((a.here.as_str(), a.agrees), ("10 (9 to 11)", Some(true)));
        assert_eq!(a.bar.as_deref(), Some("8 to 10; met in 2 of 3 runs"));
        assert_eq!((b.here.as_str(), b.agrees, b.bar.as_deref()), ("x", None, None));
        let [a, _] = &merged(&[run("9", true), run("11", false)])[..] else { unreachable!() };
        assert_eq!(a.agrees, Some(false));
    }

    #[test]
    fn what_is_measured_runs_as_often_as_asked_and_what_is_computed_once() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let experiment = |needs| Experiment {
            id: "",
            paper: "",
            title: "",
            takes: std::time::Duration::ZERO,
            needs,
            run: |_| {
                let n = COUNT.fetch_add(1, Ordering::Relaxed);
                let lines = vec![Line::new("n", "", n.to_string())];
                Ok(Outcome { lines, conditions: "Quiet.".into(), ..Outcome::default() })
            },
        };
        let stage = Stage::new(segue_demo::interrupt::interrupts().unwrap(), false);
        let measured = run(&experiment(Needs::Namespaces), &stage, 3).unwrap();
        assert_eq!(measured.lines[0].here, "1 (0 to 2)");
        assert!(
            measured.conditions.starts_with("3 runs: ") && measured.conditions.ends_with(" Quiet.")
        );
        let computed = run(&experiment(Needs::Nothing), &stage, 3).unwrap();
        assert_eq!(
            (computed.lines[0].here.as_str(), computed.conditions.as_str()),
            ("3", "Quiet.")
        );
        assert_eq!(COUNT.load(Ordering::Relaxed), 4);
    }
}
