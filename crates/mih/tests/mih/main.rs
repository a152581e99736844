//! Functions on virtual time.

mod attacks;
mod commands;
mod events;
mod forecast;
mod stage;
mod steps;
