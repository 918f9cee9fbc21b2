//! A secondary cache: bytes as they were read, in the order in which they came.
//!
//! The cache uses memory that is free for a while and is wanted back at once. Bytes are copied one behind the other
//! into chunks that are mapped from the system, and the oldest chunk is evicted as a whole. This layout has two
//! effects:
//!
//! - No memory of an evicted chunk is lost between values of different lengths.
//! - Its memory is available to the next user of mapped memory ([`mapped`]) or goes back to the system, whatever the
//!   state of the allocator.
//!
//! 1. Each shard has a lock, a queue of chunks and the places of its keys. Values are copied and read under the lock.
//! 2. A shard that has used up its share evicts its oldest chunk and fills that memory anew (first in, first out).
//!    Recency is not noted here, because values that are often asked for are in the cache itself.
//! 3. A capacity of 0 costs a lookup one load.
//!
//! Invariant: chunks and what is noted for their values take at most a shard's share.
//!
//! Left to others: whether bytes are still those of their key. Where that may have changed, the reader checks the bytes
//! as if they came from the device.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use mapped::Memory;
use parking_lot::Mutex;

/// Bytes of a chunk: the least, where there is little memory, and the most.
const CHUNK_MIN: usize = 16 << 10;
const CHUNK_MAX: usize = 256 << 10;

/// Most bytes of a kept value, as a part of a chunk. A longer value would waste too much of a chunk's end.
const LENGTH_PART: usize = 4;

/// Least chunks of a shard when all of the memory is lent.
const SHARD_CHUNKS_MIN: u64 = 8;

/// Most shards.
const SHARDS_MAX: u64 = 16;

pub(crate) struct Secondary<K> {
    shards: Box<[Mutex<Shard<K>>]>,
    chunk_bytes: usize,
    hasher: RandomState,
    /// Bytes that each shard may take.
    share: AtomicUsize,
}

struct Shard<K> {
    chunk_bytes: usize,
    chunks: VecDeque<Chunk<K>>,
    /// Number of the oldest chunk.
    oldest: u64,
    places: HashMap<K, Place, RandomState>,
    /// Keys in all chunks, including those of values that were put again.
    keys: usize,
}

struct Chunk<K> {
    memory: Memory,
    used: usize,
    keys: Vec<K>,
}

#[derive(Clone, Copy)]
struct Place {
    chunk: u64,
    start: u32,
    length: u32,
}

impl Place {
    const fn bytes(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.length as usize
    }
}

impl<K: Eq + Hash + Clone> Secondary<K> {
    /// A secondary cache that may be lent up to `most_bytes`. It begins with none.
    pub(crate) fn new(most_bytes: u64) -> Self {
        let threads = tally::processors() as u64;
        let chunk_bytes = usize::try_from(most_bytes / SHARD_CHUNKS_MIN).unwrap_or(CHUNK_MAX);
        let chunk_bytes = mapped::capacity(chunk_bytes.clamp(CHUNK_MIN, CHUNK_MAX));
        let shards = (most_bytes / (SHARD_CHUNKS_MIN * chunk_bytes as u64)).clamp(1, SHARDS_MAX.min(4 * threads));
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::new(chunk_bytes))).collect(),
            chunk_bytes,
            hasher: RandomState::default(),
            share: AtomicUsize::new(0),
        }
    }

    /// Takes at most `bytes` from now on. The memory above is given back before this returns.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        let share = usize::try_from(bytes / self.shards.len() as u64).unwrap_or(usize::MAX);
        let share = if share < 2 * self.chunk_bytes { 0 } else { share };
        if self.share.swap(share, Ordering::Relaxed) > share {
            self.shrink(share);
        }
    }

    fn shrink(&self, share: usize) {
        for shard in &self.shards {
            let given_up = shard.lock().shrink(share);
            // Dropped without the lock, because giving megabytes back takes a while.
            drop(given_up);
        }
    }

    fn shard(&self, key: &K) -> &Mutex<Shard<K>> {
        // The upper bits: a shard's own table uses the lower ones.
        let hash = self.hasher.hash_one(key) >> 32;
        &self.shards[usize::try_from(hash).unwrap_or(0) % self.shards.len()]
    }

    fn is_off(&self) -> bool {
        self.share.load(Ordering::Relaxed) == 0
    }

    /// Keeps a copy of `bytes`, in place of older bytes of `key`.
    pub(crate) fn put(&self, key: &K, bytes: &[u8]) {
        if self.is_off() {
            return;
        }
        if bytes.len() > self.chunk_bytes / LENGTH_PART {
            return self.forget(key);
        }
        let mut shard = self.shard(key).lock();
        // The share is read under the lock, because a thread that lowers the share takes the lock afterwards.
        shard.put(key, bytes, self.share.load(Ordering::Relaxed));
    }

    /// Shows the bytes of `key` to `look`, with its shard locked.
    pub(crate) fn look<T>(&self, key: &K, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.is_off() {
            return None;
        }
        let shard = self.shard(key).lock();
        let place = shard.places.get(key)?;
        Some(look(&shard.chunk(place.chunk)?.memory[place.bytes()]))
    }

    pub(crate) fn forget(&self, key: &K) {
        if !self.is_off() {
            self.shard(key).lock().places.remove(key);
        }
    }

    pub(crate) fn clear(&self) {
        self.shrink(0);
    }

    /// Memory that the cache takes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes() as u64).sum()
    }
}

impl<K: Eq + Hash + Clone> Shard<K> {
    /// Most bytes of notes for one value: its key twice, its place, and the room that list and table leave free.
    const NOTE: usize = 4 * size_of::<K>() + 3 * size_of::<Place>();

    fn new(chunk_bytes: usize) -> Self {
        Self { chunk_bytes, chunks: VecDeque::new(), oldest: 0, places: HashMap::default(), keys: 0 }
    }

    fn bytes(&self) -> usize {
        self.chunks.len() * self.chunk_bytes + self.keys * Self::NOTE
    }

    fn chunk(&self, number: u64) -> Option<&Chunk<K>> {
        self.chunks.get(usize::try_from(number.checked_sub(self.oldest)?).ok()?)
    }

    fn put(&mut self, key: &K, bytes: &[u8], share: usize) {
        let has_room = self.chunks.back().is_some_and(|last| last.used + bytes.len() <= self.chunk_bytes);
        let wanted = if has_room { Self::NOTE } else { self.chunk_bytes + Self::NOTE };
        let mut given_up = None;
        while self.bytes() + wanted > share {
            match self.give_up() {
                Some(memory) => given_up = Some(memory),
                None => return self.forget(key),
            }
        }
        if !has_room || self.chunks.is_empty() {
            let memory = given_up.or_else(|| Memory::try_used_before(self.chunk_bytes));
            let Some(memory) = memory else { return self.forget(key) };
            self.chunks.push_back(Chunk { memory, used: 0, keys: Vec::new() });
        }
        let number = self.oldest + self.chunks.len() as u64 - 1;
        let Some(last) = self.chunks.back_mut() else { return };
        let (Ok(start), Ok(length)) = (u32::try_from(last.used), u32::try_from(bytes.len())) else { return };
        let place = Place { chunk: number, start, length };
        last.memory[place.bytes()].copy_from_slice(bytes);
        last.used += bytes.len();
        last.keys.push(key.clone());
        self.keys += 1;
        self.places.insert(key.clone(), place);
    }

    /// Forgets the bytes of a key that has other bytes now.
    fn forget(&mut self, key: &K) {
        self.places.remove(key);
    }

    /// Evicts the oldest chunk and returns its memory; none where there is no chunk.
    fn give_up(&mut self) -> Option<Memory> {
        let Chunk { memory, keys, .. } = self.chunks.pop_front()?;
        self.keys -= keys.len();
        for key in keys {
            if self.places.get(&key).is_some_and(|place| place.chunk == self.oldest) {
                self.places.remove(&key);
            }
        }
        self.oldest += 1;
        Some(memory)
    }

    /// Evicts chunks until the shard is within `share`.
    fn shrink(&mut self, share: usize) -> Vec<Memory> {
        let mut given_up = Vec::new();
        while self.bytes() > share {
            given_up.extend(self.give_up());
        }
        if self.places.capacity() > 4 * self.places.len() {
            self.places.shrink_to(2 * self.places.len());
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(secondary: &Secondary<u64>, key: u64) -> Option<Vec<u8>> {
        secondary.look(&key, <[u8]>::to_vec)
    }

    /// 4,000 bytes.
    fn bytes(key: u64) -> Vec<u8> {
        key.to_le_bytes().repeat(500)
    }

    #[test]
    fn what_came_first_goes_first() {
        let secondary = Secondary::new(2 << 20);
        secondary.put(&0, &[1; 4000]);
        assert_eq!(find(&secondary, 0), None, "it was given nothing");
        secondary.set_capacity(2 << 20);
        (0..2000).for_each(|key| secondary.put(&key, &bytes(key)));
        assert!(secondary.bytes() <= 2 << 20);
        let first = (0..2000).find(|key| find(&secondary, *key).is_some()).expect("some are left");
        assert!(first >= 2000 - (2 << 20) / 4000, "{first}");
        assert!(first <= 2000 - 400, "most of the memory is used: {first}");
        assert!((first..2000).all(|key| find(&secondary, key) == Some(bytes(key))));
    }

    #[test]
    fn gives_memory_back_at_once() {
        let secondary = Secondary::new(2 << 20);
        secondary.set_capacity(2 << 20);
        (0..500_u64).for_each(|key| secondary.put(&key, &[7; 4000]));
        secondary.set_capacity(1 << 20);
        let bytes = secondary.bytes();
        assert!(bytes <= 1 << 20 && bytes > 1 << 19, "{bytes}");
        assert!(find(&secondary, 0).is_none() && find(&secondary, 499).is_some());
        secondary.set_capacity(0);
        assert_eq!((secondary.bytes(), find(&secondary, 499)), (0, None));
        secondary.put(&1, &[1]);
        assert_eq!(secondary.bytes(), 0);
    }

    #[test]
    fn little_memory_is_used_as_well() {
        let secondary = Secondary::new(128 << 10);
        secondary.set_capacity(96 << 10);
        (0..100).for_each(|key| secondary.put(&key, &bytes(key)));
        let kept = (0..100).filter(|key| find(&secondary, *key).is_some()).count();
        assert!(kept >= 15 && secondary.bytes() <= 96 << 10, "{kept} in {} bytes", secondary.bytes());
    }

    #[test]
    fn what_is_too_long_is_not_kept() {
        let secondary = Secondary::new(2 << 20);
        secondary.set_capacity(2 << 20);
        let longest = CHUNK_MAX / LENGTH_PART;
        secondary.put(&1, &vec![1; longest + 1]);
        assert_eq!(find(&secondary, 1), None);
        secondary.put(&1, &vec![1; longest]);
        assert!(find(&secondary, 1).is_some());
        secondary.forget(&1);
        assert_eq!(find(&secondary, 1), None);
    }

    proptest! {
        #[test]
        fn shows_the_newest_bytes_or_none(
            operations in prop::collection::vec((0..40_u64, 0_usize..20_000, any::<u8>(), 0..20_u8), 1..400),
            most in prop::sample::select(vec![100_u64 << 10, 2 << 20]),
        ) {
            let secondary = Secondary::new(most);
            secondary.set_capacity(most);
            let mut newest = HashMap::new();
            for (key, length, fill, what) in operations {
                match what {
                    0 => secondary.set_capacity(most * length as u64 / 20_000),
                    1 => {
                        secondary.forget(&key);
                        newest.remove(&key);
                    }
                    _ => {
                        secondary.put(&key, &vec![fill; length]);
                        newest.insert(key, vec![fill; length]);
                    }
                }
                for key in 0..40 {
                    if let Some(found) = find(&secondary, key) {
                        prop_assert_eq!(Some(&found), newest.get(&key));
                    }
                }
            }
        }
    }
}
