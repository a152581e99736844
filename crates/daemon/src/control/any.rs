//! What a client that does not know a daemon's role makes of its words: what every daemon has it reads, the rest it shows.

use std::convert::Infallible;
use std::path::Path;

use anyhow::bail;
use serde_json::{Map, Value};

use super::{EventsPage, NO_SENSE, News, Request, Response, Vocabulary, ask};

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

/// The events of a daemon of any role from this number on.
pub fn events(path: &Path, from: u64) -> anyhow::Result<EventsPage<Any>> {
    match ask(path, &Request::Events { from })? {
        Response::Events(page) => Ok(page),
        _ => bail!(NO_SENSE),
    }
}
