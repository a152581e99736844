use alloc::vec;
use alloc::vec::Vec;

use segue_clock::Rng;

use super::*;

const LARGEST: u16 = 1_472;
const OVERHEAD: u16 = 28;

/// A path with its limits in each direction, and the host's machine.
struct Path {
    sizes: Sizes,
    now: Time,
    /// Largest UDP payload that passes, by direction.
    takes: [u16; 2],
    rtt: Span,
    loss: f64,
    rng: Rng,
    answers: Vec<(Time, u32)>,
    asked: Vec<(Time, Size)>,
    found: Vec<(Time, Direction, u16)>,
    used: Vec<Direction>,
}

impl Path {
    fn new(takes: [u16; 2], rtt_ms: u64) -> Path {
        let now = Time(1_000_000_000);
        Path {
            sizes: Sizes::new(now, LARGEST, OVERHEAD),
            now,
            takes,
            rtt: Span::from_millis(rtt_ms),
            loss: 0.0,
            rng: Rng::new(1),
            answers: Vec::new(),
            asked: Vec::new(),
            found: Vec::new(),
            used: Vec::new(),
        }
    }

    fn tell(&mut self, input: SizeInput) {
        self.sizes.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.sizes.poll() {
            match output {
                SizeOutput::Ask(asked) => self.carry(asked),
                SizeOutput::Found(way, size) => self.found.push((self.now, way, size)),
            }
        }
    }

    fn carry(&mut self, asked: Size) {
        self.asked.push((self.now, asked));
        let lost = (0..2).any(|_| self.rng.chance(self.loss));
        if asked.size <= self.takes[0] && asked.answer <= self.takes[1] && !lost {
            self.answers.push((self.now + self.rtt, asked.token));
        }
    }

    /// Lets time pass, with large data every 100 ms in the directions in `used`.
    fn run(&mut self, span: Span) {
        let end = self.now + span;
        let mut data = self.now;
        let mut ticks = (self.now, 0);
        while self.now < end {
            for way in self.used.clone() {
                if self.now >= data {
                    self.tell(SizeInput::Used(way));
                }
            }
            while data <= self.now {
                data += Span::from_millis(100);
            }
            if let Some(at) = self.answers.iter().position(|(at, _)| *at <= self.now) {
                let (_, token) = self.answers.remove(at);
                self.tell(SizeInput::Answer(token));
                continue;
            }
            let due = self.sizes.deadline().map(|(at, _)| at);
            if due.is_some_and(|at| at <= self.now) {
                ticks = if ticks.0 == self.now { (self.now, ticks.1 + 1) } else { (self.now, 0) };
                assert!(ticks.1 < 10, "it never comes to rest");
                self.sizes.tick(self.now);
                self.drain();
                continue;
            }
            let answer = self.answers.iter().map(|(at, _)| *at);
            self.now = answer.chain(due).chain([data, end]).min().unwrap_or(end).max(self.now);
        }
    }

    fn limits(&self) -> [u16; 2] {
        [Direction::Up, Direction::Down].map(|way| self.sizes.limit(way))
    }
}

/// The largest common size that a direction passes.
fn common(takes: u16) -> u16 {
    COMMON.into_iter().map(|mtu| mtu - OVERHEAD).filter(|size| *size <= takes).max().unwrap()
}

#[test]
fn three_failures_decide_where_nothing_is_lost_and_more_where_packets_are() {
    let mut sizes = Sizes::new(Time::ZERO, LARGEST, OVERHEAD);
    for (loss, tries) in
        [(0.0, 3), (LEAST_LOSS, 3), (0.0625, 5), (0.5, MOST_TRIES), (1.0, MOST_TRIES)]
    {
        sizes.loss = loss;
        assert_eq!(sizes.tries(), tries, "{loss}");
    }
    let mut path = Path::new([1_372, LARGEST], 50);
    path.run(Span::from_secs(3));
    let asked = path.asked.iter().filter(|(_, size)| size.size == LARGEST).count();
    assert_eq!(asked, 3);
}

#[test]
fn a_path_that_takes_what_its_interface_does_is_asked_once_in_each_direction() {
    let mut path = Path::new([LARGEST; 2], 50);
    path.run(Span::from_secs(100));
    assert_eq!(path.limits(), [LARGEST; 2]);
    assert_eq!((path.asked.len(), path.found.len()), (4, 0), "{:?}", path.asked);
}

#[test]
fn each_direction_settles_at_the_largest_common_size_that_it_takes() {
    for takes in (548..=LARGEST).step_by(7).chain([1_372, 1_252, 1_464]) {
        for ways in [[takes, LARGEST], [LARGEST, takes], [takes, takes]] {
            let mut path = Path::new(ways, 50);
            path.run(Span::from_secs(10));
            let expected = ways.map(|takes| if takes == LARGEST { takes } else { common(takes) });
            assert_eq!(path.limits(), expected, "{ways:?}");
            let settled = path.found.last().map_or(path.now, |(at, ..)| *at);
            if !path.found.is_empty() {
                assert!(settled.since(Time(1_000_000_000)) < Span::from_secs(3), "{ways:?}");
            }
            for (way, takes) in [Direction::Up, Direction::Down].into_iter().zip(ways) {
                let told = path.found.iter().rfind(|(_, w, _)| *w == way).map(|(.., size)| *size);
                assert_eq!(told, (takes != LARGEST).then(|| common(takes)), "{ways:?}");
            }
        }
    }
}

#[test]
fn data_are_not_sent_larger_than_what_is_known_to_pass_but_for_the_first_tests() {
    let mut path = Path::new([1_372; 2], 50);
    path.run(Span::from_millis(400));
    assert_eq!(path.limits(), [BASE - OVERHEAD; 2]);
    path.run(Span::from_secs(3));
    assert_eq!(path.limits(), [1_372; 2]);
    // The base is reported immediately, a larger size after the search.
    let told: Vec<u16> = path.found.iter().map(|(.., size)| *size).collect();
    assert_eq!(told, [BASE - OVERHEAD, BASE - OVERHEAD, 1_372, 1_372]);
}

#[test]
fn a_way_that_changes_under_large_data_is_known_within_a_second() {
    for (way, index) in [(Direction::Up, 0), (Direction::Down, 1)] {
        for offset_ms in (0..500).step_by(50) {
            let mut path = Path::new([LARGEST; 2], 50);
            path.used = vec![way];
            path.run(Span::from_millis(10_000 + offset_ms));
            let changed = path.now;
            path.takes[index] = 1_372;
            // No large data from here on.
            path.used.clear();
            path.run(Span::from_secs(5));
            let (at, told, size) = path.found[0];
            assert_eq!((told, size), (way, BASE - OVERHEAD));
            assert!(at.since(changed) < Span::from_millis(900), "{offset_ms}: {at:?}");
            assert_eq!(path.limits()[index], 1_372);
            assert_eq!(path.limits()[1 - index], LARGEST);
        }
    }
}

#[test]
fn what_grows_again_is_found_after_a_minute_of_use() {
    let mut path = Path::new([1_252; 2], 50);
    path.run(Span::from_secs(5));
    path.takes = [LARGEST; 2];
    path.run(Span::from_secs(200));
    assert_eq!(path.limits(), [1_252; 2], "nobody uses it");
    path.used = vec![Direction::Down];
    path.run(Span::from_secs(2));
    assert_eq!(path.limits(), [1_252, LARGEST]);
}

#[test]
fn a_path_that_is_silent_is_not_judged_and_asked_ever_more_seldom() {
    let mut path = Path::new([LARGEST; 2], 50);
    path.used = vec![Direction::Up, Direction::Down];
    path.run(Span::from_secs(10));
    path.takes = [0; 2];
    let before = path.asked.len();
    path.run(Span::from_secs(60));
    assert_eq!(path.limits(), [LARGEST; 2]);
    assert!(path.asked.len() - before <= 2 * 2 * 11, "{}", path.asked.len() - before);
    path.takes = [LARGEST; 2];
    path.run(Span::from_secs(10));
    assert_eq!((path.limits(), path.found.len()), ([LARGEST; 2], 0));
}

#[test]
fn losses_are_no_verdict() {
    let mut path = Path::new([LARGEST; 2], 50);
    path.loss = 0.03;
    path.used = vec![Direction::Up, Direction::Down];
    path.run(Span::from_secs(3_600));
    // Three consecutive failures would occur in 0.06³ of 7000 tests of each direction; many more are rare.
    assert!(path.found.len() <= 2 * 2, "{}", path.found.len());
    assert!(path.asked.len() > 20_000);
    path.loss = 0.2;
    let before = path.found.len();
    path.run(Span::from_secs(3_600));
    // 0.36³ would occur every 60 tests.
    assert!(path.found.len() - before <= 2 * 12, "{}", path.found.len() - before);
    path.loss = 0.0;
    path.run(RAISE + Span::from_secs(5));
    assert_eq!(path.limits(), [LARGEST; 2]);
}

#[test]
fn a_loss_is_a_reason_to_test_now_and_then() {
    let mut path = Path::new([LARGEST; 2], 50);
    path.run(Span::from_secs(10));
    let before = path.asked.len();
    for _ in 0..1_000 {
        path.tell(SizeInput::Lost(Direction::Down));
        path.run(Span::from_millis(15));
    }
    // One padded and one short packet per test, in 15 s.
    assert!((14..=2 * 10).contains(&(path.asked.len() - before)), "{}", path.asked.len() - before);
    path.takes[1] = 1_372;
    path.run(Span::from_secs(10));
    assert_eq!(path.limits(), [LARGEST; 2], "nobody has lost anything");
    path.tell(SizeInput::Lost(Direction::Down));
    path.run(Span::from_secs(3));
    assert_eq!(path.limits(), [LARGEST, 1_372]);
}

#[test]
fn a_search_that_outlives_the_use_comes_to_rest() {
    let mut path = Path::new([1_330; 2], 400);
    path.run(Span::from_secs(1));
    path.tell(SizeInput::Used(Direction::Up));
    path.tell(SizeInput::Used(Direction::Down));
    path.run(Span::from_secs(200));
    assert_eq!(path.limits(), [1_330; 2]);
}

#[test]
fn what_a_router_says_is_tested_and_not_believed() {
    let mut path = Path::new([LARGEST; 2], 50);
    path.run(Span::from_secs(1));
    path.takes[0] = 1_385;
    path.tell(SizeInput::TooLarge(Direction::Up, Some(1_385)));
    path.run(Span::from_millis(700));
    assert_eq!(path.limits(), [1_385, LARGEST]);
    path.run(Span::from_secs(3));
    assert_eq!(path.found.last(), Some(&(path.found.last().unwrap().0, Direction::Up, 1_385)));
    // A forged report causes at most one test at a time.
    let (before, start) = (path.asked.len(), path.now);
    for named in (0..u16::MAX).step_by(50) {
        path.tell(SizeInput::TooLarge(Direction::Down, Some(named)));
        path.run(Span::from_millis(1));
    }
    assert_eq!(path.limits(), [1_385, LARGEST]);
    let tests = (path.asked.len() - before) / 2;
    let most = path.now.since(start).0 / (path.rtt + HINT_PAUSE).0 + 1;
    assert!(tests as u64 <= most, "{tests} of {most}");
}

#[test]
fn another_interface_begins_anew() {
    let mut path = Path::new([1_252; 2], 50);
    path.run(Span::from_secs(5));
    path.takes = [1_380; 2];
    path.tell(SizeInput::Begin { largest: 1_380 });
    path.run(Span::from_secs(1));
    assert_eq!(path.limits(), [1_380; 2]);
    assert_eq!(path.found.last().map(|(.., size)| *size), Some(1_380));
}

#[test]
fn answers_that_nobody_waits_for_are_ignored() {
    let mut path = Path::new([LARGEST, 1_372], 50);
    path.run(Span::from_secs(5));
    for token in 0..1_000 {
        path.tell(SizeInput::Answer(token));
    }
    assert_eq!(path.limits(), [LARGEST, 1_372]);
}
