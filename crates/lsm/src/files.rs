//! The files of a tree on storage.
//!
//! 1. A file that was created is **open** until the version that refers to it is installed or discarded.
//! 2. A file is **dead** where it is not open and the current version has no slice of it. Readers of older versions may
//!    still read it, and recovery from an older checkpoint may still ask for it.
//! 3. What was dead when a checkpoint took the root can go once that checkpoint is durable.
//!
//! Files that a crash has left behind are dead from the beginning. Their numbers are not given again.

use std::collections::{BTreeMap, BTreeSet};

use index::{Result, Space, TableId};
use parking_lot::Mutex;
use psync::File;
use space::FileStore;

use crate::sst::{self, DIRECTORY, Sst, name_of};
use crate::version::{Version, stream_of};

/// The files of a tree.
pub(crate) struct Files {
    store: FileStore,
    table: TableId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Bytes of all files, by their numbers; 0 where they are not known.
    bytes: BTreeMap<u64, u64>,
    open: BTreeSet<u64>,
    /// Those that can go with the next checkpoint.
    dead: Vec<u64>,
}

impl Files {
    /// The files of a table, whose next number is not below `next`.
    pub(crate) fn find(store: &FileStore, table: TableId, next: u64) -> Result<Self> {
        let mut state = State { next, ..State::default() };
        for (of, number) in sst::list(store)? {
            if of == table {
                state.next = state.next.max(number.saturating_add(1));
                state.bytes.insert(number, 0);
            }
        }
        if !store.is_read_only() {
            store.note_found(DIRECTORY)?;
        }
        Ok(Self { store: store.clone(), table, state: Mutex::new(state) })
    }

    /// Creates a file for a level, to be written.
    pub(crate) fn create(&self, level: usize) -> Result<(u64, File)> {
        let number = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            number
        };
        let file = Sst::create(&self.store, stream_of(level), self.table, number)?;
        let mut state = self.state.lock();
        state.bytes.insert(number, 0);
        state.open.insert(number);
        Ok((number, file))
    }

    /// Notes the length of a file.
    pub(crate) fn note(&self, number: u64, bytes: u64) {
        self.state.lock().bytes.insert(number, bytes);
    }

    /// These files are no longer open: the version that refers to them is the current one, or there will be none, and
    /// they are dead.
    pub(crate) fn settle(&self, numbers: &[u64]) {
        let mut state = self.state.lock();
        state.open.retain(|number| !numbers.contains(number));
    }

    /// Removes files that nothing refers to, and never will. A file that cannot be removed is dead.
    pub(crate) fn abandon(&self, numbers: &[u64]) {
        for number in numbers {
            let removed = self.store.release(&name_of(self.table, *number));
            let mut state = self.state.lock();
            state.open.remove(number);
            if removed.is_ok() {
                state.bytes.remove(number);
            }
        }
    }

    /// A recovered version follows: its files are not dead, and their numbers are taken.
    pub(crate) fn follow(&self, version: &Version) {
        let mut state = self.state.lock();
        state.next = state.next.max(version.next());
        for (_, slice) in version.all() {
            state.bytes.insert(slice.sst().number(), slice.sst().bytes());
        }
    }

    /// Chooses those that can go once a checkpoint with this version is durable.
    pub(crate) fn choose_dead(&self, current: &Version) {
        let live = numbers(current);
        let mut state = self.state.lock();
        let State { bytes, open, dead, .. } = &mut *state;
        *dead = bytes.keys().copied().filter(|number| !live.contains(number) && !open.contains(number)).collect();
    }

    /// Removes the chosen ones, and returns their numbers.
    ///
    /// # Errors
    /// When one cannot be removed. The next call goes on with it.
    pub(crate) fn release_dead(&self) -> Result<Vec<u64>> {
        let mut removed = Vec::new();
        while let Some(number) = { self.state.lock().dead.last().copied() } {
            self.store.release(&name_of(self.table, number))?;
            let mut state = self.state.lock();
            state.dead.pop();
            state.bytes.remove(&number);
            removed.push(number);
        }
        Ok(removed)
    }

    /// Removes all of them.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub(crate) fn destroy(&self) -> Result<()> {
        let numbers: Vec<u64> = self.state.lock().bytes.keys().copied().collect();
        for number in numbers {
            self.store.release(&name_of(self.table, number))?;
            self.state.lock().bytes.remove(&number);
        }
        Ok(())
    }

    /// What the files take, where this is the current version.
    pub(crate) fn space(&self, current: &Version) -> Space {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, slice) in current.all() {
            *live.entry(slice.sst().number()).or_default() += slice.bytes();
        }
        let state = self.state.lock();
        let mut space = Space { files: state.bytes.len() as u64, ..Space::default() };
        for (number, bytes) in &state.bytes {
            space.bytes += bytes;
            match live.get(number) {
                Some(live) => {
                    space.live_bytes += live.min(bytes);
                    space.garbage_bytes += bytes.saturating_sub(*live);
                }
                None if state.open.contains(number) => space.live_bytes += bytes,
                None => space.dead_bytes += bytes,
            }
        }
        space
    }
}

fn numbers(version: &Version) -> BTreeSet<u64> {
    version.all().map(|(_, slice)| slice.sst().number()).collect()
}
