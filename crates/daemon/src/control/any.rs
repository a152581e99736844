//! The vocabulary of a client that does not know a daemon's role: it reads the common part, and displays the rest as it
//! is.

use std::convert::Infallible;
use std::path::Path;

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};

use super::{EventsPage, NO_SENSE, News, Request, Response, Status, Vocabulary, ask, status};

/// The vocabulary of daemons of any role.
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

/// The events of a daemon of any role, from this number on.
pub fn events(path: &Path, from: u64) -> anyhow::Result<EventsPage<Any>> {
    match ask(path, &Request::Events { from })? {
        Response::Events(page) => Ok(page),
        _ => bail!(NO_SENSE),
    }
}

/// Explains that a daemon did not answer as one of these roles would: names the daemon's role if it differs. `whom`
/// names the programs with these roles.
pub fn expecting(
    path: &Path,
    (roles, whom): (&[&str], &str),
    error: anyhow::Error,
) -> anyhow::Error {
    match status::<Any>(path, u64::MAX) {
        Ok(Status { head, .. }) if !roles.contains(&&*head.role) => anyhow!(
            "{} is the socket of a daemon with the role {}, and this is for {whom}; segue status shows what it does",
            path.display(),
            head.role
        ),
        _ => error,
    }
}
