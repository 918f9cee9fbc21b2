//! The state of cleaning ([`crate::upkeep::clean`]): a cycle, its plan, and waits for room.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use doclog::{SegmentId, Usage};
use index::{Seq, TableId};
use parking_lot::Mutex;
use space::{Class, Loan};

use crate::tables::catalog::TableCore;

/// The pause after a full disk was met. Then cleaning goes on as if there were room.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);

/// The state of cleaning that commits and statistics see too.
#[derive(Default)]
pub(crate) struct Cleaning {
    /// Live bytes of segments at the end of a cycle through their table.
    pub(crate) left: Mutex<BTreeMap<(TableId, SegmentId), u64>>,
    /// Room is scarce: cleaning takes one segment at a time.
    pub(crate) tight: AtomicBool,
    /// Cleaning waits, because not even one document found room.
    pub(crate) waits: AtomicBool,
    /// The time at which one of these two was last set.
    pub(crate) full: Mutex<Option<Instant>>,
    /// A writer found no room for documents.
    pub(crate) room_wanted: AtomicBool,
    /// Documents and bytes moved since the database was opened.
    pub(crate) documents: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Cleaning {
    /// Documents and bytes that cleaning moved.
    pub(crate) fn moved(&self) -> (u64, u64) {
        (self.documents.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Notes that there may be room now.
    pub(crate) fn try_again(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.tight.store(false, Ordering::Relaxed);
    }

    /// Whether cleaning waits until there may be room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Restricts cleaning to one segment at a time from now on.
    pub(crate) fn tighten(&self) {
        self.tight.store(true, Ordering::Relaxed);
        *self.full.lock() = Some(Instant::now());
    }

    /// Stops cleaning until there may be room.
    pub(crate) fn wait(&self) {
        self.waits.store(true, Ordering::Relaxed);
        *self.full.lock() = Some(Instant::now());
    }

    /// Whether a full disk was met, and the pause after that is over.
    pub(crate) fn has_paused(&self) -> bool {
        let met = self.is_waiting() || self.tight.load(Ordering::Relaxed);
        met && self.full.lock().is_some_and(|full| full.elapsed() >= PAUSE)
    }

    /// A writer found no room for documents: the worker's next turn releases dead segments or empties one, right after
    /// its rounds.
    pub(crate) fn want_room(&self) {
        self.room_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether a writer found no room since the last call.
    pub(crate) fn take_room_wanted(&self) -> bool {
        self.room_wanted.swap(false, Ordering::Relaxed)
    }

    /// Ends a cycle: notes the live bytes that the cycle left in its segments.
    pub(crate) fn end(&self, cycle: &Cycle) {
        let (table, live) = (&cycle.table, cycle.table.documents.live());
        let mut left = self.left.lock();
        left.retain(|(id, segment), _| *id != table.id || live.contains_key(segment));
        let here = live.into_iter().filter(|(segment, _)| cycle.plan.segments.contains(segment));
        left.extend(here.map(|(segment, bytes)| ((table.id, segment), bytes)));
    }

    /// Whether a segment still has the live bytes that a cycle left there.
    pub(crate) fn is_left(&self, table: TableId, segment: &Usage) -> bool {
        self.left.lock().get(&(table, segment.segment)) == Some(&segment.live_bytes)
    }
}

/// A walk through a table.
pub(crate) struct Cycle {
    pub(crate) table: Arc<TableCore>,
    pub(crate) plan: Plan,
    pub(crate) low: Position,
    /// The cycle has asked for its share of the reserve; `loan` has the granted part.
    pub(crate) has_asked: bool,
    pub(crate) loan: Option<Loan>,
    /// A writer waits for this cycle. Where a stretch finds no room and has no loan, the cycle is given up, because
    /// shorter stretches would use up the scarce room, in the log too.
    pub(crate) at_once: bool,
}

/// The documents to be moved, and the way to move them.
pub(crate) struct Plan {
    /// The segments to clean.
    pub(crate) segments: BTreeSet<SegmentId>,
    /// Bytes of documents and keys of a stretch, unless a single document is larger. A stretch needs about this much
    /// memory.
    pub(crate) window_bytes: u64,
    pub(crate) how: How,
    /// The class of the space for the copies.
    pub(crate) class: Class,
}

/// The beginning of a stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) key: Vec<u8>,
    /// Of that key, the versions behind this one.
    pub(crate) behind: Seq,
}

/// The way to read documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Documents in flight at a time.
    pub(crate) submission_batch: usize,
    /// Documents are read by place, not by key.
    pub(crate) sorted: bool,
    /// Reads go past the page cache, where the file system allows that.
    pub(crate) direct: bool,
    /// Documents are read while others are appended.
    pub(crate) overlapped: bool,
}
