//! A link in operation: decides for each packet whether and when it arrives.

use alloc::collections::VecDeque;

use segue_clock::{Rng, Span, Time};

use crate::loss::LossProcess;
use crate::spec::{Change, Jitter, LinkSpec, Queue, SpecError};

/// Result of offering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serialisation starts at `start`, and the packet arrives at `at`.
    Deliver {
        /// Start of serialisation.
        start: Time,
        /// Arrival of its last bit at the far end.
        at: Time,
    },
    /// The packet is dropped.
    Drop(DropCause),
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropCause {
    /// Lost on the wire by the loss process.
    Loss,
    /// The queue was full.
    Queue,
    /// The link was silent.
    Silent,
}

/// Counters of a link. `offered` = `delivered` + `lost` + `queue_full` + `silenced`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub offered: u64,
    /// Packets that have arrived or will arrive.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets dropped by the loss process.
    pub lost: u64,
    /// Packets dropped at a full queue.
    pub queue_full: u64,
    /// Packets dropped by silence.
    pub silenced: u64,
}

/// One direction of a link.
///
/// A packet waits until the previous ones are serialised. It is serialised at the rate in force at that time, and
/// arrives after the delay in force at that time (store and forward). Loss and silence are decided when serialisation
/// starts. A lost packet still occupies the wire, and a packet on the wire when silence begins still arrives.
#[derive(Clone, Debug)]
pub struct LinkModel {
    spec: LinkSpec,
    /// The values in force; `spec` keeps the initial ones, which a periodic profile returns to.
    rate_bps: Option<u64>,
    delay: Span,
    silent: bool,
    /// Silence set with `set_silent`, in addition to that of the profile.
    muted: bool,
    /// Start and end of the stalls that are not over, by start.
    stalls: VecDeque<(Time, Time)>,
    loss: LossProcess,
    /// Start of the link.
    origin: Time,
    /// Start of the profile or of its current period, and the next step.
    epoch: Time,
    next_step: usize,
    /// End of the last serialisation; `remainder` is the fraction of a nanosecond, in units of 1/rate ns.
    busy_until: Time,
    remainder: u64,
    /// Start and bytes of accepted packets, oldest first.
    waiting: VecDeque<(Time, u32)>,
    waiting_bytes: u64,
    last_arrival: Time,
    /// Packets that have started serialisation, which is also the number of the next one.
    started: u64,
    loss_rng: Rng,
    jitter_rng: Rng,
    counters: Counters,
}

impl LinkModel {
    /// Creates a link whose profile starts at `now`. Loss and jitter have separate random sequences, so that the same
    /// packets are lost with and without jitter.
    ///
    /// # Errors
    /// An invalid parameter.
    pub fn new(spec: LinkSpec, seed: u64, now: Time) -> Result<LinkModel, SpecError> {
        spec.check()?;
        let mut loss_rng = Rng::new(seed);
        Ok(LinkModel {
            rate_bps: spec.rate_bps,
            delay: spec.delay,
            silent: spec.silent,
            muted: false,
            stalls: VecDeque::new(),
            loss: LossProcess::new(spec.loss.clone(), &mut loss_rng),
            origin: now,
            epoch: now,
            next_step: 0,
            busy_until: now,
            remainder: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_arrival: now,
            started: 0,
            loss_rng,
            jitter_rng: Rng::new(seed ^ 0x6a69_7474_6572),
            counters: Counters::default(),
            spec,
        })
    }

    /// Offers a packet of `bytes` bytes at `now`. Time must not go backwards.
    pub fn offer(&mut self, now: Time, bytes: u32) -> Verdict {
        self.counters.offered += 1;
        self.forget_started(now);
        while self.stalls.front().is_some_and(|(_, until)| *until <= now) {
            self.stalls.pop_front();
        }
        let start = now.max(self.busy_until);
        if start > now && !self.has_room(bytes, start.since(now)) {
            self.counters.queue_full += 1;
            return Verdict::Drop(DropCause::Queue);
        }
        if !self.spec.profile.steps.is_empty() {
            self.advance_profile(start);
        }
        self.serialise(start, bytes);
        if start > now {
            self.waiting.push_back((start, bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        let lost = self.loss.step(self.started, start.since(self.origin), &mut self.loss_rng);
        self.started += 1;
        if self.silent || self.muted {
            self.counters.silenced += 1;
            return Verdict::Drop(DropCause::Silent);
        }
        if lost {
            self.counters.lost += 1;
            return Verdict::Drop(DropCause::Loss);
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(bytes);
        Verdict::Deliver { start, at: self.arrival() }
    }

    /// Stalls the link: packets due in `from..until` arrive together at `until`, in the order in which they were sent,
    /// as behind a radio link that retransmits a frame until it succeeds. The sender does not notice. Packets accepted
    /// before this call keep their arrival times; the caller must delay them itself.
    pub fn stall(&mut self, from: Time, until: Time) {
        let place = self.stalls.partition_point(|stall| *stall <= (from, until));
        self.stalls.insert(place, (from, until));
    }

    /// Silences the link, in addition to what the profile says. The caller must drop packets that were accepted and
    /// have not started serialisation, and report each with [`withdraw`](Self::withdraw).
    pub fn set_silent(&mut self, silent: bool) {
        self.muted = silent;
    }

    /// Corrects the counters for a packet of `bytes` bytes that was to be delivered but was silenced before it started.
    pub fn withdraw(&mut self, bytes: u32) {
        self.counters.delivered -= 1;
        self.counters.delivered_bytes -= u64::from(bytes);
        self.counters.silenced += 1;
    }

    /// Removes all packets that wait for serialisation at `now`, as if they had never been offered. The wire is free
    /// after the packet that occupies it. The caller must drop the removed packets and report each with
    /// [`withdraw`](Self::withdraw).
    pub fn flush(&mut self, now: Time) {
        self.forget_started(now);
        if let Some((start, _)) = self.waiting.front() {
            self.busy_until = *start;
            self.remainder = 0;
            // Later packets may overtake the packet on the wire by at most its jitter.
            self.last_arrival = self.last_arrival.min(*start + self.delay);
        }
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Applies other parameters from `now` on. The queue, the counters and the silence set with
    /// [`set_silent`](Self::set_silent) stay. The profile starts at `now`. Packet numbers of an exact loss list still
    /// count from the start of the link.
    ///
    /// # Errors
    /// An invalid parameter; then nothing changes.
    pub fn reconfigure(&mut self, now: Time, spec: LinkSpec) -> Result<(), SpecError> {
        spec.check()?;
        self.rate_bps = spec.rate_bps;
        self.delay = spec.delay;
        self.silent = spec.silent;
        self.loss = LossProcess::new(spec.loss.clone(), &mut self.loss_rng);
        self.epoch = now;
        self.next_step = 0;
        self.remainder = 0;
        self.spec = spec;
        Ok(())
    }

    /// Number of packets that wait for serialisation at `now`.
    #[must_use]
    pub fn waiting(&self, now: Time) -> usize {
        self.waiting.iter().filter(|(start, _)| *start > now).count()
    }

    /// Counters since the start of the link.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The parameters from creation or the last [`reconfigure`](Self::reconfigure).
    #[must_use]
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    fn forget_started(&mut self, now: Time) {
        while let Some((start, bytes)) = self.waiting.front().copied() {
            if start > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
    }

    /// Returns true if the queue has room for a packet that would wait this long.
    fn has_room(&self, bytes: u32, wait: Span) -> bool {
        match self.spec.queue {
            Queue::Unbounded => true,
            Queue::Packets(n) => self.waiting.len() < n as usize,
            Queue::Bytes(n) => self.waiting_bytes + u64::from(bytes) <= n,
            Queue::Delay(longest) => wait <= longest,
        }
    }

    /// Applies the profile up to `to`, which never goes backwards because serialisation starts follow one another.
    fn advance_profile(&mut self, to: Time) {
        if let Some(period) = self.spec.profile.period {
            let periods = to.since(self.epoch).0 / period.0;
            if periods > 0 {
                self.epoch += period * periods;
                self.next_step = 0;
                self.restore();
            }
        }
        while let Some((at, change)) = self.spec.profile.steps.get(self.next_step) {
            if self.epoch + *at > to {
                break;
            }
            let change = change.clone();
            self.next_step += 1;
            self.apply(change);
        }
    }

    /// Resets only the values that the profile changes. Others, such as a running loss process, continue.
    fn restore(&mut self) {
        let mut base = Change::default();
        for (_, change) in &self.spec.profile.steps {
            base.delay = base.delay.or(change.delay.map(|_| self.spec.delay));
            base.rate_bps = base.rate_bps.or(change.rate_bps.map(|_| self.spec.rate_bps));
            base.silent = base.silent.or(change.silent.map(|_| self.spec.silent));
            if change.loss.is_some() {
                base.loss = Some(self.spec.loss.clone());
            }
        }
        self.apply(base);
    }

    fn apply(&mut self, change: Change) {
        self.delay = change.delay.unwrap_or(self.delay);
        self.silent = change.silent.unwrap_or(self.silent);
        if let Some(rate_bps) = change.rate_bps {
            self.rate_bps = rate_bps;
            self.remainder = 0;
        }
        if let Some(loss) = change.loss {
            self.loss = LossProcess::new(loss, &mut self.loss_rng);
        }
    }

    /// Advances the end of serialisation. Within a busy period the fraction of a nanosecond carries over to the next
    /// packet, so that a long transfer takes exactly bits / rate.
    fn serialise(&mut self, start: Time, bytes: u32) {
        if start > self.busy_until {
            self.remainder = 0;
        }
        let Some(rate) = self.rate_bps else {
            self.busy_until = start;
            return;
        };
        let bits = u64::from(bytes) * 8;
        let bit_ns = bits.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(self.remainder));
        let (took, remainder) = match bit_ns {
            Some(bit_ns) => (bit_ns / rate, bit_ns % rate),
            None => {
                let bit_ns = u128::from(bits) * 1_000_000_000 + u128::from(self.remainder);
                ((bit_ns / u128::from(rate)) as u64, (bit_ns % u128::from(rate)) as u64)
            }
        };
        self.busy_until = start + Span(took);
        self.remainder = remainder;
    }

    fn arrival(&mut self) -> Time {
        let mut at = self.busy_until + self.jittered();
        if !self.spec.reordering {
            at = at.max(self.last_arrival);
        }
        // One stall may end within the next.
        for (from, until) in &self.stalls {
            if (*from..*until).contains(&at) {
                at = *until;
            }
        }
        self.last_arrival = at;
        at
    }

    fn jittered(&mut self) -> Span {
        let delay = self.delay;
        match self.spec.jitter {
            Jitter::None => delay,
            Jitter::Uniform(j) => {
                let drawn = Span(self.jitter_rng.below(j.0.saturating_mul(2).saturating_add(1)));
                delay + drawn - j
            }
            Jitter::Normal(sigma) => {
                let offset = (self.normal() * sigma.0 as f64) as i64;
                Span(delay.0.saturating_add_signed(offset))
            }
        }
    }

    /// A standard normal random number (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        // 1 − u lies in (0, 1], where the logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.jitter_rng.unit()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.jitter_rng.unit())
    }
}
