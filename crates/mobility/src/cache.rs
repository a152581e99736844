//! A bounded binding cache with fair shares for peers.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::RangeBounds;

use segue_clock::Time;

/// Bindings by key (a home address, a session of a mobile node). Each is entered by a peer (an access router, a host)
/// and valid until its lifetime ends.
///
/// **Shares.** While there is room, a peer may have any number of bindings. When the cache is full, a new binding
/// displaces one of the peer that has most, if that peer has at least two more than the requesting one; otherwise the
/// new binding is refused. Peers that compete for a full cache therefore end up with equal shares, a peer below its
/// share always finds room, and no peer loses a binding to one that has as many. The displaced binding is the one that
/// would end first. A binding that moves from peer to peer, as at a handover, needs no additional room and is never
/// refused.
///
/// All iteration is in a defined order, and the cost of each call grows with the logarithm of the number of bindings.
#[derive(Clone, Debug)]
pub struct BindingCache<K, P, V> {
    capacity: usize,
    bindings: BTreeMap<K, Binding<P, V>>,
    ends: BTreeSet<(Time, K)>,
    /// Bindings of each peer, by end. No set is empty.
    peers: BTreeMap<P, BTreeSet<(Time, K)>>,
    /// Number of bindings of each peer.
    sizes: BTreeSet<(usize, P)>,
}

/// A binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<P, V> {
    /// The peer that entered it last.
    pub peer: P,
    /// End of its lifetime.
    pub until: Time,
    /// Its contents.
    pub value: V,
}

/// Result of entering a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered<K, P, V> {
    /// Added as a new binding.
    New,
    /// Replaced this binding of the same key.
    Replaced(Binding<P, V>),
    /// Displaced this binding of a peer above its share.
    Displaced(K, Binding<P, V>),
}

/// The cache is full, and no other peer has at least two bindings more than the requesting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<K: Ord + Clone, P: Ord + Clone, V> BindingCache<K, P, V> {
    /// Creates an empty cache for at most `capacity` bindings.
    #[must_use]
    pub fn new(capacity: usize) -> BindingCache<K, P, V> {
        BindingCache {
            capacity,
            bindings: BTreeMap::new(),
            ends: BTreeSet::new(),
            peers: BTreeMap::new(),
            sizes: BTreeSet::new(),
        }
    }

    /// Number of bindings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Returns true if there are no bindings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// The binding of a key, even an expired one that [`ended`](BindingCache::ended) has not removed yet.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&Binding<P, V>> {
        self.bindings.get(key)
    }

    /// The contents of a key's binding.
    pub fn value_mut(&mut self, key: &K) -> Option<&mut V> {
        self.bindings.get_mut(key).map(|binding| &mut binding.value)
    }

    /// Enters a binding, in place of an existing one of the same key.
    ///
    /// # Errors
    /// [`Full`], and the cache is unchanged.
    pub fn enter(&mut self, key: K, binding: Binding<P, V>) -> Result<Entered<K, P, V>, Full> {
        let before = match self.remove(&key) {
            Some(former) => Entered::Replaced(former),
            None if self.len() < self.capacity => Entered::New,
            None => {
                let victim = self.above_the_share_of(&binding.peer).ok_or(Full)?;
                let displaced = self.remove(&victim).ok_or(Full)?;
                Entered::Displaced(victim, displaced)
            }
        };
        self.link(&key, &binding.peer, binding.until);
        self.bindings.insert(key, binding);
        Ok(before)
    }

    /// Changes the end of a binding. Returns false if the key has none.
    pub fn renew(&mut self, key: &K, until: Time) -> bool {
        let Some(mut binding) = self.remove(key) else { return false };
        binding.until = until;
        self.link(key, &binding.peer, until);
        self.bindings.insert(key.clone(), binding);
        true
    }

    /// Removes a binding.
    pub fn remove(&mut self, key: &K) -> Option<Binding<P, V>> {
        let binding = self.bindings.remove(key)?;
        self.unlink(key, &binding.peer, binding.until);
        Some(binding)
    }

    /// Removes and returns the next binding that has expired at `now`, ordered by end and then by key.
    pub fn ended(&mut self, now: Time) -> Option<(K, Binding<P, V>)> {
        let (end, key) = self.ends.first()?;
        if *end > now {
            return None;
        }
        let key = key.clone();
        let binding = self.remove(&key)?;
        Some((key, binding))
    }

    /// When the next binding expires.
    #[must_use]
    pub fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// All bindings, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Binding<P, V>)> {
        self.bindings.iter()
    }

    /// The bindings in a range of keys, such as all sessions of one mobile node.
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &Binding<P, V>)> {
        self.bindings.range(keys)
    }

    /// The bindings of a peer, ordered by end.
    pub fn of(&self, peer: &P) -> impl Iterator<Item = (&K, &Binding<P, V>)> {
        let own = self.peers.get(peer).into_iter().flatten();
        own.filter_map(|(_, key)| self.bindings.get_key_value(key))
    }

    /// All peers with their number of bindings.
    pub fn peers(&self) -> impl Iterator<Item = (&P, usize)> {
        self.peers.iter().map(|(peer, own)| (peer, own.len()))
    }

    /// The binding that this peer may displace from a full cache.
    fn above_the_share_of(&self, peer: &P) -> Option<K> {
        let own = self.peers.get(peer).map_or(0, BTreeSet::len);
        let (most, largest) = self.sizes.last()?;
        let (_, first) = self.peers.get(largest)?.first()?;
        (*most >= own + 2).then(|| first.clone())
    }

    fn link(&mut self, key: &K, peer: &P, until: Time) {
        self.ends.insert((until, key.clone()));
        let own = self.peers.entry(peer.clone()).or_default();
        self.sizes.remove(&(own.len(), peer.clone()));
        own.insert((until, key.clone()));
        self.sizes.insert((own.len(), peer.clone()));
    }

    fn unlink(&mut self, key: &K, peer: &P, until: Time) {
        let end = (until, key.clone());
        self.ends.remove(&end);
        let Some(own) = self.peers.get_mut(peer) else { return };
        self.sizes.remove(&(own.len(), peer.clone()));
        own.remove(&end);
        if own.is_empty() {
            self.peers.remove(peer);
        } else {
            self.sizes.insert((own.len(), peer.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::cell::Cell;
    use core::cmp::Ordering;

    use super::*;

    fn binding(peer: char, until: u64) -> Binding<char, ()> {
        Binding { peer, until: Time(until), value: () }
    }

    /// Number of bindings of each peer.
    fn sizes(cache: &BindingCache<u32, char, ()>) -> Vec<(char, usize)> {
        cache.peers().map(|(peer, size)| (*peer, size)).collect()
    }

    #[test]
    fn in_a_full_cache_peers_end_up_with_equal_shares_and_the_longest_lived_bindings_stay() {
        let mut cache = BindingCache::new(12);
        for key in 0..12 {
            assert_eq!(cache.enter(key, binding('a', 100 - u64::from(key))), Ok(Entered::New));
        }
        assert_eq!(
            cache.enter(99, binding('a', 500)),
            Err(Full),
            "a peer displaces none of its own"
        );
        for (nth, key) in (20..26).enumerate() {
            let displaced = cache.enter(key, binding('b', 1));
            let until = 89 + nth as u64;
            let first = Entered::Displaced(11 - nth as u32, binding('a', until));
            assert_eq!(displaced, Ok(first));
        }
        assert_eq!(sizes(&cache), [('a', 6), ('b', 6)]);
        assert_eq!(cache.enter(99, binding('a', 500)), Err(Full));
        assert_eq!(cache.enter(99, binding('b', 500)), Err(Full));
        let taken = (30..99).filter(|key| cache.enter(*key, binding('c', 5)).is_ok()).count();
        assert_eq!((taken, sizes(&cache)), (4, [('a', 4), ('b', 4), ('c', 4)].into()));
    }

    #[test]
    fn a_peer_with_a_single_binding_more_loses_it_to_nobody() {
        let mut cache = BindingCache::new(3);
        for (key, peer) in [(1, 'a'), (2, 'a'), (3, 'b')] {
            cache.enter(key, binding(peer, 9)).unwrap();
        }
        assert_eq!(cache.enter(4, binding('b', 9)), Err(Full));
        assert_eq!(cache.enter(4, binding('c', 9)), Ok(Entered::Displaced(1, binding('a', 9))));
        assert_eq!(cache.enter(5, binding('d', 9)), Err(Full), "each peer has one");
    }

    #[test]
    fn a_handover_and_a_refresh_need_no_place() {
        let mut cache = BindingCache::new(2);
        for (key, peer) in [(1, 'a'), (2, 'b')] {
            cache.enter(key, binding(peer, 9)).unwrap();
        }
        let moved = cache.enter(1, binding('b', 20));
        assert_eq!(moved, Ok(Entered::Replaced(binding('a', 9))));
        assert_eq!(sizes(&cache), [('b', 2)]);
        assert!(cache.renew(&2, Time(30)) && !cache.renew(&7, Time(30)));
        assert_eq!((cache.ended(Time(9)), cache.next_end()), (None, Some(Time(20))));
        assert_eq!(cache.ended(Time(30)), Some((1, binding('b', 20))));
        assert_eq!(cache.ended(Time(30)), Some((2, binding('b', 30))));
        assert_eq!(
            (cache.ended(Time(30)), cache.is_empty(), sizes(&cache)),
            (None, true, [].into())
        );
    }

    #[test]
    fn a_cache_without_room_for_any_refuses_all() {
        let mut cache = BindingCache::new(0);
        assert_eq!(cache.enter(1, binding('a', 9)), Err(Full));
        assert!(cache.is_empty());
    }

    /// A key that counts its comparisons.
    #[derive(Clone, Debug)]
    struct Counted<'a>(u64, &'a Cell<u64>);

    impl Ord for Counted<'_> {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted<'_> {}

    /// Maximum number of comparisons in one call, in a full cache of this size whose three peers displace each other.
    fn most_comparisons(capacity: u64) -> u64 {
        let compared = Cell::new(0);
        let mut cache = BindingCache::new(capacity as usize);
        let enter = |cache: &mut BindingCache<_, _, _>, n: u64, peer| {
            let before = compared.get();
            // All ends are equal, so that ordering by end also compares keys.
            let _ = cache.enter(Counted(n * 7_919 % 1_000_003, &compared), binding(peer, 1));
            compared.get() - before
        };
        for n in 0..capacity {
            enter(&mut cache, n, 'a');
        }
        let more = (capacity..3 * capacity).map(|n| {
            let entered = enter(&mut cache, n, if n % 2 == 0 { 'b' } else { 'c' });
            let before = compared.get();
            cache.renew(&Counted(n * 7_919 % 1_000_003, &compared), Time(1));
            entered.max(compared.get() - before)
        });
        more.max().unwrap()
    }

    #[test]
    fn the_cost_of_a_call_grows_with_the_logarithm_of_the_size() {
        let [small, large] = [300, 30_000].map(most_comparisons);
        assert!(large < 3 * small && large < 500, "{small} comparisons, then {large}");
    }
}
