//! The buffer pool that all tables of a database share.
//!
//! Owns the choice of values that stay in memory, and the count of their bytes. How the pool works:
//!
//! 1. The policy is `quick_cache`'s (Clock-PRO, close to S3-FIFO). A value enters cold and becomes hot with its second
//!    request, so a scan that reads every page once does not push out the pages that lookups live on.
//! 2. An entry weighs the bytes that the caller's function gives, plus [`ENTRY_OVERHEAD_BYTES`], plus the size of key
//!    and value for the table that holds the entry.
//! 3. The pool is split into shards, each with its own lock and an equal share of the capacity. A shard has at least
//!    [`SHARD_BYTES_MIN`], unless there is only one.
//!
//! 4. Large values that are read once can be kept out. [`Cache::admits`] accepts every value while there is room. Then
//!    it accepts only keys that were asked for not long ago, which it remembers by a fingerprint (the doorkeeper of
//!    TinyLFU, Einziger, Friedman and Manes, ACM TOS 13(4), 2017, section 3.4.2). Without the doorkeeper, leaves that
//!    are read once would push out internal nodes wherever the pool holds few leaves.
//!
//! 5. A cache can have a [`Front`]. Lookups find earlier results there, without locks and without writing to shared
//!    memory. A value that the policy returns for a key is lifted into the front. The policy reports its evictions to
//!    the front, and the front reports from time to time which keys were asked for.
//!
//! 6. A cache can be lent memory for a while ([`Cache::lend`]): a secondary cache of bytes as they were read. Bytes of
//!    a value that the policy does not admit can be put there, and are checked anew when they are found.
//!
//! Invariants:
//!
//! - At any moment, (weight of all entries) + (memory that a front may take) ≤ capacity.
//! - Memory of a secondary cache ≤ memory lent.
//! - An entry that is heavier than a shard's hot share is not kept, and an older value under its key goes.
//! - A value in the front is also in the policy, except while a thread puts the value in or takes it out.
//!
//! Left to others: the meaning of a key, whether a value is still true (the thread that changes a value removes or
//! replaces its entry), and reading missing values.

mod front;
mod part;
mod secondary;

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use foldhash::quality::RandomState;
use quick_cache::sync::Cache as Policy;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;
use tally::Tally;

use crate::secondary::Secondary;

pub use front::{Beside, Front, Held, Words};
pub use part::Part;

/// Bytes of an entry beside its key and value: hash slot, links, and its share of remembered evicted keys.
pub const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// The least capacity of a shard where there are several: 64 of the largest leaves.
pub const SHARD_BYTES_MIN: u64 = 4 << 20;

/// Most shards: beyond this number threads no longer wait for the locks.
const SHARDS_MAX: u64 = 64;

/// The expected weight of most entries: one page. This value only sizes the memory of evicted keys.
const ENTRY_BYTES_EXPECTED: u64 = 4096;

/// Most keys that are remembered without their values: 2 bytes each.
const DOORKEEPER_MAX: usize = 1 << 22;

/// A value above one such part of a shard is large. If a large value finds no room, there may still be much room for
/// smaller ones.
const LARGE_PART: u64 = 16;

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found their key, since the cache was made.
    pub hits: u64,
    /// Lookups that did not find their key.
    pub misses: u64,
    /// Entries held.
    pub entries: u64,
    /// Weight of the entries held, in bytes.
    pub bytes: u64,
    /// Most bytes that the cache will hold.
    pub capacity_bytes: u64,
    /// Misses whose bytes the secondary cache had.
    pub secondary_hits: u64,
    /// Memory that the secondary cache takes.
    pub secondary_bytes: u64,
}

/// Index of each counter of a cache.
const HITS: usize = 0;
const MISSES: usize = 1;
const SECONDARY_HITS: usize = 2;

/// A bounded map that evicts the entries that are least likely to be asked for again. All methods may be called from
/// any thread.
pub struct Cache<K, V, F = ()> {
    policy: Policy<K, V, Weight<K, V>, RandomState, Leaving<F>>,
    front: Arc<F>,
    capacity_bytes: AtomicU64,
    /// The part of the capacity that does not belong to the front.
    weight_bytes: AtomicU64,
    doorkeeper: Doorkeeper,
    lookups: Tally<3>,
    secondary: Option<Secondary<K>>,
    weigh: fn(&K, &V) -> u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    /// A cache of at most `capacity_bytes`. `weigh` gives the bytes that an entry owns on the heap, and has to give the
    /// same answer as long as the entry is in the cache. With a capacity of 0 nothing is kept.
    #[must_use]
    pub fn new(capacity_bytes: u64, weigh: fn(&K, &V) -> u64) -> Self {
        Self::with_front(capacity_bytes, weigh, ())
    }
}

/// Slots of a front for a cache of so many bytes: two for each page, so that few sets are full.
#[must_use]
pub const fn front_slots(capacity_bytes: u64) -> u64 {
    2 * (capacity_bytes / ENTRY_BYTES_EXPECTED)
}

impl<K: Eq + Hash + Clone, V: Clone, F: Beside<K>> Cache<K, V, F> {
    /// As [`Cache::new`], with a front, whose memory is part of the capacity.
    #[must_use]
    pub fn with_front(capacity_bytes: u64, weigh: fn(&K, &V) -> u64, front: F) -> Self {
        let front = Arc::new(front);
        let shards = shards_for(capacity_bytes);
        let weight = weight_of(capacity_bytes, &*front, shards);
        let entries = (weight / ENTRY_BYTES_EXPECTED).max(1);
        let options = OptionsBuilder::new()
            .shards(usize::try_from(shards).unwrap_or(1))
            .estimated_items_capacity(usize::try_from(entries).unwrap_or(usize::MAX))
            .weight_capacity(weight)
            .build()
            .expect("capacity and estimate are set");
        let leaving = Leaving(Arc::clone(&front));
        let policy = Policy::with_options(options, Weight(weigh), RandomState::default(), leaving);
        let (capacity_bytes, weight_bytes) = (AtomicU64::new(capacity_bytes), AtomicU64::new(weight));
        Self {
            policy,
            front,
            capacity_bytes,
            weight_bytes,
            doorkeeper: Doorkeeper::new(entries),
            lookups: Tally::new(),
            secondary: None,
            weigh,
        }
    }

    /// Allows loans of up to `most_bytes`.
    #[must_use]
    pub fn with_loans_of(mut self, most_bytes: u64) -> Self {
        self.secondary = Some(Secondary::new(most_bytes));
        self
    }

    /// Lends `bytes` for a secondary cache, in place of the previous loan. If the new loan is smaller, the difference
    /// is given back before this returns.
    pub fn lend(&self, bytes: u64) {
        if let Some(secondary) = &self.secondary {
            secondary.set_capacity(bytes);
        }
    }

    /// Copies bytes that were read for `key` to the secondary cache, if any memory is lent. Only short values are kept.
    pub fn put_read(&self, key: &K, bytes: &[u8]) {
        if let Some(secondary) = &self.secondary {
            secondary.put(key, bytes);
        }
    }

    /// The value that `make` builds of the secondary cache's bytes for `key`. If `make` returns none, because the bytes
    /// are not the ones that it needs, they are forgotten. The value enters the cache like one that was read, if its
    /// key is admitted. A lock is held during `make`.
    pub fn found_read(&self, key: &K, make: impl FnOnce(&[u8]) -> Option<V>) -> Option<V> {
        let secondary = self.secondary.as_ref()?;
        let Some(value) = secondary.look(key, make)? else {
            secondary.forget(key);
            return None;
        };
        self.lookups.add(SECONDARY_HITS, 1);
        if self.admits(key, (self.weigh)(key, &value)) {
            self.insert(key.clone(), value.clone());
        }
        Some(value)
    }

    /// The front.
    #[must_use]
    pub fn front(&self) -> &F {
        &self.front
    }

    /// Counts a lookup that found its key in the front.
    #[inline]
    pub fn count_front_hit(&self) {
        self.lookups.add(HITS, 1);
    }

    /// Lifts a value that [`Cache::get`] returned for `key` into a part of the front, under the key `words`. `is_it`
    /// tells whether a cached value is this one.
    pub fn lift<T>(&self, key: &K, part: &Front<T>, words: Words, value: &Arc<T>, is_it: impl Fn(&V) -> bool) {
        part.put(words, value);
        // A thread that evicts or replaces the value looks into the front afterwards. So either that thread finds the
        // value in the front, or this check finds the value gone from the policy.
        if !self.policy.peek(key).is_some_and(|value| is_it(&value)) {
            part.forget(words);
        }
    }

    /// Sets the capacity from now on. A front keeps its size, and the number of shards stays, so each shard has its
    /// equal part of the new capacity.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        if self.capacity_bytes.swap(capacity_bytes, Ordering::Relaxed) != capacity_bytes {
            let shards = self.policy.num_shards() as u64;
            let weight = weight_of(capacity_bytes, &*self.front, shards);
            self.weight_bytes.store(weight, Ordering::Relaxed);
            self.policy.set_capacity(weight);
            self.doorkeeper.is_full.store(false, Ordering::Relaxed);
        }
    }

    /// The value of `key`, counted as a hit or a miss.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        let found = self.policy.get(key);
        self.lookups.add(if found.is_some() { HITS } else { MISSES }, 1);
        found
    }

    /// As [`Cache::get`], but that nothing was found is not counted: the caller asks again, or counts it
    /// ([`Cache::count_miss`]).
    #[must_use]
    pub fn find(&self, key: &K) -> Option<V> {
        let found = self.policy.get(key);
        if found.is_some() {
            self.lookups.add(HITS, 1);
        }
        found
    }

    /// Counts a lookup that has found nothing.
    pub fn count_miss(&self) {
        self.lookups.add(MISSES, 1);
    }

    /// The value of `key`, without a trace: the lookup is not counted, and the value is not kept any longer for it.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<V> {
        self.policy.peek(key)
    }

    /// Keeps `value` under `key`, in place of an older value. The entry may be evicted at any time, and at once if it
    /// is too heavy.
    pub fn insert(&self, key: K, value: V) {
        self.policy.insert(key.clone(), value);
        self.front.forget(&key);
        self.front.sweep(&mut |key| drop(self.policy.get(key)));
    }

    /// Whether a value of `bytes` that had to be read should be kept: there is room for the value, or its key was asked
    /// for not long ago. A value heavier than a shard is refused. A large value that finds no room does not mark the
    /// cache as full for smaller values.
    #[must_use]
    pub fn admits(&self, key: &K, bytes: u64) -> bool {
        let capacity = self.weight_bytes.load(Ordering::Relaxed);
        let shards = self.policy.num_shards() as u64;
        let share = capacity / shards;
        if bytes > share {
            return false;
        }
        if !self.doorkeeper.is_full.load(Ordering::Relaxed) {
            // Each shard may have less room left than one more value takes.
            if self.policy.weight().saturating_add(bytes.saturating_mul(shards)) <= capacity {
                return true;
            }
            if bytes <= share / LARGE_PART {
                self.doorkeeper.is_full.store(true, Ordering::Relaxed);
            }
        }
        self.doorkeeper.knows(key)
    }

    /// Forgets `key` and returns its value.
    pub fn remove(&self, key: &K) -> Option<V> {
        if let Some(secondary) = &self.secondary {
            secondary.forget(key);
        }
        let removed = self.policy.remove(key).map(|(_, value)| value);
        self.front.forget(key);
        removed
    }

    /// Forgets every key that `keep` refuses, and everything in the secondary cache.
    pub fn retain(&self, keep: impl Fn(&K, &V) -> bool) {
        self.policy.retain(keep);
        self.clear_secondary();
        self.front.clear();
        self.doorkeeper.is_full.store(false, Ordering::Relaxed);
    }

    /// Forgets everything; hits and misses go on counting.
    pub fn clear(&self) {
        self.policy.clear();
        self.clear_secondary();
        self.front.clear();
        self.doorkeeper.is_full.store(false, Ordering::Relaxed);
    }

    fn clear_secondary(&self) {
        if let Some(secondary) = &self.secondary {
            secondary.clear();
        }
    }

    /// Counters as of now. Shards are asked one after another.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            hits: self.lookups.sum(HITS),
            misses: self.lookups.sum(MISSES),
            entries: self.policy.len() as u64,
            bytes: self.policy.weight(),
            capacity_bytes: self.capacity_bytes.load(Ordering::Relaxed),
            secondary_hits: self.lookups.sum(SECONDARY_HITS),
            secondary_bytes: self.secondary.as_ref().map_or(0, Secondary::bytes),
        }
    }
}

/// The part of a capacity that the policy may hold. The policy rounds a shard's share up; a multiple of the number of
/// shards keeps the sum within the capacity.
fn weight_of<K>(capacity_bytes: u64, front: &impl Beside<K>, shards: u64) -> u64 {
    let weight = capacity_bytes.saturating_sub(front.bytes());
    weight - weight % shards
}

/// Removes evicted entries of the policy from the front.
struct Leaving<F>(Arc<F>);

impl<F> Clone for Leaving<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V, F: Beside<K>> Lifecycle<K, V> for Leaving<F> {
    /// The evicted entries. Their values are dropped, and the front is asked, when the shard is free again.
    type RequestState = SmallVec<[(K, V); 2]>;

    fn begin_request(&self) -> Self::RequestState {
        SmallVec::new()
    }

    fn on_evict(&self, evicted: &mut Self::RequestState, key: K, value: V) {
        evicted.push((key, value));
    }

    fn end_request(&self, evicted: Self::RequestState) {
        evicted.iter().for_each(|(key, _)| self.0.forget(key));
    }
}

impl<K: Eq + Hash + Clone, V: Clone, F: Beside<K>> std::fmt::Debug for Cache<K, V, F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Cache").field(&self.stats()).finish()
    }
}

/// A power of two, so that the policy does not round the number up.
fn shards_for(capacity_bytes: u64) -> u64 {
    let threads = tally::processors() as u64;
    let most = (threads * 4).min(SHARDS_MAX).min(capacity_bytes / SHARD_BYTES_MIN).max(1);
    1 << most.ilog2()
}

/// Remembers the keys that were asked for lately.
struct Doorkeeper {
    hasher: RandomState,
    /// Fingerprints, each in the place given by its key's hash. A younger fingerprint replaces an older one.
    fingerprints: Box<[AtomicU16]>,
    /// Whether a value found no room.
    is_full: AtomicBool,
}

impl Doorkeeper {
    fn new(entries: u64) -> Self {
        let places = usize::try_from(entries).unwrap_or(usize::MAX).clamp(1, DOORKEEPER_MAX).next_power_of_two();
        let fingerprints = (0..places).map(|_| AtomicU16::new(0)).collect();
        Self { hasher: RandomState::default(), fingerprints, is_full: AtomicBool::new(false) }
    }

    /// Whether the key is known; makes the key known from now on.
    fn knows(&self, key: &impl Hash) -> bool {
        let hash = self.hasher.hash_one(key);
        let place = usize::try_from(hash).unwrap_or(usize::MAX) & (self.fingerprints.len() - 1);
        // 0 marks a place without a fingerprint yet.
        let fingerprint = ((hash >> 48) as u16).max(1);
        self.fingerprints[place].swap(fingerprint, Ordering::Relaxed) == fingerprint
    }
}

/// The caller's function, in the shape that the policy asks for.
struct Weight<K, V>(fn(&K, &V) -> u64);

impl<K, V> Clone for Weight<K, V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> Weighter<K, V> for Weight<K, V> {
    fn weight(&self, key: &K, value: &V) -> u64 {
        let slot = (size_of::<K>() + size_of::<V>()) as u64 + ENTRY_OVERHEAD_BYTES;
        (self.0)(key, value).saturating_add(slot)
    }
}

#[cfg(test)]
mod tests;
