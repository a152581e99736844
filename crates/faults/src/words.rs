//! Parsing of schedule lines, and paths and faults as text.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::{FromStr, SplitWhitespace};

use segue_sim::net::{LinkFault, PacketFilter};

use crate::fault::{Fault, HostShape, Node, PathRef, Way};

/// The words of a line. Error messages name the expected word.
#[derive(Clone)]
pub struct Words<'a>(pub(crate) SplitWhitespace<'a>);

impl<'a> Words<'a> {
    /// The words of a text.
    #[must_use]
    pub fn of(text: &'a str) -> Words<'a> {
        Words(text.split_whitespace())
    }

    /// The next word, without taking it.
    #[must_use]
    pub fn peek(&self) -> Option<&'a str> {
        self.clone().0.next()
    }

    /// Takes the next word.
    ///
    /// # Errors
    /// The line ends here.
    pub fn next(&mut self, wanted: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{wanted} is missing at the end"))
    }

    /// Expects the end of the line.
    ///
    /// # Errors
    /// Another word follows.
    pub fn end(&mut self) -> Result<(), String> {
        self.0.next().map_or(Ok(()), |word| Err(format!("\"{word}\" is one word too many")))
    }

    /// Takes this word.
    ///
    /// # Errors
    /// Another word, or the end of the line.
    pub fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.next(&format!("\"{word}\""))? {
            found if found == word => Ok(()),
            found => Err(format!("\"{found}\" stands where \"{word}\" should")),
        }
    }

    /// Takes a number from `least` to `most`.
    ///
    /// # Errors
    /// Not a number, or out of range.
    pub fn number<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        name: &str,
        least: T,
        most: T,
    ) -> Result<T, String> {
        let word = self.next(name)?;
        number(word, name, least, most)
    }

    /// Takes a time in milliseconds.
    ///
    /// # Errors
    /// Not a time, or more than `most`.
    pub fn millis(&mut self, name: &str, most: u64) -> Result<u64, String> {
        millis(self.next(name)?, name, most)
    }

    /// Takes one of these words, and returns its value.
    ///
    /// # Errors
    /// Not one of these words.
    pub fn one_of<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let word = self.next(name)?;
        choices.iter().find(|(choice, _)| *choice == word).map(|(_, value)| *value).ok_or_else(
            || {
                let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
                format!("{name} \"{word}\" is none of {}", names.join(", "))
            },
        )
    }

    /// Takes `on` or `off`.
    ///
    /// # Errors
    /// Another word.
    pub fn switch(&mut self, name: &str) -> Result<bool, String> {
        self.one_of(name, &[("on", true), ("off", false)])
    }

    /// Takes a direction.
    ///
    /// # Errors
    /// Not a direction.
    pub fn way(&mut self) -> Result<Way, String> {
        let ways = [Way::Up, Way::Down, Way::Both].map(|way| (way.name(), way));
        self.one_of("the direction", &ways)
    }

    /// Takes a probability in thousandths.
    ///
    /// # Errors
    /// Not a number from 0 to 1,000.
    pub fn permille(&mut self) -> Result<u16, String> {
        self.number("the probability in thousandths", 0, 1_000)
    }

    /// Takes the number of a host.
    ///
    /// # Errors
    /// No such host.
    pub fn host(&mut self, hosts: &[HostShape]) -> Result<usize, String> {
        if hosts.is_empty() {
            return Err("a fault before the first host".to_string());
        }
        self.number("the host", 0, hosts.len() - 1)
    }

    /// Takes a path.
    ///
    /// # Errors
    /// No such path.
    pub fn path(&mut self, hosts: &[HostShape]) -> Result<PathRef, String> {
        let word = self.next("the path")?;
        let there = |at: &PathRef| hosts.get(at.host).is_some_and(|h| at.path < h.paths.len());
        let path = word.parse().ok().filter(there);
        path.ok_or_else(|| format!("\"{word}\" is no path of a host above; the first is 0.0"))
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

pub(crate) fn millis(word: &str, name: &str, most: u64) -> Result<u64, String> {
    let digits = word
        .strip_suffix("ms")
        .ok_or_else(|| format!("{name} \"{word}\" has no unit: milliseconds are written 20ms"))?;
    number(digits, name, 0, most)
}

impl fmt::Display for PathRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.host, self.path)
    }
}

impl FromStr for PathRef {
    type Err = ();

    fn from_str(text: &str) -> Result<PathRef, ()> {
        let (host, path) = text.split_once('.').ok_or(())?;
        Ok(PathRef { host: host.parse().map_err(drop)?, path: path.parse().map_err(drop)? })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Link(at, way, fault) => {
                let way = way.name();
                match fault {
                    LinkFault::Loss(n) => write!(f, "loss {at} {way} {n}"),
                    LinkFault::Burst(n) => write!(f, "burst {at} {way} {n}"),
                    LinkFault::Duplicate(n) => write!(f, "duplicate {at} {way} {n}"),
                    LinkFault::Reorder(n, ms) => write!(f, "reorder {at} {way} {n} {ms}ms"),
                    LinkFault::Delay(ms) => write!(f, "delay {at} {way} {ms}ms"),
                    LinkFault::Narrow(bytes) => write!(f, "narrow {at} {way} {bytes}"),
                    LinkFault::Filter(PacketFilter::Port(n)) => {
                        write!(f, "filter {at} {way} port {n}")
                    }
                    LinkFault::Filter(PacketFilter::CodePoint(n)) => {
                        write!(f, "filter {at} {way} dscp {n}")
                    }
                    LinkFault::Filter(PacketFilter::Length(from, to)) => {
                        write!(f, "filter {at} {way} length {from} {to}")
                    }
                    LinkFault::Cut => write!(f, "cut {at} {way}"),
                    LinkFault::Mend => write!(f, "mend {at} {way}"),
                }
            }
            Fault::CutAll(host) => write!(f, "cut-all {host}"),
            Fault::Gone(at) => write!(f, "gone {at}"),
            Fault::Back(at) => write!(f, "back {at}"),
            Fault::Renumber(at) => write!(f, "renumber {at}"),
            Fault::Rename(at) => write!(f, "rename {at}"),
            Fault::Rebind(at) => write!(f, "rebind {at}"),
            Fault::Restart(Node::Host(host)) => write!(f, "restart {host}"),
            Fault::Restart(Node::Fixed(number)) => write!(f, "restart node {number}"),
            Fault::Stall(Node::Host(host), ms) => write!(f, "stall {host} {ms}ms"),
            Fault::Stall(Node::Fixed(number), ms) => write!(f, "stall node {number} {ms}ms"),
            Fault::MendAll => f.write_str("mend-all"),
            Fault::Own(order) => f.write_str(order),
        }
    }
}
