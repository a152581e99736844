//! The only crate that talks to Linux: network namespaces ([`netns`]), devices and addresses ([`link`]), neighbours
//! ([`neighbour`]), routes and rules ([`route`]), all of these as protocols ask for them ([`Kernel`]), a watch on
//! interfaces that come and go ([`monitor`]), UDP sockets with kernel timestamps ([`udp`]), raw sockets for ICMPv6 and the Mobility Header ([`raw`]), packets for one station of a
//! link ([`station`]), Wi-Fi interfaces ([`nl80211`]), whole frames ([`packet`]), NAT's connection table ([`conntrack`]), the monotonic
//! clock ([`clock`]), threads that wake up on time ([`thread`]), the process at the other end of a Unix socket
//! ([`peer`]), what signals do to this process ([`process`]), and Ctrl-C as a descriptor ([`stop_signals`]).

pub mod admit;
pub mod clock;
pub mod conntrack;
pub mod error;
mod ethtool;
mod forwarding;
pub mod icmp;
pub mod link;
pub mod monitor;
pub mod neighbour;
mod netlink;
pub mod netns;
pub mod nft;
pub mod nl80211;
mod option;
pub mod packet;
pub mod peer;
pub mod process;
pub mod raw;
pub mod route;
pub mod station;
pub mod stop_signals;
pub mod thread;
pub mod udp;

pub use error::LinuxError;
pub use forwarding::Kernel;
