//! The seqs of recent commits, and the locks of transactions. Both tell a transaction whether another writer was in its
//! way.
//!
//! 1. Every commit holds the stripes of its keys from the check whether the commit is admissible until its seq is noted
//!    there. So the check and the assignment of the seq are one step for all commits of the same keys. Meanwhile there
//!    is no I/O but the log's own.
//! 2. Each key has a place, which holds the seq of the newest commit of that key or of another key that shares the
//!    place. That is an upper bound. A reader that finds the bound too new looks up the key itself
//!    ([`crate::commit::validate`]).
//! 3. A delete of a range is noted once for all keys, while every stripe is held, because that delete may be the newest
//!    commit of any key.
//! 4. The stripe of a key lists the key while a transaction has it locked, so a commit sees the lock in the same step.
//!    Whoever waits for a lock gets it in turn. A commit that meets a lock waits for its turn too, and holds the lock
//!    until it has its place.
//! 5. While a transaction reads ranges that must not change, commits also leave their operations in a bounded [`ring`].
//!
//! Invariants: stripes are held in rising order; the holder of a stripe waits for no other transaction.

mod ring;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use hashbrown::DefaultHashBuilder;
use index::{Seq, TableId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::words::verifies::VERIFIES;

pub(crate) use ring::{Hit, Ring};

const STRIPES: usize = 256;
/// Places of a stripe: 2 MiB in all.
const PLACES: usize = 1024;

/// The holder of locks: a transaction, or a commit that waited for one. [`Owner::NONE`] holds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

impl Owner {
    /// A commit that met no lock.
    pub(crate) const NONE: Self = Self(0);
}

/// The slot that notes the seq of a key's newest commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(u32);

impl Place {
    const fn stripe(self) -> usize {
        self.0 as usize / PLACES
    }

    const fn index(self) -> usize {
        self.0 as usize % PLACES
    }
}

/// Places of the keys of a commit.
pub(crate) type Places = SmallVec<[Place; 4]>;

/// A key that can be locked, with its table.
pub(crate) type LockKey = (TableId, Vec<u8>);

/// The end of a wait for a lock; none waits without limit.
pub(crate) type Deadline = Option<Instant>;

/// Whether a lock is new to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    New,
    Again,
}

/// The reason why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotLocked {
    /// The holder kept the lock beyond the deadline.
    TimedOut,
    /// The holder waits for the transaction that asks, perhaps through others.
    Deadlock,
}

#[derive(Default)]
struct Stripe {
    noted: Mutex<Noted>,
    unlocked: Condvar,
}

#[derive(Default)]
struct Noted {
    /// Empty until the first commit.
    seqs: Vec<u64>,
    locks: HashMap<LockKey, Lock>,
}

/// A lock that is held.
struct Lock {
    holder: Owner,
    /// Who gets the lock next, in this order.
    waiting: VecDeque<Owner>,
}

impl Noted {
    fn newest(&self, place: Place) -> Seq {
        Seq(self.seqs.get(place.index()).copied().unwrap_or_default())
    }

    fn note(&mut self, place: Place, seq: Seq) {
        if self.seqs.is_empty() {
            self.seqs = vec![0; PLACES];
        }
        // Commits of one place come in the order of their seqs, because each holds the stripe meanwhile.
        self.seqs[place.index()] = seq.0;
    }

    fn holder(&self, table: TableId, key: &[u8], but: Owner) -> Option<Owner> {
        if self.locks.is_empty() {
            return None;
        }
        self.locks.get(&(table, key.to_vec())).map(|lock| lock.holder).filter(|holder| *holder != but)
    }
}

/// Seqs of recent commits, and locked keys.
pub(crate) struct Recent {
    stripes: Box<[Stripe]>,
    hasher: DefaultHashBuilder,
    /// The newest commit that deleted a range.
    range_delete: AtomicU64,
    ring: Ring,
    waits: Mutex<HashMap<Owner, Owner>>,
    owners: AtomicU64,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            range_delete: AtomicU64::new(0),
            ring: Ring::default(),
            waits: Mutex::default(),
            owners: AtomicU64::new(1),
        }
    }
}

impl Recent {
    /// A new transaction.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// The place of `key`.
    pub(crate) fn place(&self, table: TableId, key: &[u8]) -> Place {
        let places = u64::try_from(STRIPES * PLACES).expect("a small number");
        let place = self.hasher.hash_one((table.0, key)) % places;
        Place(u32::try_from(place).expect("below the number of places"))
    }

    /// An upper bound of the seqs that commits of keys at `place` have so far.
    pub(crate) fn newest(&self, place: Place) -> Seq {
        let noted = self.stripes[place.stripe()].noted.lock();
        noted.newest(place).max(self.range_delete())
    }

    /// The newest commit that deleted a range; to be read with a stripe held.
    fn range_delete(&self) -> Seq {
        Seq(self.range_delete.load(Ordering::Relaxed))
    }

    /// Holds the stripes of `places`, which rise.
    pub(crate) fn hold(&self, places: &[Place]) -> Stripes<'_> {
        assert!(!VERIFIES || places.is_sorted(), "stripes are held in one order, or two commits wait for each other");
        let mut guards: SmallVec<[(usize, MutexGuard<'_, Noted>); 4]> = SmallVec::new();
        for place in places {
            let stripe = place.stripe();
            if guards.last().is_none_or(|(last, _)| *last != stripe) {
                guards.push((stripe, self.stripes[stripe].noted.lock()));
            }
        }
        Stripes { recent: self, guards }
    }

    /// Holds every stripe: meanwhile no commit gets its seq.
    pub(crate) fn hold_all(&self) -> Stripes<'_> {
        let guards = self.stripes.iter().map(|stripe| stripe.noted.lock()).enumerate().collect();
        Stripes { recent: self, guards }
    }

    /// Locks `key` for `owner`, which may have the lock already; waits for its turn while there is another holder.
    ///
    /// # Errors
    /// When the lock was not granted by `deadline`, or never would be. Then nothing changed.
    pub(crate) fn lock(&self, key: LockKey, owner: Owner, deadline: Deadline) -> Result<Locking, NotLocked> {
        let stripe = self.stripe(&key);
        let mut noted = stripe.noted.lock();
        match noted.locks.entry(key.clone()) {
            Entry::Vacant(free) => {
                free.insert(Lock { holder: owner, waiting: VecDeque::new() });
                return Ok(Locking::New);
            }
            Entry::Occupied(held) if held.get().holder == owner => return Ok(Locking::Again),
            Entry::Occupied(mut held) => held.get_mut().waiting.push_back(owner),
        }
        let refused = loop {
            let lock = noted.locks.get_mut(&key).expect("a lock stays as long as somebody waits for it");
            if lock.holder == owner {
                return Ok(Locking::New);
            }
            if !self.begin_wait(owner, lock.holder) {
                break NotLocked::Deadlock;
            }
            let timed_out = match deadline {
                Some(deadline) => stripe.unlocked.wait_until(&mut noted, deadline).timed_out(),
                None => {
                    stripe.unlocked.wait(&mut noted);
                    false
                }
            };
            self.waits.lock().remove(&owner);
            if timed_out && noted.holder(key.0, &key.1, owner).is_some() {
                break NotLocked::TimedOut;
            }
        };
        let lock = noted.locks.get_mut(&key).expect("a lock stays as long as somebody waits for it");
        lock.waiting.retain(|waiting| *waiting != owner);
        Err(refused)
    }

    /// Waits until `key` is its owner's turn, which ends with the returned value. None where the owner has it already.
    ///
    /// # Errors
    /// As [`Recent::lock`].
    pub(crate) fn wait_for_turn(
        &self, key: LockKey, owner: Owner, deadline: Deadline,
    ) -> Result<Option<Turn<'_>>, NotLocked> {
        let locking = self.lock(key.clone(), owner, deadline)?;
        // Not made where the lock is an older one, which would end with it.
        Ok((locking == Locking::New).then(|| Turn { recent: self, key }))
    }

    fn stripe(&self, (table, key): &LockKey) -> &Stripe {
        &self.stripes[self.place(*table, key).stripe()]
    }

    /// Notes that `owner` waits for `holder`. False where `holder` waits for `owner` already, perhaps through others.
    fn begin_wait(&self, owner: Owner, holder: Owner) -> bool {
        let mut waits = self.waits.lock();
        let mut next = Some(holder);
        while let Some(waiting) = next {
            if waiting == owner {
                return false;
            }
            next = waits.get(&waiting).copied();
        }
        waits.insert(owner, holder);
        true
    }

    /// Whether a transaction other than `owner` has locked `key`.
    pub(crate) fn is_locked(&self, table: TableId, key: &[u8], owner: Owner) -> bool {
        self.stripes[self.place(table, key).stripe()].noted.lock().holder(table, key, owner).is_some()
    }

    /// Gives a lock back. Who waits for it longest has it then.
    pub(crate) fn unlock(&self, key: &LockKey) {
        let stripe = self.stripe(key);
        let mut noted = stripe.noted.lock();
        let Some(lock) = noted.locks.get_mut(key) else { return };
        match lock.waiting.pop_front() {
            Some(next) => {
                lock.holder = next;
                // Those that wait still have to wake and see for whom they wait now.
                let mut waits = self.waits.lock();
                waits.remove(&next);
                for waiting in &lock.waiting {
                    waits.insert(*waiting, next);
                }
            }
            None => {
                noted.locks.remove(key);
            }
        }
        drop(noted);
        stripe.unlocked.notify_all();
    }

    /// The ring of recent commits, for readers of ranges.
    pub(crate) const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Keeps commits in the ring from here on, until [`Ring::unwatch`]. `last` gives the last assigned seq. Commits up
    /// to the returned seq may be missing from the ring.
    pub(crate) fn watch(&self, last: impl FnOnce() -> Seq) -> Seq {
        let _no_commit = self.hold_all();
        self.ring.watch(last)
    }
}

/// A lock that is given back with this value.
pub(crate) struct Turn<'a> {
    recent: &'a Recent,
    key: LockKey,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.recent.unlock(&self.key);
    }
}

/// Some stripes, held.
pub(crate) struct Stripes<'a> {
    recent: &'a Recent,
    guards: SmallVec<[(usize, MutexGuard<'a, Noted>); 4]>,
}

impl Stripes<'_> {
    fn at(&self, place: Place) -> usize {
        let at = self.guards.binary_search_by_key(&place.stripe(), |(stripe, _)| *stripe);
        at.expect("the stripes of all places asked about are held")
    }

    fn noted(&self, place: Place) -> &Noted {
        &self.guards[self.at(place)].1
    }

    /// As [`Recent::newest`], of a place whose stripe is held.
    pub(crate) fn newest(&self, place: Place) -> Seq {
        self.noted(place).newest(place).max(self.recent.range_delete())
    }

    /// A key from `low` to below `high` that a transaction other than `owner` has locked. Every stripe is held.
    pub(crate) fn locked_within(
        &self, table: TableId, low: &[u8], high: Option<&[u8]>, owner: Owner,
    ) -> Option<Vec<u8>> {
        let all = self.guards.iter().flat_map(|(_, noted)| &noted.locks);
        let is_in_the_way = |((of, key), lock): &(&LockKey, &Lock)| {
            *of == table && key.as_slice() >= low && index::is_below(key, high) && lock.holder != owner
        };
        all.into_iter().find(is_in_the_way).map(|((_, key), _)| key.clone())
    }

    /// Whether a transaction other than `owner` has locked `key`.
    pub(crate) fn is_locked(&self, table: TableId, key: &[u8], place: Place, owner: Owner) -> bool {
        self.noted(place).holder(table, key, owner).is_some()
    }

    /// Whether the held stripes have no locks.
    pub(crate) fn are_unlocked(&self) -> bool {
        self.guards.iter().all(|(_, noted)| noted.locks.is_empty())
    }

    /// Notes a commit at the places of its keys, which rise. With `deletes_ranges` the commit is noted for all keys;
    /// then every stripe is held.
    pub(crate) fn note(&mut self, places: &[Place], deletes_ranges: bool, seq: Seq, payload: &[u8]) {
        for of_stripe in places.chunk_by(|one, other| one.stripe() == other.stripe()) {
            let at = self.at(of_stripe[0]);
            let noted = &mut self.guards[at].1;
            of_stripe.iter().for_each(|&place| noted.note(place, seq));
        }
        if deletes_ranges {
            self.recent.range_delete.store(seq.0, Ordering::Relaxed);
        }
        self.recent.ring.note(seq, payload);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use super::*;

    const TABLE: TableId = TableId(1);

    fn rising<const N: usize>(mut places: [Place; N]) -> [Place; N] {
        places.sort_unstable();
        places
    }

    fn soon() -> Deadline {
        Some(Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn a_commit_is_noted_where_its_keys_are() {
        let recent = Recent::default();
        let (one, other) = (recent.place(TABLE, b"one"), recent.place(TABLE, b"other"));
        assert_eq!(recent.newest(one), Seq(0));
        recent.hold(&rising([other, one, one])).note(&[one], false, Seq(7), b"");
        assert_eq!((recent.newest(one), recent.newest(other)), (Seq(7), Seq(0)));
        assert_eq!(recent.hold_all().newest(one), Seq(7));
    }

    fn key(key: &str) -> LockKey {
        (TABLE, key.into())
    }

    #[test]
    fn a_lock_keeps_others_out_until_it_is_given_back() {
        let recent = Arc::new(Recent::default());
        let (holder, waiter) = (recent.new_owner(), recent.new_owner());
        recent.lock(key("key"), holder, soon()).expect("free");
        recent.lock(key("key"), holder, soon()).expect("its own");
        assert_eq!(recent.lock(key("key"), waiter, Some(Instant::now())), Err(NotLocked::TimedOut));
        let place = recent.place(TABLE, b"key");
        assert!(recent.hold(&[place]).is_locked(TABLE, b"key", place, waiter));
        assert!(!recent.hold(&[place]).is_locked(TABLE, b"key", place, holder));
        let waits = thread::spawn({
            let recent = Arc::clone(&recent);
            move || recent.lock(key("key"), waiter, soon())
        });
        recent.unlock(&key("key"));
        assert_eq!(waits.join().expect("no panic"), Ok(Locking::New));
        recent.unlock(&key("key"));
        assert!(recent.hold_all().are_unlocked(), "who timed out does not get it");
    }

    #[test]
    fn a_turn_does_not_end_an_older_lock() {
        let recent = Recent::default();
        let (holder, other) = (recent.new_owner(), recent.new_owner());
        recent.lock(key("held"), holder, soon()).expect("free");
        assert!(recent.wait_for_turn(key("held"), holder, soon()).expect("its own").is_none());
        let turn = recent.wait_for_turn(key("new"), holder, soon()).expect("free");
        for name in ["held", "new"] {
            assert_eq!(recent.lock(key(name), other, Some(Instant::now())), Err(NotLocked::TimedOut));
        }
        drop(turn);
        assert_eq!(recent.lock(key("new"), other, soon()), Ok(Locking::New));
    }

    #[test]
    fn a_lock_is_passed_on_in_turn() {
        let recent = Arc::new(Recent::default());
        let holder = recent.new_owner();
        recent.lock(key("key"), holder, soon()).expect("free");
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..8)
            .map(|number| {
                let waits = thread::spawn({
                    let (recent, order) = (Arc::clone(&recent), Arc::clone(&order));
                    move || {
                        let owner = recent.new_owner();
                        recent.lock(key("key"), owner, soon()).expect("in turn");
                        order.lock().push(number);
                        recent.unlock(&key("key"));
                    }
                });
                while recent.waits.lock().len() <= number {
                    thread::yield_now();
                }
                waits
            })
            .collect();
        recent.unlock(&key("key"));
        waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
        assert_eq!(*order.lock(), (0..8).collect::<Vec<_>>());
        assert!(recent.hold_all().are_unlocked());
    }

    #[test]
    fn who_would_wait_for_himself_is_told() {
        let recent = Arc::new(Recent::default());
        let (one, other) = (recent.new_owner(), recent.new_owner());
        recent.lock(key("a"), one, soon()).expect("free");
        recent.lock(key("b"), other, soon()).expect("free");
        let waits = thread::spawn({
            let recent = Arc::clone(&recent);
            move || recent.lock(key("b"), one, soon())
        });
        while recent.waits.lock().is_empty() {
            thread::yield_now();
        }
        assert_eq!(recent.lock(key("a"), other, soon()), Err(NotLocked::Deadlock));
        recent.unlock(&key("b"));
        assert_eq!(waits.join().expect("no panic"), Ok(Locking::New));
    }

    #[test]
    fn who_has_given_a_lock_up_waits_for_nobody_there() {
        let recent = Arc::new(Recent::default());
        let [first, passing, last] = [(); 3].map(|()| recent.new_owner());
        recent.lock(key("a"), first, soon()).expect("free");
        recent.lock(key("b"), last, soon()).expect("free");
        let waits = |owner, many: usize| {
            let waits = thread::spawn({
                let recent = Arc::clone(&recent);
                move || recent.lock(key("a"), owner, soon())
            });
            while recent.waits.lock().len() < many {
                thread::yield_now();
            }
            waits
        };
        let (second, third) = (waits(passing, 1), waits(last, 2));
        recent.unlock(&key("a"));
        assert_eq!(second.join().expect("no panic"), Ok(Locking::New));
        // The last one may not have woken yet. It waits for `a` alone, which goes to it now.
        recent.unlock(&key("a"));
        let refused = recent.lock(key("b"), passing, Some(Instant::now()));
        assert_eq!(refused, Err(NotLocked::TimedOut), "there is no circle");
        assert_eq!(third.join().expect("no panic"), Ok(Locking::New));
    }
}
