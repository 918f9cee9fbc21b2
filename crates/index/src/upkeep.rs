//! Upkeep of a structure: its work beside batches of operations, in bounded steps.
//!
//! 1. A structure says what it wants rewritten, in its own terms: keys whose values have expired ([`Upkeep::due`]), and
//!    content among which too little is alive ([`Upkeep::wants`]). The caller may want more rewritten: everything, or
//!    leaves that lie far back in a file ([`Upkeep::beyond`]).
//! 2. The caller has it rewritten stretch by stretch ([`Upkeep::compact`]). On a full disk, in the room that is
//!    reserved for that ([`Upkeep::empty`]). Each result is like that of [`Index::apply`](crate::Index::apply).
//! 3. Files in which nothing lives any more go behind a checkpoint ([`Upkeep::release_dead`]).
//!
//! A structure without files of its own has no garbage and nothing to release: it keeps the default methods.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use space::{Extent, PageId};

use crate::{Applied, Horizon, Result, Seq, Space, Time};

/// The upkeep of a table's structure. At most one call of these methods that change something runs at a time, and none
/// beside [`Index::apply`](crate::Index::apply).
pub trait Upkeep {
    /// Rewrites the first stretch of a part of the structure, in key order and packed.
    ///
    /// The result is like that of [`Index::apply`](crate::Index::apply) for a part of a batch of which everything up to
    /// `through` is in: written, to be flushed, and to be installed or discarded. None where the structure has nothing
    /// from the beginning of the part on.
    ///
    /// # Errors
    /// When storage fails or is full, or the stretch is damaged. The current view is then unharmed.
    fn compact(&self, part: Part<'_>, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>>;

    /// Ranges of keys that are worth a rewrite, because enough of their values have expired at `now`. A rewrite removes
    /// those values unless a snapshot still sees them. Neighbours are one range, and there are at most `most` ranges.
    /// The call reads next to nothing where no range is due.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>>;

    /// The content that the structure wants rewritten, so that it takes less space or is read faster. None where it is
    /// as it should be. The call reads nothing from storage. On a full disk a choice is forgotten, and
    /// [`Upkeep::empty`] is asked instead.
    fn wants(&self, _when: When) -> Option<Chosen> {
        None
    }

    /// How far the structure is behind with what it wants rewritten: 0 where writers need not mind, and 1 where there
    /// should be no more of it.
    fn debt(&self) -> f64 {
        0.0
    }

    /// Whether [`Upkeep::empty`] may find something.
    fn can_be_emptied(&self) -> bool {
        self.space().garbage_bytes > 0
    }

    /// Empties those of the structure's own files that have the fewest live bytes: their live content is written anew
    /// elsewhere, about `bytes` of it or one file. None where no file has many dead bytes. The result is that of
    /// [`Index::apply`](crate::Index::apply) for a batch without updates, and everything in the emptied files is dead
    /// afterwards. Emptying may use all of the reserved space (`space::Class::Emptying`).
    ///
    /// # Errors
    /// As [`Index::apply`](crate::Index::apply).
    fn empty(&self, _bytes: u64, _through: Seq, _horizon: &Horizon) -> Result<Option<Applied>> {
        Ok(None)
    }

    /// Key ranges of leaves that do not end before `page` of the file of shared pages, at most `most` ranges, the first
    /// in key order.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn beyond(&self, _page: PageId, _most: usize) -> Result<Vec<LeafKeys>> {
        Ok(Vec::new())
    }

    /// Space of files of the structure's own, beside the pages that all tables share.
    fn space(&self) -> Space {
        Space::default()
    }

    /// Removes files of the structure's own that had nothing live at the last [`Index::root`](crate::Index::root). The
    /// caller has made the checkpoint with that root durable, and knows that no reader holds an older view.
    ///
    /// # Errors
    /// When a file cannot be removed. The next call tries again.
    fn release_dead(&self) -> Result<()> {
        Ok(())
    }

    /// Every extent of shared pages that the current view has: for dropping the table.
    ///
    /// # Errors
    /// When a read fails or its bytes do not check.
    fn extents(&self, visit: &mut dyn FnMut(Extent)) -> Result<()>;

    /// Removes all files of the structure's own, because the table was dropped. Nothing may be applied or read
    /// afterwards.
    ///
    /// # Errors
    /// When a file cannot be removed.
    fn destroy(&self) -> Result<()> {
        Ok(())
    }
}

/// How much others have to do while a structure is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Others write, and every byte that is rewritten holds them up.
    Busy,
    /// Nobody writes.
    Idle,
}

/// Content that a structure has chosen to be rewritten, in terms of its kind. It stays a valid choice, if not the best
/// one, while the structure changes.
#[derive(Clone)]
pub struct Chosen(Arc<dyn Any + Send + Sync>);

impl Chosen {
    /// A choice in terms of a kind of structures.
    pub fn new(content: impl Any + Send + Sync) -> Self {
        Self(Arc::new(content))
    }

    /// The choice that it was made with.
    ///
    /// # Panics
    /// When another kind of structure has chosen.
    #[must_use]
    pub fn content<T: Any>(&self) -> &T {
        self.0.downcast_ref().expect("a structure gets what it has chosen")
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Chosen").finish_non_exhaustive()
    }
}

/// The same choice, not one that is equal.
impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
    /// If given, only this content is rewritten, with the nodes above it.
    pub chosen: Option<&'a Chosen>,
    /// If given, the structure has these settings from here on ([`Index::settings`](crate::Index::settings)).
    pub settings: Option<&'a [u8]>,
}

impl Part<'_> {
    /// The whole structure, as it is, in one stretch.
    #[must_use]
    pub const fn whole() -> Self {
        let (until, below, chosen, settings) = (None, None, None, None);
        Self { from: &[], until, bytes: usize::MAX, reclaims: false, below, chosen, settings }
    }

    /// Whether a leaf that begins at `low` belongs to the part.
    #[must_use]
    pub fn has(&self, low: &[u8]) -> bool {
        self.until.is_none_or(|until| low < until)
    }
}

/// A stretch that was rewritten.
pub struct Compacted {
    /// To be installed or discarded.
    pub applied: Applied,
    /// Where the next stretch begins, be it behind the part; none at the end of the structure. The caller may forget
    /// what hides keys up to here.
    pub next: Option<Vec<u8>>,
    /// Leaves that were rewritten.
    pub leaves: u64,
    /// Bytes of entries that were in them.
    pub bytes: u64,
}

/// The key range of neighbouring leaves that are to be rewritten, for example because they are due
/// ([`due`](crate::due)).
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
