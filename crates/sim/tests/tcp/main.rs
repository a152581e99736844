//! The transport models over a network.

mod path;
mod patterns;
mod transfers;
