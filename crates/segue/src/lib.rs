//! What the `segue` program is made of, as a library, so that its parsers can be tested from outside:
//! the verbs ([`cmd`]), configuration files ([`config`]), the control socket ([`control`]), the daemons
//! ([`daemon`]), errors as people read them ([`errors`]), credentials and join lines ([`identity`]), Prometheus metrics
//! ([`metrics`]), signalling ([`signalling`]), what is seen in a terminal ([`terminal`]) and numbers as people type them
//! ([`units`]). Other programs talk to a daemon over its control socket; this
//! interface promises nothing to them.

pub mod cmd;
pub mod config;
pub mod control;
pub mod daemon;
pub mod errors;
pub mod identity;
pub mod locator;
pub mod metrics;
pub mod signalling;
pub mod terminal;
pub mod units;
