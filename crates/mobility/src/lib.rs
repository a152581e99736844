//! Building blocks of mobility protocols, as plain types that state machines own. They send no messages and read no
//! clock.
//!
//! | | |
//! | --- | --- |
//! | [`SequenceOrder`], [`TimestampOrder`] | decide which of two registrations is newer |
//! | [`Retransmission`] | retransmission of unanswered messages |
//! | [`Pool`], [`Leases`] | leases of addresses and prefixes |
//! | [`BindingCache`] | bindings, bounded, with fair shares for peers |
//! | [`Secrets`], [`Nonces`] | cookies, keys and nonces |
//! | [`FlowBindings`] | routing of flows to bindings |
//! | [`Pace`] | rate limit |
//! | [`Lifetime`] | requested and granted lifetimes |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cache;
mod flows;
mod free;
mod leases;
mod lifetime;
mod nonces;
mod order;
mod pace;
mod pool;
mod retransmission;
mod secrets;

pub use cache::{Binding, BindingCache, Entered, Full};
pub use flows::{Action, Classified, FlowBinding, FlowBindings, FlowUpdate, Verdict, selects};
pub use leases::{Leases, Taken};
pub use lifetime::Lifetime;
pub use nonces::{Nonce, NonceExpired, Nonces};
pub use order::{OutOfWindow, SequenceOrder, TimestampOrder, Untimely};
pub use pace::Pace;
pub use pool::Pool;
pub use retransmission::{Backoff, Retransmission, Silence};
pub use secrets::Secrets;
