//! States of a table that are retained, to be opened again ([`crate::TableAt`]) and gone back to
//! ([`crate::handles::roll_back`]): ForestDB's commit headers.
//!
//! Rounds apply the sections of a table one after the other. A commit header of the structure therefore describes, as a
//! rule, no state that the table ever had. A checkpoint makes a **retained** state ([`crate::upkeep::retain`]), if the
//! table has changed since the one before:
//!
//! 1. In one step, all queues of the table are frozen and the visible moment is held. Its seq and time are those of the
//!    state.
//! 2. All frozen operations are applied.
//! 3. The root record, the bytes of documents that the structure refers to, and the range tombstones up to that seq are
//!    recorded for the checkpoint image. Until then no later operation is applied.
//! 4. The oldest states are given up, if there are more than the table is to retain.
//! 5. Segments with live bytes of a retained state are protected ([`crate::tables::retained`]): they stay, and cleaning
//!    leaves them alone.
//!
//! Invariants:
//!
//! - A retained state has exactly the commits up to its seq, and its structure has no other.
//! - A segment loses its protection only when a checkpoint is durable that no longer knows the state.
//! - The reader of an opened state holds the table as with any older state, so the reader goes on when the state is
//!   given up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use index::{Described, Seq, Time};
use parking_lot::Mutex;

use crate::format::RetainedHeader;

/// A state of a table that is retained: see [`Table::history`](crate::Table::history).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitHeader {
    /// The number of the commit header. The numbers of one table rise, with gaps.
    pub number: u64,
    /// The state has all commits up to this one.
    pub seq: Seq,
    /// The time of the state: values that had expired by then are not in the state.
    pub time: SystemTime,
    /// Keys, including hidden ones that are not removed yet: those that a range delete hides or that have expired.
    pub keys: u64,
    /// Bytes of nodes and documents, as stored.
    pub bytes: u64,
}

/// A retained state, and the description in its root record.
pub(super) struct State {
    pub(super) header: RetainedHeader,
    described: Described,
}

/// The retained states of a table.
pub(crate) struct History {
    /// How many states to retain.
    keep: AtomicU32,
    /// The newest commit that changed the table.
    changed: AtomicU64,
    /// The oldest first.
    pub(super) states: Mutex<Vec<Arc<State>>>,
}

impl History {
    pub(crate) fn new(keep: u32) -> Self {
        Self { keep: AtomicU32::new(keep), changed: AtomicU64::new(0), states: Mutex::default() }
    }

    /// How many states to retain.
    pub(crate) fn keep(&self) -> u32 {
        self.keep.load(Ordering::Acquire)
    }

    pub(crate) fn set_keep(&self, states: u32) {
        self.keep.store(states, Ordering::Release);
    }

    /// Notes that a commit changed the table.
    pub(crate) fn note_change(&self, seq: Seq) {
        self.changed.fetch_max(seq.0, Ordering::Relaxed);
    }

    /// The headers for a checkpoint image.
    pub(crate) fn images(&self) -> Vec<RetainedHeader> {
        self.states.lock().iter().map(|state| state.header.clone()).collect()
    }

    /// The retained states, the oldest first.
    pub(crate) fn headers(&self) -> Vec<CommitHeader> {
        self.states.lock().iter().map(|state| state.commit_header()).collect()
    }

    /// Whether the table has changed since the newest state.
    pub(crate) fn is_due(&self) -> bool {
        let newest = self.states.lock().last().map_or(0, |state| state.header.seq.0);
        self.changed.load(Ordering::Relaxed) > newest
    }

    /// Adds a retained state, the newest.
    pub(super) fn add(&self, state: Arc<State>) {
        self.states.lock().push(state);
    }

    /// Gives up the oldest states if there are more than `most`.
    pub(crate) fn trim(&self, most: usize) {
        let mut states = self.states.lock();
        let surplus = states.len().saturating_sub(most);
        states.drain(..surplus);
    }
}

impl State {
    pub(super) fn new(header: RetainedHeader, described: Described) -> Arc<Self> {
        Arc::new(Self { header, described })
    }

    pub(super) fn commit_header(&self) -> CommitHeader {
        let (RetainedHeader { seq, time, documents, .. }, described) = (&self.header, &self.described);
        let bytes = documents.iter().map(|retained| retained.bytes).fold(described.live_bytes, u64::saturating_add);
        CommitHeader { number: described.number, seq: *seq, time: point(*time), keys: described.keys, bytes }
    }
}

/// The time for users; the epoch if the image has an impossible time.
fn point(time: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(time.0)).unwrap_or(SystemTime::UNIX_EPOCH)
}
