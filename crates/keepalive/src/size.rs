//! How large a packet a path takes, in each direction: packetization layer path MTU discovery (RFC 8899), by padded
//! packets sent for the purpose ([`segue_wire::Size`]).
//!
//! | a direction | on | does |
//! | --- | --- | --- |
//! | new | | tests what the interface takes; it counts as taken until a test fails |
//! | searching | a test passes, or fails three times, or more often where packets are lost | tests a size in between, first [`BASE`] |
//! | settled | large data lately | tests the size again, every [`CONFIRM`]: a way can change |
//! | settled below what the interface takes | large data, and [`RAISE`] has passed | searches again above |
//! | any | packets were lost on it | tests the size again, every [`LOSS_PAUSE`] at most: they may have been too large |
//! | any | a router says that a packet was too big | tests the size again, and the one that it names |
//!
//! A short packet goes with each padded one. The size is to blame only if the short one was answered and the padded one
//! was not soon after; otherwise the path is, and the test teaches nothing. So an outage or the clock's idea of a round
//! trip decide nothing here. Sizes are in bytes of UDP payload.

use alloc::collections::VecDeque;

use segue_clock::{Deadline, Machine, Span, Time, earlier};
use segue_wire::Size;

/// Every IPv6 path takes packets of this many bytes, IP header included (RFC 8200, section 5), and nearly every IPv4
/// path.
pub const BASE: u16 = 1_280;
/// Time between two tests of a known size, while data may depend on it.
const CONFIRM: Span = Span::from_millis(500);
/// A larger size is tried again after this time.
const RAISE: Span = Span::from_secs(60);
/// How long after large data the size is tested.
const USED: Span = Span::from_secs(3);
/// A loss is no verdict. A size counts as too large once so many tests of it have failed that losses alone would cause
/// this with at most this probability; the second number bounds the tests. A little more than a millionth, so that
/// three losses of one in a hundred suffice: as a product of binary fractions they come out above 1e-6.
const MISTAKE: f64 = 1.1e-6;
const MOST_TRIES: u8 = 12;
/// The least loss assumed, and the weight of a test in the average.
const LEAST_LOSS: f64 = 0.01;
const WEIGHT: f64 = 1.0 / 16.0;
/// How long to wait for the short packet of a test, at first and at most.
const PATIENCE: [Span; 2] = [Span::from_secs(1), Span::from_secs(8)];
/// How much later than the short one's answer the padded packet's may come, beyond half a round trip.
const LATER: Span = Span::from_millis(20);
/// After a loss a test follows the last one that passed by at least this time.
const LOSS_PAUSE: Span = Span::from_millis(1_500);
/// Minimum time between two claims of routers that are believed: any sender can forge one.
const HINT_PAUSE: Span = Span::from_millis(100);
/// MTUs of common networks, and what remains of them inside tunnels of many kinds.
const COMMON: [u16; 26] = [
    576, 1_006, 1_100, 1_200, BASE, 1_300, 1_320, 1_336, 1_350, 1_358, 1_372, 1_380, 1_390, 1_400,
    1_412, 1_420, 1_428, 1_436, 1_444, 1_452, 1_460, 1_472, 1_480, 1_492, 1_500, 9_000,
];

/// A direction, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to anchor.
    Up,
    /// Anchor to host.
    Down,
}

impl Direction {
    /// The name used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// What happens to a path's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeInput {
    /// The path has another interface or address, which takes packets of `largest` bytes: its tests start over.
    Begin {
        /// UDP payload that the interface takes.
        largest: u16,
    },
    /// The answer to a test came.
    Answer(u32),
    /// Large data went this way a moment ago.
    Used(Direction),
    /// Packets that went this way a moment ago did not arrive.
    Lost(Direction),
    /// A packet was too large for a router, which takes this many bytes of UDP payload, or does not say.
    TooLarge(Direction, Option<u16>),
}

/// What the driver of a path's tests has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOutput {
    /// Send a test.
    Ask(Size),
    /// The largest UDP payload that this way takes has changed.
    Found(Direction, u16),
}

/// What a path takes.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// IP and UDP header outside.
    overhead: u16,
    token: u32,
    /// Average share of the short packets that were not answered.
    loss: f64,
    ways: [Search; 2],
    /// The deadline, which is asked for much more often than it changes.
    due: Deadline,
    out: VecDeque<SizeOutput>,
}

/// One direction.
#[derive(Clone, Debug)]
struct Search {
    way: Direction,
    largest: u16,
    /// The largest that passed.
    passes: Option<u16>,
    /// The smallest that did not pass; above `largest` where nothing failed.
    fails: u16,
    /// The size that a router has named.
    named: Option<u16>,
    test: Option<Test>,
    /// Tests of the same size that failed.
    failed: u8,
    patience: Span,
    /// When it was last confirmed.
    known_at: Time,
    raise_at: Time,
    used_until: Time,
    /// The last size reported.
    told: u16,
}

/// A padded packet on its way, and a short one.
#[derive(Clone, Copy, Debug)]
struct Test {
    size: u16,
    /// Token of the padded packet; the short one's is the next.
    token: u32,
    at: Time,
    /// What to wait for: the short one's answer, then the padded one's.
    until: Time,
    answered: bool,
}

impl Sizes {
    /// The sizes of a path on an interface that takes `largest` bytes of UDP payload behind `overhead` bytes of
    /// headers.
    #[must_use]
    pub fn new(now: Time, largest: u16, overhead: u16) -> Sizes {
        let search = |way| Search::new(now, way, largest);
        let ways = [search(Direction::Up), search(Direction::Down)];
        let due = earliest(&ways, overhead);
        Sizes { overhead, token: 0, loss: 0.0, ways, due, out: VecDeque::new() }
    }

    /// The largest UDP payload that this way takes, as far as is known.
    #[must_use]
    pub fn limit(&self, way: Direction) -> u16 {
        self.ways[way as usize].limit(self.overhead)
    }

    /// Whether a test of this way is under way, so that another limit may follow.
    #[must_use]
    pub fn is_testing(&self, way: Direction) -> bool {
        self.ways[way as usize].test.is_some()
    }

    /// How many tests of a size have to fail.
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

    /// Tests the known size once more, unless a test passed less than `pause` ago.
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
        // Report a larger size only once it is sure: each change means work at both ends.
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

    /// What to try where no size is known to pass: the base, or less.
    fn below(&self, overhead: u16) -> impl DoubleEndedIterator<Item = u16> {
        let fails = self.fails;
        let base = COMMON.into_iter().filter(|mtu| *mtu <= BASE);
        base.map(move |mtu| mtu - overhead).filter(move |size| *size < fails)
    }

    /// The next size of a search; `None` once there is nothing between what passes and what does not.
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

    /// The size to test now.
    fn due(&mut self, now: Time, overhead: u16) -> Option<u16> {
        if let Some(size) = self.next(overhead) {
            return Some(size);
        }
        if now >= self.used_until {
            // A search may have outlived the use: what was due in it no longer is.
            self.used_until = Time::ZERO;
            return None;
        }
        if self.fails <= self.largest && now >= self.raise_at {
            (self.fails, self.named) = (self.largest.saturating_add(1), None);
            return Some(self.largest);
        }
        self.passes.filter(|_| now >= self.known_at + CONFIRM)
    }

    /// The answer to the short packet of a test.
    fn on_short(&mut self, now: Time, token: u32) -> bool {
        let is_its = |test: &&mut Test| token == test.token.wrapping_add(1) && !test.answered;
        let Some(test) = self.test.as_mut().filter(is_its) else { return false };
        test.answered = true;
        test.until = now + now.since(test.at).half() + LATER;
        true
    }

    /// The answer to the padded packet of a test.
    fn on_padded(&mut self, now: Time, token: u32) -> bool {
        let Some(test) = self.test.filter(|test| test.token == token) else { return false };
        let size = test.size;
        (self.test, self.failed, self.patience) = (None, 0, PATIENCE[0]);
        self.passes = Some(self.passes.map_or(size, |passes| passes.max(size)));
        self.known_at = now;
        true
    }

    /// The time of a test is over. Returns the size to test again, if `tries` failures do not decide it yet.
    fn on_silence(&mut self, now: Time, tries: u8) -> Option<u16> {
        let test = self.test.take_if(|test| test.until <= now)?;
        if !test.answered {
            // The path is silent.
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
