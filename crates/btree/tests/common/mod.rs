//! A tree on a simulated disk, and a model of it.

#![allow(clippy::allow_attributes, dead_code, reason = "shared by test programs that each use a part of it")]
#![expect(unreachable_pub, reason = "shared by test programs that each use a part of it")]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use btree::{BTree, Shape, Shared};
use doclog::DocPointer;
pub use index::testing::steps::Store;
pub use index::testing::{Change, Model, Updates, change_of, found, id_of, scan};
use index::{Applied, Bounds, Direction, Horizon, Index, Result, Seq, Stored, TableId, Upkeep, Visit};
use psync::sim::SimDisk;
use psync::{Psync, Request};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use space::{AllocatorImage, Extent, FileStore, PageId, PagedFile};

pub const TABLE: TableId = TableId(7);
pub const DATA: &str = "/db/data";
/// Most bytes that a cache can be lent.
pub const LOANS: u64 = 4 << 20;

pub fn all() -> Bounds {
    Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded }
}

/// What a verification saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub findings: Vec<String>,
    pub extents: Vec<Extent>,
    pub documents: Vec<u64>,
    pub keys: u64,
}

impl Visit for Seen {
    fn finding(&mut self, finding: String) {
        self.findings.push(finding);
    }
    fn extent(&mut self, page: u64, pages: u32) {
        self.extents.push(Extent { page: PageId(page), pages });
    }
    fn document(&mut self, document: &DocPointer) {
        self.documents.push(id_of(document));
    }
    fn is_hidden(&self, _: &[u8], _: Seq) -> bool {
        false
    }
    fn keys(&mut self, count: u64) {
        self.keys += count;
    }
}

/// A tree on a simulated disk, and everything that is needed to open it again.
pub struct Home {
    pub disk: SimDisk,
    pub psync: Psync,
    pub pages: Arc<PagedFile>,
    pub shared: Arc<Shared>,
    pub tree: BTree,
    pub cache_bytes: u64,
    pub leaf_pages: u32,
    longer_leaves: bool,
    lent: u64,
    epoch: u32,
    /// The last checkpoint, and the redos after it.
    checkpoint: (AllocatorImage, Vec<u8>),
    redos: Vec<Vec<u8>>,
    /// Documents that were written and not dropped.
    pub documents: BTreeSet<u64>,
}

impl Home {
    pub fn new(seed: u64, leaf_pages: u32, cache_bytes: u64) -> Self {
        Self::with_longer_leaves(seed, leaf_pages, cache_bytes, false)
    }

    /// One in which leaves of long entries may have more pages.
    pub fn with_longer_leaves(seed: u64, leaf_pages: u32, cache_bytes: u64, longer_leaves: bool) -> Self {
        let disk = SimDisk::new(seed);
        let psync = disk.psync().with_pio_max(16);
        let store = FileStore::open(psync.clone(), Path::new("/db"), false).expect("a store");
        let pages = Arc::new(PagedFile::create(&store, "data").expect("a file"));
        store.sync_directories().expect("a disk that works");
        let shared =
            Shared::new(Arc::clone(&pages), cache_bytes, 1).with_longer_leaves(longer_leaves).with_loans_of(LOANS);
        let shared = Arc::new(shared);
        let tree = BTree::create(Arc::clone(&shared), TABLE, leaf_pages);
        let checkpoint = (pages.image(), tree.root());
        let home = Self {
            disk,
            psync,
            pages,
            shared,
            tree,
            cache_bytes,
            leaf_pages,
            longer_leaves,
            lent: 0,
            epoch: 1,
            checkpoint,
            redos: Vec::new(),
            documents: BTreeSet::new(),
        };
        home.flush();
        home
    }

    /// Lends the cache so many bytes, also when it is opened again.
    pub fn lend(&mut self, bytes: u64) {
        self.lent = bytes;
        self.shared.cache().lend(bytes);
    }

    pub fn flush(&self) {
        self.psync.run_all(vec![Request::flush(self.pages.file(), 0)]).expect("a disk that works");
    }

    /// Applies a batch as the layer above does: data, flush, log, install.
    pub fn apply(&mut self, updates: &Updates, snapshots: &[u64]) -> Result<Applied> {
        self.log_is_durable();
        let horizon: Horizon = snapshots.iter().copied().map(Seq).collect();
        let applied = self.tree.apply(updates, &horizon, &|_| {})?;
        self.psync.run_all(vec![Request::flush(self.pages.file(), 0)])?;
        self.redos.push(applied.redo.clone());
        self.retain(updates);
        self.drop_documents(&applied);
        self.tree.install(&applied);
        Ok(applied)
    }

    /// The changes so far are durable, so pages that they gave up are free once no reader needs them.
    pub fn log_is_durable(&self) {
        self.pages.release_unread(self.pages.take_unread());
    }

    /// Applies a batch whose documents were retained before.
    pub fn apply_retained(&mut self, updates: &Updates, snapshots: &[u64]) -> Applied {
        self.log_is_durable();
        let horizon: Horizon = snapshots.iter().copied().map(Seq).collect();
        let applied = self.tree.apply(updates, &horizon, &|_| {}).expect("a disk that works");
        self.flush();
        self.redos.push(applied.redo.clone());
        self.drop_documents(&applied);
        self.tree.install(&applied);
        applied
    }

    /// The documents of a batch were written.
    pub fn retain(&mut self, updates: &Updates) {
        for (_, _, change) in updates.iter() {
            if let Change::Document(id) = change {
                self.documents.insert(*id);
            }
        }
    }

    fn drop_documents(&mut self, applied: &Applied) {
        for dropped in &applied.dropped_documents {
            assert!(self.documents.remove(&id_of(dropped)), "document {} dropped twice", id_of(dropped));
        }
    }

    pub fn checkpoint(&mut self) {
        self.checkpoint = (self.pages.image(), self.tree.root());
        self.redos.clear();
    }

    /// Opens everything again from the last checkpoint and the redos after it.
    pub fn reopen(&mut self) {
        self.psync = self.disk.psync().with_pio_max(16);
        let store = FileStore::open(self.psync.clone(), Path::new("/db"), false).expect("a store");
        self.pages = Arc::new(PagedFile::open(&store, "data", (&self.checkpoint.0).into()).expect("a file"));
        self.epoch += 1;
        let shared = Shared::new(Arc::clone(&self.pages), self.cache_bytes, self.epoch);
        self.shared = Arc::new(shared.with_longer_leaves(self.longer_leaves).with_loans_of(LOANS));
        self.shared.cache().lend(self.lent);
        self.tree = BTree::open(Arc::clone(&self.shared), TABLE, &self.checkpoint.1).expect("a root");
        for redo in &self.redos {
            self.tree.replay(redo).expect("a redo");
        }
        self.pages.release_all_retired();
    }

    pub fn stats(&self) -> Shape {
        self.tree.shape().expect("whole")
    }

    pub fn verify(&self) -> Seen {
        let mut seen = Seen::default();
        self.tree.view().verify(&mut seen).expect("a disk that works");
        seen
    }

    /// Checks the newest version against the model, and the books against each other.
    pub fn check(&self, model: &Model, at: u64) {
        let seen = self.verify();
        assert_eq!(seen.findings, Vec::<String>::new());
        let expected = model.range(&all(), at);
        assert_eq!(seen.keys, expected.len() as u64);
        let documents: BTreeSet<_> = seen.documents.iter().copied().collect();
        assert_eq!(documents.len(), seen.documents.len(), "a document is reported once");
        assert_eq!(documents, self.documents);
        assert_eq!(scan(&self.tree.view(), &all(), at, Direction::Forward).expect("whole"), expected);
        let mut extents = Vec::new();
        self.tree.extents(&mut |extent| extents.push(extent)).expect("whole");
        extents.sort_unstable();
        let mut verified = seen.extents;
        verified.sort_unstable();
        assert_eq!(extents, verified);
    }

    /// Checks that the allocator knows of no page that the newest version does not use.
    pub fn check_pages(&self) {
        let audit = self.pages.audit(&self.verify().extents);
        assert!(audit.is_clean(), "{audit:?}");
    }
}

impl Store for Home {
    fn index(&self) -> &dyn Index {
        &self.tree
    }

    fn apply(&mut self, updates: &Updates, snapshots: &[u64]) {
        Self::apply(self, updates, snapshots).expect("a disk that works");
    }

    fn checkpoint(&mut self) {
        Self::checkpoint(self);
    }

    fn reopen(&mut self) {
        Self::reopen(self);
    }

    fn clear_cache(&self) {
        self.shared.cache().clear();
    }

    fn change_of(&self, value: &Stored) -> Change {
        change_of(value)
    }

    fn check(&self, model: &Model, at: u64) {
        Self::check(self, model, at);
    }

    fn check_space(&self) {
        self.check_pages();
    }

    fn documents(&self) -> &BTreeSet<u64> {
        &self.documents
    }
}

/// How an experiment with a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Everything that was read was right.
    Right,
    /// An error named the damage.
    Found,
    /// Something that was read was wrong.
    Wrong,
}

/// Some batches on a small tree, whose pages are used again and again; one write of them is acknowledged and lost.
pub fn lost_write(seed: u64) -> Trial {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut home = Home::new(seed, 1, 1 << 20);
    let mut model = Model::default();
    let key = |number: u64| number.to_be_bytes().to_vec();
    for seq in 1..12 {
        let updates = (0..200).map(|_| {
            let change = if random.random_bool(0.2) { Change::Delete } else { Change::Put(vec![3; 60]) };
            (key(random.random_range(0..600)), seq, change)
        });
        let updates = Updates::new(updates.collect());
        if seq == 11 {
            home.disk.lose_write(DATA, random.random_range(0..20));
        }
        if home.apply(&updates, &[]).is_err() {
            return Trial::Found;
        }
        model.apply(&updates);
    }
    home.disk.restart();
    home.reopen();
    let mut trial = Trial::Right;
    for number in 0..600 {
        match found(&*home.tree.view(), &[&key(number)], u64::MAX) {
            Ok(value) if value == [model.get(&key(number), u64::MAX)] => {}
            Ok(_) => return Trial::Wrong,
            Err(_) => trial = Trial::Found,
        }
    }
    trial
}
