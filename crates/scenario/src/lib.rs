//! Networks and populations on virtual time, described in files. A scenario is read and checked ([`mod@file`]), run
//! ([`run`]), recorded as time series for a page, traced packet by packet ([`trace`]), and run over a grid of
//! parameters and seeds ([`sweep`]). The options of `segue sim run`, `sweep` and `merge` are here.

#![forbid(unsafe_code)]

pub mod file;
mod page;
mod population;
pub mod run;
mod series;
mod show;
pub mod sweep;
pub mod trace;
