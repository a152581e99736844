//! Time without a clock: [`Time`] and [`Span`] in nanoseconds, time of day ([`UnixTime`]), the [`Machine`] contract
//! that every protocol entity follows, a [`Timers`] table and a seeded generator [`Rng`].
//!
//! This crate can neither read a clock nor ask the system for randomness. A driver (sockets and kernel timestamps) or
//! the simulator supplies both, so that the same protocol code runs in each.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod day;
mod machine;
pub mod planted;
mod rng;
mod time;
mod timers;

pub use day::{DayClock, UnixTime};
pub use machine::{Deadline, Machine, earlier};
pub use rng::Rng;
pub use time::{Span, Time};
pub use timers::Timers;
