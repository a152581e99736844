//! Applications: traffic between hosts, and measurements at the receivers.
//!
//! ```text
//!  VoipConfig, VideoConfig, … ──pair(ends, seed)──► Pair ──add──► agents on two nodes
//!                                                                   │  Meter for each direction
//!                                                                   └─► Results by name: voip1.down.loss_ratio
//! ```
//!
//! An application has two ends, of which the first initiates it: caller, viewer, browser. `up` is the direction
//! from the first end to the second, `down` the opposite one. The first end reports both.

mod chance;
mod conference;
mod connection;
mod ftp;
mod handovers;
mod histogram;
mod meter;
mod path;
mod report;
mod stream;
mod trace;
mod video;
mod voip;
mod web;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

pub use chance::Dist;
pub use conference::{ConferenceConfig, PictureProfile};
pub use ftp::{FtpAgent, FtpConfig};
pub use handovers::{Handover, Handovers, MAX_RECORDS};
pub use histogram::Histogram;
pub use meter::{
    Counts, Direction, Forwarding, MAX_WINDOW, Measured, Meter, MeterConfig, SharedMeter,
};
pub use path::{links_of, path_of};
pub use stream::{Datagram, Endpoint, Period, Shot, Timetable};
pub use trace::{Frame, FrameType, MAX_FRAME_BYTES, Pattern, Sizes, Trace, TraceError, TraceUnits};
pub use video::VideoConfig;
pub use voip::{Spurts, VoipConfig};
pub use web::{Browser, Server, WebConfig};

use segue_sim::agent::Agent;
use segue_sim::net::{AgentId, Network, NodeId};
use segue_sim::packet::UDP;
use stream::{Kind, Reported};

/// Addresses of the two ends of an application, and the first port that it may use at each: an application uses
/// this port and, if it has several streams, the following ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The initiating end.
    pub first: (IpAddr, u16),
    /// The responding end.
    pub second: (IpAddr, u16),
}

/// An invalid configuration value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadConfig {
    /// The key, named like the field of the configuration.
    pub key: &'static str,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.problem)
    }
}

impl core::error::Error for BadConfig {}

fn require(fine: bool, key: &'static str, problem: &str) -> Result<(), BadConfig> {
    if fine { Ok(()) } else { Err(BadConfig { key, problem: problem.into() }) }
}

/// One end of an application: its agent, and the protocols and ports on which it listens.
pub struct End {
    /// The agent.
    pub agent: Box<dyn Agent>,
    /// For [`Network::add_agent`].
    pub ports: Vec<(u8, u16)>,
}

/// Both ends of an application.
pub struct Pair {
    /// The initiating end, which also reports.
    pub first: End,
    /// The responding end.
    pub second: End,
}

impl Pair {
    /// Adds both ends to a network; the first reports under `name`.
    pub fn add(
        self,
        network: &mut Network,
        nodes: (NodeId, NodeId),
        name: &str,
    ) -> (AgentId, AgentId) {
        let Pair { first, second } = self;
        let first = network.add_agent(nodes.0, name, &first.ports, first.agent);
        let second =
            network.add_agent(nodes.1, [name, ".second"].concat(), &second.ports, second.agent);
        (first, second)
    }
}

/// Two streams: the first end sends `sources.0` to the second, the second end sends `sources.1` to the first.
fn duplex<U, D>(
    ends: &Ends,
    names: [&'static str; 2],
    kind: Kind,
    dscp: u8,
    meter: &MeterConfig,
    sources: (Box<U>, Box<D>),
) -> Pair
where
    U: Timetable + 'static,
    D: Timetable + 'static,
{
    let (up, down) =
        (SharedMeter::new(meter, Direction::Up), SharedMeter::new(meter, Direction::Down));
    let directions = vec![
        Reported { name: names[0], meter: up.clone(), kind },
        Reported { name: names[1], meter: down.clone(), kind },
    ];
    let mut first = Endpoint::new(directions);
    let mut second = Endpoint::new(Vec::new());
    first.sends(sources.0, ends.first, ends.second, dscp, &up);
    second.receives(ends.second.1, &up);
    second.sends(sources.1, ends.second, ends.first, dscp, &down);
    first.receives(ends.first.1, &down);
    Pair {
        first: End { agent: Box::new(first), ports: vec![(UDP, ends.first.1)] },
        second: End { agent: Box::new(second), ports: vec![(UDP, ends.second.1)] },
    }
}

#[cfg(test)]
mod tests;
