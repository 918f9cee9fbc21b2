//! The trait of an index structure, and the words that all structures share.
//!
//! 1. An [`Index`] is one table's structure on storage. A [`View`] is its content at one moment: an immutable version
//!    that any number of readers hold while the next version is being made. What keeps a structure small and fast is
//!    its [`Upkeep`].
//! 2. [`Index::apply`] writes a sorted [`Batch`] of operations to storage. The result is a view with the batch and the
//!    redo that brings recovery to the same view. Nothing is flushed yet: the caller flushes the data, logs the redo,
//!    and only then installs the view.
//! 3. Every operation carries its [`Seq`]. `(key, seq)` is one version, so applying a batch twice is harmless. All
//!    structures share the rules on which versions of a key must stay ([`merge`]), and on which leaves need another
//!    pass ([`Again`]).
//! 4. What a structure has of its versions, the current one and the one to come, is a [`Versions`].
//!
//! Left to others: visibility (the layer above assigns [`Seq`]s), the log, and the order in which views are installed.

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
mod room;
mod salvage;
mod stats;
#[cfg(feature = "testing")]
pub mod testing;
mod tombstones;
mod types;
mod upkeep;
mod versions;
mod view;

pub use again::{Again, Touches};
pub use class::class_of;
pub use doclog::{DocPointer, SegmentId};
pub use error::{Damage, Error, Result};
pub use history::{Described, History};
pub use horizon::Horizon;
pub use kind::{Facts, FoundRoot, Home, Kind, Lookups, RootOfRedo, Use};
pub use load::{Load, Loaded, Ready};
pub use pairs::{PairAt, Pairs};
pub use read_ahead::{ReadAhead, Share};
pub use room::Room;
pub use salvage::{Lost, Rescue};
pub use stats::{Figure, Space, Stats, Unit, value_of};
pub use tombstones::{Fragment, RangeTombstones, is_below};
pub use types::{
    Batch, Bounds, Collected, Direction, Expiry, Found, Image, Moment, Operation, Pair, PairRef, Payload, Seen, Seq,
    Stored, TableId, Time, Update, common_prefix, head, part_of,
};
pub use upkeep::{Chosen, Compacted, LeafKeys, Part, Upkeep, When};
pub use versions::Versions;
pub use view::{Applied, Cursor, Show, ShowVersions, View, Visit};

use std::sync::Arc;

/// A table's structure on storage.
pub trait Index: Upkeep + Send + Sync {
    /// The newest view that `apply` or recovery made current.
    fn view(&self) -> Arc<dyn View>;

    /// Writes a batch, sorted by key and then by seq, and returns the view that contains the batch. Nothing is flushed,
    /// and the current view stays unchanged until [`Index::install`] or [`Index::discard`]. Only one `apply` of an
    /// index runs at a time.
    ///
    /// # Errors
    /// When storage fails or is full. The current view is then unharmed, and the batch can be applied again.
    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied>;

    /// Writes versions again whose documents have moved, in the place of those that the structure has. Each version is
    /// there, and no version of it comes again. One with the document that it has already is seen by no reader: it is
    /// there so that the structure drops it. The old documents are among the dropped ones of the result, which is that
    /// of [`Index::apply`].
    ///
    /// # Errors
    /// As [`Index::apply`].
    fn relocate(&self, moves: &dyn Batch, horizon: &Horizon) -> Result<Applied> {
        self.apply(moves, horizon, &|_| {})
    }

    /// Makes an applied view the current one. The caller has flushed its data and made its redo durable in the
    /// log order.
    fn install(&self, applied: &Applied);

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

    /// The settings of the structure, as [`Kind::create`] takes them; empty where its kind has none.
    fn settings(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Begins to load sorted entries, whose versions will have `seq`. None where the structure is not empty. Nothing
    /// else may change the structure until the load is dropped, installed or discarded.
    fn begin_load(&self, seq: Seq) -> Option<Box<dyn Load>>;

    /// Takes loaded entries, of which readers below `floor` see nothing; `floor` is not below the seq that the load
    /// began with. The result is like that of [`Index::apply`]: written, to be flushed, and to be installed or
    /// discarded.
    fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied;

    /// Older states; none where the kind of structure has none to offer.
    fn history(&self) -> Option<&dyn History> {
        None
    }

    /// Shows the readable content of the current view, and the key ranges that do not check.
    fn salvage(&self, rescue: &mut dyn Rescue);
}
