//! The LSM tree of one table.

use std::sync::Arc;

use doclog::DocPointer;
use index::{
    Again, Applied, Batch, Error, Horizon, Index, Load, Loaded, Rescue, Result, Seq, TableId, Versions, View, class_of,
};
use seeded::Bug;
use space::Class;

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
    /// [`Error::Corrupt`] when `root` is not the root record of this table; or when files cannot be listed.
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

    /// Makes files, on a full disk with its share `room` of the reserve. Free space fills the reserve first, so no
    /// change takes more than its share.
    pub(crate) fn make<T>(&self, room: Room, make: impl Fn() -> Result<T>) -> Result<T> {
        let reserve = self.shared.reserve();
        match reserve.fill() {
            Err(error) if error.is_disk_full() && !error.is_flush_failure() && room != Room::None => {}
            filled => filled?,
        }
        loop {
            match make() {
                Err(error) if is_disk_full(&error) && reserve.give(room as u64)? => {}
                outcome => return outcome,
            }
        }
    }
}

fn is_disk_full(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.is_disk_full() && !error.is_flush_failure(),
        Error::Space(error) => error.is_disk_full() && !error.is_flush_failure(),
        _ => false,
    }
}

/// The share of the reserve that a change may have, in quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The change makes the tree larger.
    None = 0,
    /// Deletes wait behind the change.
    Quarter = 1,
    /// The change deletes.
    Half = 2,
    /// The change empties files.
    All = 4,
}

impl Room {
    pub(crate) const fn of(class: Class) -> Self {
        match class {
            Class::Normal => Self::None,
            Class::Urgent => Self::Quarter,
            Class::Reclaim => Self::Half,
            Class::Emptying => Self::All,
        }
    }
}

impl Index for Tree {
    fn view(&self) -> Arc<dyn View> {
        self.current()
    }

    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied> {
        let base = self.current();
        let flush = || flush::flush(&base, &self.files, batch, horizon, progress);
        let (made, dropped) = self.make(Room::of(class_of(batch, horizon)), flush)?;
        let change = flush::change(&made);
        self.pend(&base, change, made, dropped, base.floor())
    }

    fn relocate(&self, moves: &dyn Batch, horizon: &Horizon) -> Result<Applied> {
        let base = self.current();
        let plan = relocate::plan(&base, moves)?;
        let room = Room::of(class_of(moves, horizon));
        let (change, made, dropped) =
            self.make(room, || relocate::rewrite(&base, &self.files, moves, &plan, horizon.now))?;
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
