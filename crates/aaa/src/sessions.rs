//! What an accepted host has: a session, and what is told of it in which order.

use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Time, UnixTime};
use segue_ip::Prefix;

use crate::grant::Grant;
use crate::io::{Cause, Subject, Volume};
use crate::request::Status;

/// A host's session.
pub(crate) struct Session<K> {
    pub(crate) key: K,
    pub(crate) subject: Subject,
    /// What it may have; `None` until a server has said so.
    pub(crate) grant: Option<Grant>,
    /// Acct-Session-Id.
    pub(crate) name: String,
    /// Since when it is served, and the time of day.
    pub(crate) began: Option<(Time, UnixTime)>,
    pub(crate) ended: Option<(Time, UnixTime, Cause)>,
    /// What is told now.
    pub(crate) telling: Option<Status>,
    /// Its start was told, or nobody has taken it.
    started: bool,
    stopped: bool,
    pub(crate) interim_due: bool,
    /// The prefixes that are counted for it; none before it begins.
    pub(crate) counted: Option<Vec<Prefix>>,
    /// What it had carried when that was asked last.
    pub(crate) volume: Option<Volume>,
    /// That is asked.
    pub(crate) asking: bool,
}

impl<K> Session<K> {
    pub(crate) fn new(key: K, subject: Subject, name: String) -> Session<K> {
        Session {
            key,
            subject,
            grant: None,
            name,
            began: None,
            ended: None,
            telling: None,
            started: false,
            stopped: false,
            interim_due: false,
            counted: None,
            volume: None,
            asking: false,
        }
    }

    /// What is to be told next. One thing is told at a time, so that a server hears of the start first and of the stop last.
    pub(crate) fn next(&self) -> Option<Status> {
        if self.telling.is_some() || self.stopped || self.asking {
            return None;
        }
        if !self.started {
            return (self.began.is_some() && self.grant.is_some()).then_some(Status::Start);
        }
        if self.ended.is_some() {
            return Some(Status::Stop);
        }
        self.interim_due.then_some(Status::Interim)
    }

    /// Somebody has taken what was told, or nobody has for long enough.
    pub(crate) fn told(&mut self) {
        match self.telling.take() {
            Some(Status::Start) => self.started = true,
            Some(Status::Stop) => self.stopped = true,
            Some(Status::Interim | Status::On) | None => {}
        }
    }

    /// Whether nothing is left to be told of one that has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.ended.is_some() && !self.asking && self.telling.is_none() && self.next().is_none()
    }
}
