//! Chooses the path for each flow.
//!
//! A flow belongs to a [`Class`] ([`classify`]); a class has a [`Score`] on each path ([`score()`]); and [`Steering`]
//! turns the scores into stable, explainable [`Decision`]s. Flows follow their class. Pinning a single flow is up to
//! the caller and does not involve this crate.
//!
//! ```text
//!  packet ──classify──▶ Class ─┐
//!  PathView (alive, RTT, loss) ─┴─score──▶ Score ──Steering::choose──▶ Decision (path, reason)
//! ```
//!
//! Three rules, in order of precedence. A path that is down is never chosen while another is usable. Flows leave a path
//! at once if it goes down, or if it loses packets and another path does not. A better path is taken only if its lead
//! exceeds a margin for some time; that time grows for a path that keeps failing.

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
