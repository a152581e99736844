//! Networks and populations on virtual time as files describe them: a scenario is read and checked
//! ([`mod@file`]), run ([`run`]), recorded as time series on a page, written down packet by packet ([`trace`]), and run over a grid of
//! parameters and seeds ([`sweep`]). `segue sim run`, `sweep` and `merge` have their options here.

#![forbid(unsafe_code)]

pub mod file;
mod page;
mod population;
pub mod run;
mod series;
mod show;
pub mod sweep;
pub mod trace;
