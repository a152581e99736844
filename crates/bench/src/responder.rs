//! The ways of answering a probe.

mod kernel;
mod process;
mod running;
mod state;
mod user;
mod xsk;

use std::fmt;
use std::str::FromStr;

use segue_datapath::ebpf::Xdp;
use serde::Serialize;

pub(crate) use self::running::Running;
use crate::BenchError;
use crate::protocol::Format;
use crate::world::{Hook, World};

/// A way of answering probes, from the most expensive to the cheapest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub enum Responder {
    /// SIP MESSAGE with a Timestamp header, answered by 200 OK (`sipp`, a C++ program; the papers used Java). It
    /// keeps no state and checks nothing: the least that SIP can cost.
    Sip,
    /// A Java program over UDP that does what [`Responder::Syscall`] does.
    Java,
    /// A C program over UDP that does the same: one socket, one system call for each packet in and out, like paper
    /// 1's.
    C,
    /// The same in Rust, in a thread of the bench; MAC checked, counters, RTT, loss.
    Syscall,
    /// The same with recvmmsg and sendmmsg.
    Batched,
    /// The same on frames of an AF_XDP socket (copy mode).
    AfXdp,
    /// Segue's eBPF datapath at TC.
    Tc,
    /// Segue's eBPF datapath with its XDP program attached.
    Xdp,
    /// A program that returns the request unchanged and parses nothing: the floor.
    XdpBare,
}

impl Responder {
    /// All of them.
    pub const ALL: [Responder; 9] = [
        Responder::Sip,
        Responder::Java,
        Responder::C,
        Responder::Syscall,
        Responder::Batched,
        Responder::AfXdp,
        Responder::Tc,
        Responder::Xdp,
        Responder::XdpBare,
    ];

    /// Its name in options and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Responder::Sip => "sip",
            Responder::Java => "java",
            Responder::C => "c",
            Responder::Syscall => "syscall",
            Responder::Batched => "batched",
            Responder::AfXdp => "af_xdp",
            Responder::Tc => "tc",
            Responder::Xdp => "xdp",
            Responder::XdpBare => "xdp-bare",
        }
    }

    pub(crate) fn format(self) -> Format {
        match self {
            Responder::Sip => Format::Sip,
            Responder::XdpBare => Format::Echo,
            _ => Format::Probe,
        }
    }

    /// Where it meets requests: the baseline drops them there.
    pub(crate) fn hook(self) -> Hook {
        match self {
            Responder::AfXdp | Responder::Xdp | Responder::XdpBare => Hook::Xdp,
            _ => Hook::Tc,
        }
    }

    /// Whether it can take frames from the raw generator.
    pub(crate) fn takes_raw_frames(self) -> bool {
        matches!(self, Responder::Xdp | Responder::XdpBare)
    }

    /// Starts it at the far end, for paths 0 to `paths` − 1 of this many clients.
    pub(crate) fn start(
        self,
        world: &World,
        paths: u32,
        clients: u32,
    ) -> Result<Box<dyn Running>, BenchError> {
        let segue = |xdp| kernel::segue(world, paths, clients, xdp);
        Ok(match self {
            Responder::Sip => Box::new(process::sip(world)?),
            Responder::Java => Box::new(process::java(world, paths)?),
            Responder::C => Box::new(process::c(world, paths)?),
            Responder::Syscall => Box::new(user::one_by_one(world, paths)?),
            Responder::Batched => Box::new(user::batched(world, paths)?),
            Responder::AfXdp => Box::new(xsk::start(world, paths)?),
            Responder::Tc => Box::new(segue(Xdp::Off)?),
            Responder::Xdp => Box::new(segue(Xdp::On)?),
            Responder::XdpBare => Box::new(kernel::reflector(world)?),
        })
    }
}

impl From<Responder> for &'static str {
    fn from(responder: Responder) -> &'static str {
        responder.name()
    }
}

impl fmt::Display for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Responder {
    type Err = String;

    fn from_str(name: &str) -> Result<Responder, String> {
        Responder::ALL.into_iter().find(|r| r.name() == name).ok_or_else(|| {
            let names = Responder::ALL.map(Responder::name).join(", ");
            format!("{name:?} is none of {names}")
        })
    }
}
