//! What is being cleaned, and how ([`crate::upkeep::clean`]).

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

/// After a full disk was met, cleaning goes on so much later as if there were room.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);

/// What the worker cleans.
#[derive(Default)]
pub(crate) struct Cleaning {
    pub(crate) cycle: Mutex<Option<Cycle>>,
    /// Bytes that lived in segments when a cycle through their table was over.
    pub(crate) left: Mutex<BTreeMap<(TableId, SegmentId), u64>>,
    /// There is not much room: one segment at a time.
    pub(crate) tight: AtomicBool,
    /// Not one document found room.
    pub(crate) waits: AtomicBool,
    /// When one of these two was last set.
    pub(crate) full: Mutex<Option<Instant>>,
    /// Somebody found no room for documents.
    pub(crate) room_wanted: AtomicBool,
    /// Dead bytes that the last checkpoint could not release.
    pub(crate) stuck: AtomicU64,
    /// Documents and bytes moved since the database was opened.
    pub(crate) documents: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Cleaning {
    /// Documents and bytes that cleaning moved.
    pub(crate) fn moved(&self) -> (u64, u64) {
        (self.documents.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// There may be room now.
    pub(crate) fn try_again(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.tight.store(false, Ordering::Relaxed);
    }

    /// Nothing is done until there may be room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// One segment at a time from now on.
    pub(crate) fn tighten(&self) {
        self.tight.store(true, Ordering::Relaxed);
        *self.full.lock() = Some(Instant::now());
    }

    /// Nothing at all, until there may be room.
    pub(crate) fn wait(&self) {
        self.waits.store(true, Ordering::Relaxed);
        *self.full.lock() = Some(Instant::now());
    }

    /// Whether a full disk was met, and that not just now.
    pub(crate) fn has_paused(&self) -> bool {
        let met = self.waits.load(Ordering::Relaxed) || self.tight.load(Ordering::Relaxed);
        met && self.full.lock().is_some_and(|full| full.elapsed() >= PAUSE)
    }

    /// Somebody found no room for documents: the next turn has a segment emptied before anything else.
    pub(crate) fn want_room(&self) {
        self.room_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether somebody did since the last call.
    pub(crate) fn take_room_wanted(&self) -> bool {
        self.room_wanted.swap(false, Ordering::Relaxed)
    }

    /// A cycle is over: notes what it has left.
    pub(crate) fn end(&self, cycle: &Cycle) {
        let (table, live) = (&cycle.table, cycle.table.documents.live());
        let mut left = self.left.lock();
        left.retain(|(id, segment), _| *id != table.id || live.contains_key(segment));
        let here = live.into_iter().filter(|(segment, _)| cycle.plan.segments.contains(segment));
        left.extend(here.map(|(segment, bytes)| ((table.id, segment), bytes)));
    }

    /// Whether a segment is as a cycle has left it.
    pub(crate) fn is_left(&self, table: TableId, segment: &Usage) -> bool {
        self.left.lock().get(&(table, segment.segment)) == Some(&segment.live_bytes)
    }
}

/// A walk through a table.
pub(crate) struct Cycle {
    pub(crate) table: Arc<TableCore>,
    pub(crate) plan: Plan,
    pub(crate) low: Position,
    /// It asked for what it may have of the room that is kept, and what it got.
    pub(crate) has_asked: bool,
    pub(crate) loan: Option<Loan>,
    /// Somebody waits for it, and where it does not find room as it is, it is given up: short stretches would take what little there is, of the log too.
    pub(crate) at_once: bool,
}

/// What is to be moved, and how.
pub(crate) struct Plan {
    /// The segments to clean.
    pub(crate) segments: BTreeSet<SegmentId>,
    /// Bytes of documents and keys of a stretch, unless a single document takes more: what it needs of memory, about.
    pub(crate) window_bytes: u64,
    pub(crate) how: How,
    /// Of the space that it takes.
    pub(crate) class: Class,
}

/// Where a stretch begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) key: Vec<u8>,
    /// Of that key, versions behind this one.
    pub(crate) behind: Seq,
}

/// How documents are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Documents that are in flight at a time.
    pub(crate) submission_batch: usize,
    /// By place, not by key.
    pub(crate) sorted: bool,
    /// Past the page cache, where the file system allows that.
    pub(crate) direct: bool,
    /// Documents are read while others are appended.
    pub(crate) overlapped: bool,
}
