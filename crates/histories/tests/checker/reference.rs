//! A small store with versions, whose isolation can be broken in known ways.
//!
//! Versions have the seq of their commit. A transaction reads at the seq at which it began, or, read committed, at the
//! newest one; what it
//! writes stays with it until it commits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use histories::{Element, Failure, Isolation, Key, Store, Txn};

/// A mistake that such a store can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nobody looks whether a key was written since the transaction began.
    FirstCommitterSkipped,
    /// Nobody looks whether what a serializable transaction read was written since.
    ReadSetSkipped,
    /// The same, for ranges alone.
    RangeSetSkipped,
    /// Half of a commit becomes visible, then the other half.
    TornCommit,
    /// What is not committed yet is shown to others.
    DirtyRead,
    /// Writes go where committed versions are, at once, and stay there.
    WritesInPlace,
    /// A snapshot lacks the last commit.
    StaleSnapshot,
    /// A snapshot of odd keys lacks the last commits, for every other transaction; one of even keys for the others.
    TwoSnapshots,
    /// A transaction does not see in ranges what it wrote itself.
    OwnWritesForgotten,
}

/// How the store keeps transactions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One at a time.
    Serial,
    /// As they ask for.
    Proper,
    /// As they ask for, with a mistake.
    With(Bug),
}

type Versions = BTreeMap<Key, Vec<(u64, Vec<Element>)>>;

#[derive(Default)]
struct State {
    versions: Versions,
    seq: u64,
    begun: u64,
    is_taken: bool,
    /// The other half of a torn commit.
    pending: BTreeMap<Key, Vec<Element>>,
    /// What is not committed.
    dirty: BTreeMap<Key, Vec<Element>>,
}

impl State {
    fn publish(&mut self, writes: impl IntoIterator<Item = (Key, Vec<Element>)>) {
        self.seq += 1;
        for (key, list) in writes {
            self.versions.entry(key).or_default().push((self.seq, list));
        }
    }

    fn at(&self, key: Key, seq: u64) -> Vec<Element> {
        let versions = self.versions.get(&key).map_or(&[][..], Vec::as_slice);
        versions.iter().rev().find(|(of, _)| *of <= seq).map(|(_, list)| list.clone()).unwrap_or_default()
    }

    fn written_since(&self, key: Key, seq: u64) -> bool {
        self.versions.get(&key).and_then(|versions| versions.last()).is_some_and(|(of, _)| *of > seq)
    }

    fn finish_torn(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.publish(pending);
        }
    }
}

pub(crate) struct Reference {
    mode: Mode,
    tells_seqs: bool,
    state: Mutex<State>,
}

impl Reference {
    pub(crate) fn new(mode: Mode, tells_seqs: bool) -> Self {
        Self { mode, tells_seqs, state: Mutex::default() }
    }

    fn has(&self, bug: Bug) -> bool {
        self.mode == Mode::With(bug)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Reference {
    type Txn<'a> = ReferenceTxn<'a>;

    fn begin(&self, isolation: Isolation) -> Result<ReferenceTxn<'_>, Failure> {
        let mut state = self.state();
        if self.mode == Mode::Serial && std::mem::replace(&mut state.is_taken, true) {
            return Err(Failure::Aborted("another one is open".into()));
        }
        state.begun += 1;
        let stale = u64::from(self.has(Bug::StaleSnapshot));
        let (number, snapshot) = (state.begun, state.seq.saturating_sub(stale));
        state.finish_torn();
        Ok(ReferenceTxn { store: self, isolation, number, snapshot, ..ReferenceTxn::of(self, isolation) })
    }
}

pub(crate) struct ReferenceTxn<'a> {
    store: &'a Reference,
    isolation: Isolation,
    number: u64,
    snapshot: u64,
    reads: BTreeSet<Key>,
    ranges: Vec<(Key, Key)>,
    for_update: BTreeSet<Key>,
    writes: BTreeMap<Key, Vec<Element>>,
    appended: BTreeMap<Key, Vec<Element>>,
}

impl<'a> ReferenceTxn<'a> {
    fn of(store: &'a Reference, isolation: Isolation) -> Self {
        let (reads, ranges, for_update, writes, appended) = <_>::default();
        Self { store, isolation, number: 0, snapshot: 0, reads, ranges, for_update, writes, appended }
    }

    /// The seq at which a key is read.
    fn moment(&self, key: Key) -> u64 {
        let at_newest = self.isolation == Isolation::ReadCommitted || self.store.has(Bug::WritesInPlace);
        match (at_newest, self.store.has(Bug::TwoSnapshots) && (key.0 + self.number).is_multiple_of(2)) {
            (true, _) => u64::MAX,
            (false, true) => self.snapshot.saturating_sub(3),
            (false, false) => self.snapshot,
        }
    }

    fn look(&self, key: Key) -> Vec<Element> {
        if let Some(own) = self.writes.get(&key) {
            return own.clone();
        }
        let state = self.store.state();
        let dirty = state.dirty.get(&key).filter(|_| self.store.has(Bug::DirtyRead));
        dirty.cloned().unwrap_or_else(|| state.at(key, self.moment(key)))
    }

    fn put(&mut self, key: Key, list: Vec<Element>) {
        let mut state = self.store.state();
        if self.store.has(Bug::WritesInPlace) {
            state.publish([(key, list)]);
            return;
        }
        if self.store.has(Bug::DirtyRead) {
            state.dirty.insert(key, list.clone());
        }
        self.writes.insert(key, list);
    }

    fn conflict(&self, state: &State) -> Option<String> {
        let store = self.store;
        let written = |key: &Key| state.written_since(*key, self.snapshot);
        let first_wins = self.isolation >= Isolation::Snapshot && !store.has(Bug::FirstCommitterSkipped);
        let wrote = self.writes.keys().filter(|_| first_wins);
        if let Some(key) = wrote.chain(&self.for_update).find(|key| written(key)) {
            return Some(format!("{key} was written"));
        }
        let looks = self.isolation == Isolation::Serializable && !self.writes.is_empty();
        if !looks || store.has(Bug::ReadSetSkipped) {
            return None;
        }
        let in_range = |key: &Key| self.ranges.iter().any(|(from, to)| from <= key && key <= to);
        let ranges = !store.has(Bug::RangeSetSkipped);
        let read = state.versions.keys().filter(|key| self.reads.contains(key) || (ranges && in_range(key)));
        read.into_iter().find(|key| written(key)).map(|key| format!("{key} was read, and written since"))
    }

    fn end(&self, state: &mut State) {
        state.is_taken = false;
        self.writes.keys().for_each(|key| _ = state.dirty.remove(key));
    }
}

impl Txn for ReferenceTxn<'_> {
    fn read(&mut self, key: Key) -> Result<Vec<Element>, Failure> {
        self.reads.insert(key);
        Ok(self.look(key))
    }

    fn read_for_update(&mut self, key: Key) -> Result<Vec<Element>, Failure> {
        self.for_update.insert(key);
        Ok(self.look(key))
    }

    fn read_range(&mut self, from: Key, to: Key, backward: bool) -> Result<Vec<(Key, Vec<Element>)>, Failure> {
        self.ranges.push((from, to));
        let there: BTreeSet<Key> = {
            let state = self.store.state();
            let own = self.writes.keys().filter(|_| !self.store.has(Bug::OwnWritesForgotten));
            state.versions.range(from..=to).map(|(key, _)| *key).chain(own.copied()).collect()
        };
        let within = there.into_iter().filter(|key| from <= *key && *key <= to);
        let mut found: Vec<_> = within.map(|key| (key, self.look(key))).filter(|(_, list)| !list.is_empty()).collect();
        if backward {
            found.reverse();
        }
        Ok(found)
    }

    fn append(&mut self, key: Key, element: Element) -> Result<(), Failure> {
        let mut list = self.look(key);
        list.push(element);
        self.appended.entry(key).or_default().push(element);
        self.put(key, list);
        Ok(())
    }

    fn write(&mut self, key: Key, value: Element) -> Result<(), Failure> {
        self.put(key, vec![value]);
        Ok(())
    }

    fn delete(&mut self, key: Key) -> Result<(), Failure> {
        self.put(key, Vec::new());
        Ok(())
    }

    fn commit(self) -> Result<Option<u64>, Failure> {
        let mut state = self.store.state();
        state.finish_torn();
        self.end(&mut state);
        if let Some(why) = self.conflict(&state) {
            return Err(Failure::Aborted(why));
        }
        if self.writes.is_empty() {
            return Ok(None);
        }
        let mut writes = self.writes.clone();
        if self.isolation == Isolation::ReadCommitted {
            // To what is there now, whatever was there when it appended.
            writes.extend(
                self.appended.iter().map(|(key, own)| (*key, [state.at(*key, u64::MAX), own.clone()].concat())),
            );
        }
        if self.store.has(Bug::TornCommit) {
            let half = writes.keys().nth(writes.len() / 2).copied();
            state.pending = half.map(|key| writes.split_off(&key)).unwrap_or_default();
        }
        state.publish(writes);
        Ok(self.store.tells_seqs.then_some(state.seq))
    }

    fn abort(self) {
        self.end(&mut self.store.state());
    }
}
