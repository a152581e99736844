//! The only crate that talks to Linux: network namespaces ([`netns`]), devices and addresses
//! ([`link`]), routes and rules ([`route`]), a watch on interfaces that come and go ([`monitor`]),
//! UDP sockets with kernel timestamps ([`udp`]) and the monotonic clock ([`clock`]).

pub mod clock;
pub mod error;
mod ethtool;
pub mod link;
pub mod monitor;
mod netlink;
pub mod netns;
pub mod route;
pub mod udp;

pub use error::LinuxError;
