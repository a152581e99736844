//! Tests of the transport models over a network.

mod forged;
mod mathis;
mod modern;
mod path;
mod patterns;
mod snapshots;
mod transfers;
mod windows;
