//! Which entries stay in a cache?
//!
//! A cache with two queues, after S3-FIFO (Yang et al., "FIFO Queues Are All You Need for Cache Eviction", SOSP'23). A
//! new entry is *young*. When it reaches the end of its queue, it becomes *kept* if it was accessed meanwhile or is in
//! use; otherwise it is evicted. Kept entries are evicted if they were not accessed since the last check. The cache
//! remembers evicted young entries; if one is inserted again, it is kept at once.
//!
//! Young entries use all the space that kept ones do not need, until the cache is full. From then on, each young entry
//! evicted without an access reduces their share, down to a floor: a walk through a million files does not evict the
//! entries in use, and cycles through few slots, which stay in the processor's cache. Each entry inserted again soon
//! after its eviction increases the share.
//!
//! A hit only sets a mark, so readers share the lock around the cache. Left out on purpose: that lock, and the meaning
//! of "in use"; the owner defines both.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Candidates in use that one call checks, so that no insertion takes long if most are in use.
const LOOKS: usize = 4;
/// Keys in a set of evicted keys; a cache remembers about twice as many evicted keys as it holds entries.
const WAYS: usize = 8;
/// No slot.
const NONE: u32 = u32::MAX;

struct Slot<K, V> {
    key: K,
    /// `None`: the slot is free.
    value: Option<V>,
    asked_for: AtomicBool,
    kept: bool,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy)]
struct Queue {
    newest: u32,
    oldest: u32,
    len: usize,
}

const EMPTY: Queue = Queue { newest: NONE, oldest: NONE, len: 0 };

/// The cache. It exceeds its limit only if all checked candidates were in use.
pub struct Cache<K, V> {
    places: FxHashMap<K, u32>,
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    young: Queue,
    kept: Queue,
    most: usize,
    /// The share of young entries, and its minimum.
    share: usize,
    floor: usize,
    /// Evicted young entries, as parts of their hashes, in sets selected by another part, the last evicted first.
    gone: Vec<[u16; WAYS]>,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// A cache of `most` entries, of which at least `floor` may be young.
    pub fn new(most: usize, floor: usize) -> Self {
        let most = most.max(1);
        Cache {
            places: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            young: EMPTY,
            kept: EMPTY,
            most,
            share: most,
            floor: floor.clamp(1, most),
            gone: Vec::new(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let slot = &self.slots[*self.places.get(key)? as usize];
        if !slot.asked_for.load(Ordering::Relaxed) {
            slot.asked_for.store(true, Ordering::Relaxed);
        }
        slot.value.as_ref()
    }

    /// The value of a key, without counting as an access.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.slots[*self.places.get(key)? as usize].value.as_ref()
    }

    /// The same, mutable.
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.slots[*self.places.get(key)? as usize].value.as_mut()
    }

    /// All values, in arbitrary order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.iter().filter_map(|s| s.value.as_ref())
    }

    /// Inserts or replaces an entry; call [`Self::make_room`] next.
    pub fn insert(&mut self, key: K, value: V) {
        if let Some(&at) = self.places.get(&key) {
            self.slots[at as usize].value = Some(value);
            return;
        }
        let (set, part) = self.ghost(&key);
        let before = self.gone.get_mut(set).and_then(|parts| parts.iter_mut().find(|p| **p == part));
        let kept = before.is_some();
        if let Some(part) = before {
            *part = 0;
            self.share = (self.share + 1).min(self.most);
        }
        let slot = Slot { key, value: Some(value), asked_for: AtomicBool::new(false), kept, newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.places.insert(key, at);
        self.push(at);
    }

    /// Removes an entry, as if it had never existed.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.places.remove(key)?;
        self.unlink(at);
        self.free.push(at);
        self.slots[at as usize].value.take()
    }

    /// Evicts excess entries, unless several candidates are `in_use`. Drop the result after releasing the lock.
    pub fn make_room(&mut self, in_use: impl Fn(&V) -> bool) -> [Option<V>; LOOKS] {
        std::array::from_fn(|_| self.look(&in_use))
    }

    /// Searches an entry to evict, up to the first that is in use.
    fn look(&mut self, in_use: impl Fn(&V) -> bool) -> Option<V> {
        // Terminates: each step but the last clears a mark, and no thread sets one meanwhile.
        loop {
            let too_many_young = self.young.len > self.share;
            if !too_many_young && self.young.len + self.kept.len <= self.most {
                return None;
            }
            let at = if too_many_young || self.kept.len == 0 { self.young.oldest } else { self.kept.oldest };
            let slot = &mut self.slots[at as usize];
            let (key, was_kept) = (slot.key, slot.kept);
            let asked_for = std::mem::take(slot.asked_for.get_mut());
            let stays = asked_for || slot.value.as_ref().is_some_and(&in_use);
            if !was_kept {
                // Its slot goes to the kept entries or, if it was never accessed, becomes free.
                self.share = (self.share - 1).max(self.floor);
            }
            if stays {
                self.unlink(at);
                self.slots[at as usize].kept = true;
                self.push(at);
                if asked_for {
                    continue;
                }
                return None;
            }
            if !was_kept {
                if self.gone.is_empty() {
                    self.gone.resize((self.most * 2 / WAYS).next_power_of_two(), [0; WAYS]);
                }
                let (set, part) = self.ghost(&key);
                self.gone[set].rotate_right(1);
                self.gone[set][0] = part;
            }
            return self.remove(&key);
        }
    }

    /// The set and the fingerprint of an evicted key: about one pair of keys in 32,768 has the same ones, which costs a
    /// slot.
    fn ghost(&self, key: &K) -> (usize, u16) {
        let hash = FxBuildHasher.hash_one(key);
        (hash as usize & (self.gone.len().max(1) - 1), (hash >> 32) as u16 | 1)
    }

    fn queue(&mut self, kept: bool) -> &mut Queue {
        if kept { &mut self.kept } else { &mut self.young }
    }

    /// Makes a slot the newest of its queue.
    fn push(&mut self, at: u32) {
        let kept = self.slots[at as usize].kept;
        let queue = self.queue(kept);
        let before = std::mem::replace(&mut queue.newest, at);
        queue.len += 1;
        if before == NONE {
            queue.oldest = at;
        } else {
            self.slots[before as usize].newer = at;
        }
        let slot = &mut self.slots[at as usize];
        (slot.newer, slot.older) = (NONE, before);
    }

    /// Removes a slot from its queue.
    fn unlink(&mut self, at: u32) {
        let Slot { kept, newer, older, .. } = self.slots[at as usize];
        if newer != NONE {
            self.slots[newer as usize].older = older;
        }
        if older != NONE {
            self.slots[older as usize].newer = newer;
        }
        let queue = self.queue(kept);
        queue.len -= 1;
        if newer == NONE {
            queue.newest = older;
        }
        if older == NONE {
            queue.oldest = newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a key up, and inserts it if missing; true if it was present.
    fn ask(cache: &mut Cache<u32, u32>, key: u32) -> bool {
        if cache.get(&key).is_some() {
            return true;
        }
        cache.insert(key, key);
        _ = cache.make_room(|_| false);
        false
    }

    #[test]
    fn as_many_as_fit_stay() {
        let mut cache = Cache::new(64, 8);
        (0..64).for_each(|k| assert!(!ask(&mut cache, k)));
        (0..640).for_each(|k| assert!(ask(&mut cache, k % 64), "{k}"));
    }

    #[test]
    fn what_was_asked_for_twice_outlives_a_walk_through_thousands() {
        let mut cache = Cache::new(64, 8);
        for k in 0..32 {
            ask(&mut cache, k);
            assert!(ask(&mut cache, k));
        }
        (1000..9000).for_each(|k| assert!(!ask(&mut cache, k)));
        assert_eq!((0..32).filter(|k| ask(&mut cache, *k)).count(), 32);
        assert!(cache.values().count() <= 64);
    }

    #[test]
    fn a_walk_leaves_no_more_than_the_floor_and_one_that_comes_again_is_kept() {
        let mut cache = Cache::new(64, 8);
        (1000..9000).for_each(|k| assert!(!ask(&mut cache, k)));
        assert_eq!(cache.values().count(), 8);
        // A cycle longer than the young queue: most miss again, then all are kept.
        (0..60).for_each(|k| assert!(!ask(&mut cache, k)));
        assert_eq!((0..60).filter(|k| ask(&mut cache, *k)).count(), 8);
        (0..600).for_each(|k| assert!(ask(&mut cache, k % 60), "{k}"));
    }

    #[test]
    fn what_is_in_use_stays_and_what_is_taken_out_leaves_no_trace() {
        let mut cache = Cache::new(16, 2);
        for k in 0..400_u32 {
            cache.insert(k, k);
            _ = cache.make_room(|v| *v < 10);
        }
        (0..10).for_each(|k| assert_eq!(cache.get(&k), Some(&k)));
        let all: Vec<u32> = cache.values().copied().collect();
        all.iter().for_each(|k| assert_eq!(cache.remove(k), Some(*k)));
        assert_eq!((cache.young.len, cache.kept.len, cache.values().count()), (0, 0, 0));
        assert_eq!((cache.young.oldest, cache.kept.newest), (NONE, NONE));
        (0..16).for_each(|k| assert!(!ask(&mut cache, k)));
    }

    #[test]
    fn after_any_sequence_queues_and_places_agree() {
        let mut cache: Cache<u32, u32> = Cache::new(20, 3);
        let mut rng = device::Rng::new(7);
        for _ in 0..20_000 {
            let k = rng.below(60) as u32;
            match rng.below(5) {
                0 => _ = cache.remove(&k),
                1 => assert!(cache.get(&k).is_none_or(|v| *v == k)),
                _ => _ = ask(&mut cache, k),
            }
            let mut seen = 0;
            for (queue, kept) in [(cache.young, false), (cache.kept, true)] {
                let (mut at, mut len) = (queue.oldest, 0);
                while at != NONE {
                    let slot = &cache.slots[at as usize];
                    assert_eq!((slot.kept, cache.places[&slot.key]), (kept, at));
                    (at, len) = (slot.newer, len + 1);
                }
                assert_eq!(len, queue.len);
                seen += len;
            }
            assert_eq!(seen, cache.places.len());
            assert!(seen <= 20, "{seen}");
        }
    }
}
