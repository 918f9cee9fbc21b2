//! The filter of keys that a queue may have, for lookups that do not lock the queue.
//!
//! 1. A filter has up to [`LEVELS`] levels of words, each eight times as large as the one before. A level is made when
//!    the one before is full, so a growing queue moves nothing and a small one takes little memory.
//! 2. A key is three bits of one word of a level (a Bloom filter whose blocks are words). The filter is wrong for about
//!    one in fifty of the keys that are not there.
//! 3. Keys that rise from the first operation on are not added. The filter covers them by the first eight bytes of the
//!    lowest and of the highest key ([`Filter::cover`]). A short rise is uncovered again and its keys are added. A long
//!    rise stays covered, because adding its keys would take a part of the time of filling a table in order, and a
//!    lookup within the bounds is only a search in the queue.
//! 4. The thread that appends an operation holds the queue's lock, and adds the key first ([`Filter::add`]).
//!
//! Invariant: a reader at a visible seq finds every key of the commits up to that seq, because each key was added
//! before its commit became visible, and the reader has seen that (`Publisher::visible`). A reader of commits that are
//! not visible yet asks the queue itself.

use std::{
    hash::BuildHasher,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;
use index::head;

/// Levels; the last takes all keys beyond the others.
const LEVELS: usize = 7;

/// Words of the first level, as a power of two, and the factor from each level to the next, as a power of two.
const FIRST_LOG: u32 = 3;
const NEXT_LOG: u32 = 3;

/// A word is full with so many keys.
const KEYS_PER_WORD: usize = 6;

/// The keys of one queue.
pub(crate) struct Filter {
    hasher: DefaultHashBuilder,
    /// Heads of the lowest and of the highest covered key. No key is covered if the first head is above the second.
    rising: [AtomicU64; 2],
    levels: [OnceLock<Box<[AtomicU64]>>; LEVELS],
}

impl Filter {
    /// An empty filter, whose keys are hashed by `hasher`.
    pub(super) fn new(hasher: DefaultHashBuilder) -> Self {
        let rising = [AtomicU64::new(u64::MAX), AtomicU64::new(0)];
        Self { hasher, rising, levels: [const { OnceLock::new() }; LEVELS] }
    }

    /// Covers a key that is above all covered keys.
    pub(super) fn cover(&self, key: &[u8]) {
        let [low, high] = &self.rising;
        let head = head(key);
        high.store(head, Ordering::Relaxed);
        if head < low.load(Ordering::Relaxed) {
            low.store(head, Ordering::Relaxed);
        }
    }

    /// Ends the cover: from now on the filter knows only keys that were added.
    pub(super) fn uncover(&self) {
        // A reader that finds the keys uncovered also finds them added.
        self.rising[0].store(u64::MAX, Ordering::Release);
        self.rising[1].store(0, Ordering::Release);
    }

    /// Adds a key by its hash, as number `index` of the added keys. Only one thread adds at a time.
    pub(super) fn add(&self, hash: u64, index: usize) {
        let level = level_of(index);
        let words = self.levels[level].get_or_init(|| (0..words_of(level)).map(|_| AtomicU64::new(0)).collect());
        let word = &words[place(hash, words.len())];
        let known = word.load(Ordering::Relaxed);
        if known | bits(hash) != known {
            word.store(known | bits(hash), Ordering::Relaxed);
        }
    }

    /// Whether the queue may have `key`.
    #[inline]
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        let [low, high] = self.rising.each_ref().map(|bound| bound.load(Ordering::Acquire));
        if (low..=high).contains(&head(key)) {
            return true;
        }
        if self.levels[0].get().is_none() {
            return false;
        }
        let hash = self.hasher.hash_one(key);
        let (wanted, levels) = (bits(hash), self.levels.iter().map_while(OnceLock::get));
        levels.into_iter().any(|words| words[place(hash, words.len())].load(Ordering::Relaxed) & wanted == wanted)
    }

    /// Memory of a filter of so many keys, in bytes.
    pub(super) const fn bytes(keys: usize) -> usize {
        let (mut bytes, mut level) = (0, 0);
        while keys > 0 && level <= level_of(keys - 1) {
            bytes += words_of(level) * size_of::<AtomicU64>();
            level += 1;
        }
        bytes
    }
}

/// Words of a level.
const fn words_of(level: usize) -> usize {
    1 << (FIRST_LOG as usize + NEXT_LOG as usize * level)
}

/// The level that takes key number `index`.
const fn level_of(index: usize) -> usize {
    let (mut level, mut end) = (0, words_of(0) * KEYS_PER_WORD);
    while index >= end && level + 1 < LEVELS {
        level += 1;
        end += words_of(level) * KEYS_PER_WORD;
    }
    level
}

/// The word of a hash among so many words, a power of two.
#[inline]
fn place(hash: u64, words: usize) -> usize {
    usize::try_from(hash >> 24).unwrap_or(usize::MAX) & (words - 1)
}

/// The three bits of a hash.
#[inline]
const fn bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_few_others_are() {
        let hasher = DefaultHashBuilder::default();
        let filter = Filter::new(hasher.clone());
        assert!(!filter.may_have(b"key") && Filter::bytes(0) == 0);
        let keys = 30_000_u32;
        for number in 0..keys {
            filter.add(hasher.hash_one(&number.to_be_bytes()[..]), number as usize);
            assert!(filter.may_have(&number.to_be_bytes()));
        }
        assert!((0..keys).all(|number| filter.may_have(&number.to_be_bytes())));
        let others = (keys..2 * keys).filter(|number| filter.may_have(&number.to_be_bytes())).count();
        assert!(others < 30_000 / 8, "{others} of 30,000 other keys may be there");
        let made: usize = filter.levels.iter().filter_map(OnceLock::get).map(|words| words.len() * 8).sum();
        assert_eq!(Filter::bytes(keys as usize), made);
    }

    #[test]
    fn keys_that_rise_are_covered_until_they_are_added() {
        let hasher = DefaultHashBuilder::default();
        let filter = Filter::new(hasher.clone());
        let key = |number: u64| number.to_be_bytes();
        assert!(!filter.may_have(&key(0)) && !filter.may_have(&key(u64::MAX)));
        (100..200).for_each(|number| filter.cover(&key(number)));
        assert!((100..200).all(|number| filter.may_have(&key(number))));
        assert!(!filter.may_have(&key(99)) && !filter.may_have(&key(200)));
        for number in 100..200 {
            filter.add(hasher.hash_one(&key(number)[..]), usize::try_from(number - 100).expect("small"));
        }
        filter.uncover();
        assert!((100..200).all(|number| filter.may_have(&key(number))));
        assert!((1000..2000).filter(|number| filter.may_have(&key(*number))).count() < 200);
    }

    #[test]
    fn levels_follow_one_another_and_the_last_takes_the_rest() {
        assert_eq!((level_of(0), level_of(47), level_of(48)), (0, 0, 1));
        assert!((1..3_000_000).step_by(977).all(|index| level_of(index) >= level_of(index - 1)));
        assert_eq!(level_of(usize::MAX), LEVELS - 1);
    }
}
