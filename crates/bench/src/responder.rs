//! Implementations that answer probes.

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

/// An implementation that answers probes, from the most expensive to the cheapest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub enum Responder {
    /// SIP MESSAGE with a Timestamp header, answered with 200 OK (`sipp`, a C++ program; the papers used Java). It is
    /// stateless and validates nothing: a lower bound for the cost of SIP.
    Sip,
    /// A Java program over UDP equivalent to [`Responder::Syscall`].
    Java,
    /// An equivalent C program over UDP: one socket, one system call per packet in each direction, like paper 1's.
    C,
    /// A Rust thread of the bench over UDP: verifies the MAC, and updates counters, RTT and loss.
    Syscall,
    /// Like [`Responder::Syscall`], with recvmmsg and sendmmsg.
    Batched,
    /// Like [`Responder::Syscall`], on frames of an AF_XDP socket (copy mode).
    AfXdp,
    /// Segue's eBPF datapath at TC.
    Tc,
    /// Segue's eBPF datapath with its XDP program attached.
    Xdp,
    /// A program that returns the request unchanged without parsing it: the lower bound.
    XdpBare,
}

impl Responder {
    /// All responders.
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

    /// The name in options and results.
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

    /// The hook at which it receives requests; the baseline drops them there.
    pub(crate) fn hook(self) -> Hook {
        match self {
            Responder::AfXdp | Responder::Xdp | Responder::XdpBare => Hook::Xdp,
            _ => Hook::Tc,
        }
    }

    /// Whether it accepts frames from the raw generator.
    pub(crate) fn takes_raw_frames(self) -> bool {
        matches!(self, Responder::Xdp | Responder::XdpBare)
    }

    /// Starts it at the far end, for paths 0 to `paths` − 1 of `clients` clients.
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
