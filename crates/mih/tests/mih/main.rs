//! Functions on virtual time.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod attacks;
mod commands;
mod dissector;
mod events;
mod forecast;
mod stage;
mod steps;
