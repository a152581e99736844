//! Transport models.

mod segment;

pub use segment::{Sack, Segment};
