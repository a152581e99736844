//! A client on virtual time, with scripted servers.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

mod asking;
mod forged;
mod recomputed;
mod sessions;
mod walk;
mod world;
