//! States of a table that are retained, to be opened again ([`crate::TableAt`]) and gone back to ([`crate::handles::roll_back`]): ForestDB's commit headers.
//!
//! Rounds apply the sections of a table one after the other, so what a commit header of its structure has is, as a rule, no state that there ever was. One that is
//! **retained** is made by a checkpoint ([`crate::upkeep::retain`]), if the table has changed since the one before:
//!
//! 1. In one step all queues of the table are frozen and what is visible is held: its seq and time are the state's. Then everything frozen is applied.
//! 2. Nothing later goes in before the root record, the bytes of documents that the structure refers to, and the range deletes up to that seq are taken down.
//!    They go into the image of the checkpoint. The oldest ones go, where there are more than the table is to retain.
//! 3. Segments in which something lives in one of these states are pinned ([`pin`]): they stay, and nobody tries to clean them.
//!
//! Invariants: a retained state has exactly the commits up to its seq, and its structure no other; pins are taken off only when a checkpoint is durable that does not
//! know the state any more; whoever opened one holds the table as he would with any older state, so he goes on reading when it is given up.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use doclog::SegmentId;
use index::{Seq, Time};
use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    format::RetainedHeader,
    tables::catalog::{TableCore, TableState},
};

/// A state of a table that is retained: see [`Table::history`](crate::Table::history).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitHeader {
    /// The number of the commit header. Those of the same table rise; there are others between.
    pub number: u64,
    /// It has all commits up to this one.
    pub seq: Seq,
    /// When it was: what had expired by then is not in it.
    pub time: SystemTime,
    /// Keys, with those that a range delete hides or that have expired, as far as they were not removed yet.
    pub keys: u64,
    /// Bytes of its nodes and documents, as they are stored.
    pub bytes: u64,
}

/// A retained state, and what its root record tells.
struct State {
    header: RetainedHeader,
    described: append::Described,
}

/// The retained states of a table.
pub(crate) struct History {
    /// How many there are to be.
    keep: AtomicU32,
    /// The newest commit that changed the table.
    changed: AtomicU64,
    /// The oldest first.
    states: Mutex<Vec<Arc<State>>>,
}

impl History {
    pub(crate) fn new(keep: u32) -> Self {
        Self { keep: AtomicU32::new(keep), changed: AtomicU64::new(0), states: Mutex::default() }
    }

    /// How many states are to be retained.
    pub(crate) fn keep(&self) -> u32 {
        self.keep.load(Ordering::Acquire)
    }

    pub(crate) fn set_keep(&self, states: u32) {
        self.keep.store(states, Ordering::Release);
    }

    /// A commit changed the table.
    pub(crate) fn note_change(&self, seq: Seq) {
        self.changed.fetch_max(seq.0, Ordering::Relaxed);
    }

    /// What a checkpoint keeps.
    pub(crate) fn images(&self) -> Vec<RetainedHeader> {
        self.states.lock().iter().map(|state| state.header.clone()).collect()
    }

    /// What is retained, the oldest first.
    pub(crate) fn headers(&self) -> Vec<CommitHeader> {
        self.states.lock().iter().map(|state| state.commit_header()).collect()
    }

    /// Whether the table has changed since the newest state.
    pub(crate) fn is_due(&self) -> bool {
        let newest = self.states.lock().last().map_or(0, |state| state.header.seq.0);
        self.changed.load(Ordering::Relaxed) > newest
    }

    /// One more state is retained, the newest.
    pub(crate) fn add(&self, table: &TableCore, header: RetainedHeader) -> Result<()> {
        let state = State::new(table, header)?;
        self.states.lock().push(state);
        Ok(())
    }

    /// Gives up the oldest states where there are more than `most`.
    pub(crate) fn trim(&self, most: usize) {
        let mut states = self.states.lock();
        let surplus = states.len().saturating_sub(most);
        states.drain(..surplus);
    }
}

impl State {
    fn new(table: &TableCore, header: RetainedHeader) -> Result<Arc<Self>> {
        let described = append::describe(&header.root, table.id)?;
        Ok(Arc::new(Self { header, described }))
    }

    fn commit_header(&self) -> CommitHeader {
        let (RetainedHeader { seq, time, documents, .. }, described) = (&self.header, &self.described);
        let bytes = documents.iter().map(|retained| retained.bytes).fold(described.live_bytes, u64::saturating_add);
        CommitHeader { number: described.number, seq: *seq, time: point(*time), keys: described.keys, bytes }
    }
}

/// A time as everybody tells it; of an image that makes no sense it may be none.
fn point(time: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(time.0)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Pins what the retained states of a table refer to, and nothing else. A checkpoint is durable that knows them.
pub(crate) fn pin(table: &TableCore) -> Result<()> {
    let states = table.history.states.lock().clone();
    table.tree.pin(states.iter().map(|state| state.header.root.as_slice()))?;
    let segments: BTreeSet<SegmentId> =
        states.iter().flat_map(|state| &state.header.documents).map(|retained| retained.segment).collect();
    table.documents.pin(&segments);
    Ok(())
}

/// The states that a checkpoint knows of a table that is opened.
pub(crate) fn restore(table: &TableCore, headers: &[RetainedHeader]) -> Result<()> {
    let states = headers.iter().map(|header| State::new(table, header.clone())).collect::<Result<_>>()?;
    *table.history.states.lock() = states;
    pin(table)
}

/// A retained state that was opened. It is there as long as this is, whether it is retained or not.
pub(crate) struct Opened {
    pub(crate) header: RetainedHeader,
    pub(crate) commit_header: CommitHeader,
    pub(crate) state: Arc<TableState>,
}

impl TableCore {
    /// Opens the state of `seq`.
    pub(crate) fn open_state(&self, seq: Seq) -> Result<Opened> {
        // Held meanwhile: a state that is given up is so before it is looked who reads.
        let states = self.history.states.lock();
        let Some(state) = states.iter().find(|state| state.header.seq == seq) else {
            let retained = states.iter().map(|state| state.header.seq.0).collect();
            return Err(Error::NoSuchState { name: self.name.clone(), seq: seq.0, retained });
        };
        self.opened(state)
    }

    /// Opens all of them.
    pub(crate) fn open_states(&self) -> Result<Vec<Opened>> {
        self.history.states.lock().iter().map(|state| self.opened(state)).collect()
    }

    fn opened(&self, state: &State) -> Result<Opened> {
        let (header, commit_header) = (state.header.clone(), state.commit_header());
        let state = self.retained_state(self.tree.at(&header.root)?, header.tombstones.clone());
        Ok(Opened { header, commit_header, state })
    }
}
