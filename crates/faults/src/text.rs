//! Schedules as text with one item per line, so that people can keep, edit and replay them.
//!
//! ```text
//! # what follows # is a remark
//! machines tunnel
//! seed 42
//! readings off
//! follows-use off
//! host k 3 t-ka 60ms paths 10ms/10ms 30ms/25ms
//! at 1500ms cut 0.1 up
//! at 1700ms loss 0.0 both 250
//! quiet 4000ms
//! ```
//!
//! A path is `host.path`, both counted from 0. A delay is `up/down`, followed by `/v6` for an IPv6 path. `loss`
//! and `duplicate` take thousandths, `reorder` thousandths and a time. Words that the harness does not know
//! belong to the protocol.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use segue_sim::net::{LinkFault, PacketFilter};

use crate::fault::{Entry, Fault, HostShape, Node, PathShape};
use crate::protocol::Machines;
use crate::schedule::Schedule;
use crate::words::{Words, millis};

/// Maximum number of hosts, of paths per host, of milliseconds before the quiet time, and of entries.
const MAX_HOSTS: usize = 8;
const MAX_PATHS: usize = 4;
const MAX_MS: u64 = 3_600_000;
const MAX_ENTRIES: usize = 10_000;

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, counted from 1; 0 if the error concerns the text as a whole.
    pub line: usize,
    /// The error, and the expected text.
    pub what: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl core::error::Error for TextError {}

/// A fault with the node names of its protocol.
struct Named<'a>(&'a Fault, Machines);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |number: &usize| *self.1.fixed().get(*number).unwrap_or(&"nothing");
        match self.0 {
            Fault::Restart(Node::Fixed(number)) => write!(f, "restart {}", name(number)),
            Fault::Stall(Node::Fixed(number), ms) => write!(f, "stall {} {ms}ms", name(number)),
            fault => fault.fmt(f),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machines {}", self.machines.name())?;
        writeln!(f, "seed {}", self.seed)?;
        for line in &self.settings {
            writeln!(f, "{line}")?;
        }
        for host in &self.hosts {
            write!(f, "host {} paths", host.settings)?;
            for path in &host.paths {
                write!(f, " {}ms/{}ms", path.up_ms, path.down_ms)?;
                if path.v6 {
                    f.write_str("/v6")?;
                }
            }
            writeln!(f)?;
        }
        for entry in &self.entries {
            writeln!(f, "at {}ms {}", entry.at_ms, Named(&entry.fault, self.machines))?;
        }
        writeln!(f, "quiet {}ms", self.quiet_ms)
    }
}

impl FromStr for Schedule {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Schedule, TextError> {
        let mut draft = Draft::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(before, _)| before);
            let mut words = Words::of(line);
            let done = draft.take(&mut words).and_then(|()| words.end());
            done.map_err(|what| TextError { line: index + 1, what })?;
        }
        draft.finish().map_err(|what| TextError { line: 0, what })
    }
}

/// A filter: `port 7000`, `dscp 46` or `length 150 400`.
fn filter(words: &mut Words<'_>) -> Result<PacketFilter, String> {
    Ok(match words.one_of("the filter", &[("port", 0), ("dscp", 1), ("length", 2)])? {
        0 => PacketFilter::Port(words.number("the port", 1, u16::MAX)?),
        1 => PacketFilter::CodePoint(words.number("the code point", 0, 63)?),
        _ => {
            let from = words.number("the least length", 1, u16::MAX)?;
            PacketFilter::Length(from, words.number("the largest length", from, u16::MAX)?)
        }
    })
}

/// Settings read so far.
#[derive(Default)]
struct Draft {
    machines: Option<Machines>,
    seed: Option<u64>,
    settings: Vec<String>,
    hosts: Vec<HostShape>,
    entries: Vec<Entry>,
    quiet_ms: Option<u64>,
}

impl Draft {
    fn take(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let Some(word) = words.peek() else { return Ok(()) };
        if self.quiet_ms.is_some() {
            return Err("something follows the quiet time, which is the last line".to_string());
        }
        let line = words.clone();
        words.next("a word")?;
        match word {
            "machines" => {
                let choices = Machines::ALL.map(|machines| (machines.name(), machines));
                let choices = choices.each_ref().map(|(name, machines)| (*name, *machines));
                self.machines = Some(words.one_of("the machines", &choices)?);
            }
            "seed" => self.seed = Some(words.number("the seed", 0, u64::MAX)?),
            "host" => self.host(words)?,
            "at" => self.entry(words)?,
            "quiet" => {
                let at = words.millis("the quiet time", MAX_MS)?;
                if self.entries.last().is_some_and(|entry| entry.at_ms > at) {
                    return Err("the quiet time begins before the last fault".to_string());
                }
                self.quiet_ms = Some(at);
            }
            _ => {
                *words = line.clone();
                self.machines()?.check_setting(words)?;
                self.settings.push(line.0.collect::<Vec<_>>().join(" "));
            }
        }
        Ok(())
    }

    fn machines(&self) -> Result<Machines, String> {
        self.machines.ok_or_else(|| "the line \"machines …\" comes first".to_string())
    }

    fn host(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let before = words.clone().0.take_while(|word| *word != "paths");
        let settings = before.collect::<Vec<_>>().join(" ");
        self.machines()?.check_host(words)?;
        words.expect("paths")?;
        let mut paths = Vec::new();
        for word in words.0.by_ref() {
            let (delays, v6) =
                word.strip_suffix("/v6").map_or((word, false), |delays| (delays, true));
            let (up, down) = delays
                .split_once('/')
                .ok_or_else(|| format!("delays \"{word}\" are not of the form 10ms/10ms"))?;
            let delay = |word| millis(word, "the delay", 2_000).map(|ms| ms as u16);
            paths.push(PathShape { up_ms: delay(up)?, down_ms: delay(down)?, v6 });
        }
        if paths.is_empty() || paths.len() > MAX_PATHS || self.hosts.len() == MAX_HOSTS {
            return Err(format!(
                "a host has 1 to {MAX_PATHS} paths, and a schedule 1 to {MAX_HOSTS} hosts"
            ));
        }
        self.hosts.push(HostShape { settings, paths });
        Ok(())
    }

    fn entry(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let at_ms = words.millis("the time", MAX_MS)?;
        if self.entries.last().is_some_and(|entry| entry.at_ms > at_ms) {
            return Err(format!("{at_ms}ms is before the fault of the line above"));
        }
        if self.entries.len() == MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} faults"));
        }
        let fault = self.fault(words)?;
        self.entries.push(Entry { at_ms, fault });
        Ok(())
    }

    fn fault(&self, words: &mut Words<'_>) -> Result<Fault, String> {
        let order = words.clone();
        let verb = words.next("the fault")?;
        if let Some(fault) = self.fault_of_link(verb, words)? {
            return Ok(fault);
        }
        Ok(match verb {
            "cut-all" => Fault::CutAll(words.host(&self.hosts)?),
            "gone" => Fault::Gone(words.path(&self.hosts)?),
            "back" => Fault::Back(words.path(&self.hosts)?),
            "renumber" => Fault::Renumber(words.path(&self.hosts)?),
            "rename" => Fault::Rename(words.path(&self.hosts)?),
            "rebind" => Fault::Rebind(words.path(&self.hosts)?),
            "restart" => Fault::Restart(self.node(words)?),
            "stall" => {
                let node = self.node(words)?;
                Fault::Stall(node, words.millis("the stall", 10_000)? as u16)
            }
            "mend-all" => Fault::MendAll,
            _ => {
                *words = order.clone();
                self.machines()?.check_order(words, &self.hosts)?;
                Fault::Own(order.0.collect::<Vec<_>>().join(" "))
            }
        })
    }

    fn node(&self, words: &mut Words<'_>) -> Result<Node, String> {
        let fixed = self.machines()?.fixed();
        match fixed.iter().position(|name| Some(*name) == words.peek()) {
            Some(number) => words.next("the node").map(|_| Node::Fixed(number)),
            None => words.host(&self.hosts).map(Node::Host),
        }
    }

    fn fault_of_link(&self, verb: &str, words: &mut Words<'_>) -> Result<Option<Fault>, String> {
        let verbs =
            ["loss", "burst", "duplicate", "reorder", "delay", "narrow", "filter", "cut", "mend"];
        if !verbs.contains(&verb) {
            return Ok(None);
        }
        let (at, way) = (words.path(&self.hosts)?, words.way()?);
        let fault = match verb {
            "loss" => LinkFault::Loss(words.permille()?),
            "burst" => LinkFault::Burst(words.number("the burst", 1, u16::MAX)?),
            "duplicate" => LinkFault::Duplicate(words.permille()?),
            "reorder" => {
                let permille = words.permille()?;
                LinkFault::Reorder(permille, words.millis("the hold-up", 2_000)? as u16)
            }
            "delay" => LinkFault::Delay(words.millis("the delay", 2_000)? as u16),
            "narrow" => LinkFault::Narrow(words.number("the size", 68, u16::MAX)?),
            "filter" => LinkFault::Filter(filter(words)?),
            "cut" => LinkFault::Cut,
            _ => LinkFault::Mend,
        };
        Ok(Some(Fault::Link(at, way, fault)))
    }

    fn finish(self) -> Result<Schedule, String> {
        let missing = |what: &str| format!("the line \"{what}\" is missing");
        let machines = self.machines()?;
        if self.hosts.is_empty() {
            return Err(missing("host … paths …"));
        }
        let schedule = Schedule {
            machines,
            seed: self.seed.ok_or_else(|| missing("seed …"))?,
            settings: self.settings,
            hosts: self.hosts,
            entries: self.entries,
            quiet_ms: self.quiet_ms.ok_or_else(|| missing("quiet …"))?,
        };
        machines.check(&schedule)?;
        Ok(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_the_same_after_a_trip_through_text() {
        for machines in Machines::ALL {
            for seed in 0..300 {
                let schedule = Schedule::generate(machines, seed);
                let text = schedule.to_string();
                assert_eq!(text.parse::<Schedule>(), Ok(schedule), "{text}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let head = "machines tunnel\nseed 1\nhost k 3 t-ka 60ms paths 10ms/10ms 20ms/20ms\n";
        for (line, wrong, says) in [
            (4, "at 5ms cut 0.2 up", "\"0.2\" is no path"),
            (4, "at 5ms cut 0.1 sideways", "none of up, down, both"),
            (4, "at 5ms burn 0.1", "no fault"),
            (4, "at 5 cut 0.1 up", "no unit"),
            (4, "at 5ms loss 0.1 up 1001", "from 0 to 1000"),
            (4, "at 5ms loss 0.1 up", "missing"),
            (4, "at 5ms narrow 0.1 up 60", "from 68 to 65535"),
            (4, "at 5ms too-big 0.1 up", "missing"),
            (4, "at 5ms mend-all 3", "one word too many"),
            (5, "at 5ms mend-all\nat 4ms mend-all", "before the fault"),
            (5, "at 5ms mend-all\nquiet 4ms", "before the last fault"),
            (4, "at 5ms restart 1", "from 0 to 0"),
            (4, "at 5ms flow 0 3 start", "from 0 to 2"),
            (4, "host k 0 t-ka 60ms paths 1ms/1ms", "K \"0\""),
            (4, "host k 3 t-ka 60ms paths", "1 to 4 paths"),
            (4, "host k 3 t-ka 60ms walks 1ms/1ms", "none of rides, worn, mode, paths"),
            (4, "weather bad", "\"weather\" is none of"),
            (5, "quiet 5ms\nseed 3", "last line"),
            (0, "", "quiet"),
        ] {
            let text = format!("{head}{wrong}");
            let error = text.parse::<Schedule>().expect_err(&text);
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.what.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn any_text_is_a_schedule_or_an_error() {
        let text = Schedule::generate(Machines::ALL[0], 3).to_string();
        let mut rng = segue_clock::Rng::new(9);
        for _ in 0..2_000 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..1 + rng.below(5) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.below(128) as u8;
            }
            let _ = String::from_utf8_lossy(&bytes).parse::<Schedule>();
        }
    }
}
