//! The `segue` program as a library, so that its parsers can be tested from outside: the verbs
//! ([`cmd`]), configuration files ([`config`]), the control socket ([`control`]), the daemons
//! ([`daemon`]), credentials and join lines ([`identity`]) and signalling ([`signalling`]). Other programs talk to a daemon over its control
//! socket; this library has no stable interface.

pub mod cmd;
pub mod config;
pub mod control;
pub mod daemon;
pub mod identity;
pub mod locator;
pub mod signalling;
