//! The two ends of a set of tunnels (UPMT, paper 1 section 2) as pure state machines: the mobile
//! [`Host`] and the [`Anchor`].
//!
//! ```text
//!   interfaces ─┐                                          ┌─ hosts' connections
//!   signalling ─┤   Host ── FromHost/FromAnchor ── Anchor ─┤
//!   probes ─────┤    │  (reliable, authenticated)    │     ├─ probes
//!   misses ─────┘    ▼                               ▼     └─ misses
//!              paths, bindings, via            paths, bindings, via
//! ```
//!
//! Both are driven as [`segue_clock::Machine`]s. They handle no packets: the datapath reports probes and flows without
//! a binding, and the machines respond with configuration. The host decides which path each flow uses. The anchor
//! learns this from the packets, and moves a direction itself if that direction of a path dies (see [`anchor`]).
//!
//! **The two directions are judged separately.** Each end knows what it hears. Every probe carries a `heard` word with
//! a bit per path, so any live path can tell the other end which of its directions are dead:
//!
//! | dead direction | host sees | host does | anchor sees | anchor does |
//! | --- | --- | --- | --- | --- |
//! | both | no answer, nothing heard | moves its flows (anchor learns) | no request | moves downlink |
//! | uplink | no answer, unsolicited responses | moves uplink only (one-way) | no request, host hears | leaves downlink |
//! | downlink | no answer, nothing heard | moves its flows | requests, host does not hear | moves downlink |
//!
//! Both ends time out after K + ½ periods: at exactly K·T_KA a little jitter would turn K − 1 losses into an alarm. By
//! default detection follows use: data prove one direction, and the age that they state proves the other, so a path in
//! use needs no probe; K and T_KA apply only where an operator fixes them. A redirection (`via`) is one write per path,
//! however many flows it has. Steering acts on a sequential test of exact counts, not on averages of loss, which react
//! late.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod anchor;
mod config;
pub mod datapath;
mod end;
mod event;
pub mod host;
mod maps;
#[doc(hidden)]
mod pool;
mod report;

pub use anchor::Anchor;
pub use config::{AnchorConfig, HostConfig, Known, PathConfig};
pub use datapath::{
    Carried, FlowCount, Order, PathSetup, ProbeEvent, ProbeKind, ProbeOrder, Reinjection, Ticket,
    Via,
};
pub use end::{End, Failure, Side, ToDriver, Turn};
pub use event::{AnchorInput, AnchorOutput, ConnId, Ending, HostInput, HostOutput, Output};
pub use host::{Filter, Host, SourceChoice};
pub use pool::Pool;
pub use report::{Cause, Report, Takes};
