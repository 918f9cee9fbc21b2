//! The LSM tree of one table.

use std::sync::Arc;

use doclog::DocPointer;
use index::{
    Again, Applied, Batch, Horizon, Index, Load, Loaded, Rescue, Result, Room, Seq, TableId, Versions, View, class_of,
};
use seeded::Bug;

use crate::files::Files;
use crate::flush;
use crate::load::TreeLoad;
use crate::relocate;
use crate::rewrite::Made;
use crate::salvage;
use crate::shared::Shared;
use crate::version::{Change, Version};

/// An LSM tree.
pub struct Tree {
    shared: Arc<Shared>,
    files: Arc<Files>,
    /// Of a version that is not current yet: the numbers of its new files.
    versions: Versions<Version, Vec<u64>>,
}

impl Tree {
    /// An empty tree. Nothing is written.
    ///
    /// # Errors
    /// When files cannot be listed.
    pub fn create(shared: Arc<Shared>, table: TableId) -> Result<Self> {
        Self::with(Version::empty(shared, table))
    }

    /// The tree that [`Index::root`] described.
    ///
    /// # Errors
    /// [`index::Error::Corrupt`] when `root` is not the root record of this table; or when files cannot be listed.
    pub fn open(shared: Arc<Shared>, table: TableId, root: &[u8]) -> Result<Self> {
        Self::with(Version::open(shared, table, root)?)
    }

    fn with(current: Version) -> Result<Self> {
        let files = Arc::new(Files::find(current.shared.store(), current.table, current.next())?);
        files.follow(&current);
        Ok(Self { shared: Arc::clone(&current.shared), files, versions: Versions::new(current) })
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        self.versions.current()
    }

    pub(crate) const fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A version behind `base`, to be installed or discarded.
    pub(crate) fn pend(
        &self, base: &Version, change: Change, made: Made, dropped: Vec<DocPointer>, floor: Seq,
    ) -> Result<Applied> {
        let redo = base.redo(change);
        let version = Arc::new(base.replay(&redo)?.with_floor(floor));
        self.versions.pend(&version, Again::default(), made.numbers());
        let files = if seeded::on(Bug::FileUnflushed) { Vec::new() } else { made.files };
        Ok(Applied { view: version, redo, dropped_documents: dropped, files })
    }
}

impl Index for Tree {
    fn view(&self) -> Arc<dyn View> {
        self.current()
    }

    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied> {
        let base = self.current();
        let flush = || flush::flush(&base, &self.files, batch, horizon, progress);
        let (made, dropped) = Room::of(class_of(batch, horizon)).make(self.shared.reserve(), flush)?;
        let change = flush::change(&made);
        self.pend(&base, change, made, dropped, base.floor())
    }

    fn relocate(&self, moves: &dyn Batch, horizon: &Horizon) -> Result<Applied> {
        let base = self.current();
        let plan = relocate::plan(&base, moves)?;
        let room = Room::of(class_of(moves, horizon));
        let (change, made, dropped) =
            room.make(self.shared.reserve(), || relocate::rewrite(&base, &self.files, &plan, horizon.now))?;
        self.pend(&base, change, made, dropped, base.floor())
    }

    fn install(&self, applied: &Applied) {
        let numbers = self.versions.install(applied, |_, _, numbers| numbers);
        self.files.settle(&numbers);
        if seeded::on(Bug::FileReleasedEarly) {
            self.files.choose_dead(&self.current());
            let _ = self.files.release_dead();
        }
    }

    fn discard(&self, applied: &Applied) {
        self.files.abandon(&self.versions.discard(applied));
    }

    fn replay(&self, redo: &[u8]) -> Result<()> {
        let next = self.current().replay(redo)?.with_floor(Seq(0));
        self.files.follow(&next);
        self.versions.replay(|_| next);
        Ok(())
    }

    fn root(&self) -> Vec<u8> {
        let current = self.current();
        self.files.choose_dead(&current);
        current.root()
    }

    fn is_empty(&self) -> bool {
        self.current().is_empty()
    }

    fn expires(&self) -> bool {
        self.current().expires
    }

    fn begin_load(&self, seq: Seq) -> Option<Box<dyn Load>> {
        let base = self.current();
        let is_empty = base.is_empty();
        is_empty.then(|| Box::new(TreeLoad::new(base, &self.files, seq)) as Box<dyn Load>)
    }

    fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied {
        let base = self.current();
        let made: Made = loaded.into_content();
        let change = TreeLoad::change(&made);
        self.pend(&base, change, made, Vec::new(), floor).expect("files of a load fit an empty tree")
    }

    fn salvage(&self, rescue: &mut dyn Rescue) {
        salvage::salvage(&self.current(), rescue);
    }
}
