//! IEEE 802.21, media independent handover services: what happens to links, told to those who asked for it, and commands
//! to links, over one protocol for every kind of access.
//!
//! [`Mihf`] is the function (MIHF) of a node. What it is for follows from its [`MihfConfig`]:
//!
//! ```text
//!   link SAP                  function                      user (a gateway, an anchor)
//!   has links of its own ──►  has neither links nor    ◄──  is interested in links' events
//!                             interests of its own
//!      Register (its links) ─►                        ◄─ (1) Register              ─► (2)
//!                                                     ◄─ (3) Capability_Discover   ─► (4)
//!      (6) ◄─ Event_Subscribe                         ◄─ (5) Event_Subscribe
//!      (7) ─►                                         ─► (8)
//!      Link_Up ─► (9)                                 ─► (10) Link_Up
//! ```
//!
//! The numbers are the steps of paper 3's Fig. 6. A function that registers at another one passes on what that one tells, so
//! that any number of them can stand between links and users.
//!
//! What a function knows of links it knows from those who told it. Whoever subscribes is told at once who is attached; a
//! function that has lost its subscriptions subscribes anew, and stations that are not told again within ten seconds have left.

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

pub use config::{Forecasting, Interest, LinkConfig, MihfConfig, Remote, Transport};
pub use event::{Event, What};
pub use forecast::{Forecast, Outlook};
pub use io::{Action, Command, CommandAnswer, MihfInput, MihfOutput, MihfWish};
pub use leaving::{Foretold, Leaving};
pub use mihf::{AFTER_MAX_MS, Link, Mihf, Owner, Registered, Station};
pub use news::{Refusal, Refused, Report};
pub use segue_wire::mih::OctetString as Name;
