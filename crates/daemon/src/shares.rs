//! Bounds the probes that the daemon takes per path and, on an anchor, per host. Additional paths cost a host nothing,
//! so sixteen of them must not get it sixteen times the daemon's time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use segue_clock::Time;

/// Most probes of one path in a [`WINDOW`]: twice as many as the shortest request period, 5 ms,
/// produces.
pub const PATH: u32 = 40;
/// Most probes of one host in a [`WINDOW`]: as many as sixteen paths produce at 10 ms, or eight at 5 ms.
pub const HOST: u32 = 160;
/// Length of a window in nanoseconds.
const WINDOW: u64 = 100_000_000;
/// Host number of a path without an owner.
const NOBODY: u32 = u32::MAX;

/// Counts of taken probes, shared with the threads that carry packets.
struct Counts {
    paths: Vec<AtomicU64>,
    /// By slot: the number of its host in `hosts`.
    host_of: Vec<AtomicU32>,
    /// By host number.
    hosts: Vec<AtomicU64>,
}

/// The shares of all paths, and of the hosts that own them.
pub struct Shares {
    taken: Arc<Counts>,
    /// By owner: its host number, and its number of paths.
    owners: BTreeMap<u32, (u32, u32)>,
    /// By slot.
    owner_of: BTreeMap<u32, u32>,
    /// Released host numbers.
    free: Vec<u32>,
}

impl Shares {
    /// Shares for this many slots, and a function that counts a slot's probe and returns whether it is within the
    /// shares. Until a path is [given to an owner](Shares::give), only the path's own share applies.
    pub fn new(max_paths: u32) -> (Shares, impl Fn(u32, Time) -> bool + Send + Sync + use<>) {
        let counts = || (0..max_paths).map(|_| AtomicU64::new(0)).collect();
        let host_of = (0..max_paths).map(|_| AtomicU32::new(NOBODY)).collect();
        let taken = Arc::new(Counts { paths: counts(), host_of, hosts: counts() });
        let theirs = Arc::clone(&taken);
        let (owners, owner_of, free) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let within = move |slot, at| theirs.take(slot, at).unwrap_or(false);
        (Shares { taken, owners, owner_of, free }, within)
    }

    /// Assigns the path in a slot to this owner.
    pub fn give(&mut self, slot: u32, owner: u32) {
        if self.owner_of.get(&slot) == Some(&owner) {
            return;
        }
        self.take_back(slot);
        let Some(host_of) = self.taken.host_of.get(slot as usize) else { return };
        let fresh = self.owners.len() as u32;
        let free = &mut self.free;
        // Each owner has a path, so there are no more owners than slots.
        let (number, paths) =
            self.owners.entry(owner).or_insert_with(|| (free.pop().unwrap_or(fresh), 0));
        *paths += 1;
        host_of.store(*number, Ordering::Relaxed);
        self.owner_of.insert(slot, owner);
    }

    /// Releases a slot whose path was removed.
    pub fn take_back(&mut self, slot: u32) {
        let Some(owner) = self.owner_of.remove(&slot) else { return };
        if let Some(host_of) = self.taken.host_of.get(slot as usize) {
            host_of.store(NOBODY, Ordering::Relaxed);
        }
        let Some((number, paths)) = self.owners.get_mut(&owner) else { return };
        *paths -= 1;
        if *paths == 0 {
            self.free.push(*number);
            self.owners.remove(&owner);
        }
    }
}

impl Counts {
    /// Returns whether one more probe is within the shares of its path and its host; `None` if there is no such slot.
    fn take(&self, slot: u32, at: Time) -> Option<bool> {
        let path = self.paths.get(slot as usize)?;
        let host = self.host_of.get(slot as usize)?.load(Ordering::Relaxed);
        let of_host = || self.hosts.get(host as usize).is_none_or(|host| within(host, at, HOST));
        Some(within(path, at, PATH) && of_host())
    }
}

/// Counts an event: the upper half of the word is the window, the lower half the events in it.
fn within(count: &AtomicU64, at: Time, share: u32) -> bool {
    let window = (at.0 / WINDOW) << 32;
    let next = |word: u64| if word >> 32 << 32 == window { word + 1 } else { window | 1 };
    let (Ok(before) | Err(before)) =
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(next(word)));
    next(before) as u32 <= share
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of probes of a flood over these slots that are taken within a window.
    fn flood(within: &impl Fn(u32, Time) -> bool, slots: std::ops::Range<u32>, at_ms: u64) -> u32 {
        let n = slots.len();
        let each = slots.cycle().take(10_000 * n);
        each.filter(|slot| within(*slot, Time(at_ms * 1_000_000))).count() as u32
    }

    #[test]
    fn a_host_gets_its_share_and_no_more_however_many_paths_it_has() {
        let (mut shares, within) = Shares::new(64);
        (0..16).for_each(|slot| shares.give(slot, 7));
        (16..18).for_each(|slot| shares.give(slot, 8));
        assert_eq!(flood(&within, 0..16, 50), HOST);
        assert_eq!(flood(&within, 16..18, 50), 2 * PATH, "the other host has its own");
        assert_eq!(flood(&within, 0..16, 150), HOST, "the next window brings a new share");
        assert_eq!(flood(&within, 30..32, 150), 2 * PATH, "nobody's paths have their own alone");
        assert!(!within(64, Time(0)), "there is no such path");
    }

    #[test]
    fn owners_that_come_and_go_share_with_nobody() {
        let (mut shares, within) = Shares::new(32);
        for owner in 0..1_000 {
            let slots = owner % 2 * 16..owner % 2 * 16 + 16;
            slots.clone().for_each(|slot| shares.give(slot, owner));
            // A changed path is set again.
            slots.for_each(|slot| shares.give(slot, owner));
        }
        assert_eq!((shares.owners.len(), shares.owner_of.len()), (2, 32));
        assert_eq!((flood(&within, 0..16, 50), flood(&within, 16..32, 50)), (HOST, HOST));
        (0..32).for_each(|slot| shares.take_back(slot));
        assert!(shares.owners.is_empty() && shares.free.len() <= 3, "{:?}", shares.free);
    }
}
