//! A trie on a simulated disk, and what is needed to open it again.

#![expect(unreachable_pub, reason = "shared by tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use append::{Shared, Trie};
use doclog::{DocImage, DocLog, DocPointer, SegmentId};
use index::testing::steps::Store;
use index::testing::{Change, Model, Seen, Updates, document, id_of, scan_as};
use index::{Applied, Bounds, Direction, Horizon, Index, Result, Seq, Stored, TableId};
use psync::sim::SimDisk;
use psync::{File, Request};
use space::FileStore;

pub const TABLE: TableId = TableId(7);

/// A trie on a simulated disk.
pub struct Home {
    pub disk: SimDisk,
    pub trie: Trie,
    pub shared: Arc<Shared>,
    /// Values that were too large for nodes.
    pub values: Arc<DocLog>,
    pub cache_bytes: u64,
    pub segment_bytes: u64,
    /// The last checkpoint, and the redos after it with the documents that each drops.
    checkpoint: (DocImage, Vec<u8>),
    redos: Vec<(Vec<u8>, Vec<DocPointer>)>,
    documents: BTreeSet<u64>,
}

fn is_nowhere(pointer: &DocPointer) -> bool {
    *pointer == document(id_of(pointer))
}

fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync().with_pio_max(16), Path::new("/db"), false).expect("a store")
}

impl Home {
    pub fn new(disk: SimDisk, chunk_bytes: usize, cache_bytes: u64, segment_bytes: u64) -> Self {
        let store = store(&disk);
        let shared = Arc::new(Shared::new(&store, cache_bytes).with_segment_bytes(segment_bytes));
        let values = Arc::new(DocLog::open(&store, TABLE.0, &DocImage::default(), 1 << 20).expect("opens"));
        let trie = Trie::create(Arc::clone(&shared), TABLE, Arc::clone(&values), chunk_bytes).expect("a trie");
        let checkpoint = (values.image(), trie.root());
        let (redos, documents) = (Vec::new(), BTreeSet::new());
        store.sync_directories().expect("a disk that works");
        Self { disk, trie, shared, values, cache_bytes, segment_bytes, checkpoint, redos, documents }
    }

    /// Applies a batch up to where its redo would be logged.
    pub fn written(&self, updates: &Updates, snapshots: &[u64]) -> Result<Applied> {
        let horizon: Horizon = snapshots.iter().copied().map(Seq).collect();
        let applied = self.trie.apply(updates, &horizon, &|_| {})?;
        self.flush(&applied.files)?;
        Ok(applied)
    }

    pub fn flush(&self, files: &[File]) -> Result<()> {
        let requests = files.iter().map(|file| Request::flush(file, 0)).collect();
        self.disk.psync().run_all(requests)?;
        Ok(())
    }

    /// A batch that was written is in the log.
    pub fn logged(&mut self, updates: &Updates, applied: &Applied) {
        for (_, _, change) in updates.iter() {
            if let Change::Document(id) = change {
                self.documents.insert(*id);
            }
        }
        self.redos.push((applied.redo.clone(), applied.dropped_documents.clone()));
        self.trie.install(applied);
        self.drop_documents(&applied.dropped_documents);
    }

    pub fn try_apply(&mut self, updates: &Updates, snapshots: &[u64]) -> Result<()> {
        let applied = self.written(updates, snapshots)?;
        self.logged(updates, &applied);
        Ok(())
    }

    fn drop_documents(&mut self, dropped: &[DocPointer]) {
        for dropped in dropped {
            if is_nowhere(dropped) {
                assert!(self.documents.remove(&id_of(dropped)), "document {} dropped twice", id_of(dropped));
            } else {
                self.values.drop_document(dropped).expect("it was live");
            }
        }
    }

    /// Opens everything again, from the last checkpoint and the redos after it.
    pub fn open_again(&mut self) -> Result<()> {
        let store = store(&self.disk);
        self.shared = Arc::new(Shared::new(&store, self.cache_bytes).with_segment_bytes(self.segment_bytes));
        self.values = Arc::new(DocLog::open(&store, TABLE.0, &self.checkpoint.0, 1 << 20)?);
        self.trie = Trie::open(Arc::clone(&self.shared), TABLE, Arc::clone(&self.values), &self.checkpoint.1)?;
        for (redo, dropped) in &self.redos {
            self.trie.replay(redo)?;
            for dropped in dropped.iter().filter(|dropped| !is_nowhere(dropped)) {
                self.values.drop_document(dropped)?;
            }
        }
        Ok(())
    }

    pub fn verify(&self) -> Seen {
        let mut seen = Seen::default();
        self.trie.view().verify(&mut seen).expect("a disk that works");
        seen
    }

    pub fn pairs(&self, at: u64) -> Vec<(Vec<u8>, u64, Change)> {
        let change_of = |value: &Stored| self.change_of(value);
        scan_as(&self.trie.view(), &Bounds::all(), at, Direction::Forward, &change_of).expect("whole")
    }
}

impl Store for Home {
    fn index(&self) -> &dyn Index {
        &self.trie
    }

    fn apply(&mut self, updates: &Updates, snapshots: &[u64]) {
        self.try_apply(updates, snapshots).expect("a disk that works");
    }

    fn checkpoint(&mut self) {
        self.checkpoint = (self.values.image(), self.trie.root());
        self.redos.clear();
    }

    fn reopen(&mut self) {
        self.open_again().expect("a disk that works");
    }

    fn clear_cache(&self) {
        self.shared.cache().clear();
    }

    fn change_of(&self, value: &Stored) -> Change {
        match value {
            Stored::Inline(value) => Change::Put(value.clone()),
            Stored::Document(pointer) if is_nowhere(pointer) => Change::Document(id_of(pointer)),
            Stored::Document(pointer) => Change::Put(self.values.read_many(&[*pointer]).expect("whole").remove(0)),
        }
    }

    fn check(&self, model: &Model, at: u64) {
        let seen = self.verify();
        assert_eq!(seen.findings, Vec::<String>::new());
        let expected = model.range(&Bounds::all(), at);
        assert_eq!(seen.keys, expected.len() as u64);
        assert_eq!(self.pairs(at), expected);
        let (nowhere, values): (Vec<&DocPointer>, Vec<&DocPointer>) =
            seen.documents.iter().partition(|document| is_nowhere(document));
        let nowhere: Vec<_> = nowhere.iter().map(|document| id_of(document)).collect();
        assert_eq!(nowhere.iter().copied().collect::<BTreeSet<_>>(), self.documents);
        assert_eq!(nowhere.len(), self.documents.len(), "a document is reported once");
        let mut live: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for document in &values {
            *live.entry(document.segment).or_default() += document.stored_bytes();
        }
        assert_eq!(live, self.values.live());
    }

    fn check_space(&self) {
        // What is live is compared with what is met by every verification.
        assert_eq!(self.trie.room().pending_documents, 0);
    }

    fn documents(&self) -> &BTreeSet<u64> {
        &self.documents
    }
}
