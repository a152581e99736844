//! `segue decode`: the messages of mobility protocols in captures and single packets, field by field ([`Args`],
//! [`run`]).
//!
//! A packet is walked from its link layer inwards, through extension headers and tunnels ([`packet`]). Each message on
//! the way becomes an [`Element`], read and written by `segue-wire`; so does each packet that holds none, with the
//! reason.

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
