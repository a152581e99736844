//! The verbs of `segue` as a library, so that tests can reach its parsers. The interface is not stable.

pub mod cmd;
