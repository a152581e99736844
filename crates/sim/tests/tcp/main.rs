//! The transport models over a network.

mod transfers;
