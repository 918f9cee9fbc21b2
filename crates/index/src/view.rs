//! Views: immutable versions of a structure, and the reads that they answer.

use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::DocPointer;

use crate::{Bounds, Direction, Found, Moment, Pair, PairRef, Pairs, Result, Seen, Seq, Stats, Update};

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

/// The result of [`Index::apply`](crate::Index::apply).
pub struct Applied {
    /// The view that contains the batch.
    pub view: Arc<dyn View>,
    /// Structure-specific redo for the log, to be given to [`Index::replay`](crate::Index::replay).
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
