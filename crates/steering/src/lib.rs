//! Which path each flow should use.
//!
//! A flow has a [`Class`] ([`classify`]); a class has a [`Score`] on each path ([`score()`]); and
//! [`Steering`] turns the scores into [`Decision`]s that do not flap and that can be explained.
//! Flows follow their class. Pinning a single flow is up to the caller and does not pass through this crate.
//!
//! ```text
//!  packet ──classify──▶ Class ─┐
//!  PathView (alive, RTT, loss) ─┴─score──▶ Score ──Steering::choose──▶ Decision (path, reason)
//! ```
//!
//! Three rules, in this order. A path that is down is never chosen while another is usable. The loss
//! of the path in use moves its flows at once, and so does a loss of packets there that another path does not have. A
//! better path is taken only if it is better by a margin and stays so for a while; the while grows for a path that keeps
//! failing.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod class;
mod config;
mod decision;
mod flap;
mod score;
mod steering;

pub use class::{Class, classify};
pub use config::Config;
pub use decision::{Decision, Reason};
pub use score::{PathId, PathView, Score, score};
pub use steering::Steering;
