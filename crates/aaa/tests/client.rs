//! A client on virtual time, with servers that say what a test wants.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

#[path = "client/asking.rs"]
mod asking;
#[path = "client/forged.rs"]
mod forged;
#[path = "client/recomputed.rs"]
mod recomputed;
#[path = "client/sessions.rs"]
mod sessions;
#[path = "client/world.rs"]
mod world;
