//! Test networks in namespaces with link emulation. A [`Lab`] has nodes and links. An [`emulator`] in the middle of a
//! link adds delay, a rate limit or loss. Radios of nodes attach to cells of routers and send [`Announcement`]s.
//! [`DemoNet`] is the network of the demonstration. Dropping the lab removes everything. A [file](mod@file) may
//! describe the network.

mod agenda;
mod air;
pub mod announce;
pub mod demo;
pub mod emulator;
pub mod file;
pub mod frame;
pub mod log;
mod nat;
pub mod topology;
pub mod verify;
pub mod vm;

pub use air::{CellSpec, RadioSpec};
pub use announce::{Announcement, What};
pub use demo::{DemoNet, DemoOptions};
pub use emulator::{EmulatorSpec, Handle, Health};
pub use frame::Ports;
pub use log::{Direction, Fate, Record};
pub use topology::{Lab, clean};
