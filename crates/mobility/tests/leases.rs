//! Compares leases with a simple model: a list of parts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use segue_clock::{Rng, Span, Time, UnixTime};
use segue_ip::Prefix;
use segue_mobility::{Leases, Pool, Taken};

const RUNS: u64 = 500;
const STEPS: u64 = 2_000;
const KEYS: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Free,
    Leased(u64, Option<Time>),
    Resting(Option<u64>, Time),
}

struct Model {
    pool: Pool,
    hold: Span,
    lowest_first: bool,
    from: usize,
    /// By number, from the first of the pool.
    parts: Vec<Part>,
}

impl Model {
    fn new(pool: Pool, hold: Span, lowest_first: bool) -> Model {
        let parts = vec![Part::Free; pool.numbers().len()];
        Model { pool, hold, lowest_first, from: 0, parts }
    }

    fn leases(&self) -> Leases<u64> {
        match self.lowest_first {
            true => Leases::lowest_first(self.pool, self.hold),
            false => Leases::new(self.pool, self.hold),
        }
    }

    fn name(&self, at: usize) -> Prefix {
        self.pool.part(self.pool.numbers().start + at as u32).unwrap()
    }

    fn at(&self, part: Prefix) -> Option<usize> {
        (0..self.parts.len()).find(|at| self.name(*at) == part)
    }

    fn find(&self, what: impl Fn(Part) -> bool) -> Option<usize> {
        self.parts.iter().position(|part| what(*part))
    }

    fn of(&self, key: u64) -> Vec<usize> {
        let leased = |at: &usize| matches!(self.parts[*at], Part::Leased(own, _) if own == key);
        (0..self.parts.len()).filter(leased).collect()
    }

    fn rest_over(&mut self, now: Time) {
        for part in &mut self.parts {
            if matches!(part, Part::Resting(_, until) if *until <= now) {
                *part = Part::Free;
            }
        }
    }

    fn another(&mut self, now: Time, key: u64, until: Option<Time>) -> Option<Prefix> {
        self.rest_over(now);
        let own = self.find(|part| matches!(part, Part::Resting(Some(own), _) if own == key));
        let at = own.or_else(|| {
            let n = self.parts.len();
            let from = if self.lowest_first { 0 } else { self.from };
            let at = (from..n).chain(0..from.min(n)).find(|at| self.parts[*at] == Part::Free)?;
            self.from = at + 1;
            Some(at)
        })?;
        self.parts[at] = Part::Leased(key, until);
        Some(self.name(at))
    }

    fn lease(&mut self, now: Time, key: u64, until: Option<Time>) -> Option<Prefix> {
        let Some(at) = self.of(key).first().copied() else { return self.another(now, key, until) };
        self.parts[at] = Part::Leased(key, until);
        Some(self.name(at))
    }

    fn take(
        &mut self,
        now: Time,
        key: u64,
        part: Prefix,
        until: Option<Time>,
    ) -> Result<(), Taken> {
        self.rest_over(now);
        let at = self.at(part).ok_or(Taken)?;
        match self.parts[at] {
            Part::Leased(owner, _) | Part::Resting(Some(owner), _) if owner != key => Err(Taken),
            Part::Resting(None, _) => Err(Taken),
            _ => {
                self.parts[at] = Part::Leased(key, until);
                Ok(())
            }
        }
    }

    fn ended(&mut self, now: Time) -> Vec<(u64, Prefix)> {
        let mut over: Vec<(Time, usize, u64)> = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                Part::Leased(key, Some(until)) if *until <= now => over.push((*until, at, *key)),
                _ => {}
            }
        }
        over.sort_unstable();
        for (until, at, key) in &over {
            self.parts[*at] = Part::Resting(Some(*key), *until + self.hold);
        }
        over.into_iter().map(|(_, at, key)| (key, self.name(at))).collect()
    }
}

/// A pool of 2 to 62 addresses or prefixes.
fn pool(rng: &mut Rng) -> Pool {
    match rng.below(3) {
        0 => Pool::addresses(Prefix::new([10, 9, 0, 0], 26 + rng.below(4) as u8), 2),
        1 => Pool::prefixes("2001:db8::/48".parse().unwrap(), 49 + rng.below(4) as u8, 0),
        _ => Pool::addresses("fd00::/123".parse().unwrap(), 1 + rng.below(20) as u32),
    }
    .unwrap()
}

/// A part of the pool, or one outside of it.
fn any_part(model: &Model, rng: &mut Rng) -> Prefix {
    let at = rng.below(model.parts.len() as u64 + 1) as usize;
    if at < model.parts.len() { model.name(at) } else { Prefix::host([192, 0, 2, 1]) }
}

fn step(rng: &mut Rng, now: Time, model: &mut Model, leases: &mut Leases<u64>) {
    let key = rng.below(KEYS);
    let until = rng.chance(0.9).then(|| now + Span(rng.below(400)));
    match rng.below(16) {
        0..4 => assert_eq!(leases.lease(now, &key, until), model.lease(now, key, until)),
        4..8 => assert_eq!(leases.another(now, &key, until), model.another(now, key, until)),
        8..10 => {
            let part = any_part(model, rng);
            let taken = model.take(now, key, part, until);
            assert_eq!(leases.take(now, &key, part, until), taken, "{part}");
        }
        10 => {
            leases.release(now, &key);
            for at in model.of(key) {
                model.parts[at] = Part::Resting(Some(key), now + model.hold);
            }
        }
        11..13 => {
            let part = any_part(model, rng);
            leases.release_one(now, part);
            let at = model.at(part);
            if let Some(at) = at
                && let Part::Leased(owner, _) = model.parts[at]
            {
                model.parts[at] = Part::Resting(Some(owner), now + model.hold);
            }
        }
        13 => {
            let (part, until) = (any_part(model, rng), now + Span(rng.below(100)));
            leases.withhold(part, until);
            if let Some(at) = model.at(part) {
                let before = match model.parts[at] {
                    Part::Resting(None, before) => before,
                    _ => until,
                };
                model.parts[at] = Part::Resting(None, until.max(before));
            }
        }
        14 => {
            let part = any_part(model, rng);
            let at = model.at(part);
            assert_eq!(leases.restore(key, part, until), at.map(|_| part));
            if let Some(at) = at {
                model.parts[at] = Part::Leased(key, until);
            }
        }
        _ => {}
    }
}

/// A restart: all leases pass through records with wall-clock ends, and the wall clock has stepped back by `stepped` in
/// between. No lease may become shorter, however far the clock stepped back.
fn restart(now: Time, day: UnixTime, stepped: Span, model: &mut Model, leases: &mut Leases<u64>) {
    let to_day = |until: Time| day + Span(until.since(now).0.next_multiple_of(1_000));
    let records = leases.iter().map(|(part, key, until)| (part, *key, until.map(to_day)));
    let records: Vec<(Prefix, u64, Option<UnixTime>)> = records.collect();
    let mut again = model.leases();
    for (part, key, until) in records {
        let until = until.map(|until| now + until.since(day - stepped));
        let Some(Part::Leased(owner, before)) = model.at(part).map(|at| model.parts[at]) else {
            panic!("{part} is not leased");
        };
        assert!(owner == key && before.is_none_or(|before| until.unwrap() >= before));
        assert_eq!(again.restore(key, part, until), Some(part));
        let at = model.at(part).unwrap();
        model.parts[at] = Part::Leased(key, until);
    }
    // Records do not contain resting parts.
    for part in &mut model.parts {
        if let Part::Resting(..) = part {
            *part = Part::Free;
        }
    }
    (*leases, model.from) = (again, 0);
}

fn compare(now: Time, model: &mut Model, leases: &mut Leases<u64>) {
    let ended: Vec<(u64, Prefix)> = std::iter::from_fn(|| leases.ended(now)).collect();
    assert_eq!(ended, model.ended(now));
    let leased = |at: usize| match model.parts[at] {
        Part::Leased(key, until) => Some((model.name(at), key, until)),
        _ => None,
    };
    let expected: Vec<_> = (0..model.parts.len()).filter_map(leased).collect();
    let found: Vec<_> = leases.iter().map(|(part, key, until)| (part, *key, until)).collect();
    assert_eq!(found, expected);
    for (part, key, _) in &expected {
        assert_eq!(leases.whose(*part), Some(key));
    }
    let not_leased = (0..model.parts.len()).find(|at| leased(*at).is_none());
    assert_eq!(not_leased.and_then(|at| leases.whose(model.name(at))), None);
    for key in 0..KEYS {
        let of: Vec<Prefix> = model.of(key).into_iter().map(|at| model.name(at)).collect();
        assert_eq!(leases.of(&key).collect::<Vec<_>>(), of);
    }
    let end = expected.iter().filter_map(|(_, _, until)| *until).min();
    assert_eq!(leases.next_end(), end);
}

#[test]
fn leases_agree_with_a_plain_model_over_a_million_steps() {
    let mut full = 0_u64;
    for run in 0..RUNS {
        let mut rng = Rng::new(run);
        let pool = pool(&mut rng);
        let hold = Span(rng.below(3) * 60);
        let mut model = Model::new(pool, hold, rng.chance(0.3));
        let mut leases = model.leases();
        let (mut now, mut day) = (Time(0), UnixTime::from_secs(1_700_000_000));
        for _ in 0..STEPS {
            let passed = Span(if rng.chance(0.5) { 0 } else { rng.below(30) });
            now += passed;
            day = day + passed;
            compare(now, &mut model, &mut leases);
            full += u64::from(!model.parts.contains(&Part::Free));
            if rng.chance(0.002) {
                let stepped = Span(rng.below(2) * rng.below(2_000_000));
                restart(now, day, stepped, &mut model, &mut leases);
                day = day - stepped;
            } else {
                step(&mut rng, now, &mut model, &mut leases);
            }
        }
    }
    assert!(full > RUNS * STEPS / 20, "the pools were full in {full} steps only");
}
