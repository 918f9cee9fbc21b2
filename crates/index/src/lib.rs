//! The trait of an index structure, and the words that all structures share.
//!
//! 1. An [`Index`] is one table's structure on storage. A [`View`] is its content at one moment: an immutable version
//!    that any number of readers hold while the next version is being made.
//! 2. [`Index::apply`] writes a sorted [`Batch`] of operations to storage. The result is a view with the batch and the
//!    redo that brings recovery to the same view. Nothing is flushed yet: the caller flushes the data, logs the redo,
//!    and only then publishes the view.
//! 3. Every operation carries its [`Seq`]. `(key, seq)` is one version, so applying a batch twice is harmless. All
//!    structures share the rules on which versions of a key must stay ([`merge`]), and on which leaves need another
//!    pass ([`Again`]).
//! 4. What a structure has of its versions, the current one and the one to come, is a [`Versions`].
//!
//! Left to others: visibility (the layer above assigns [`Seq`]s), the log, and the order in which views are published.

mod again;
pub mod bloom;
mod class;
pub mod due;
mod error;
mod history;
mod horizon;
mod kind;
mod load;
pub mod merge;
mod pairs;
mod read_ahead;
mod salvage;
#[cfg(feature = "testing")]
pub mod testing;
mod tombstones;
mod types;
mod versions;

pub use again::{Again, Touches};
pub use class::class_of;
pub use doclog::{DocPointer, SegmentId};
pub use error::{Damage, Error, Result};
pub use history::{Described, History};
pub use horizon::Horizon;
pub use kind::{Facts, FoundRoot, Home, Kind, Lookups};
pub use load::{Load, Loaded, Ready};
pub use pairs::{PairAt, Pairs};
pub use read_ahead::{ReadAhead, Share};
pub use salvage::{Lost, Rescue};
pub use tombstones::{Fragment, RangeTombstones, is_below};
pub use types::{
    Batch, Bounds, Collected, Direction, Expiry, Found, Image, Moment, Operation, Pair, PairRef, Payload, Seen, Seq,
    Stored, TableId, Time, Update, common_prefix, head, part_of,
};
pub use versions::Versions;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use space::{Extent, PageId};

/// A table's structure on storage.
pub trait Index: Send + Sync {
    /// The newest view that `apply` or recovery made current.
    fn view(&self) -> Arc<dyn View>;

    /// Writes a batch, sorted by key and then by seq, and returns the view that contains the batch. Nothing is flushed,
    /// and the current view stays unchanged until [`Index::publish`] or [`Index::discard`]. Only one `apply` of an
    /// index runs at a time.
    ///
    /// # Errors
    /// When storage fails or is full. The current view is then unharmed, and the batch can be applied again.
    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied>;

    /// Installs an applied view as the current one. The caller has flushed its data and made its redo durable in the
    /// log order.
    fn publish(&self, applied: &Applied);

    /// Forgets an applied view whose redo is not in the log and never will be. The current view stays, the pages of the
    /// discarded view are free again, and its dropped documents count as not dropped. Later operations find the
    /// structure as if the batch had not been applied. No reader uses the discarded view any more.
    fn discard(&self, applied: &Applied);

    /// Recovery: makes the view that a logged redo describes current.
    ///
    /// # Errors
    /// When the redo is malformed.
    fn replay(&self, redo: &[u8]) -> Result<()>;

    /// The bytes that a checkpoint keeps to find the current view again. Nothing changes the structure while they are
    /// taken.
    fn root(&self) -> Vec<u8>;

    /// Whether the structure has nothing on storage. A structure with stored bytes may still have no keys.
    fn is_empty(&self) -> bool;

    /// Whether a value with an expiry was put since the structure last had no keys.
    fn expires(&self) -> bool;

    /// Ranges of keys that are worth a rewrite, because enough of their values have expired at `now`. A rewrite removes
    /// those values unless a snapshot still sees them. Neighbours are one range, and there are at most `most` ranges.
    /// The call reads next to nothing where no range is due.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>>;

    /// Pages of a new leaf.
    fn leaf_pages(&self) -> u32;

    /// Rewrites the first stretch of a part of the structure, in key order and packed. Where the structure has a
    /// choice, leaves have `leaf_pages` pages from here on.
    ///
    /// The result is like that of [`Index::apply`] for a part of a batch of which everything up to `through` is in:
    /// written, to be flushed, and to be published or discarded. None where the structure has nothing
    /// from the beginning of the part on.
    ///
    /// # Errors
    /// When storage fails or is full, or the stretch is damaged. The current view is then unharmed.
    fn compact(&self, part: Part<'_>, leaf_pages: u32, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>>;

    /// Begins to load sorted entries, whose versions will have `seq`. None where the structure is not empty. Nothing
    /// else may change the structure until the load is dropped, published or discarded.
    fn begin_load(&self, seq: Seq) -> Option<Box<dyn Load>>;

    /// Takes loaded entries, of which readers below `floor` see nothing; `floor` is not below the seq that the load
    /// began with. The result is like that of [`Index::apply`]: written, to be flushed, and to be published or
    /// discarded.
    fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied;

    /// Older states; none where the kind of structure has none to offer.
    fn history(&self) -> Option<&dyn History> {
        None
    }

    /// Key ranges of leaves that do not end before `page` of the file of shared pages, at most `most` ranges, the first
    /// in key order.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn beyond(&self, _page: PageId, _most: usize) -> Result<Vec<LeafKeys>> {
        Ok(Vec::new())
    }

    /// Shows the readable content of the current view, and the key ranges that do not check.
    fn salvage(&self, rescue: &mut dyn Rescue);

    /// Every extent of shared pages that the current view has: for dropping the table.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn extents(&self, visit: &mut dyn FnMut(Extent)) -> Result<()>;

    /// Removes files of the structure's own that had nothing live at the last [`Index::root`]. The caller has made the
    /// checkpoint with that root durable, and knows that no reader holds an older view.
    ///
    /// # Errors
    /// When a file cannot be removed. The next call tries again.
    fn release_dead(&self) -> Result<()> {
        Ok(())
    }

    /// Removes all files of the structure's own, because the table was dropped. Nothing may be applied or read
    /// afterwards.
    ///
    /// # Errors
    /// When a file cannot be removed.
    fn destroy(&self) -> Result<()> {
        Ok(())
    }

    /// Empties those of the structure's own files that have the fewest live bytes: their live content is written anew
    /// elsewhere, about `bytes` of it or one file. None where no file has many dead bytes. The result is that of
    /// [`Index::apply`] for a batch without updates, and everything in the emptied files is dead afterwards. Emptying
    /// may use all of the reserved space (`space::Class::Emptying`).
    ///
    /// # Errors
    /// As [`Index::apply`].
    fn empty(&self, _bytes: u64, _through: Seq, _horizon: &Horizon) -> Result<Option<Applied>> {
        Ok(None)
    }

    /// Files of the structure's own that together have at least the dead bytes asked for, as far as there are files
    /// with many dead bytes. Files with the fewest live bytes come first.
    fn sparse(&self, _dead_bytes: u64) -> BTreeSet<SegmentId> {
        BTreeSet::new()
    }

    /// Bytes in use in files of the structure's own that nothing refers to: the space that emptying all files would
    /// give back.
    fn garbage_bytes(&self) -> u64 {
        0
    }

    /// Bytes of files of the structure's own that have nothing live. The next checkpoint releases them.
    fn dead_bytes(&self) -> u64 {
        0
    }

    /// Room of files of the structure's own, beside the pages that all tables share.
    fn room(&self) -> doclog::Stats {
        doclog::Stats::default()
    }
}

/// The part of a structure that is to be rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The key whose leaf is the first.
    pub from: &'a [u8],
    /// Leaves that begin here or behind stay as they are.
    pub until: Option<&'a [u8]>,
    /// Bytes of leaves at which a stretch ends.
    pub bytes: usize,
    /// Whether the rewrite gives space back, as deletes do. If so, it may use the reserved space that deletes may use
    /// (`space::Class::Reclaim`).
    pub reclaims: bool,
    /// In a file of pages, the rewritten leaves go below this page. The rewrite fails as on a full disk where there is
    /// no room below.
    pub below: Option<PageId>,
    /// If given, only the leaves in these files of the structure's own, or below a node in them, are rewritten.
    pub only: Option<&'a BTreeSet<SegmentId>>,
}

impl Part<'_> {
    /// Whether a leaf that begins at `low` belongs to the part.
    #[must_use]
    pub fn has(&self, low: &[u8]) -> bool {
        self.until.is_none_or(|until| low < until)
    }
}

/// A stretch that was rewritten.
pub struct Compacted {
    /// To be published or discarded.
    pub applied: Applied,
    /// Where the next stretch begins, be it behind the part; none at the end of the structure. The caller may forget
    /// what hides keys up to here.
    pub next: Option<Vec<u8>>,
    /// Leaves that were rewritten.
    pub leaves: u64,
    /// Bytes of entries that were in them.
    pub bytes: u64,
}

/// The key range of neighbouring leaves that are to be rewritten, for example because they are due ([`due`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafKeys {
    /// The first.
    pub low: Vec<u8>,
    /// The end, exclusive; none at the end of the structure.
    pub high: Option<Vec<u8>>,
}

impl LeafKeys {
    /// Adds this range to `found`, which is in key order. A range that begins where the last one ends extends that one.
    /// Breaks where `found` already has `most` ranges and this one would be another.
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

/// The result of [`Index::apply`].
pub struct Applied {
    /// The view that contains the batch.
    pub view: Arc<dyn View>,
    /// Structure-specific redo for the log, to be given to [`Index::replay`].
    pub redo: Vec<u8>,
    /// Documents that no version refers to any more.
    pub dropped_documents: Vec<DocPointer>,
    /// The written files, which have to be flushed before the redo is logged.
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
    /// When a read fails or its bytes do not check.
    fn get_many(&self, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()>;

    /// Looks one key up and shows its newest version at or below the seq of `at`, in place where the version is in
    /// memory. Shows nothing where there is no such version.
    ///
    /// # Errors
    /// As [`View::get_many`].
    fn look(&self, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()>;

    /// Walks the keys within bounds, in either direction. Deleted and expired keys are not shown.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn cursor(self: Arc<Self>, bounds: &Bounds, at: Moment, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// Reads everything that the view refers to and checks checksums, order and fences. `visit` gets every finding as
    /// it is made, and the extents, documents and live keys that were met.
    ///
    /// # Errors
    /// When storage fails in a way that is not a finding.
    fn verify(&self, visit: &mut dyn Visit) -> Result<()>;

    /// Walks the versions whose values are documents: every document that was not reported dropped, also of versions
    /// that only snapshots see or that no reader sees any more.
    ///
    /// - Each key from `from` on that has such a version is shown, in key order, with all its versions: the oldest
    ///   first, equal ones in order of arrival.
    /// - Between these keys the walk shows keys above `from` without versions. The next key with versions is at or
    ///   behind such a key, so the caller can stop the walk there.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn documents(&self, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()>;

    /// Keys, rising, that cut the view into parts of about the same size. A large enough view has at least `wanted` of
    /// them, and not many times more.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn fences(&self, wanted: usize) -> Result<Vec<Vec<u8>>>;

    /// Shape of the view.
    ///
    /// # Errors
    /// When a read fails.
    fn stats(&self) -> Result<Stats>;
}

/// Receives the results of a verification.
pub trait Visit {
    /// A description of a defect, with file and offset.
    fn finding(&mut self, finding: String);
    /// A run of pages belongs to this view.
    fn extent(&mut self, page: u64, pages: u32);
    /// A live version refers to a document.
    fn document(&mut self, document: &DocPointer);
    /// So many more live keys were checked.
    fn keys(&mut self, count: u64);
    /// Whether state outside the view hides the newest version of a key, which is of the commit `seq`, so that the key
    /// is not live.
    fn is_hidden(&self, key: &[u8], seq: Seq) -> bool;
}

/// Receives a key and its versions from a walk. A break ends the walk.
pub type ShowVersions<'a> = dyn FnMut(&[u8], &[Update<'_>]) -> ControlFlow<()> + 'a;

/// Receives pairs from a cursor, many at a time. A break carries the number of pairs that were looked at.
pub type Show<'a> = dyn FnMut(Pairs<'_>) -> ControlFlow<usize> + 'a;

/// Walks a view in key order. A new cursor is before the first pair.
pub trait Cursor: Send {
    /// Moves to the next pair; false at the end, where the cursor stays. After an error the cursor is at the end.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check. Every pair before the affected place was shown.
    fn advance(&mut self) -> Result<bool>;

    /// The pair under the cursor, until the cursor moves; none before the first pair and at the end.
    fn current(&self) -> Option<PairRef<'_>>;

    /// Announces, before the first pair, that all pairs will most likely be asked for, so that their pages may be read
    /// sooner.
    fn expect_all(&mut self) {}

    /// Moves on and shows the pairs on the way, while they come before `until` in the cursor's direction and `show`
    /// continues. The cursor then stands on the last pair that was looked at, and [`Cursor::advance`] moves to the next
    /// one. [`Cursor::current`] need not return the pair under the cursor.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    fn run(&mut self, until: Option<&[u8]>, show: &mut Show<'_>) -> Result<ControlFlow<()>>;

    /// Moves to the next pair and copies that pair; none at the end.
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
    /// Leaves that begin where the one before them in key order ends: a scan reads them as one sequence.
    pub adjacent_leaves: u64,
    /// Pages that leaves occupy.
    pub leaf_pages: u64,
    /// Bytes of runs in leaves.
    pub run_bytes: u64,
    /// Entries in runs, dead versions included.
    pub entries: u64,
}
