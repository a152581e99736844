//! The only crate that talks to Linux: network namespaces ([`netns`]), devices, addresses, routes and
//! rules ([`link`]), a watch on interfaces that come and go ([`monitor`]), UDP sockets with kernel
//! timestamps ([`udp`]) and the monotonic clock ([`clock`]).

pub mod clock;
pub mod link;
pub mod monitor;
pub mod netns;
pub mod udp;
