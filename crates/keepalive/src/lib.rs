//! The measurement core of a path: round-trip time, one-way and round-trip loss, liveness, and the
//! planner that chooses how often to probe.
//!
//! The procedures are those of Salsano et al., "Accurate and Efficient Measurements of IP Level
//! Performance to Drive Interface Selection in Heterogeneous Wireless Networks" (2018): section 4
//! (probes, RTT, loss, connectivity check), section 6 and appendices I to IV (averages, round-trip
//! loss). Equation and section numbers in this crate are that paper's.
//!
//! ```text
//!            Client (mobile host)                            Server (anchor)
//!   tick ─▶ ┌───────────────────┐  request  Sc  t_Sc  ─▶  ┌──────────────────┐ ◀─ tick
//!           │ every T_KA        │                         │ (the datapath    │
//!           │ RTT, OWL, RTL     │  ◀─ response  Ss  t_Ss  │  answers)        │
//!           │ Up / Down, heard  │                         │ RTT, OWL         │
//!           └─────────┬─────────┘  ◀─ unsolicited         │ Up / Down        │
//!                     │               (requests ceased)   └────────┬─────────┘
//!                     ▼                                            ▼
//!        SendRequest, State, Heard, Sample            SendUnsolicited, State, Sample
//! ```
//!
//! [`Client`] and [`Server`] are state machines without clock and sockets ([`segue_clock::Machine`]). The datapath
//! stamps and counts probes, and answers requests. The machines decide when to send a probe and what it echoes, and
//! evaluate the probes that arrive.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | settings |
//! | [`event`] | inputs and outputs |
//! | [`client`], [`server`] | the two ends |
//! | [`estimates`] | one end's estimates of its path |
//! | [`rtt`], [`loss`], [`ewma`], [`seq`] | the calculations, each independent |
//! | [`loss_test`] | detects when a direction begins to lose packets |
//! | [`adapt`] | K and T_KA while the path is in use |
//! | [`planner`] | K and T_KA from targets, eq. 1–8 |
//! | [`questions`] | the questions of a client in doubt |
//! | [`false_positives`] | how often a working path is declared down: simulated and exact |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod adapt;
mod bursts;
pub mod client;
pub mod config;
pub mod copies;
mod counts;
pub mod estimates;
pub mod event;
pub mod ewma;
pub mod false_positives;
pub mod loss;
pub mod loss_test;
mod measure;
pub mod planner;
#[doc(hidden)]
pub mod questions;
pub mod rtt;
pub mod seq;
pub mod server;
pub mod size;

pub use adapt::{Adaptive, Aims, Why};
pub use client::{Client, LOOK, Lapses, SILENCE};
pub use config::{Asking, Config, MeasuredBy, Probing, Tau};
pub use copies::{COPIES, COPY_WINDOW_SHIFT, Copies, is_stale};
pub use estimates::{Counted, Estimates};
pub use event::{
    Arrival, ClientInput, ClientOutput, Reading, Request, Sample, ServerInput, ServerOutput, State,
    Traffic,
};
pub use loss_test::{LossTest, LossVerdict, PathLosses};
pub use planner::{Infeasible, Plan, Responsiveness, Targets, evaluate, plan};
pub use server::Server;
