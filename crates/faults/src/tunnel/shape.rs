//! Settings of hosts and anchor in a schedule, and their orders.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use segue_clock::{Rng, Span};
use segue_keepalive::{Aims, Config as Keepalive, MeasuredBy};
use segue_steering::Class;
use segue_tunnel::{HostConfig, PathConfig};
use segue_wire::{Encapsulation, Mode};

use super::layout::{ANCHOR, ANCHOR_V6, FLOWS, PORT, class_of};
use crate::fault::{HostShape, PathRef, Way};
use crate::{Schedule, Words};

/// K and T_KA of the keepalive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Number of consecutive lost probes that declare a path down.
    pub k: u8,
    /// T_KA in milliseconds.
    pub t_ka_ms: u16,
}

impl Default for Period {
    fn default() -> Period {
        Period { k: 3, t_ka_ms: 60 }
    }
}

impl Period {
    /// Draws K from 1 to 5 and T_KA from 20 to 200 ms.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Period {
        Period { k: 1 + rng.below(5) as u8, t_ka_ms: 20 + rng.below(181) as u16 }
    }

    /// Parses `k 3 t-ka 60ms`.
    ///
    /// # Errors
    /// The error as text.
    pub fn read(words: &mut Words<'_>) -> Result<Period, String> {
        words.expect("k")?;
        let k = words.number("K", 1, 20)?;
        words.expect("t-ka")?;
        let t_ka = words.millis("T_KA", 10_000)?;
        if t_ka < 5 {
            return Err("T_KA is below 5ms, the least an anchor grants".to_string());
        }
        Ok(Period { k, t_ka_ms: t_ka as u16 })
    }

    /// T_KA as a time span.
    #[must_use]
    pub fn t_ka(self) -> Span {
        Span::from_millis(self.t_ka_ms.into())
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k {} t-ka {}ms", self.k, self.t_ka_ms)
    }
}

/// Settings of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSettings {
    pub period: Period,
    /// Its probes ride on data.
    pub rides: bool,
    /// It has had so many interfaces that path numbers are reused.
    pub worn: bool,
    /// The ends that measure.
    pub mode: Mode,
}

/// Modes by name; the default mode is not written.
const MODES: [(&str, Mode); 4] = [
    ("both", Mode::Both),
    ("client", Mode::Client),
    ("reports", Mode::Reports),
    ("round-trip-loss", Mode::RoundTripLoss),
];

impl HostSettings {
    pub(super) fn draw(rng: &mut Rng) -> HostSettings {
        let (rides, worn) = (rng.chance(0.4), rng.chance(0.3));
        let mode = if rng.chance(0.25) { MODES[rng.below(4) as usize].1 } else { Mode::Both };
        HostSettings { period: Period::draw(rng), rides, worn, mode }
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<HostSettings, String> {
        let mut settings = HostSettings { period: Period::read(words)?, ..Default::default() };
        while let Some(word) = words.peek().filter(|word| *word != "paths") {
            words.next(word)?;
            match word {
                "rides" => settings.rides = true,
                "worn" => settings.worn = true,
                "mode" => settings.mode = words.one_of("the mode", &MODES)?,
                other => return Err(format!("\"{other}\" is none of rides, worn, mode, paths")),
            }
        }
        Ok(settings)
    }

    /// The settings of a host in a validated schedule.
    pub(super) fn of(shape: &HostShape) -> HostSettings {
        HostSettings::read(&mut Words::of(&shape.settings)).unwrap_or_default()
    }
}

impl fmt::Display for HostSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |on, word| if on { word } else { "" };
        let (rides, worn) = (word(self.rides, " rides"), word(self.worn, " worn"));
        write!(f, "{}{rides}{worn}", self.period)?;
        let mode = MODES.iter().find(|(_, mode)| *mode == self.mode && *mode != Mode::Both);
        mode.map_or(Ok(()), |(name, _)| write!(f, " mode {name}"))
    }
}

/// Settings of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The packet paths measure, and the machines use readings.
    pub readings: bool,
    /// Detection follows use, as in the default configuration; the bounds derive from the hosts' K and T_KA.
    pub follows_use: bool,
}

impl Settings {
    pub(super) fn draw(rng: &mut Rng) -> Settings {
        Settings { readings: rng.chance(0.3), follows_use: rng.chance(0.3) }
    }

    /// Parses a line.
    pub(super) fn take(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let word = words.next("a setting")?;
        let setting = match word {
            "readings" => &mut self.readings,
            "follows-use" => &mut self.follows_use,
            other => {
                return Err(format!(
                    "\"{other}\" is none of machines, seed, readings, follows-use, host, at, quiet"
                ));
            }
        };
        *setting = words.switch(word)?;
        Ok(())
    }

    /// The settings of a validated schedule.
    pub(super) fn of(schedule: &Schedule) -> Settings {
        let mut settings = Settings::default();
        for line in &schedule.settings {
            let _ = settings.take(&mut Words::of(line));
        }
        settings
    }

    pub(super) fn lines(self) -> Vec<String> {
        let line = |name, on: bool| format!("{name} {}", if on { "on" } else { "off" });
        Vec::from([line("readings", self.readings), line("follows-use", self.follows_use)])
    }

    pub(super) fn measured_by(self) -> MeasuredBy {
        if self.readings { MeasuredBy::PacketPath } else { MeasuredBy::Machine }
    }
}

/// K and T_KA with the same detection time as detection that follows use: at most one idle period passes before
/// data reveal an outage.
const FOLLOWS_USE: (u8, Span) = (3, Span::from_millis(1_500));

pub(super) fn host_config(host: HostSettings, settings: Settings) -> HostConfig {
    let (k, t_ka) = match settings.follows_use {
        true => FOLLOWS_USE,
        false => (host.period.k, host.period.t_ka()),
    };
    HostConfig {
        anchor: Vec::from([ANCHOR, ANCHOR_V6]),
        epoch: 1_000,
        port: PORT,
        path: PathConfig {
            keepalive: Keepalive {
                k,
                t_ka,
                rides: host.rides,
                mode: host.mode,
                ..Keepalive::default()
            },
            enabled: true,
            adaptive: settings.follows_use.then(Aims::default),
            price: 0.0,
            preference: 0.0,
            encapsulation: Encapsulation::Segue,
            source: None,
        },
        paths: Default::default(),
        steering: Default::default(),
        measured_by: settings.measured_by(),
        largest: None,
    }
}

/// The flows that an operator moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// All flows.
    All,
    /// The flows of a class.
    Class(Class),
    /// One flow, by number.
    Flow(usize),
}

/// An order in a schedule: from the operator, from applications, or from the machines' environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A router on the path reports, truly or not, that a packet exceeded this many bytes.
    TooBig(PathRef, Way, u16),
    /// Both ends close a host's signalling connection.
    BreakSignal(usize),
    /// A copy of the host registers with its keys and an older epoch.
    OldCopy(usize),
    /// End a host's enrolment.
    Unenrol(usize),
    /// Enrol the host again.
    Enrol(usize),
    /// The operator moves flows of a host to a path, or returns them to the steering.
    Handover(usize, Moved, Option<usize>),
    /// The operator switches a path's keepalive.
    Keepalive(PathRef, bool),
    /// Start or stop a flow of a host, by number.
    Flow(usize, usize, bool),
}

impl Order {
    pub(super) fn draw(rng: &mut Rng, at: PathRef) -> Order {
        let on = rng.chance(0.6);
        let moved = match rng.below(4) {
            0 => Moved::Class(class_of(rng.below(FLOWS as u64) as usize)),
            1 | 2 => Moved::Flow(rng.below(FLOWS as u64) as usize),
            _ => Moved::All,
        };
        match rng.below(20) {
            0..3 => Order::Keepalive(at, on),
            3..5 => Order::Flow(at.host, rng.below(FLOWS as u64) as usize, on),
            5..9 => Order::BreakSignal(at.host),
            9..11 => Order::OldCopy(at.host),
            11..13 => Order::Unenrol(at.host),
            13..15 => Order::Enrol(at.host),
            _ => Order::Handover(at.host, moved, on.then_some(at.path)),
        }
    }

    pub(super) fn read(words: &mut Words<'_>, hosts: &[HostShape]) -> Result<Order, String> {
        let verb = words.next("the fault")?;
        Ok(match verb {
            "too-big" => {
                let (at, way) = (words.path(hosts)?, words.way()?);
                Order::TooBig(at, way, words.number("the size", 0, u16::MAX)?)
            }
            "break-signal" => Order::BreakSignal(words.host(hosts)?),
            "old-copy" => Order::OldCopy(words.host(hosts)?),
            "unenrol" => Order::Unenrol(words.host(hosts)?),
            "enrol" => Order::Enrol(words.host(hosts)?),
            "handover" => {
                let host = words.host(hosts)?;
                let moved = match words.peek() {
                    Some(word @ "flow") => {
                        words.next(word)?;
                        Moved::Flow(words.number("the flow", 0, FLOWS - 1)?)
                    }
                    Some(word @ "class") => {
                        words.next(word)?;
                        let classes = Class::ALL.map(|class| (class.name(), class));
                        Moved::Class(words.one_of("the class", &classes)?)
                    }
                    _ => Moved::All,
                };
                let moves = words.one_of("the order", &[("to", true), ("free", false)])?;
                let last = hosts[host].paths.len() - 1;
                let to = if moves { Some(words.number("the path", 0, last)?) } else { None };
                Order::Handover(host, moved, to)
            }
            "keepalive" => {
                let at = words.path(hosts)?;
                Order::Keepalive(at, words.switch("the keepalive")?)
            }
            "flow" => {
                let host = words.host(hosts)?;
                let flow = words.number("the flow", 0, FLOWS - 1)?;
                let on = words.one_of("it", &[("start", true), ("stop", false)])?;
                Order::Flow(host, flow, on)
            }
            _ => {
                return Err(format!(
                    "\"{verb}\" is no fault; docs/simulator/faults.md has the list"
                ));
            }
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::TooBig(at, way, mtu) => write!(f, "too-big {at} {} {mtu}", way.name()),
            Order::BreakSignal(host) => write!(f, "break-signal {host}"),
            Order::OldCopy(host) => write!(f, "old-copy {host}"),
            Order::Unenrol(host) => write!(f, "unenrol {host}"),
            Order::Enrol(host) => write!(f, "enrol {host}"),
            Order::Handover(host, moved, to) => {
                write!(f, "handover {host} ")?;
                match moved {
                    Moved::All => {}
                    Moved::Class(class) => write!(f, "class {} ", class.name())?,
                    Moved::Flow(flow) => write!(f, "flow {flow} ")?,
                }
                match to {
                    Some(path) => write!(f, "to {path}"),
                    None => f.write_str("free"),
                }
            }
            Order::Keepalive(at, on) => {
                write!(f, "keepalive {at} {}", if *on { "on" } else { "off" })
            }
            Order::Flow(host, flow, on) => {
                write!(f, "flow {host} {flow} {}", if *on { "start" } else { "stop" })
            }
        }
    }
}
