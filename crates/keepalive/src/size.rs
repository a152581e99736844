//! Packetization layer path MTU discovery (RFC 8899): finds the largest packet that passes in each direction of a path,
//! with padded probe packets ([`segue_wire::Size`]).
//!
//! | a direction | event | action |
//! | --- | --- | --- |
//! | new | | tests the interface's size, which is assumed to pass until a test fails |
//! | searching | a test passes, or fails three times (more on lossy paths) | tests a size in between, first [`BASE`] |
//! | settled | large data recently | tests the size again every [`CONFIRM`], because the route can change |
//! | settled below the interface's size | large data, and [`RAISE`] has passed | searches above it again |
//! | any | it lost packets | tests the size again, at most every [`LOSS_PAUSE`]: they may have been too large |
//! | any | a router reports that a packet was too big | tests the size again, and the reported size |
//!
//! A short packet accompanies each padded one. The size is to blame only if the short packet is answered and the padded
//! one is not answered soon afterwards. Otherwise the path is to blame, and the test is inconclusive. Outages and
//! estimates of the round-trip time therefore do not decide anything here. Sizes are in bytes of UDP payload.

use alloc::collections::VecDeque;

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_wire::Size;

/// Every IPv6 path passes packets of this many bytes, IP header included (RFC 8200, section 5), and so does nearly
/// every IPv4 path.
pub const BASE: u16 = 1_280;
/// Time between two tests of a known size while data may depend on it.
const CONFIRM: Span = Span::from_millis(500);
/// Time after which a larger size is tried again.
const RAISE: Span = Span::from_secs(60);
/// Large data keep the tests running for this time.
const USED: Span = Span::from_secs(3);
/// A single loss proves nothing. A size is too large after so many failed tests that random losses would cause them
/// with at most the probability `MISTAKE`; `MOST_TRIES` bounds their number. `MISTAKE` is slightly above a millionth so
/// that three losses at a ratio of 1 % suffice: in binary their product exceeds 1e-6.
const MISTAKE: f64 = 1.1e-6;
const MOST_TRIES: u8 = 12;
/// Minimum loss assumed, and the weight of a test in the loss average.
const LEAST_LOSS: f64 = 0.01;
const WEIGHT: f64 = 1.0 / 16.0;
/// Time to wait for the short packet of a test, initially and at most.
const PATIENCE: [Span; 2] = [Span::from_secs(1), Span::from_secs(8)];
/// Extra time for the padded packet's answer after the short one's, beyond half a round trip.
const LATER: Span = Span::from_millis(20);
/// Minimum time from a successful test to the next test that a loss triggers.
const LOSS_PAUSE: Span = Span::from_millis(1_500);
/// Minimum time between two router reports that are accepted, because any sender can forge one.
const HINT_PAUSE: Span = Span::from_millis(100);
/// MTUs of common networks, and of various tunnels over them.
const COMMON: [u16; 26] = [
    576, 1_006, 1_100, 1_200, BASE, 1_300, 1_320, 1_336, 1_350, 1_358, 1_372, 1_380, 1_390, 1_400,
    1_412, 1_420, 1_428, 1_436, 1_444, 1_452, 1_460, 1_472, 1_480, 1_492, 1_500, 9_000,
];

/// Direction of packets, as seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to anchor.
    Up,
    /// Anchor to host.
    Down,
}

impl Direction {
    /// The name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// Inputs of a path's size discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeInput {
    /// The path has a new interface or address, which takes packets of `largest` bytes. Restarts the tests.
    Begin {
        /// Largest UDP payload of the interface.
        largest: u16,
    },
    /// A test was answered.
    Answer(u32),
    /// Large data recently went in this direction.
    Used(Direction),
    /// Packets that recently went in this direction were lost.
    Lost(Direction),
    /// A router reported a packet as too big. It takes this many bytes of UDP payload, if it says so.
    TooLarge(Direction, Option<u16>),
}

/// Actions for the driver of a path's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOutput {
    /// Send a test.
    Ask(Size),
    /// The largest UDP payload in this direction has changed.
    Found(Direction, u16),
}

/// Size discovery of a path.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Bytes of the outer IP and UDP headers.
    overhead: u16,
    token: u32,
    /// Average share of unanswered short packets.
    loss: f64,
    ways: [Search; 2],
    /// Cached, because the deadline is read much more often than it changes.
    due: Deadline,
    out: VecDeque<SizeOutput>,
}

/// Search of one direction.
#[derive(Clone, Debug)]
struct Search {
    way: Direction,
    largest: u16,
    /// The largest size that passed.
    passes: Option<u16>,
    /// The smallest size that failed; above `largest` if none failed.
    fails: u16,
    /// The size that a router reported.
    named: Option<u16>,
    test: Option<Test>,
    /// Failed tests of the current size.
    failed: u8,
    patience: Span,
    /// When the size was last confirmed.
    known_at: Time,
    raise_at: Time,
    used_until: Time,
    /// The last size reported.
    told: u16,
}

/// A padded and a short packet in flight.
#[derive(Clone, Copy, Debug)]
struct Test {
    size: u16,
    /// Token of the padded packet; the short one's is the next.
    token: u32,
    at: Time,
    /// Time-out of the short packet's answer, then of the padded one's.
    until: Time,
    answered: bool,
}

impl Sizes {
    /// Starts discovery on an interface that takes `largest` bytes of UDP payload after `overhead` bytes of headers.
    #[must_use]
    pub fn new(now: Time, largest: u16, overhead: u16) -> Sizes {
        let search = |way| Search::new(now, way, largest);
        let ways = [search(Direction::Up), search(Direction::Down)];
        let due = earliest(&ways, overhead);
        Sizes { overhead, token: 0, loss: 0.0, ways, due, out: VecDeque::new() }
    }

    /// The largest UDP payload that this direction is known to pass.
    #[must_use]
    pub fn limit(&self, way: Direction) -> u16 {
        self.ways[way as usize].limit(self.overhead)
    }

    /// Whether a test of this direction is in progress, so that the limit may change.
    #[must_use]
    pub fn is_testing(&self, way: Direction) -> bool {
        self.ways[way as usize].test.is_some()
    }

    /// Number of failed tests after which a size is too large.
    fn tries(&self) -> u8 {
        let (mut tries, mut chance) = (0, 1.0);
        while chance > MISTAKE && tries < MOST_TRIES {
            chance *= self.loss.max(LEAST_LOSS);
            tries += 1;
        }
        tries
    }

    fn test(&mut self, now: Time, way: usize, size: u16) {
        let token = self.token;
        self.token = self.token.wrapping_add(2);
        let search = &mut self.ways[way];
        let until = now + search.patience;
        search.test = Some(Test { size, token, at: now, until, answered: false });
        let padded = match search.way {
            Direction::Up => Size { token, size, answer: Size::LEAST },
            Direction::Down => Size { token, size: Size::LEAST, answer: size },
        };
        let short = Size { token: token.wrapping_add(1), size: Size::LEAST, answer: Size::LEAST };
        self.out.extend([padded, short].map(SizeOutput::Ask));
    }

    /// Tests the known size again, unless a test passed less than `pause` ago.
    fn doubt(&mut self, now: Time, way: Direction, pause: Span) {
        let search = &self.ways[way as usize];
        if search.test.is_none() && now >= search.known_at + pause {
            self.test(now, way as usize, self.limit(way));
        }
    }

    fn review_both(&mut self, now: Time) {
        (0..self.ways.len()).for_each(|way| self.review(now, way));
        self.due = earliest(&self.ways, self.overhead);
    }

    fn review(&mut self, now: Time, way: usize) {
        let overhead = self.overhead;
        let search = &mut self.ways[way];
        if search.test.is_none()
            && let Some(size) = search.due(now, overhead)
        {
            self.test(now, way, size);
        }
        let search = &mut self.ways[way];
        let limit = search.limit(overhead);
        // Report a larger size only once it is certain: each change means work at both ends.
        let is_sure = limit < search.told || search.test.is_none_or(|test| test.size <= limit);
        if limit != search.told && is_sure {
            search.told = limit;
            self.out.push_back(SizeOutput::Found(search.way, limit));
        }
    }
}

impl Search {
    fn new(now: Time, way: Direction, largest: u16) -> Search {
        Search {
            way,
            largest,
            passes: None,
            fails: largest.saturating_add(1),
            named: None,
            test: None,
            failed: 0,
            patience: PATIENCE[0],
            known_at: now,
            raise_at: now,
            used_until: now,
            told: largest,
        }
    }

    fn limit(&self, overhead: u16) -> u16 {
        self.passes.unwrap_or_else(|| match self.fails > self.largest {
            true => self.largest,
            false => {
                let named = self.named.filter(|named| *named < self.fails);
                named.or_else(|| self.below(overhead).next_back()).unwrap_or(Size::LEAST)
            }
        })
    }

    /// Candidates if no size is known to pass: the base and smaller sizes.
    fn below(&self, overhead: u16) -> impl DoubleEndedIterator<Item = u16> {
        let fails = self.fails;
        let base = COMMON.into_iter().filter(|mtu| *mtu <= BASE);
        base.map(move |mtu| mtu - overhead).filter(move |size| *size < fails)
    }

    /// The next size to test in a search; `None` once nothing is left between success and failure.
    fn next(&self, overhead: u16) -> Option<u16> {
        if self.fails > self.largest {
            return (self.passes != Some(self.largest)).then_some(self.largest);
        }
        let between = |size: &u16| self.passes.is_none_or(|p| *size > p) && *size < self.fails;
        if let Some(named) = self.named.filter(between) {
            return Some(named);
        }
        if self.passes.is_none() {
            return self.below(overhead).next_back();
        }
        let open = || COMMON.into_iter().map(|mtu| mtu - overhead).filter(between);
        open().nth(open().count() / 2)
    }

    /// The size to test at `now`, if any.
    fn due(&mut self, now: Time, overhead: u16) -> Option<u16> {
        if let Some(size) = self.next(overhead) {
            return Some(size);
        }
        if now >= self.used_until {
            // The search may have outlasted the use of the path. Its remaining tests are not due.
            self.used_until = Time::ZERO;
            return None;
        }
        if self.fails <= self.largest && now >= self.raise_at {
            (self.fails, self.named) = (self.largest.saturating_add(1), None);
            return Some(self.largest);
        }
        self.passes.filter(|_| now >= self.known_at + CONFIRM)
    }

    /// Handles the answer to a test's short packet.
    fn on_short(&mut self, now: Time, token: u32) -> bool {
        let is_its = |test: &&mut Test| token == test.token.wrapping_add(1) && !test.answered;
        let Some(test) = self.test.as_mut().filter(is_its) else { return false };
        test.answered = true;
        test.until = now + now.since(test.at).half() + LATER;
        true
    }

    /// Handles the answer to a test's padded packet.
    fn on_padded(&mut self, now: Time, token: u32) -> bool {
        let Some(test) = self.test.filter(|test| test.token == token) else { return false };
        let size = test.size;
        (self.test, self.failed, self.patience) = (None, 0, PATIENCE[0]);
        self.passes = Some(self.passes.map_or(size, |passes| passes.max(size)));
        self.known_at = now;
        true
    }

    /// Handles a test's time-out. Returns the size to test again if it has not failed `tries` times yet.
    fn on_silence(&mut self, now: Time, tries: u8) -> Option<u16> {
        let test = self.test.take_if(|test| test.until <= now)?;
        if !test.answered {
            // No answer to the short packet either, so the path is to blame.
            self.patience = (self.patience * 2).min(PATIENCE[1]);
            return Some(test.size);
        }
        self.patience = PATIENCE[0];
        self.failed += 1;
        if self.failed < tries {
            return Some(test.size);
        }
        self.failed = 0;
        self.fails = test.size;
        self.passes = self.passes.filter(|passes| *passes < test.size);
        self.raise_at = now + RAISE;
        None
    }

    fn deadline(&self, overhead: u16) -> Deadline {
        const WHY: &str = "packet size";
        if let Some(test) = self.test {
            return Some((test.until, WHY));
        }
        if self.next(overhead).is_some() {
            return Some((Time::ZERO, WHY));
        }
        let raise = (self.fails <= self.largest).then_some((self.raise_at, WHY));
        let confirm = self.passes.map(|_| (self.known_at + CONFIRM, WHY));
        earlier(raise, confirm).filter(|(at, _)| *at < self.used_until)
    }
}

impl Machine for Sizes {
    type Input = SizeInput;
    type Output = SizeOutput;

    fn handle(&mut self, now: Time, input: SizeInput) {
        match input {
            SizeInput::Begin { largest } => {
                self.loss = 0.0;
                for search in &mut self.ways {
                    let told = search.told;
                    *search = Search { told, ..Search::new(now, search.way, largest) };
                }
            }
            SizeInput::Answer(token) => {
                if self.ways.iter_mut().any(|search| search.on_short(now, token)) {
                    self.loss -= WEIGHT * self.loss;
                } else {
                    let _ = self.ways.iter_mut().any(|search| search.on_padded(now, token));
                }
            }
            SizeInput::Used(way) => self.ways[way as usize].used_until = now + USED,
            SizeInput::Lost(way) => self.doubt(now, way, LOSS_PAUSE),
            SizeInput::TooLarge(way, named) => {
                let limit = self.limit(way);
                let search = &mut self.ways[way as usize];
                search.named = named.filter(|size| (Size::LEAST..limit).contains(size));
                self.doubt(now, way, HINT_PAUSE);
            }
        }
        self.review_both(now);
    }

    fn tick(&mut self, now: Time) {
        for way in 0..self.ways.len() {
            let silent = |test: Test| test.until <= now && !test.answered;
            if self.ways[way].test.is_some_and(silent) {
                self.loss += WEIGHT * (1.0 - self.loss);
            }
            if let Some(size) = self.ways[way].on_silence(now, self.tries()) {
                self.test(now, way, size);
            }
        }
        self.review_both(now);
    }

    fn poll(&mut self) -> Option<SizeOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        self.due
    }
}

fn earliest([up, down]: &[Search; 2], overhead: u16) -> Deadline {
    earlier(up.deadline(overhead), down.deadline(overhead))
}

#[cfg(test)]
mod tests;
