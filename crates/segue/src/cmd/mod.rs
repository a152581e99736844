//! The verbs.

pub mod plan;
pub mod probe;
