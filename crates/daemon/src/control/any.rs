//! What a client that does not know a daemon's role makes of its words: what every daemon has it reads, the rest it shows.

use std::convert::Infallible;

use serde_json::{Map, Value};

use super::{News, Vocabulary};

/// The words of a daemon of any role.
#[derive(Clone, Copy, Debug)]
pub enum Any {}

impl Vocabulary for Any {
    type News = Infallible;
    type Request = Value;
    type Answer = Value;
    type Status = Map<String, Value>;
    type Event = Map<String, Value>;
}

impl<E> News<E> for Infallible {
    fn kind(&self) -> &'static str {
        match *self {}
    }

    fn about(&self) -> E {
        match *self {}
    }
}
