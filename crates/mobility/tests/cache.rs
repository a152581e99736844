//! Compares the binding cache with a simple model: an unsorted list.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use segue_clock::{Rng, Span, Time, UnixTime};
use segue_mobility::{
    Binding, BindingCache, Entered, Full, OutOfWindow, SequenceOrder, TimestampOrder, Untimely,
};

const RUNS: u64 = 500;
const STEPS: u64 = 2_000;
const KEYS: u64 = 40;
/// Peers are products of two numbers below 4.
const PEERS: u8 = 10;

/// Contents of a binding: its last sequence number and timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Last {
    sequence: SequenceOrder,
    timestamp: TimestampOrder,
}

type Cache = BindingCache<u64, u8, Last>;
type Entry = Binding<u8, Last>;

struct Model {
    capacity: usize,
    /// Unsorted.
    bindings: Vec<(u64, Entry)>,
}

impl Model {
    fn count(&self, peer: u8) -> usize {
        self.bindings.iter().filter(|(_, binding)| binding.peer == peer).count()
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let at = self.bindings.iter().position(|(own, _)| *own == key)?;
        Some(self.bindings.swap_remove(at).1)
    }

    fn enter(&mut self, key: u64, binding: Entry) -> Result<Entered<u64, u8, Last>, Full> {
        let before = if let Some(former) = self.remove(key) {
            Entered::Replaced(former)
        } else if self.bindings.len() < self.capacity {
            Entered::New
        } else {
            let largest = (0..PEERS).max_by_key(|peer| self.count(*peer)).unwrap();
            if self.count(largest) < self.count(binding.peer) + 2 {
                return Err(Full);
            }
            let own = self.bindings.iter().filter(|(_, binding)| binding.peer == largest);
            let (_, victim) = own.map(|(key, binding)| (binding.until, *key)).min().unwrap();
            Entered::Displaced(victim, self.remove(victim).unwrap())
        };
        self.bindings.push((key, binding));
        Ok(before)
    }

    fn ended(&mut self, now: Time) -> Option<(u64, Entry)> {
        let ends = self.bindings.iter().map(|(key, binding)| (binding.until, *key));
        let (_, key) = ends.filter(|(until, _)| *until <= now).min()?;
        Some((key, self.remove(key).unwrap()))
    }
}

/// Newer if `received` is 1 to 32 767 ahead of `last`, modulo 2¹⁶.
fn is_newer(received: u16, last: u16) -> bool {
    (1..0x8000).contains(&((u32::from(received) + 0x1_0000 - u32::from(last)) % 0x1_0000))
}

/// Draws a sequence number, and returns true and records it if it is accepted.
fn is_numbered_later(rng: &mut Rng, order: &mut SequenceOrder) -> bool {
    // Often near the last number, on either side of the wrap.
    let number = match order.last() {
        Some(last) if rng.chance(0.8) => last.wrapping_add(rng.below(5) as u16).wrapping_sub(1),
        _ => rng.next_u64() as u16,
    };
    let refused = order.last().filter(|last| !is_newer(number, *last));
    assert_eq!(order.check(number).err(), refused.map(|last| OutOfWindow { last }));
    if refused.is_none() {
        order.accept(number);
    }
    refused.is_none()
}

/// The same for a timestamp, at this time of day.
fn is_stamped_later(rng: &mut Rng, day: UnixTime, order: &mut TimestampOrder) -> bool {
    let window = 300_000;
    let received = UnixTime(day.0 + rng.below(2 * window + 20_000) - window - 10_000);
    let expected = match order.last() {
        _ if received.0.abs_diff(day.0) > window => Err(Untimely::Mismatch { own: day }),
        // A timestamp from before the clock stepped back is ignored.
        Some(last) if last.0 <= day.0 + window && last >= received => {
            Err(Untimely::NotLater { last })
        }
        _ => Ok(()),
    };
    assert_eq!(order.check(received, day, Span::from_micros(window)), expected);
    if expected.is_ok() {
        order.accept(received);
    }
    expected.is_ok()
}

/// One random operation: a registration, a renewal, a removal or a change of contents.
fn step(rng: &mut Rng, (now, day): (Time, UnixTime), model: &mut Model, cache: &mut Cache) {
    let key = rng.below(KEYS);
    // Some peers request many more bindings than others.
    let peer = (rng.below(4) * rng.below(4)) as u8;
    let until = now + Span::from_millis(1 + rng.below(300));
    match rng.below(10) {
        0..6 => {
            let mut value = cache.get(&key).map_or(Last::default(), |binding| binding.value);
            let accepted = match rng.chance(0.5) {
                true => is_stamped_later(rng, day, &mut value.timestamp),
                false => is_numbered_later(rng, &mut value.sequence),
            };
            if accepted {
                let binding = Binding { peer, until, value };
                assert_eq!(cache.enter(key, binding), model.enter(key, binding), "{key} of {peer}");
            }
        }
        6 => {
            let renewed = model.bindings.iter_mut().find(|(own, _)| *own == key);
            assert_eq!(cache.renew(&key, until), renewed.is_some());
            renewed.into_iter().for_each(|(_, binding)| binding.until = until);
        }
        7 => assert_eq!(cache.remove(&key), model.remove(key)),
        8 => {
            let number = rng.below(9) as u16;
            let value = cache.value_mut(&key).map(|value| value.sequence.accept(number));
            let own = model.bindings.iter_mut().find(|(own, _)| *own == key);
            assert_eq!(value, own.map(|(_, binding)| binding.value.sequence.accept(number)));
        }
        _ => {}
    }
}

fn compare(now: Time, model: &mut Model, cache: &mut Cache) {
    loop {
        let ended = cache.ended(now);
        assert_eq!(ended, model.ended(now));
        if ended.is_none() {
            break;
        }
    }
    model.bindings.sort_by_key(|(key, _)| *key);
    let found: Vec<(u64, Entry)> = cache.iter().map(|(key, binding)| (*key, *binding)).collect();
    assert_eq!(found, model.bindings);
    assert!(found.len() <= model.capacity && cache.len() == found.len());
    let some = cache.range(10..20).map(|(key, _)| *key);
    assert!(
        some.eq(model.bindings.iter().map(|(key, _)| *key).filter(|key| (10..20).contains(key)))
    );
    assert_eq!(cache.next_end(), model.bindings.iter().map(|(_, binding)| binding.until).min());
    let mut peers = Vec::new();
    for peer in 0..PEERS {
        let of: Vec<u64> = cache.of(&peer).map(|(key, _)| *key).collect();
        let own = model.bindings.iter().filter(|(_, binding)| binding.peer == peer);
        let mut expected: Vec<(Time, u64)> = own.map(|(key, own)| (own.until, *key)).collect();
        expected.sort_unstable();
        assert_eq!(of, expected.iter().map(|(_, key)| *key).collect::<Vec<_>>());
        if !of.is_empty() {
            peers.push((peer, of.len()));
        }
    }
    assert_eq!(cache.peers().map(|(peer, size)| (*peer, size)).collect::<Vec<_>>(), peers);
}

#[test]
fn the_cache_agrees_with_a_plain_model_over_a_million_steps() {
    let (mut full, mut stepped) = (0_u64, 0_u64);
    for run in 0..RUNS {
        let mut rng = Rng::new(run);
        let capacity = 1 + rng.below(30) as usize;
        let mut model = Model { capacity, bindings: Vec::new() };
        let mut cache = Cache::new(capacity);
        let (mut now, mut day) = (Time(0), UnixTime::from_secs(1_700_000_000));
        for _ in 0..STEPS {
            let passed = Span::from_millis(if rng.chance(0.5) { 0 } else { rng.below(20) });
            (now, day) = (now + passed, day + passed);
            if rng.chance(0.02) {
                day = day - Span::from_millis(rng.below(1_000));
                stepped += 1;
            }
            compare(now, &mut model, &mut cache);
            full += u64::from(cache.len() == capacity);
            step(&mut rng, (now, day), &mut model, &mut cache);
        }
    }
    assert!(full > RUNS * STEPS / 10, "the cache was full in {full} steps only");
    assert!(stepped > RUNS, "the clock stepped back {stepped} times only");
}
