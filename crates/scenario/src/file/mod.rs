//! Reads a scenario from a TOML file, and checks and builds the network that it describes.
//!
//! ```text
//!  text ── Source ──► tree of values, with overrides ── tables ──► the scenario's tables
//!                                                    plan, place, reach ──► Built: a Network and its names
//! ```
//!
//! The network is built once to find all errors; each run builds it again.

mod builder;
mod event;
mod files;
pub mod population;
mod reach;
mod table;
mod tables;

use std::path::Path;

use anyhow::bail;
use segue_clock::{Span, Time};
use segue_grammar::schema::{Key, Table};
use segue_grammar::{Mistake, Part, Source, text};
use segue_sim::net::AT_ONCE;
use segue_sim::{ChannelId, Network, Observer, Results};

use builder::Builder;
use files::Files;
use tables::{File, Top};

/// A valid scenario.
pub struct Scenario {
    name: String,
    text: String,
    files: Files,
    source: Source,
    file: File,
    /// Upper limit of times in the file.
    limit: Span,
}

/// A network built from a scenario, with the names of its parts.
pub struct Built {
    /// The network, at time 0.
    pub network: Network,
    /// When the run ends.
    pub end: Time,
    /// Links by name, each with its channel from the first end and the channel back.
    pub links: Vec<(String, [ChannelId; 2])>,
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// One line with file, line and key.
    pub fn read(path: &Path) -> anyhow::Result<Scenario> {
        Scenario::read_with(path, &[])
    }

    /// Reads a file and overrides some values, as [`with`](Scenario::with).
    ///
    /// # Errors
    /// One line with file, line and key.
    pub fn read_with(path: &Path, sets: &[(String, String)]) -> anyhow::Result<Scenario> {
        Scenario::of_text(path, &text(path)?, sets)
    }

    /// Parses the text of a file that was already read, and overrides some values.
    ///
    /// # Errors
    /// One line with file, line and key.
    pub fn of_text(path: &Path, text: &str, sets: &[(String, String)]) -> anyhow::Result<Scenario> {
        let name = path.display().to_string();
        Scenario::make(&name, text, sets, directory(&name))
    }

    /// Parses the text of the file `name`; files that it refers to are relative to its directory.
    ///
    /// # Errors
    /// One line with file, line and key.
    pub fn parse(text: &str, name: &str) -> anyhow::Result<Scenario> {
        Scenario::make(name, text, &[], directory(name))
    }

    /// Parses a self-contained text, which must not refer to files.
    ///
    /// # Errors
    /// One line with file, line and key.
    pub fn parse_alone(text: &str, name: &str) -> anyhow::Result<Scenario> {
        Scenario::make(name, text, &[], Files::new(None))
    }

    /// The same scenario with some values overridden. Keys are dotted, and a list element is addressed by its name:
    /// `ftp.f1.window`. Values are written as in TOML; a value that is not TOML becomes a string.
    ///
    /// # Errors
    /// One line with file and key.
    pub fn with(&self, sets: &[(String, String)]) -> anyhow::Result<Scenario> {
        Scenario::make(&self.name, &self.text, sets, self.files.clone())
    }

    fn make(
        name: &str,
        text: &str,
        sets: &[(String, String)],
        files: Files,
    ) -> anyhow::Result<Scenario> {
        let source = Source::new(name, text, sets)?;
        let file = File::read(&source).map_err(|mistake| source.tell(&mistake))?;
        // A shortened run may keep events after its end in the file.
        let written = (!sets.is_empty()).then(|| Top::take(&mut source.written()).ok()).flatten();
        let ends = [Some(&file.top), written.as_ref()].into_iter().flatten();
        let limit = ends.map(|top| top.duration.get_ref().0).max().unwrap_or(Span::ZERO);
        let (name, text) = (name.to_owned(), text.to_owned());
        let scenario = Scenario { name, text, files, source, file, limit };
        scenario.checked_build().map_err(|mistake| scenario.source.tell(&mistake))?;
        Ok(scenario)
    }

    fn checked_build(&self) -> Result<Built, Mistake> {
        let Builder { network, links, .. } = self.file.build(self.limit, &self.files)?;
        Ok(Built { network, end: Time(self.duration().0), links })
    }

    /// Checks that each endless sender has a route that takes time. Otherwise, a run would never advance.
    ///
    /// # Errors
    /// One line with file, line and key, and the name of a link.
    pub fn check_that_time_passes(&self) -> anyhow::Result<()> {
        let built = self.file.build(self.limit, &self.files);
        let standstill = built.map_or_else(Some, |builder| builder.standstill);
        standstill.map_or(Ok(()), |mistake| Err(self.source.tell(&mistake)))
    }

    /// Builds the network.
    #[must_use]
    pub fn build(&self) -> Built {
        self.checked_build().expect("it was built once when it was read")
    }

    /// Duration of a run.
    #[must_use]
    pub fn duration(&self) -> Span {
        self.file.top.duration.get_ref().0
    }

    /// The seed of all randomness.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.file.top.seed.get()
    }

    /// True if it has a table `[sweep]`.
    #[must_use]
    pub fn is_swept(&self) -> bool {
        self.file.top.sweep.is_some()
    }

    /// The text of the file, without overrides.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The values with their places, for callers that read further tables.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    /// See [`Built::run`].
    pub fn run(&self, observer: Option<Box<dyn Observer>>) -> anyhow::Result<Results> {
        let mut built = self.build();
        if let Some(observer) = observer {
            built.network.observe(observer);
        }
        built.run(|_, _| ())?;
        Ok(built.network.results())
    }
}

/// The tables of keys in the documentation.
#[must_use]
pub fn described() -> Vec<Table> {
    [tables::described(), population::described()].concat()
}

/// The keys of a scenario's file.
#[must_use]
pub fn keys() -> Vec<Key> {
    [tables::top(), population::key()].concat()
}

/// The files in the directory of a scenario.
fn directory(name: &str) -> Files {
    Files::new(Path::new(name).parent().map(Path::to_owned))
}

/// Number of slices of a run: progress reports, and values of its time series.
pub const SLICES: u64 = 1_000;

impl Built {
    /// The name of a channel: its link and its direction.
    #[must_use]
    pub fn channel_name(&self, id: ChannelId) -> String {
        for (name, channels) in &self.links {
            if let Some(way) = channels.iter().position(|channel| *channel == id) {
                return format!("{name}.{}", ["up", "down"][way]);
            }
        }
        let channel = self.network.channel(id);
        let [from, to] = [channel.from, channel.to].map(|(node, _)| &self.network.node(node).name);
        format!("{from}-{to}")
    }

    /// Likely mistakes in the file, found after the run: a node that had to forward but is no transit node, or a link
    /// that carried nothing.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let stops = self.network.nodes().filter(|(_, node)| node.not_forwarded > 0);
        let stops = stops.map(|(_, node)| {
            let (name, dropped) = (&node.name, node.not_forwarded);
            format!("{name} dropped {dropped} packets for others: give it transit = true if it is a router")
        });
        let is_idle = |channels: &[ChannelId; 2]| {
            channels.iter().all(|channel| self.network.counters(*channel).offered == 0)
        };
        let idle = self.links.iter().filter(|(_, channels)| is_idle(channels));
        let idle = idle.map(|(name, _)| format!("link {name} carried no packet"));
        stops.chain(idle).collect()
    }

    /// Runs to the end; regularly calls `tell` with the share of time that has passed.
    ///
    /// # Errors
    /// If time stands still.
    pub fn run(&mut self, mut tell: impl FnMut(&Network, f64)) -> anyhow::Result<()> {
        for slice in 1..=SLICES {
            let at = u128::from(self.end.0) * u128::from(slice) / u128::from(SLICES);
            self.network.run_until(Time(at as u64));
            if self.network.stuck() {
                let at = Span(self.network.now().0);
                bail!(
                    "the run gets no further than {at}, with {AT_ONCE} events at that instant: \
                     give links a delay or a rate"
                );
            }
            tell(&self.network, slice as f64 / SLICES as f64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
