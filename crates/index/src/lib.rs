//! The trait of an index structure, and the words all structures share.
//!
//! 1. An [`Index`] is one table's structure on storage. Its content at one moment is a [`View`]: an immutable version that
//!    any number of readers hold while the next one is being made.
//! 2. [`Index::apply`] takes a sorted [`Batch`] of operations, writes it to storage and returns the view that has it, together
//!    with the redo that brings recovery to the same view. It does not flush: the caller flushes the data, logs
//!    the redo, and only then publishes the view.
//! 3. Every operation carries its [`Seq`]; `(key, seq)` is one version, so applying a batch twice is harmless. Which versions of a key have to
//!    stay is the same for all structures ([`merge`]), and so is what has to be looked at later ([`Again`]).
//!
//! Left to others: what is visible ([`Seq`]s are handed out above), the log, and the order in which views are published.

mod again;
pub mod bloom;
mod class;
pub mod due;
mod error;
pub mod merge;
mod pairs;
mod read_ahead;
mod salvage;
#[cfg(feature = "testing")]
pub mod testing;
mod tombstones;
mod types;

pub use again::{Again, Touches};
pub use class::class_of;
pub use doclog::{DocPointer, SegmentId};
pub use error::{Damage, Error, Result};
pub use pairs::{PairAt, Pairs};
pub use read_ahead::{ReadAhead, Share};
pub use salvage::{Lost, Rescue};
pub use tombstones::{Fragment, RangeTombstones, is_below};
pub use types::{
    Batch, Bounds, Collected, Direction, Expiry, Found, Horizon, Image, Moment, Operation, Pair, PairRef, Payload,
    Seen, Seq, Stored, TableId, Time, Update, common_prefix, head, part_of,
};

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use space::{Extent, PageId};

/// A table's structure on storage.
pub trait Index: Send + Sync {
    /// The newest view that `apply` or recovery made current.
    fn view(&self) -> Arc<dyn View>;

    /// Writes a batch, sorted by key and then by seq, and returns the view that has it. Nothing is flushed and the
    /// current view stays what it was until [`Index::publish`] or [`Index::discard`]. Only one `apply` of an index runs at a time.
    ///
    /// # Errors
    /// When storage fails or is full. The current view is then unharmed, and the batch can be applied again.
    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied>;

    /// Makes an applied view current; called after its data is flushed and its redo is durable in the log order.
    fn publish(&self, applied: &Applied);

    /// Forgets an applied view whose redo is not in the log and never will be: its pages are free again, its dropped documents were
    /// not dropped, and the current view stays. Whatever comes after finds things as if it had not been applied. Nobody
    /// reads the discarded view any more.
    fn discard(&self, applied: &Applied);

    /// Recovery: makes the view that a logged redo describes current.
    ///
    /// # Errors
    /// When the redo is malformed.
    fn replay(&self, redo: &[u8]) -> Result<()>;

    /// The bytes that a checkpoint keeps to find the current view again. They are kept of a structure that nobody changes meanwhile.
    fn root(&self) -> Vec<u8>;

    /// Whether nothing is stored for it. One of which something is stored may have no keys all the same.
    fn is_empty(&self) -> bool;

    /// Whether anything that expires was put into it since it last had no keys.
    fn expires(&self) -> bool;

    /// Keys under which so much has expired at `now` that it is worth rewriting them, where nothing but a snapshot that sees it keeps it:
    /// neighbours together, at most `most` ranges. Reads next to nothing where there are none.
    ///
    /// # Errors
    /// When a read fails or what it read does not check.
    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>>;

    /// Pages of a new leaf.
    fn leaf_pages(&self) -> u32;

    /// Rewrites the first stretch of a part of the structure, in key order and packed, into leaves of `leaf_pages` pages from here on where
    /// their size is to be chosen. Like [`Index::apply`] of a part of a batch of which everything up to `through` is in: written, to be flushed, and
    /// to be published or discarded. None where there is nothing.
    ///
    /// # Errors
    /// When storage fails or is full, or what it holds is damaged. The current view is then unharmed.
    fn compact(&self, part: Part<'_>, leaf_pages: u32, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>>;

    /// Shows what checks of the current view, and what does not.
    fn salvage(&self, rescue: &mut dyn Rescue);

    /// Every extent of shared pages that the current view has: for dropping the table.
    ///
    /// # Errors
    /// When a read fails or what it read does not check.
    fn extents(&self, visit: &mut dyn FnMut(Extent)) -> Result<()>;

    /// Removes files of its own that had nothing live in them at the last [`Index::root`]. The caller has made the checkpoint with that root
    /// durable, and knows that nobody reads an older view.
    ///
    /// # Errors
    /// When a file cannot be removed; it is tried again by the next call.
    fn release_dead(&self) -> Result<()> {
        Ok(())
    }

    /// Removes all files of its own: the table was dropped. Nothing may be applied or read afterwards.
    ///
    /// # Errors
    /// When a file cannot be removed.
    fn destroy(&self) -> Result<()> {
        Ok(())
    }

    /// Makes anew, elsewhere, what lives in those of its own files in which least does: about `bytes` of it, or one file; none where no file has much that is
    /// dead. As [`Index::apply`] of a batch without updates; all of those files is dead behind it. It may use half of what is kept for deletes.
    ///
    /// # Errors
    /// As [`Index::apply`].
    fn empty(&self, _bytes: u64, _through: Seq, _horizon: &Horizon) -> Result<Option<Applied>> {
        Ok(None)
    }

    /// Files of its own with as many dead bytes as asked for, as far as there are files in which much is dead: those first in which least lives.
    fn sparse(&self, _dead_bytes: u64) -> BTreeSet<SegmentId> {
        BTreeSet::new()
    }

    /// Bytes of files of its own that are in use which nothing refers to: what making all of it anew would give back.
    fn garbage_bytes(&self) -> u64 {
        0
    }

    /// Bytes of files of its own in which nothing is alive: they go with the next checkpoint.
    fn dead_bytes(&self) -> u64 {
        0
    }

    /// Room of files of its own, beside the pages that all tables share.
    fn room(&self) -> doclog::Stats {
        doclog::Stats::default()
    }
}

/// What of a structure is to be rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The key whose leaf is the first.
    pub from: &'a [u8],
    /// Leaves that begin here or behind it stay as they are.
    pub until: Option<&'a [u8]>,
    /// Bytes of leaves at which a stretch ends.
    pub bytes: usize,
    /// Whether it brings space back, as deletes do: then it may use half of what is kept for them.
    pub reclaims: bool,
    /// In a file of pages it goes below this one, or nowhere: then it fails as on a full disk.
    pub below: Option<PageId>,
    /// Only what is in these files of its own, and leaves on the way to which something is.
    pub only: Option<&'a BTreeSet<SegmentId>>,
}

impl Part<'_> {
    /// Whether a leaf is of it that begins at `low`.
    #[must_use]
    pub fn has(&self, low: &[u8]) -> bool {
        self.until.is_none_or(|until| low < until)
    }
}

/// A stretch that was rewritten.
pub struct Compacted {
    /// To be published or discarded.
    pub applied: Applied,
    /// Where the next stretch begins; none at the end of the structure.
    pub next: Option<Vec<u8>>,
    /// Leaves that were rewritten.
    pub leaves: u64,
    /// Bytes of entries that were in them.
    pub bytes: u64,
}

/// Keys, of leaves that are to be written anew, for one that are due ([`due`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafKeys {
    /// The first.
    pub low: Vec<u8>,
    /// Where they end; none at the end of the structure.
    pub high: Option<Vec<u8>>,
}

impl LeafKeys {
    /// Adds these to those that were found, in key order, unless these are `most` already and do not end where they begin: then that is all.
    pub fn join(self, found: &mut Vec<Self>, most: usize) -> ControlFlow<()> {
        if let Some(last) = found.last_mut().filter(|last| last.high.as_ref() == Some(&self.low)) {
            last.high = self.high;
        } else if found.len() < most {
            found.push(self);
        } else {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// What [`Index::apply`] made.
pub struct Applied {
    /// The view that has the batch.
    pub view: Arc<dyn View>,
    /// Structure-specific redo for the log: what [`Index::replay`] takes.
    pub redo: Vec<u8>,
    /// Documents that no version refers to any more.
    pub dropped_documents: Vec<DocPointer>,
    /// The files that were written, which have to be flushed before the redo is logged.
    pub files: Vec<psync::File>,
}

impl Applied {
    /// Whether its view is this version.
    #[must_use]
    pub fn is_of<V: View>(&self, version: &Arc<V>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(version), Arc::as_ptr(&self.view))
    }
}

/// One immutable version of an index.
pub trait View: Send + Sync {
    /// Looks many keys up at once; `out[i]` is left as it is when `keys[i]` has no version at or below the seq of `at`.
    ///
    /// # Errors
    /// When a read fails or what it read does not check.
    fn get_many(&self, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()>;

    /// Looks one key up and shows its newest version at or below the seq of `at`, where it lies if that is in memory; it shows nothing where
    /// there is none.
    ///
    /// # Errors
    /// As [`View::get_many`].
    fn look(&self, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()>;

    /// Walks the keys within bounds, in either direction; those that were deleted, or have expired, are not shown.
    ///
    /// # Errors
    /// When a read fails or what it read does not check.
    fn cursor(self: Arc<Self>, bounds: &Bounds, at: Moment, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// Reads everything the view refers to and checks it: checksums, order, fences. `report` gets every finding as it is made;
    /// `progress` the number of bytes checked so far.
    ///
    /// # Errors
    /// When storage fails in a way that is not a finding.
    fn verify(&self, visit: &mut dyn Visit) -> Result<()>;

    /// Walks the versions whose values are documents, also those that only snapshots see or nobody sees any more: every document that was not
    /// reported dropped. Shows each key from `from` on that has any, in key order, with all its versions, the oldest first and equal ones in the
    /// order in which they came. Between them it shows keys above `from` without versions, at or behind which the next one is, so that it can be told to stop.
    ///
    /// # Errors
    /// When a read fails or what it read does not check.
    fn documents(&self, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()>;

    /// Keys, rising, that cut the view into parts of about the same size: at least `wanted` of them where it is large enough, and not
    /// many times more.
    ///
    /// # Errors
    /// When a read fails or what it read does not check.
    fn fences(&self, wanted: usize) -> Result<Vec<Vec<u8>>>;

    /// Shape of the view.
    ///
    /// # Errors
    /// When a read fails.
    fn stats(&self) -> Result<Stats>;
}

/// What a verification tells its caller.
pub trait Visit {
    /// Something is wrong: what, with file and offset.
    fn finding(&mut self, finding: String);
    /// A run of pages belongs to this view.
    fn extent(&mut self, page: u64, pages: u32);
    /// A live version refers to a document.
    fn document(&mut self, document: &DocPointer);
    /// So many more live keys were checked.
    fn keys(&mut self, count: u64);
    /// Whether the newest version of a key, of this commit, is hidden by what is not in the view, so that the key is not live.
    fn is_hidden(&self, key: &[u8], seq: Seq) -> bool;
}

/// What a walk shows a key and its versions to; it ends the walk with a break.
pub type ShowVersions<'a> = dyn FnMut(&[u8], &[Update<'_>]) -> ControlFlow<()> + 'a;

/// What a cursor shows pairs to, many at a time. It breaks with how many of them it looked at.
pub type Show<'a> = dyn FnMut(Pairs<'_>) -> ControlFlow<usize> + 'a;

/// Walks a view in key order. It begins before the first pair.
pub trait Cursor: Send {
    /// Moves to the next pair; false at the end, where it stays. After an error it is at the end.
    ///
    /// # Errors
    /// When a read fails or what it read does not check. Every pair before the place that it is about was shown.
    fn advance(&mut self) -> Result<bool>;

    /// The pair that it stands on, until it moves; none before the first and at the end.
    fn current(&self) -> Option<PairRef<'_>>;

    /// Says, before the first pair, that all pairs will most likely be asked for: what they are in may be read sooner.
    fn expect_all(&mut self) {}

    /// Moves on and shows the pairs that it comes to, while they come before `until` in its direction and `show` goes on.
    /// It stands on the last one that was looked at, and [`Cursor::advance`] moves to what follows; [`Cursor::current`] need not tell the pair
    /// that it stands on.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    fn run(&mut self, until: Option<&[u8]>, show: &mut Show<'_>) -> Result<ControlFlow<()>>;

    /// Moves to the next pair and copies it; none at the end.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    fn next(&mut self) -> Result<Option<Pair>> {
        Ok(if self.advance()? { self.current().map(|pair| pair.to_pair()) } else { None })
    }
}

/// Shape of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Levels, leaves included; 0 when empty.
    pub height: u32,
    /// Pages of internal nodes.
    pub internal_pages: u64,
    /// Leaves.
    pub leaves: u64,
    /// Leaves that begin where the one before them in key order ends: what a scan reads as one sequence.
    pub adjacent_leaves: u64,
    /// Pages that leaves occupy.
    pub leaf_pages: u64,
    /// Bytes of runs in leaves.
    pub run_bytes: u64,
    /// Entries in runs, dead versions included.
    pub entries: u64,
}
