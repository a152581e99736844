//! The verbs of `segue` as a library, so that its parsers can be tested from outside. It has no stable
//! interface.

pub mod cmd;
