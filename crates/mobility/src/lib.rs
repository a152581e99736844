//! What mobility protocols share, as plain types that their machines own. Nothing here is a machine, sends a message or
//! reads a clock.
//!
//! | | |
//! | --- | --- |
//! | [`SequenceOrder`], [`TimestampOrder`] | which registration of two is the newer one |
//! | [`Retransmission`] | when a message without an answer is sent again |
//! | [`Pool`], [`Leases`] | who has which address or prefix, and for whom one rests |
//! | [`BindingCache`] | who is where; bounded, with a share for each peer |
//! | [`Secrets`], [`Nonces`] | cookies and keys; nonces that follow each other |
//! | [`FlowBindings`] | which flow goes where |
//! | [`Pace`] | how often something may happen |
//! | [`Lifetime`] | for how long a binding is asked for and granted |

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
