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
//! 5. Segments with live bytes of a retained state are protected ([`pin`]): they stay, and cleaning leaves them alone.
//!
//! Invariants:
//!
//! - A retained state has exactly the commits up to its seq, and its structure has no other.
//! - A segment loses its protection only when a checkpoint is durable that no longer knows the state.
//! - The reader of an opened state holds the table as with any older state, so the reader goes on when the state is
//!   given up.

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
struct State {
    header: RetainedHeader,
    described: append::Described,
}

/// The retained states of a table.
pub(crate) struct History {
    /// How many states to retain.
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
    pub(crate) fn add(&self, table: &TableCore, header: RetainedHeader) -> Result<()> {
        let state = State::new(table, header)?;
        self.states.lock().push(state);
        Ok(())
    }

    /// Gives up the oldest states if there are more than `most`.
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

/// The time for users; the epoch if the image has an impossible time.
fn point(time: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(time.0)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Protects the segments that the retained states of a table refer to, and no others. A durable checkpoint knows these
/// states.
pub(crate) fn pin(table: &TableCore) -> Result<()> {
    let states = table.history.states.lock().clone();
    table.tree.pin(states.iter().map(|state| state.header.root.as_slice()))?;
    let segments: BTreeSet<SegmentId> =
        states.iter().flat_map(|state| &state.header.documents).map(|retained| retained.segment).collect();
    table.documents.pin(&segments);
    Ok(())
}

/// Restores the states that a checkpoint knows of a table that is being opened.
pub(crate) fn restore(table: &TableCore, headers: &[RetainedHeader]) -> Result<()> {
    let states = headers.iter().map(|header| State::new(table, header.clone())).collect::<Result<_>>()?;
    *table.history.states.lock() = states;
    pin(table)
}

/// A retained state that was opened. The state stays readable as long as this value lives, even when it is given up.
pub(crate) struct Opened {
    pub(crate) header: RetainedHeader,
    pub(crate) commit_header: CommitHeader,
    pub(crate) state: Arc<TableState>,
}

impl TableCore {
    /// Opens the state of `seq`.
    pub(crate) fn open_state(&self, seq: Seq) -> Result<Opened> {
        // Held meanwhile, because a state is given up before its readers are counted.
        let states = self.history.states.lock();
        let Some(state) = states.iter().find(|state| state.header.seq == seq) else {
            let retained = states.iter().map(|state| state.header.seq.0).collect();
            return Err(Error::NoSuchState { name: self.name.clone(), seq: seq.0, retained });
        };
        self.opened(state)
    }

    /// Opens all retained states.
    pub(crate) fn open_states(&self) -> Result<Vec<Opened>> {
        self.history.states.lock().iter().map(|state| self.opened(state)).collect()
    }

    fn opened(&self, state: &State) -> Result<Opened> {
        let (header, commit_header) = (state.header.clone(), state.commit_header());
        let state = self.retained_state(self.tree.at(&header.root)?, header.tombstones.clone());
        Ok(Opened { header, commit_header, state })
    }
}
