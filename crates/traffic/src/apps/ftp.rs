//! Bulk transfer over TCP: one endless file, or files one after the other.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::RefCell;

use segue_clock::{Span, Time};

use super::connection::{Connection, earliest};
use super::histogram::Histogram;
use super::stream::Period;
use super::{BadConfig, End, Ends, Pair, report, require};
use crate::tcp::{Config, Endpoint, GREEDY, Sent, Variant, WINDOW};
use segue_sim::agent::{Agent, Io};
use segue_sim::packet::{Packet, TCP};
use segue_sim::results::Results;

/// A transfer from the second end to the first, or the opposite.
#[derive(Clone, Debug, PartialEq)]
pub struct FtpConfig {
    /// File size in bytes; `None`: endless.
    pub file_bytes: Option<u64>,
    /// Number of files sent one after the other; `None`: as many as time permits.
    pub files: Option<u64>,
    /// Time from the acknowledgement of a file's last byte to the start of the next file.
    pub pause: Span,
    /// True if the first end sends.
    pub upload: bool,
    /// Start and end of the time in which files are started.
    pub period: Period,
    /// The transport connection, shared by all files.
    pub tcp: Config,
}

impl Default for FtpConfig {
    /// An endless file to the first end, with SACK as today's hosts use it.
    fn default() -> FtpConfig {
        FtpConfig {
            file_bytes: None,
            files: None,
            pause: Span::ZERO,
            upload: false,
            period: Period::default(),
            tcp: Config::modern(Variant::Sack),
        }
    }
}

impl FtpConfig {
    /// Agents for both ends. The first reports.
    ///
    /// # Errors
    /// The key with an invalid value.
    pub fn pair(&self, ends: &Ends) -> Result<Pair, BadConfig> {
        require(self.file_bytes != Some(0), "file_bytes", "must be above 0")?;
        require(self.files != Some(0), "files", "must be above 0")?;
        let shared = Rc::new(RefCell::new(Progress::new()));
        let end = |local, remote, sends, reports| FtpAgent {
            connection: Connection::new(self.tcp, Endpoint { local, remote }),
            config: self.clone(),
            sends,
            reports,
            offered: 0,
            started: 0,
            next: self.period.within(self.period.begin()).filter(|_| sends),
            shared: shared.clone(),
        };
        let first = end(ends.first, ends.second, self.upload, true);
        let second = end(ends.second, ends.first, !self.upload, false);
        Ok(Pair {
            first: End { agent: Box::new(first), ports: vec![(TCP, ends.first.1)] },
            second: End { agent: Box::new(second), ports: vec![(TCP, ends.second.1)] },
        })
    }
}

/// Width of the bins of transfer times.
const BIN: Span = Span::from_millis(1);

/// State shared by both ends.
struct Progress {
    began: Option<Time>,
    /// Start and last byte of files in transit, oldest first. A file starts when the previous one is
    /// acknowledged, so there is one, or two while an acknowledgement is in flight.
    under_way: VecDeque<(Time, u64)>,
    delivered: u64,
    times: Histogram,
    sent: Sent,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            began: None,
            under_way: VecDeque::new(),
            delivered: 0,
            times: Histogram::new(BIN),
            sent: Sent::default(),
        }
    }
}

/// One end of a transfer.
pub struct FtpAgent {
    connection: Connection,
    config: FtpConfig,
    sends: bool,
    reports: bool,
    offered: u64,
    started: u64,
    /// Start of the next file.
    next: Option<Time>,
    shared: Rc<RefCell<Progress>>,
}

impl FtpAgent {
    fn start_file(&mut self, io: &mut Io<'_>) {
        let bytes = self.config.file_bytes.unwrap_or(GREEDY);
        self.next = None;
        self.started += 1;
        self.offered = self.offered.saturating_add(bytes);
        {
            let mut shared = self.shared.borrow_mut();
            shared.began.get_or_insert(io.now);
            shared.under_way.push_back((io.now, self.offered));
        }
        self.connection.offer(io, bytes);
    }

    /// Processes changes after every call.
    fn follow(&mut self, io: &mut Io<'_>) {
        let mut shared = self.shared.borrow_mut();
        if !self.sends {
            shared.delivered = self.connection.delivered();
            while let Some((start, end)) = shared.under_way.front().copied() {
                if shared.delivered < end {
                    break;
                }
                shared.under_way.pop_front();
                shared.times.add(io.now.since(start).0 as i64);
            }
            return;
        }
        shared.sent = self.connection.sent();
        let more = self.config.files.is_none_or(|files| self.started < files);
        if self.started > 0 && self.next.is_none() && more && self.connection.is_done() {
            self.next = self.config.period.within(io.now + self.config.pause);
        }
    }
}

impl Agent for FtpAgent {
    fn start(&mut self, io: &mut Io<'_>) {
        self.connection.start(io);
        self.wake(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        self.connection.receive(io, packet);
        self.follow(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.connection.wake(io);
        if self.next.is_some_and(|at| at <= io.now) {
            self.start_file(io);
        }
        self.follow(io);
    }

    fn gauges(&self, name: &str, gauges: &mut Results) {
        if self.sends {
            gauges.float(format!("{name}.{WINDOW}"), self.connection.window());
        }
    }

    fn deadline(&self) -> Option<Time> {
        earliest(self.next, self.connection.deadline())
    }

    fn report(&self, name: &str, now: Time, results: &mut Results) {
        if !self.reports {
            return;
        }
        let shared = self.shared.borrow();
        let seconds = shared.began.map_or(0.0, |began| now.since(began).as_secs_f64());
        results.int(format!("{name}.delivered_bytes"), shared.delivered);
        results.float(format!("{name}.goodput_bps"), shared.delivered as f64 * 8.0 / seconds);
        report::transport(&format!("{name}."), &shared.sent, results);
        results.int(format!("{name}.files"), shared.times.count());
        report::times(&format!("{name}.file_"), &shared.times, results);
    }
}
