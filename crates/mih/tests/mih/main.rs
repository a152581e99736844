//! Functions on virtual time.

mod attacks;
mod commands;
mod dissector;
mod events;
mod forecast;
mod stage;
mod steps;
