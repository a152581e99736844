//! The only crate that talks to Linux: network namespaces ([`netns`]), devices and addresses
//! ([`link`]), routes and rules ([`route`]), a watch on interfaces that come and go ([`monitor`]),
//! UDP sockets with kernel timestamps ([`udp`]), whole frames ([`packet`]), NAT's connection
//! table ([`conntrack`]), the monotonic clock ([`clock`]), threads that wake up on time ([`thread`]) and
//! the process's signals ([`process`]).

pub mod clock;
pub mod conntrack;
pub mod error;
mod ethtool;
pub mod link;
pub mod monitor;
mod netlink;
pub mod netns;
pub mod packet;
pub mod process;
pub mod route;
pub mod thread;
pub mod udp;

pub use error::LinuxError;
