//! Transport models.

pub mod cubic;
pub mod rack;
pub mod scoreboard;
mod segment;
pub mod tlp;

pub use segment::{Sack, Segment};
