//! Link models: rate, delay, jitter, queue, loss and time profiles, one [`LinkModel`] per direction; and movement from
//! cell to cell ([`Walk`]).
//!
//! A model only decides whether and when each packet arrives; it forwards none. The lab's emulator and the simulator
//! share it, so a link behaves the same in both. All times are integer nanoseconds, and all randomness comes from a
//! seed: the same packets and the same seed give the same verdicts.
//!
//! ```text
//!  offer ──► queue (drop-tail) ──► serialisation (rate) ──► propagation (delay ± jitter) ──► arrival
//!              │ full: dropped        │ its start: loss and silence are decided here
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod loss;
mod model;
mod spec;
mod walk;

pub use model::{Counters, DropCause, LinkModel, Verdict};
pub use spec::{Change, Jitter, LinkSpec, Loss, LossTrace, Profile, Queue, SpecError};
pub use walk::{Step, Walk, WalkError};
