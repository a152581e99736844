//! What mobility protocols share, as plain types that their machines own. Nothing here is a machine, sends a message or
//! reads a clock.
//!
//! | | |
//! | --- | --- |
//! | [`SequenceOrder`], [`TimestampOrder`] | which registration of two is the newer one |
//! | [`Retransmission`] | when a message without an answer is sent again |
//! | [`Lifetime`] | for how long a binding is asked for and granted |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod lifetime;
mod order;
mod retransmission;

pub use lifetime::Lifetime;
pub use order::{OutOfWindow, SequenceOrder, TimestampOrder, Untimely};
pub use retransmission::{Backoff, Retransmission, Silence};
