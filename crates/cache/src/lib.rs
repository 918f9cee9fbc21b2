//! The buffer pool that all tables of a database share.
//!
//! Owns which values stay in memory, and the count of their bytes. How it works:
//!
//! 1. The policy is `quick_cache`'s (Clock-PRO, close to S3-FIFO): a value enters cold and becomes hot when it is asked
//!    for again, so a scan that reads every page once does not push out the pages that lookups live on.
//! 2. Every entry weighs the bytes that the caller's function says, and [`ENTRY_OVERHEAD_BYTES`] plus the size of key
//!    and value for the table that holds it.
//! 3. The pool is split into shards, each with its own lock and an equal share of the capacity. A shard never has less
//!    than [`SHARD_BYTES_MIN`], unless it is the only one.
//!
//! 4. What is large and read once can be kept out: [`Cache::admits`] says yes while there is room, and then to keys
//!    that were asked for before not long ago, which it remembers by a fingerprint (the doorkeeper of TinyLFU,
//!    Einziger, Friedman and Manes, ACM TOS 13(4), 2017, section 3.4.2). Without it leaves that come once would push
//!    out internal nodes wherever the pool holds few leaves.
//!
//! 5. A cache can have a [`Front`], in which lookups find what was found before without locks and without writing to
//!    shared memory. A value that the policy gives for a key is lifted into it; the policy tells what it evicts, and
//!    hears from time to time what was asked for.
//!
//! 6. A cache can be lent memory for a while ([`Cache::lend`]): a secondary cache, of bytes as they were read. What the policy does not admit can be
//!    put there, and is checked anew when it is found.
//!
//! Invariants: the weight of all entries, and the memory that a front may take, are at most the capacity, at any
//! moment, and what a secondary cache takes is at most what is lent; an entry that is heavier than a shard's hot share is not kept, and an older value under its key goes. What a
//! front has is in the policy, but for the moments in which a thread puts it in or takes it out.
//!
//! Left to others: what a key is, whether a value is still true (whoever changes it removes or replaces it), and
//! reading what is missing.

mod front;
mod secondary;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use quick_cache::sync::Cache as Policy;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;
use tally::Tally;

use crate::secondary::Secondary;

pub use front::{Beside, Front, Held, Words};

/// What an entry costs beside its key and value: hash slot, links, and its share of remembered evicted keys.
pub const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// The least capacity of a shard where there are several: 64 of the largest leaves.
pub const SHARD_BYTES_MIN: u64 = 4 << 20;

/// Most shards: beyond it the locks are no longer what threads wait for.
const SHARDS_MAX: u64 = 64;

/// The weight that most entries are expected to have: one page. It only sizes the memory of evicted keys.
const ENTRY_BYTES_EXPECTED: u64 = 4096;

/// Most keys that are remembered without their values: 2 bytes each.
const DOORKEEPER_MAX: usize = 1 << 22;

/// What is heavier than this part of a shard is large: where it finds no room there may be much for others.
const LARGE_PART: u64 = 16;

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found their key, since the cache was made.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Entries held.
    pub entries: u64,
    /// Weight of the entries held, in bytes.
    pub bytes: u64,
    /// Most bytes it will hold.
    pub capacity_bytes: u64,
    /// Misses of which the secondary cache had the bytes.
    pub secondary_hits: u64,
    /// Memory that the secondary cache takes.
    pub secondary_bytes: u64,
}

/// Which counter of a cache is which.
const HITS: usize = 0;
const MISSES: usize = 1;
const SECONDARY_HITS: usize = 2;

/// A bounded map that forgets what is least likely to be asked for again. All methods may be called from any thread.
pub struct Cache<K, V, F = ()> {
    policy: Policy<K, V, Weight<K, V>, DefaultHashBuilder, Leaving<F>>,
    front: Arc<F>,
    capacity_bytes: AtomicU64,
    /// What of it is not the front's.
    weight_bytes: AtomicU64,
    doorkeeper: Doorkeeper,
    lookups: Tally<3>,
    secondary: Option<Secondary<K>>,
    weigh: fn(&K, &V) -> u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    /// A cache of at most `capacity_bytes`. `weigh` gives the bytes that an entry owns on the heap; it has to give the
    /// same answer for as long as the entry is in the cache. With a capacity of 0 nothing is kept.
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
        let policy = Policy::with_options(options, Weight(weigh), DefaultHashBuilder::default(), leaving);
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

    /// It can be lent up to so many bytes.
    #[must_use]
    pub fn with_loans_of(mut self, most_bytes: u64) -> Self {
        self.secondary = Some(Secondary::new(most_bytes));
        self
    }

    /// Lends so many bytes for a secondary cache, instead of those that were lent before. What is more than that is given back before this
    /// returns.
    pub fn lend(&self, bytes: u64) {
        if let Some(secondary) = &self.secondary {
            secondary.set_capacity(bytes);
        }
    }

    /// Copies bytes that were read for `key` to the secondary cache, if anything is lent. Short ones only.
    pub fn put_read(&self, key: &K, bytes: &[u8]) {
        if let Some(secondary) = &self.secondary {
            secondary.put(key, bytes);
        }
    }

    /// A value that `make` makes of the bytes that were put there for `key`, or none where they are not those that it needs: then they are forgotten.
    /// It is kept as one that was read, if its key is admitted. A lock is held while it is made.
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

    /// A lookup found its key in the front.
    #[inline]
    pub fn count_front_hit(&self) {
        self.lookups.add(HITS, 1);
    }

    /// Lifts a value that [`Cache::get`] gave for `key` into a part of the front, where it has the key `words`. `is_it`
    /// tells it from others.
    pub fn lift<T>(&self, key: &K, part: &Front<T>, words: Words, value: &Arc<T>, is_it: impl Fn(&V) -> bool) {
        part.put(words, value);
        // Who evicts or replaces it looks into the front behind that: either it found the value there, or this finds it
        // gone.
        if !self.policy.peek(key).is_some_and(|value| is_it(&value)) {
            part.forget(words);
        }
    }

    /// Holds at most so many bytes from now on, but a front keeps its size. Shards stay as many as they are, so each
    /// has its equal part of it.
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

    /// The value of `key`, without a trace: neither counted nor kept any longer for it.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<V> {
        self.policy.peek(key)
    }

    /// Keeps `value` under `key`, in place of what was there. It may be evicted at any time, at once if it is too
    /// heavy.
    pub fn insert(&self, key: K, value: V) {
        self.policy.insert(key.clone(), value);
        self.front.forget(&key);
        self.front.sweep(&mut |key| drop(self.policy.get(key)));
    }

    /// Whether a value of `bytes` that had to be read should be kept: there is room for it, or its key was asked for
    /// before, not long ago. One that is heavier than a shard is not, and that there is no room for a large one says
    /// nothing of others.
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

    /// Forgets `key`; gives back its value.
    pub fn remove(&self, key: &K) -> Option<V> {
        if let Some(secondary) = &self.secondary {
            secondary.forget(key);
        }
        let removed = self.policy.remove(key).map(|(_, value)| value);
        self.front.forget(key);
        removed
    }

    /// Forgets every key that `keep` refuses, and what is in the secondary cache.
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

/// What the policy may hold of a capacity. It rounds a shard's share up: a multiple of the shards keeps the sum within
/// the capacity.
fn weight_of<K>(capacity_bytes: u64, front: &impl Beside<K>, shards: u64) -> u64 {
    let weight = capacity_bytes.saturating_sub(front.bytes());
    weight - weight % shards
}

/// Has a front forget what the policy evicts.
struct Leaving<F>(Arc<F>);

impl<F> Clone for Leaving<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V, F: Beside<K>> Lifecycle<K, V> for Leaving<F> {
    /// What was evicted: values are dropped, and the front asked, when the shard is free again.
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

/// A power of two, so that the policy does not round it up.
fn shards_for(capacity_bytes: u64) -> u64 {
    let threads = tally::processors() as u64;
    let most = (threads * 4).min(SHARDS_MAX).min(capacity_bytes / SHARD_BYTES_MIN).max(1);
    1 << most.ilog2()
}

/// Remembers which keys were asked for lately.
struct Doorkeeper {
    hasher: DefaultHashBuilder,
    /// Fingerprints, each in the place that its key's hash says; a younger one takes the place of an older.
    fingerprints: Box<[AtomicU16]>,
    /// Whether there was no room for a value.
    is_full: AtomicBool,
}

impl Doorkeeper {
    fn new(entries: u64) -> Self {
        let places = usize::try_from(entries).unwrap_or(usize::MAX).clamp(1, DOORKEEPER_MAX).next_power_of_two();
        let fingerprints = (0..places).map(|_| AtomicU16::new(0)).collect();
        Self { hasher: DefaultHashBuilder::default(), fingerprints, is_full: AtomicBool::new(false) }
    }

    /// Whether the key is known; it is from now on.
    fn knows(&self, key: &impl Hash) -> bool {
        let hash = self.hasher.hash_one(key);
        let place = usize::try_from(hash).unwrap_or(usize::MAX) & (self.fingerprints.len() - 1);
        // 0 is a place that nothing was put in yet.
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
