//! The versions of one table's structure: the current one, and the one that a batch has made and that is not current
//! yet.
//!
//! 1. A change begins with the current version ([`Versions::base`]), writes, and leaves a new version behind
//!    ([`Versions::pend`]).
//! 2. The new version becomes current ([`Versions::install`]), or goes ([`Versions::discard`]). If neither happens, the
//!    next one takes its place.
//!
//! Invariant: what is installed or discarded is what was made last, once. Changes of one table come one after another.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Again, Applied, View};

/// The versions of one table's structure. `P` is what its structure keeps about a version that is not current yet.
pub struct Versions<V, P> {
    state: Mutex<State<V, P>>,
}

struct State<V, P> {
    current: Arc<V>,
    pending: Option<Pending<V, P>>,
    again: Again,
}

struct Pending<V, P> {
    version: Arc<V>,
    again: Again,
    kept: P,
}

impl<V, P> State<V, P> {
    /// The version of `applied`.
    fn take(&mut self, applied: &Applied) -> Pending<V, P>
    where
        V: View,
    {
        let pending = self.pending.take().expect("what is installed or discarded was applied, once");
        assert!(applied.is_of(&pending.version), "what is installed or discarded is what was applied last");
        pending
    }
}

impl<V: View, P> Versions<V, P> {
    /// A structure that begins with this version.
    pub fn new(current: V) -> Self {
        let state = State { current: Arc::new(current), pending: None, again: Again::default() };
        Self { state: Mutex::new(state) }
    }

    /// The current version.
    pub fn current(&self) -> Arc<V> {
        Arc::clone(&self.state.lock().current)
    }

    /// The current version, and the keys that its batches have left for later ones to look at.
    pub fn base(&self) -> (Arc<V>, Again) {
        let state = self.state.lock();
        (Arc::clone(&state.current), state.again.clone())
    }

    /// Takes a version that is to be installed or discarded. `again` are the keys that it leaves for later batches.
    pub fn pend(&self, version: &Arc<V>, again: Again, kept: P) {
        self.state.lock().pending = Some(Pending { version: Arc::clone(version), again, kept });
    }

    /// Makes the version of `applied` current. `succeed` gets the older version, the newer one, and what is kept about
    /// the newer one, before anyone sees the newer one. It runs under the lock of the versions.
    ///
    /// # Panics
    /// If `applied` is not what was applied last, or for the second time.
    pub fn install<R>(&self, applied: &Applied, succeed: impl FnOnce(&V, &V, P) -> R) -> R {
        let mut state = self.state.lock();
        let Pending { version, again, kept } = state.take(applied);
        let result = succeed(&state.current, &version, kept);
        state.again = again;
        let older = std::mem::replace(&mut state.current, version);
        drop(state);
        // This may be the last use of the older version, and releasing what it held takes time.
        drop(older);
        result
    }

    /// Forgets the version of `applied`. Returns what was kept about it.
    ///
    /// # Panics
    /// As [`Versions::install`].
    pub fn discard(&self, applied: &Applied) -> P {
        self.state.lock().take(applied).kept
    }

    /// Recovery: makes the version that follows the current one current at once. `next` runs under the lock of the
    /// versions.
    pub fn replay(&self, next: impl FnOnce(&V) -> V) {
        let mut state = self.state.lock();
        state.current = Arc::new(next(&state.current));
        state.pending = None;
    }
}
