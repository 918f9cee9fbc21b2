//! The tree of one table.

use std::sync::Arc;

use index::{Again, Applied, Batch, Horizon, Index, Load, Loaded, Rescue, Result, Seq, TableId, Versions, View};
use seeded::Bug;
use space::Extent;

use crate::apply::{Apply, Done};
use crate::format::LEAF_PAGES_MAX;
use crate::format::root::{Redo, Root};
use crate::load::TreeLoad;
use crate::shared::Shared;
use crate::version::Version;
use crate::walk::{self, Shape};
use crate::{salvage, settings};

/// Pages of a version that was applied and is not current yet.
struct Pages {
    allocated: Vec<Extent>,
    retired: Vec<Extent>,
}

/// A PIO B-tree.
pub struct BTree {
    shared: Arc<Shared>,
    table: TableId,
    versions: Versions<Version, Pages>,
}

impl BTree {
    /// An empty tree whose leaves will have `leaf_pages` pages. Nothing is written.
    ///
    /// # Panics
    /// When that is not 1 to [`LEAF_PAGES_MAX`].
    #[must_use]
    pub fn create(shared: Arc<Shared>, table: TableId, leaf_pages: u32) -> Self {
        assert!((1..=LEAF_PAGES_MAX).contains(&leaf_pages), "leaves of {leaf_pages} pages");
        let root = Root { height: 0, pointer: None, leaf_pages, expires: false };
        Self::with(shared, table, root)
    }

    /// The tree that [`Index::root`] described. Nothing is read.
    ///
    /// # Errors
    /// [`index::Error::Corrupt`] when `root` is not the root record of this table.
    pub fn open(shared: Arc<Shared>, table: TableId, root: &[u8]) -> Result<Self> {
        let root = Root::decode(root, table).map_err(|damage| damage.in_record("root record", table))?;
        Ok(Self::with(shared, table, root))
    }

    fn with(shared: Arc<Shared>, table: TableId, root: Root) -> Self {
        let versions = Versions::new(Version::new(&shared, table, root, Seq(0)));
        Self { shared, table, versions }
    }

    /// A version to be installed or discarded.
    pub(crate) fn pend(&self, done: Done, floor: Seq) -> Applied {
        let redo = Redo { root: done.root, allocated: done.allocated, retired: done.retired };
        let bytes = redo.encode(self.table);
        let version = Arc::new(Version::new(&self.shared, self.table, redo.root, floor));
        let Redo { allocated, retired, .. } = redo;
        // A version that was neither installed nor discarded keeps its pages until the next open, because its redo may
        // be in the log.
        self.versions.pend(&version, done.again, Pages { allocated, retired });
        let forgets = done.packed && seeded::on(Bug::PackedUnflushed);
        let files = if forgets { Vec::new() } else { vec![self.shared.pages().file().clone()] };
        Applied { view: version, redo: bytes, dropped_documents: done.dropped_documents, files }
    }

    pub(crate) const fn table(&self) -> TableId {
        self.table
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        self.versions.current()
    }

    /// The current version, and the keys that its batches have left for later ones to look at.
    pub(crate) fn base(&self) -> (Arc<Version>, Again) {
        self.versions.base()
    }

    /// The shape of the current version.
    ///
    /// # Errors
    /// When a read of an internal node fails or its bytes do not check.
    pub fn shape(&self) -> Result<Shape> {
        walk::shape(&self.current())
    }
}

impl Index for BTree {
    fn view(&self) -> Arc<dyn View> {
        self.current()
    }

    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied> {
        let (base, again) = self.versions.base();
        let done = Apply::new(&base, batch, horizon, again, progress).run()?;
        Ok(self.pend(done, base.floor))
    }

    fn install(&self, applied: &Applied) {
        self.versions.install(applied, |older, newer, Pages { allocated, retired }| {
            let pages = self.shared.pages();
            pages.confirm(&allocated);
            let retired = match pages.retire(&retired) {
                Ok(()) => retired,
                Err(error) => {
                    events::error!(%error, "pages of an old version stay unused");
                    Vec::new()
                }
            };
            older.token.succeed(Arc::clone(&newer.token), retired);
        });
    }

    fn discard(&self, applied: &Applied) {
        let Pages { allocated, .. } = self.versions.discard(applied);
        // Nodes of the discarded version stay in the cache, under incarnations that no pointer asks for. Leaves that
        // its batch appended to were written, and are cached, beyond the length that the current version publishes.
        if let Err(error) = self.shared.pages().discard(&allocated) {
            events::error!(%error, "pages of a discarded batch stay unused until the database is opened again");
        }
    }

    fn replay(&self, redo: &[u8]) -> Result<()> {
        let redo = Redo::decode(redo, self.table).map_err(|damage| damage.in_record("redo", self.table))?;
        self.shared.pages().replay_allocate(&redo.allocated)?;
        self.shared.pages().replay_retire(&redo.retired)?;
        self.versions.replay(|_| Version::new(&self.shared, self.table, redo.root, Seq(0)));
        Ok(())
    }

    fn root(&self) -> Vec<u8> {
        self.current().root.encode(self.table)
    }

    fn is_empty(&self) -> bool {
        self.current().root.pointer.is_none()
    }

    fn expires(&self) -> bool {
        self.current().root.expires
    }

    fn settings(&self) -> Vec<u8> {
        settings::encode(self.current().root.leaf_pages)
    }

    fn begin_load(&self, seq: Seq) -> Option<Box<dyn Load>> {
        let Root { pointer, leaf_pages, .. } = self.current().root;
        let is_empty = pointer.is_none();
        is_empty.then(|| Box::new(TreeLoad::new(&self.shared, self.table, leaf_pages, seq)) as Box<dyn Load>)
    }

    fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied {
        self.pend(loaded.into_content(), floor)
    }

    fn salvage(&self, rescue: &mut dyn Rescue) {
        salvage::salvage(&self.current(), rescue);
    }
}
