//! A session of an accepted host, and the order of its accounting records.

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
    /// The grant; `None` until a server accepted the host.
    pub(crate) grant: Option<Grant>,
    /// Acct-Session-Id.
    pub(crate) name: String,
    /// When service began, in machine time and time of day.
    pub(crate) began: Option<(Time, UnixTime)>,
    pub(crate) ended: Option<(Time, UnixTime, Cause)>,
    /// The record that is being sent.
    pub(crate) telling: Option<Status>,
    /// The start record was acknowledged or given up.
    started: bool,
    stopped: bool,
    pub(crate) interim_due: bool,
    /// The prefixes whose traffic is counted; `None` before service begins.
    pub(crate) counted: Option<Vec<Prefix>>,
    /// The traffic at the last count.
    pub(crate) volume: Option<Volume>,
    /// A count was requested and is not answered yet.
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

    /// The record to send next. Records of a session go one at a time, so that a server receives the start first and
    /// the stop last.
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

    /// The current record was acknowledged or given up.
    pub(crate) fn told(&mut self) {
        match self.telling.take() {
            Some(Status::Start) => self.started = true,
            Some(Status::Stop) => self.stopped = true,
            Some(Status::Interim | Status::On) | None => {}
        }
    }

    /// True if the session has ended and no record is left to send.
    pub(crate) fn is_done(&self) -> bool {
        self.ended.is_some() && !self.asking && self.telling.is_none() && self.next().is_none()
    }
}
