//! IEEE 802.21, media independent handover services: delivers link events to subscribers and commands to links, with
//! one protocol for all types of access.
//!
//! [`Mihf`] is the media independent handover function (MIHF) of a node. Its [`MihfConfig`] decides which role it
//! plays:
//!
//! ```text
//!   link SAP                  function                      user (a gateway, an anchor)
//!   owns links           ──►  no links,                ◄──  subscribes to link events
//!                             no interests
//!      Register (its links) ─►                        ◄─ (1) Register              ─► (2)
//!                                                     ◄─ (3) Capability_Discover   ─► (4)
//!      (6) ◄─ Event_Subscribe                         ◄─ (5) Event_Subscribe
//!      (7) ─►                                         ─► (8)
//!      Link_Up ─► (9)                                 ─► (10) Link_Up
//! ```
//!
//! The numbers are the steps of paper 3's Fig. 6. A function forwards events from the functions where it is registered,
//! so functions can be chained between links and users.
//!
//! A function learns about links only from their owners. A new subscriber is immediately sent a Link_Up for each
//! attached station. A function that lost its subscriptions subscribes again, and removes the stations that are not
//! reported again within ten seconds.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod event;
mod forecast;
mod io;
mod leaving;
mod mihf;
mod news;
mod reporting;

pub use config::{Forecasting, Interest, LinkConfig, MihfConfig, Remote, Transport};
pub use event::{Event, What};
pub use forecast::{Forecast, Outlook};
pub use io::{Action, Command, CommandAnswer, MihfInput, MihfOutput, MihfWish};
pub use leaving::{Foretold, Leaving};
pub use mihf::{AFTER_MAX_MS, Link, Mihf, Owner, Registered, Station};
pub use news::{Refusal, Refused, Report};
pub use reporting::Reporting;
pub use segue_wire::mih::OctetString as Name;
