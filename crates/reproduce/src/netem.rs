//! Fig. 16 of paper 1 with the kernel's netem instead of Segue's emulator, in a virtual machine whose kernel has netem.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use segue_report::{Plot, Series, Style};
use serde_json::Value;

use super::average::{eq13, spread, t_tml};
use super::experiment::{Experiment, Figure, Line, Needs, Outcome, SALSANO, Stage, role};
use super::tracking;

/// The values in netem.sh: time between probes, time constants, round-trip times before and after the step in ms.
const T_KA_S: f64 = 0.2;
const TAUS_S: [f64; 4] = [0.124, 0.218, 0.392, 0.896];
const LEVELS_MS: [f64; 2] = [100.0, 200.0];
/// Delay in ms that an emulated processor may add to a round-trip time.
const LATE_MS: f64 = 20.0;
/// Interval at which the virtual machine is polled.
const LOOK: Duration = Duration::from_millis(100);

/// The experiment of this file.
pub(crate) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        id: "salsano-fig16-netem",
        paper: SALSANO,
        title: "Average of the RTT after a step, T_KA = 200 ms, over the kernel's netem",
        takes: Duration::from_secs(30),
        needs: Needs::Machine,
        run,
    }]
}

/// Samples: the time in s, with the round-trip time in ms and with each average.
#[derive(Default)]
struct Samples {
    rtt: Vec<(f64, f64)>,
    averages: [Vec<(f64, f64)>; TAUS_S.len()],
}

fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    outcome(&Samples::read(&in_machine(stage)?)?)
}

fn outcome(samples: &Samples) -> anyhow::Result<Outcome> {
    let middle = LEVELS_MS.iter().sum::<f64>() / 2.0;
    let sides = [false, true].map(|after| {
        let side = samples.rtt.iter().filter(|(_, ms)| (*ms > middle) == after);
        (spread(side.clone().map(|(_, ms)| *ms)), side.map(|(at, _)| *at).next_back())
    });
    let [(Some([_, from, _]), Some(step)), (Some([_, to, _]), _)] = sides else {
        anyhow::bail!("the probe saw no step among {} samples", samples.rtt.len());
    };
    let mut lines: Vec<Line> =
        LEVELS_MS.into_iter().zip([from, to]).map(|(ms, found)| level_line(ms, found)).collect();
    for (tau, average) in TAUS_S.into_iter().zip(&samples.averages) {
        let formula = tau * 10f64.ln();
        // Times count from the last answer before the step. The next answer comes up to a period and the longer RTT
        // later, and the average changes once per period. The emulated processor adds up to 3 ms to the step of 100 ms:
        // 0.3 τ.
        let (off, late) = (0.3 * tau, 2.0 * T_KA_S + LEVELS_MS[1] / 1e3);
        let took = t_tml(average, step, f64::INFINITY, from, to);
        let here = took.map_or_else(|| "not reached".to_owned(), |s| format!("{:.0} ms", s * 1e3));
        let what = format!("T_tml, τ = {}", tracking::seconds(tau));
        let [least, most] = [formula - off, formula + off + late].map(|s| (s * 1e3).round());
        let line = Line::new(what, format!("2.3 τ = {:.0} ms", formula * 1e3), here);
        lines.push(line.within(took.unwrap_or(f64::NAN) * 1e3, least..=most, "ms"));
    }
    lines.push(samples.accuracy());
    Ok(Outcome {
        figures: vec![samples.figure()],
        tables: Vec::new(),
        lines,
        conditions: format!(
            "A client of segue probe in a virtual machine with a distribution's kernel and an emulated processor, {} samples; \
             T_tml counts from the last answer before the step. The bar is 2 τ to 2.6 τ, two periods and the longer \
             round-trip time.",
            samples.rtt.len()
        ),
    })
}

/// Compares a round-trip time set in netem with the measured one, in ms.
fn level_line(ms: f64, found: f64) -> Line {
    Line::new(
        format!("RTT with {ms:.0} ms of netem"),
        format!("{ms:.0} ms"),
        format!("median {found:.1} ms"),
    )
    .within(found, ms..=ms + LATE_MS, "ms")
}

/// Runs netem.sh in a virtual machine and returns its output.
fn in_machine(stage: &Stage) -> anyhow::Result<String> {
    let files = tempfile::Builder::new().prefix("segue-reproduce").tempdir()?;
    let [script, output, errors] =
        ["netem.sh", "output", "errors"].map(|name| files.path().join(name));
    std::fs::write(&script, include_str!("netem.sh"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", "vm", "--limit", "3m", "/bin/bash"]).arg(&script);
    command.current_dir(files.path()).stdin(Stdio::null());
    command.stdout(File::create(&output)?).stderr(File::create(&errors)?);
    let mut machine = command.spawn().context("segue lab vm")?;
    let status = loop {
        if let Some(status) = machine.try_wait()? {
            break status;
        }
        if let Err(stopped) = stage.check() {
            // The virtual machine ends with this process.
            machine.kill()?;
            machine.wait()?;
            return Err(stopped);
        }
        std::thread::sleep(LOOK);
    };
    let errors = std::fs::read_to_string(&errors).unwrap_or_default();
    let last = errors.lines().next_back().unwrap_or_default();
    ensure!(status.success(), "the script ended with {status} in the virtual machine: {last}");
    std::fs::read_to_string(&output).context("what the script printed")
}

impl Samples {
    fn read(text: &str) -> anyhow::Result<Samples> {
        let mut samples = Samples::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).context("a line of the probe")?;
            if line["type"] != "sample" {
                continue;
            }
            let number = |value: &Value| value.as_f64().context("a sample without its numbers");
            let at = number(&line["at_s"])?;
            samples.rtt.push((at, number(&line["rtt_ms"])?));
            for (i, average) in samples.averages.iter_mut().enumerate() {
                average.push((at, number(&line["rtt_ewma_ms"][i])?));
            }
        }
        Ok(samples)
    }

    /// Compares the averages with eq. 13 over the samples.
    fn accuracy(&self) -> Line {
        let errors = TAUS_S.iter().zip(&self.averages).flat_map(|(tau, average)| {
            let exact = eq13(&self.rtt, *tau, *tau);
            average
                .iter()
                .zip(exact)
                .map(|((_, s), (_, exact))| (s - exact).abs())
                .collect::<Vec<_>>()
        });
        let [_, median, most] = spread(errors).unwrap_or([f64::NAN; 3]);
        Line::new(
            "error of the averages",
            "eq. 13 over the samples",
            format!("median {median:.2} ms, greatest {most:.2} ms"),
        )
        .judged("median at most 1 ms", median <= 1.0)
    }

    fn figure(&self) -> Figure {
        let dots = Series::new("measured", Style::Dots, self.rtt.clone()).role(role::IMPOSED);
        let averages =
            TAUS_S.iter().zip(&self.averages).zip(role::MEASURED).map(|((tau, average), role)| {
                let name = format!("average, τ = {}", tracking::seconds(*tau));
                Series::new(name, Style::Line, average.clone()).role(role)
            });
        Figure {
            name: "",
            caption: "Round-trip times and their averages.".into(),
            plot: Plot {
                title: "Round-trip time over netem, average with four time constants".into(),
                x_label: "time (s)".into(),
                y_label: "RTT (ms)".into(),
                series: [dots].into_iter().chain(averages).collect(),
                ..Plot::default()
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let lines = |slower: f64, error_ms: f64| {
            let rtt: Vec<_> = (0..60)
                .map(|i| {
                    let at = f64::from(i) * T_KA_S;
                    (at, LEVELS_MS[usize::from(at > 3.75)])
                })
                .collect();
            let averages = TAUS_S.map(|tau| {
                let average = eq13(&rtt, tau * slower, tau * slower);
                average.into_iter().map(|(at, ms)| (at, ms + error_ms)).collect()
            });
            outcome(&Samples { rtt, averages }).unwrap().lines
        };
        let averages = [lines(10.0, 0.5), lines(1.0, 5.0)];
        let levels = LEVELS_MS.map(|ms| level_line(ms, 10.0 * ms));
        vec![TenTimesOff {
            id: "salsano-fig16-netem",
            right: lines(1.0, 0.5),
            wrong: averages.into_iter().chain([levels.into()]).collect(),
        }]
    }
}
