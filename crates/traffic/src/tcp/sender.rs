//! The sender: a machine that outputs the segments to send.

use alloc::boxed::Box;

use segue_clock::{Deadline, Machine, Time};

use super::config::{Config, Variant};
use super::conservative::Conservative;
use super::fack::Fack;
use super::newreno::NewReno;
use super::racktlp::RackTlp;
use super::recovery::{Ack, Core, Recovery, Transmit};
use super::reno::Reno;
use super::sack::SackReno;
use super::tahoe::Tahoe;
use super::vegas::Vegas;

/// An input of a sender. Numbers count units: whole segments or bytes ([`Counting`](super::config::Counting)).
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// The connection opens.
    Start,
    /// The application provides this many more units.
    Offer(u64),
    /// An acknowledgement.
    Ack(Ack),
}

/// A sender of any variant.
///
/// Call [`handle`](Machine::handle) or [`tick`](Machine::tick), then [`poll`](Machine::poll) until `None`, then
/// arm [`deadline`](Machine::deadline).
pub struct Sender {
    core: Core,
    recovery: Box<dyn Recovery>,
    started: bool,
}

impl Sender {
    /// A sender with nothing to send.
    #[must_use]
    pub fn new(config: Config) -> Sender {
        Sender { core: Core::new(config), recovery: recovery(&config), started: false }
    }

    /// Its state, for inspection.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Returns true if everything offered has been acknowledged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.una == self.core.limit
    }

    /// Reports the segments that are about to leave to the variant.
    fn tell_sent(&mut self, now: Time) {
        while let Some(segment) = self.core.out.get(self.core.told).copied() {
            self.core.told += 1;
            self.recovery.on_sent(&mut self.core, now, segment);
        }
    }
}

impl Machine for Sender {
    type Input = Input;
    type Output = Transmit;

    fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Start => {
                self.started = true;
                self.recovery.fill(&mut self.core, now);
            }
            Input::Offer(units) => {
                self.core.limit = self.core.limit.saturating_add(units);
                if self.started {
                    self.recovery.fill(&mut self.core, now);
                }
            }
            // An acknowledgement of data that was never sent is forged.
            Input::Ack(ack) if ack.next > self.core.max => {}
            Input::Ack(mut ack) => {
                ack.sack.retain(|start, end| start < end && end <= self.core.max);
                self.recovery.on_ack(&mut self.core, now, &ack);
            }
        }
        self.tell_sent(now);
    }

    fn tick(&mut self, now: Time) {
        // If both are due, the variant's own timer precedes the timeout: a probe replaces the timeout (RFC 8985,
        // section 7.2).
        let own = self.recovery.deadline(&self.core).map(|(at, _)| at).filter(|at| *at <= now);
        let timeout = self.core.rto_at.filter(|at| *at <= now);
        if own.is_some_and(|own| timeout.is_none_or(|timeout| own <= timeout)) {
            self.recovery.on_timer(&mut self.core, now);
        } else if timeout.is_some() {
            self.core.rto_at = None;
            if self.core.flight() > 0 {
                self.core.sent.timeouts += 1;
                self.recovery.on_timeout(&mut self.core, now);
            }
        }
        self.tell_sent(now);
    }

    fn poll(&mut self) -> Option<Transmit> {
        let segment = self.core.out.pop_front()?;
        self.core.told -= 1;
        Some(segment)
    }

    fn deadline(&self) -> Deadline {
        let timer = self.core.rto_at.map(|at| (at, "retransmission"));
        let own = self.recovery.deadline(&self.core);
        match (timer, own) {
            (Some(a), Some(b)) => Some(if b.0 <= a.0 { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// Creates the recovery of a variant.
fn recovery(config: &Config) -> Box<dyn Recovery> {
    match config.variant {
        Variant::Tahoe => Box::new(Tahoe),
        Variant::Reno => Box::new(Reno::default()),
        Variant::NewReno => Box::new(NewReno::default()),
        Variant::Sack if config.scoreboard => Box::new(Conservative::new(config)),
        Variant::Sack => Box::new(SackReno::default()),
        Variant::Fack => Box::new(Fack::default()),
        Variant::Vegas => Box::new(Vegas::default()),
        Variant::Cubic => Box::new(Conservative::new(config)),
        Variant::Rack => Box::new(RackTlp::new(config)),
    }
}
