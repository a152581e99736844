//! The verbs.

pub mod plan;
