//! Everything that Segue asks of Linux. No other crate makes system calls for networking.
//!
//! - [`netns`]: network namespaces
//! - [`link`], [`neighbour`], [`route`]: devices, addresses, neighbours, routes and policy rules; [`Kernel`] installs
//!   them for the protocols
//! - [`monitor`]: reports changes of interfaces, addresses and routes
//! - [`udp`]: UDP sockets with kernel timestamps
//! - [`raw`]: raw sockets for ICMPv6 and the Mobility Header
//! - [`station`]: packets to and from single stations of a link
//! - [`nl80211`]: Wi-Fi interfaces
//! - [`packet`]: whole frames
//! - [`conntrack`]: the NAT's connection table
//! - [`clock`]: the system's clocks
//! - [`thread`]: threads that wake up on time
//! - [`peer`]: the process at the other end of a Unix socket
//! - [`process`], [`stop_signals`]: signals, and Ctrl-C as a descriptor

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
