//! Schedules as text, one item per line, so that people can keep, edit and replay them.
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
//! A path is `host.path`, both counted from 0; a delay `up/down`. `loss` and `duplicate` take thousandths,
//! `reorder` thousandths and a time.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::{FromStr, SplitWhitespace};

use super::schedule::{
    Entry, FLOWS, Fault, HostShape, Machines, PathRef, PathShape, Schedule, Way,
};

/// Most hosts, paths of a host, and milliseconds before the quiet time.
const MAX_HOSTS: usize = 8;
const MAX_PATHS: usize = 4;
const MAX_MS: u64 = 3_600_000;
const MAX_ENTRIES: usize = 10_000;

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1; 0 if the text as a whole is wrong.
    pub line: usize,
    /// What is wrong, and what would be right.
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

impl fmt::Display for PathRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.host, self.path)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Loss(at, way, n) => write!(f, "loss {at} {} {n}", way.name()),
            Fault::Burst(at, way, n) => write!(f, "burst {at} {} {n}", way.name()),
            Fault::Duplicate(at, way, n) => write!(f, "duplicate {at} {} {n}", way.name()),
            Fault::Reorder(at, way, n, ms) => {
                write!(f, "reorder {at} {} {n} {ms}ms", way.name())
            }
            Fault::Delay(at, way, ms) => write!(f, "delay {at} {} {ms}ms", way.name()),
            Fault::Narrow(at, way, mtu) => write!(f, "narrow {at} {} {mtu}", way.name()),
            Fault::TooBig(at, way, mtu) => write!(f, "too-big {at} {} {mtu}", way.name()),
            Fault::Cut(at, way) => write!(f, "cut {at} {}", way.name()),
            Fault::Mend(at, way) => write!(f, "mend {at} {}", way.name()),
            Fault::CutAll(host) => write!(f, "cut-all {host}"),
            Fault::Gone(at) => write!(f, "gone {at}"),
            Fault::Back(at) => write!(f, "back {at}"),
            Fault::Renumber(at) => write!(f, "renumber {at}"),
            Fault::Rebind(at) => write!(f, "rebind {at}"),
            Fault::RestartHost(host) => write!(f, "restart-host {host}"),
            Fault::RestartAnchor => f.write_str("restart-anchor"),
            Fault::BreakSignal(host) => write!(f, "break-signal {host}"),
            Fault::OldCopy(host) => write!(f, "old-copy {host}"),
            Fault::Unenrol(host) => write!(f, "unenrol {host}"),
            Fault::Enrol(host) => write!(f, "enrol {host}"),
            Fault::Handover(host, Some(path)) => write!(f, "handover {host} to {path}"),
            Fault::Handover(host, None) => write!(f, "handover {host} free"),
            Fault::Keepalive(at, on) => write!(f, "keepalive {at} {}", on_off(*on)),
            Fault::Flow(host, flow, on) => {
                write!(f, "flow {host} {flow} {}", if *on { "start" } else { "stop" })
            }
            Fault::MendAll => f.write_str("mend-all"),
        }
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machines {}", self.machines.name())?;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "readings {}", on_off(self.readings))?;
        writeln!(f, "follows-use {}", on_off(self.follows_use))?;
        for host in &self.hosts {
            let rides = if host.rides { " rides" } else { "" };
            write!(f, "host k {} t-ka {}ms{rides} paths", host.k, host.t_ka_ms)?;
            for path in &host.paths {
                write!(f, " {}ms/{}ms", path.up_ms, path.down_ms)?;
            }
            writeln!(f)?;
        }
        for entry in &self.entries {
            writeln!(f, "at {}ms {}", entry.at_ms, entry.fault)?;
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
            let mut words = Words(line.split_whitespace());
            let done = draft.take(&mut words).and_then(|()| words.end());
            done.map_err(|what| TextError { line: index + 1, what })?;
        }
        draft.finish().map_err(|what| TextError { line: 0, what })
    }
}

/// The words of a line.
struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, wanted: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{wanted} is missing at the end"))
    }

    fn end(&mut self) -> Result<(), String> {
        self.0.next().map_or(Ok(()), |word| Err(format!("\"{word}\" is one word too many")))
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.next(&format!("\"{word}\""))? {
            found if found == word => Ok(()),
            found => Err(format!("\"{found}\" stands where \"{word}\" should")),
        }
    }

    fn number<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        name: &str,
        least: T,
        most: T,
    ) -> Result<T, String> {
        let word = self.next(name)?;
        number(word, name, least, most)
    }

    fn millis(&mut self, name: &str, most: u64) -> Result<u64, String> {
        millis(self.next(name)?, name, most)
    }

    fn one_of<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let word = self.next(name)?;
        choices.iter().find(|(choice, _)| *choice == word).map(|(_, value)| *value).ok_or_else(
            || {
                let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
                format!("{name} \"{word}\" is none of {}", names.join(", "))
            },
        )
    }

    fn switch(&mut self, name: &str) -> Result<bool, String> {
        self.one_of(name, &[("on", true), ("off", false)])
    }

    fn way(&mut self) -> Result<Way, String> {
        let ways = [Way::Up, Way::Down, Way::Both].map(|way| (way.name(), way));
        self.one_of("the direction", &ways)
    }

    fn permille(&mut self) -> Result<u16, String> {
        self.number("the probability in thousandths", 0, 1_000)
    }
}

fn number<T: FromStr + PartialOrd + fmt::Display>(
    word: &str,
    name: &str,
    least: T,
    most: T,
) -> Result<T, String> {
    let value = word.parse::<T>().ok().filter(|value| (&least..=&most).contains(&value));
    value.ok_or_else(|| format!("{name} \"{word}\" is no number from {least} to {most}"))
}

fn millis(word: &str, name: &str, most: u64) -> Result<u64, String> {
    let digits = word
        .strip_suffix("ms")
        .ok_or_else(|| format!("{name} \"{word}\" has no unit: milliseconds are written 20ms"))?;
    number(digits, name, 0, most)
}

/// What the lines so far have set.
#[derive(Default)]
struct Draft {
    machines: Option<Machines>,
    seed: Option<u64>,
    readings: bool,
    follows_use: bool,
    hosts: Vec<HostShape>,
    entries: Vec<Entry>,
    quiet_ms: Option<u64>,
}

impl Draft {
    fn take(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let Some(word) = words.0.next() else { return Ok(()) };
        if self.quiet_ms.is_some() {
            return Err("something follows the quiet time, which is the last line".to_string());
        }
        match word {
            "machines" => {
                let choices = Machines::ALL.map(|machines| (machines.name(), machines));
                self.machines = Some(words.one_of("the machines", &choices)?);
            }
            "seed" => self.seed = Some(words.number("the seed", 0, u64::MAX)?),
            "readings" => self.readings = words.switch("readings")?,
            "follows-use" => self.follows_use = words.switch("follows-use")?,
            "host" => self.host(words)?,
            "at" => self.entry(words)?,
            "quiet" => {
                let at = words.millis("the quiet time", MAX_MS)?;
                if self.entries.last().is_some_and(|entry| entry.at_ms > at) {
                    return Err("the quiet time begins before the last fault".to_string());
                }
                self.quiet_ms = Some(at);
            }
            other => {
                return Err(format!(
                    "\"{other}\" is none of machines, seed, readings, follows-use, host, at, quiet"
                ));
            }
        }
        Ok(())
    }

    fn host(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        words.expect("k")?;
        let k = words.number("K", 1, 20)?;
        words.expect("t-ka")?;
        let t_ka = words.millis("T_KA", 10_000)?;
        if t_ka < 5 {
            return Err("T_KA is below 5ms, the least an anchor grants".to_string());
        }
        let rides = words.one_of("it", &[("rides", true), ("paths", false)])?;
        if rides {
            words.expect("paths")?;
        }
        let mut paths = Vec::new();
        for word in words.0.by_ref() {
            let (up, down) = word
                .split_once('/')
                .ok_or_else(|| format!("delays \"{word}\" are not of the form 10ms/10ms"))?;
            let delay = |word| millis(word, "the delay", 2_000).map(|ms| ms as u16);
            paths.push(PathShape { up_ms: delay(up)?, down_ms: delay(down)? });
        }
        if paths.is_empty() || paths.len() > MAX_PATHS || self.hosts.len() == MAX_HOSTS {
            return Err(format!(
                "a host has 1 to {MAX_PATHS} paths, and a schedule 1 to {MAX_HOSTS} hosts"
            ));
        }
        self.hosts.push(HostShape { k, t_ka_ms: t_ka as u16, rides, paths });
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

    fn which_host(&self, words: &mut Words<'_>) -> Result<usize, String> {
        let hosts = self.hosts.len();
        if hosts == 0 {
            return Err("a fault before the first host".to_string());
        }
        words.number("the host", 0, hosts - 1)
    }

    fn which_path(&self, words: &mut Words<'_>) -> Result<PathRef, String> {
        let word = words.next("the path")?;
        let parts = word.split_once('.').and_then(|(host, path)| {
            Some(PathRef { host: host.parse().ok()?, path: path.parse().ok()? })
        });
        let there = |at: &PathRef| self.hosts.get(at.host).is_some_and(|h| at.path < h.paths.len());
        parts
            .filter(there)
            .ok_or_else(|| format!("\"{word}\" is no path of a host above; the first is 0.0"))
    }

    fn fault(&self, words: &mut Words<'_>) -> Result<Fault, String> {
        let verb = words.next("the fault")?;
        if let Some(fault) = self.fault_of_host(verb, words)? {
            return Ok(fault);
        }
        let links = ["loss", "burst", "duplicate", "reorder", "delay", "narrow", "cut", "mend"];
        let others = ["too-big", "gone", "back", "renumber", "rebind", "keepalive"];
        if !links.contains(&verb) && !others.contains(&verb) {
            return Err(format!("\"{verb}\" is no fault; docs/simulator/faults.md has the list"));
        }
        let at = self.which_path(words)?;
        Ok(match verb {
            "loss" => Fault::Loss(at, words.way()?, words.permille()?),
            "burst" => Fault::Burst(at, words.way()?, words.number("the burst", 1, u16::MAX)?),
            "duplicate" => Fault::Duplicate(at, words.way()?, words.permille()?),
            "reorder" => {
                let (way, permille) = (words.way()?, words.permille()?);
                Fault::Reorder(at, way, permille, words.millis("the hold-up", 2_000)? as u16)
            }
            "delay" => Fault::Delay(at, words.way()?, words.millis("the delay", 2_000)? as u16),
            "narrow" => Fault::Narrow(at, words.way()?, words.number("the size", 68, u16::MAX)?),
            "too-big" => Fault::TooBig(at, words.way()?, words.number("the size", 0, u16::MAX)?),
            "cut" => Fault::Cut(at, words.way()?),
            "mend" => Fault::Mend(at, words.way()?),
            "gone" => Fault::Gone(at),
            "back" => Fault::Back(at),
            "renumber" => Fault::Renumber(at),
            "rebind" => Fault::Rebind(at),
            _ => Fault::Keepalive(at, words.switch("the keepalive")?),
        })
    }

    fn fault_of_host(&self, verb: &str, words: &mut Words<'_>) -> Result<Option<Fault>, String> {
        Ok(Some(match verb {
            "restart-anchor" => Fault::RestartAnchor,
            "mend-all" => Fault::MendAll,
            "cut-all" => Fault::CutAll(self.which_host(words)?),
            "restart-host" => Fault::RestartHost(self.which_host(words)?),
            "break-signal" => Fault::BreakSignal(self.which_host(words)?),
            "old-copy" => Fault::OldCopy(self.which_host(words)?),
            "unenrol" => Fault::Unenrol(self.which_host(words)?),
            "enrol" => Fault::Enrol(self.which_host(words)?),
            "flow" => {
                let host = self.which_host(words)?;
                let flow = words.number("the flow", 0, FLOWS - 1)?;
                Fault::Flow(host, flow, words.one_of("it", &[("start", true), ("stop", false)])?)
            }
            "handover" => {
                let host = self.which_host(words)?;
                if !words.one_of("the order", &[("to", true), ("free", false)])? {
                    return Ok(Some(Fault::Handover(host, None)));
                }
                let path = words.number("the path", 0, self.hosts[host].paths.len() - 1)?;
                Fault::Handover(host, Some(path))
            }
            _ => return Ok(None),
        }))
    }

    fn finish(self) -> Result<Schedule, String> {
        let missing = |what: &str| format!("the line \"{what}\" is missing");
        let machines = self.machines.ok_or_else(|| missing("machines tunnel|keepalive"))?;
        if self.hosts.is_empty() {
            return Err(missing("host k … t-ka … paths …"));
        }
        if machines == Machines::Keepalive
            && (self.hosts.len(), self.hosts[0].paths.len()) != (1, 1)
        {
            return Err("the estimators have one host with one path".to_string());
        }
        if machines == Machines::Keepalive && self.hosts[0].rides {
            return Err("the estimators have no data for probes to ride on".to_string());
        }
        Ok(Schedule {
            machines,
            seed: self.seed.ok_or_else(|| missing("seed …"))?,
            readings: self.readings,
            follows_use: self.follows_use,
            hosts: self.hosts,
            entries: self.entries,
            quiet_ms: self.quiet_ms.ok_or_else(|| missing("quiet …"))?,
        })
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
            (4, "at 5ms restart-host 1", "from 0 to 0"),
            (4, "at 5ms flow 0 3 start", "from 0 to 2"),
            (4, "host k 0 t-ka 60ms paths 1ms/1ms", "K \"0\""),
            (4, "host k 3 t-ka 60ms paths", "1 to 4 paths"),
            (4, "host k 3 t-ka 60ms walks 1ms/1ms", "none of rides, paths"),
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
        let text = Schedule::generate(Machines::Tunnel, 3).to_string();
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
