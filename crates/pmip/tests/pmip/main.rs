//! An anchor and gateways on virtual time that exchange encoded messages.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod anchor;
mod attacks;
mod authorize;
mod dissector;
mod domain;
mod flows;
mod gateway;
mod ipv4;
mod keys;
mod moves;
mod newcomers;
mod oai;
mod page;
mod quality;
mod restarts;
