//! Test networks in namespaces with link emulation: a [`Lab`] holds nodes and links, an
//! [`emulator`] stands in the middle of a link that is to have a delay, a rate or losses, and
//! [`DemoNet`] is the network of the demonstration. Everything is gone when the lab is dropped.

pub mod demo;
pub mod emulator;
pub mod frame;
pub mod log;
pub mod nat;
pub mod topology;
pub mod verify;

pub use demo::{DemoNet, DemoOptions};
pub use emulator::{Direction, EmulatorSpec, Handle, Health};
pub use frame::Ports;
pub use log::{Fate, Record};
pub use topology::{Lab, clean};
