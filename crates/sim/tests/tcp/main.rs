//! The transport models over a network.

mod mathis;
mod path;
mod patterns;
mod transfers;
