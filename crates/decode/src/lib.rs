//! `segue decode`: the messages of mobility protocols in captures and single packets, field by field ([`Args`],
//! [`run`]).
//!
//! [`packet`] walks through a packet from the link layer inwards, through extension headers and tunnels. Each message
//! that it finds becomes an [`Element`], which `segue-wire` decodes and encodes again; a packet without messages
//! becomes one element that gives the reason.

#![forbid(unsafe_code)]

mod args;
mod capture;
mod element;
mod hex;
mod icmpv6;
mod link;
mod mh;
mod mih;
mod names;
mod own;
mod radius;
mod show;
mod stamp;
mod tcp;
mod tree;
mod udp;
mod walk;

pub use args::{Args, As, run};
pub use capture::{Capture, Packet, Time, unpacked};
pub use element::{Element, Within};
pub use link::Link;
pub use tree::Tree;
pub use walk::{Bare, bare, packet};
