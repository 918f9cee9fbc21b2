//! The front of a cache: lookups find frequent keys here without writing to memory that others read.
//!
//! 1. A front has slots in sets of [`WAYS`], and a key's hash names its set. A slot holds the key, in two words, and a
//!    value that the cache behind the front holds too ([`crate::Cache::lift`]). So a front takes no memory but that of
//!    its slots.
//! 2. A lookup reads a slot and borrows the value by a debt, which is written in memory of the thread alone
//!    (`arc_swap`). The borrow ([`Held`]) keeps one value alive and nothing else, however long the borrow lasts.
//! 3. A slot is read as under a seqlock. Its version is odd during a write, and a reader that sees an odd or changed
//!    version has found nothing.
//! 4. The policy behind the front does not see hits of the front. So a slot notes its first hit, and each insertion
//!    into the cache reports the noted slots of one set to the policy ([`Front::sweep`]).
//!
//! Invariants: a value is returned only for the key under which it was put. Slots are written under the mutex of their
//! set.
//!
//! Left to others: which values are in the cache, and removing the values that leave the cache.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

/// Slots of a set: two cache lines, which processors fetch together.
const WAYS: usize = 4;

/// Sets whose slots are made together, when the first of them is written.
const CHUNK_SETS: usize = 16;

/// Mutexes of the sets.
const MUTEXES: usize = 64;

/// Most slots: a front with more slots takes more than it saves.
const SLOTS_MAX: usize = 1 << 22;

/// A key of a front.
pub type Words = [u64; 2];

/// Part of a cache that finds values without the policy. `()` is no front.
pub trait Beside<K> {
    /// Most bytes of memory that the front takes.
    fn bytes(&self) -> u64;
    /// Removes the value of `key`.
    fn forget(&self, key: &K);
    /// Removes all values.
    fn clear(&self);
    /// Shows some keys that were asked for since they were last shown. The next call shows others.
    fn sweep(&self, asked: &mut dyn FnMut(&K));
}

impl<K> Beside<K> for () {
    fn bytes(&self) -> u64 {
        0
    }

    fn forget(&self, _: &K) {}

    fn clear(&self) {}

    fn sweep(&self, _: &mut dyn FnMut(&K)) {}
}

/// Values of one kind that are in a cache, by key.
pub struct Front<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    sets: usize,
    hand: AtomicUsize,
    mutexes: [Mutex<()>; MUTEXES],
}

/// Sets that were made together.
type Chunk<T> = Box<[Set<T>]>;

#[repr(align(128))]
struct Set<T>([Slot<T>; WAYS]);

struct Slot<T> {
    /// Odd during a write to the slot.
    version: AtomicU32,
    asked: AtomicBool,
    key: [AtomicU64; 2],
    value: ArcSwapOption<T>,
}

/// A value that was found in a front, or a shared one.
pub struct Held<T>(Guard<Option<Arc<T>>>);

impl<T> Held<T> {
    /// Holds a shared value.
    #[must_use]
    pub fn of(value: Arc<T>) -> Self {
        Self(Guard::from_inner(Some(value)))
    }

    /// The value as an `Arc` that the caller can clone and keep.
    #[must_use]
    pub fn shared(&self) -> &Arc<T> {
        self.0.as_ref().expect("only what was found is held")
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.shared()
    }
}

impl<T> Slot<T> {
    fn empty() -> Self {
        let key = [AtomicU64::new(0), AtomicU64::new(0)];
        Self { version: AtomicU32::new(0), asked: AtomicBool::new(false), key, value: ArcSwapOption::empty() }
    }

    #[inline]
    fn key(&self) -> Words {
        [self.key[0].load(Ordering::Relaxed), self.key[1].load(Ordering::Relaxed)]
    }

    #[inline]
    fn get(&self, key: Words) -> Option<Held<T>> {
        self.get_while(key, || {})
    }

    /// As [`Slot::get`]; `meanwhile` runs between the look at the key and the look at the value.
    #[inline]
    fn get_while(&self, key: Words, meanwhile: impl FnOnce()) -> Option<Held<T>> {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 || self.key() != key {
            return None;
        }
        meanwhile();
        let value = self.value.load();
        fence(Ordering::Acquire);
        if value.is_none() || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
        Some(Held(value))
    }

    /// The caller holds the mutex of the set.
    fn set(&self, key: Words, value: Option<Arc<T>>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.key.iter().zip(key).for_each(|(word, of_key)| word.store(of_key, Ordering::Relaxed));
        self.asked.store(false, Ordering::Relaxed);
        self.value.store(value);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn is_of(&self, key: Words) -> bool {
        self.key() == key && !self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.value.load().is_none()
    }
}

impl<T> Front<T> {
    /// A front of about `slots` slots, all empty.
    #[must_use]
    pub fn new(slots: u64) -> Self {
        let slots = usize::try_from(slots).unwrap_or(usize::MAX).clamp(WAYS * CHUNK_SETS, SLOTS_MAX);
        // The greatest power of two at or below, so that a front takes no more memory than was asked for.
        let sets = 1 << (slots / WAYS).ilog2();
        let chunks = (0..sets / CHUNK_SETS).map(|_| OnceLock::new()).collect();
        Self { chunks, sets, hand: AtomicUsize::new(0), mutexes: [const { Mutex::new(()) }; MUTEXES] }
    }

    /// Memory of all slots, in bytes. Slots take their memory when they are first used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.sets * size_of::<Set<T>>()) as u64
    }

    /// The index of the key's set.
    #[inline]
    fn place(&self, [one, other]: Words) -> usize {
        let mixed = (one ^ other.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper half of a product depends on every bit below it.
        (mixed >> 32) as usize & (self.sets - 1)
    }

    #[inline]
    fn set(&self, place: usize) -> Option<&Set<T>> {
        Some(&self.chunks[place / CHUNK_SETS].get()?[place % CHUNK_SETS])
    }

    /// The value of `key`, if the front has one.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Words) -> Option<Held<T>> {
        let set = self.set(self.place(key))?;
        set.0.iter().find(|slot| slot.key() == key)?.get(key)
    }

    /// Stores the value of `key`, unless all slots of its set were asked for lately.
    pub(crate) fn put(&self, key: Words, value: &Arc<T>) {
        let place = self.place(key);
        let make = || (0..CHUNK_SETS).map(|_| Set(std::array::from_fn(|_| Slot::empty()))).collect();
        let set = &self.chunks[place / CHUNK_SETS].get_or_init(make)[place % CHUNK_SETS];
        let _one = self.mutexes[place % MUTEXES].lock();
        let known = set.0.iter().find(|slot| slot.key() == key);
        let slot = known.or_else(|| set.0.iter().find(|slot| slot.is_empty()));
        match slot.or_else(|| set.0.iter().find(|slot| !slot.asked.load(Ordering::Relaxed))) {
            Some(slot) => slot.set(key, Some(Arc::clone(value))),
            // The next key that comes finds a slot, unless all slots are asked for again before that.
            None => set.0.iter().for_each(|slot| slot.asked.store(false, Ordering::Relaxed)),
        }
    }

    /// Removes the value of `key`.
    pub fn forget(&self, key: Words) {
        let place = self.place(key);
        let Some(set) = self.set(place) else { return };
        if set.0.iter().any(|slot| slot.key() == key) {
            let _one = self.mutexes[place % MUTEXES].lock();
            set.0.iter().filter(|slot| slot.is_of(key)).for_each(|slot| slot.set([0, 0], None));
        }
    }

    /// Removes all values.
    pub fn clear(&self) {
        for place in 0..self.sets {
            let Some(set) = self.set(place) else { continue };
            let _one = self.mutexes[place % MUTEXES].lock();
            set.0.iter().filter(|slot| !slot.is_empty()).for_each(|slot| slot.set([0, 0], None));
        }
    }

    /// Shows the keys of one set that were asked for since they were last shown. Each call covers the next set.
    pub fn sweep(&self, mut asked: impl FnMut(Words)) {
        let place = self.hand.fetch_add(1, Ordering::Relaxed) & (self.sets - 1);
        let Some(set) = self.set(place) else { return };
        for slot in &set.0 {
            if slot.asked.load(Ordering::Relaxed) {
                let key = {
                    let _one = self.mutexes[place % MUTEXES].lock();
                    slot.asked.store(false, Ordering::Relaxed);
                    slot.key()
                };
                asked(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A front, and keys that all fall into one of its sets.
    fn one_set() -> (Front<u64>, Vec<Words>) {
        let front = Front::new(0);
        let keys = (1..).map(|number| [number, number * 7]).filter(|key| front.place(*key) == 3).take(9).collect();
        (front, keys)
    }

    #[test]
    fn a_value_is_found_under_its_key_alone() {
        let (front, keys) = one_set();
        assert!(front.get(keys[0]).is_none());
        front.put(keys[0], &Arc::new(5));
        assert_eq!(front.get(keys[0]).as_deref(), Some(&5));
        assert!(front.get(keys[1]).is_none() && front.get([0, 0]).is_none());
        front.put(keys[0], &Arc::new(6));
        assert_eq!(front.get(keys[0]).as_deref(), Some(&6));
        front.forget(keys[1]);
        assert!(front.get(keys[0]).is_some());
        front.forget(keys[0]);
        assert!(front.get(keys[0]).is_none());
        front.put(keys[1], &Arc::new(7));
        front.clear();
        assert!(front.get(keys[1]).is_none());
    }

    #[test]
    fn what_was_asked_for_stays_and_is_shown_once() {
        let (front, keys) = one_set();
        keys[..WAYS].iter().for_each(|key| front.put(*key, &Arc::new(key[0])));
        let asked = || {
            let mut asked = Vec::new();
            (0..front.sets).for_each(|_| front.sweep(|key| asked.push(key)));
            asked
        };
        assert_eq!(asked(), Vec::<Words>::new());
        assert!(front.get(keys[1]).is_some() && front.get(keys[1]).is_some());
        assert_eq!(asked(), [keys[1]]);
        assert_eq!(asked(), Vec::<Words>::new());
        [0, 2, 3].iter().for_each(|way| assert!(front.get(keys[*way]).is_some()));
        front.put(keys[4], &Arc::new(0));
        assert!(front.get(keys[1]).is_none() && front.get(keys[4]).is_some(), "the one that was not asked for went");
        front.put(keys[5], &Arc::new(0));
        assert!(front.get(keys[5]).is_none(), "all were asked for");
        front.put(keys[5], &Arc::new(0));
        assert!(front.get(keys[5]).is_some(), "none was asked for since");
    }

    #[test]
    fn what_is_held_stays_and_is_freed_with_its_last_holder() {
        let (front, keys) = one_set();
        let value = Arc::new(5);
        front.put(keys[0], &value);
        let held: Vec<_> = (0..20).map(|_| front.get(keys[0]).expect("there")).collect();
        let kept = Arc::clone(held[0].shared());
        front.forget(keys[0]);
        assert!(held.iter().all(|held| **held == 5));
        drop(held);
        assert_eq!(Arc::strong_count(&value), 2);
        drop(kept);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_slot_that_changes_hands_under_a_reader_gives_it_nothing() {
        let (front, keys) = one_set();
        front.put(keys[0], &Arc::new(5));
        let slot = &front.set(front.place(keys[0])).expect("it was written").0[0];
        assert_eq!(slot.get_while(keys[0], || {}).as_deref(), Some(&5));
        assert!(slot.get_while(keys[0], || slot.set(keys[1], Some(Arc::new(6)))).is_none());
        assert!(slot.get_while(keys[1], || slot.set([0, 0], None)).is_none());
        slot.set(keys[0], Some(Arc::new(7)));
        // Its own key again, by way of another.
        let there_and_back = || {
            slot.set(keys[1], Some(Arc::new(8)));
            slot.set(keys[0], Some(Arc::new(9)));
        };
        assert!(slot.get_while(keys[0], there_and_back).is_none());
        slot.version.fetch_add(1, Ordering::Relaxed);
        assert!(slot.get(keys[0]).is_none(), "it is being written");
    }

    #[test]
    fn readers_meet_no_value_of_another_key_while_slots_change_hands() {
        let (front, keys) = one_set();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (front, keys, is_done) = (&front, &keys, &is_done);
                scope.spawn(move || {
                    let mut step = reader;
                    while !is_done.load(Ordering::Relaxed) {
                        step += 5;
                        let key = keys[step % keys.len()];
                        let found = front.get(key);
                        assert!(found.is_none_or(|value| *value % 1_000_000 == key[0] % 1_000_000));
                    }
                });
            }
            for round in 0..50_000 {
                let key = keys[round % keys.len()];
                match round % 7 {
                    0 => front.forget(key),
                    _ => front.put(key, &Arc::new(round as u64 * 1_000_000 + key[0] % 1_000_000)),
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
