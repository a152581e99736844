//! Traffic between the nodes of a simulated network: transport protocols and applications, as agents of a
//! [`segue_sim::Network`].
//!
//! ```text
//!   applications (voice, video, conferences, web, FTP) ──► datagrams
//!             └──► tcp: Source, Sink ──► segments
//!   dumbbell: one connection over one link
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod apps;
pub mod dumbbell;
pub mod tcp;
