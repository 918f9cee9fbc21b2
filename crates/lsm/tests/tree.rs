//! A tree does what a map of versions does, whatever is done to it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use index::testing::steps::{Store, run, step, universe};
use index::testing::{Change, Model, Seen, Updates, id_of, scan_as};
use index::{
    Applied, Bounds, Direction, Horizon, Index, Lost, PairRef, Part, Rescue, Seq, Stored, TableId, Upkeep, When,
};
use lsm::{Shared, Tree};
use proptest::prelude::*;
use psync::Request;
use psync::sim::SimDisk;
use space::FileStore;

const TABLE: TableId = TableId(7);

/// How often the tree is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upkeeps {
    /// After each batch, as much as it wants.
    Always(When),
    /// After each batch a stretch of everything is rewritten.
    Stretches(usize),
    /// Only where everything is deleted.
    Seldom,
}

/// A tree on a simulated disk.
struct Home {
    disk: SimDisk,
    tree: Tree,
    shared: Arc<Shared>,
    cache_bytes: u64,
    upkeeps: Upkeeps,
    /// Where the next stretch begins.
    from: Vec<u8>,
    /// The greatest seq of a batch.
    seq: u64,
    /// The last checkpoint, and the redos after it.
    checkpoint: Vec<u8>,
    redos: Vec<Vec<u8>>,
    documents: BTreeSet<u64>,
    merges: Cell<u64>,
}

fn shared(disk: &SimDisk, cache_bytes: u64) -> Arc<Shared> {
    let store = FileStore::open(disk.psync().with_pio_max(16), Path::new("/db"), false).expect("a store");
    Arc::new(Shared::new(&store, cache_bytes))
}

impl Home {
    fn new(cache_bytes: u64, upkeeps: Upkeeps) -> Self {
        let disk = SimDisk::new(1);
        let shared = shared(&disk, cache_bytes);
        let tree = Tree::create(Arc::clone(&shared), TABLE).expect("a tree");
        let checkpoint = tree.root();
        let (from, redos, documents) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self {
            disk,
            tree,
            shared,
            cache_bytes,
            upkeeps,
            from,
            seq: 0,
            checkpoint,
            redos,
            documents,
            merges: Cell::new(0),
        }
    }

    fn install(&mut self, applied: &Applied) {
        let requests = applied.files.iter().map(|file| Request::flush(file, 0)).collect();
        self.disk.psync().run_all(requests).expect("a disk that works");
        self.shared.store().sync_directories().expect("a disk that works");
        self.redos.push(applied.redo.clone());
        self.tree.install(applied);
        for dropped in &applied.dropped_documents {
            assert!(self.documents.remove(&id_of(dropped)), "document {} dropped twice", id_of(dropped));
        }
    }

    fn stretch(&mut self, part: Part<'_>, horizon: &Horizon) -> Option<Vec<u8>> {
        let compacted = self.tree.compact(part, Seq::MAX, horizon).expect("a disk that works")?;
        self.merges.set(self.merges.get() + 1);
        self.install(&compacted.applied);
        compacted.next
    }

    fn look_after(&mut self, horizon: &Horizon, all: bool) {
        match self.upkeeps {
            _ if all => drop(self.stretch(Part::whole(), horizon)),
            Upkeeps::Always(when) => {
                for count in 0.. {
                    let Some(chosen) = self.tree.wants(when) else { break };
                    self.stretch(Part { chosen: Some(&chosen), ..Part::whole() }, horizon);
                    assert!(count < 100, "it comes to an end");
                }
            }
            Upkeeps::Stretches(bytes) => {
                let from = std::mem::take(&mut self.from);
                let part = Part { from: &from, bytes, reclaims: true, ..Part::whole() };
                self.from = self.stretch(part, horizon).unwrap_or_default();
            }
            Upkeeps::Seldom => {}
        }
    }
}

impl Store for Home {
    fn index(&self) -> &dyn Index {
        &self.tree
    }

    fn apply(&mut self, updates: &Updates, snapshots: &[u64]) {
        let horizon: Horizon = snapshots.iter().copied().map(Seq).collect();
        let newest = updates.iter().map(|(_, seq, _)| *seq).max().unwrap_or(0);
        let id = |change: &Change| if let Change::Document(id) = change { Some(*id) } else { None };
        let ids: Vec<u64> = updates.iter().filter_map(|(_, _, change)| id(change)).collect();
        let is_new = newest > self.seq;
        // Versions of a batch whose redo is in the log never come again.
        let is_move = !is_new && !ids.is_empty() && ids.iter().all(|id| !self.documents.contains(id));
        self.seq = self.seq.max(newest);
        let applied = if is_new {
            self.tree.apply(updates, &horizon, &|_| {})
        } else if is_move {
            self.tree.relocate(updates, &horizon)
        } else {
            return;
        };
        self.documents.extend(ids);
        self.install(&applied.expect("a disk that works"));
        let all = updates.iter().all(|(_, _, change)| *change == Change::Delete);
        self.look_after(&horizon, all && snapshots.is_empty());
    }

    fn checkpoint(&mut self) {
        self.checkpoint = self.tree.root();
        self.redos.clear();
    }

    fn reopen(&mut self) {
        self.disk.restart();
        self.shared = shared(&self.disk, self.cache_bytes);
        self.tree = Tree::open(Arc::clone(&self.shared), TABLE, &self.checkpoint).expect("whole");
        self.redos.iter().for_each(|redo| self.tree.replay(redo).expect("whole"));
    }

    fn clear_cache(&self) {
        self.shared.cache().clear();
    }

    fn change_of(&self, value: &Stored) -> Change {
        match value {
            Stored::Inline(value) => Change::Put(value.clone()),
            Stored::Document(pointer) => Change::Document(id_of(pointer)),
        }
    }

    fn check(&self, model: &Model, at: u64) {
        let mut seen = Seen::default();
        self.tree.view().verify(&mut seen).expect("a disk that works");
        assert_eq!(seen.findings, Vec::<String>::new());
        let expected = model.range(&Bounds::all(), at);
        assert_eq!(seen.keys, expected.len() as u64);
        let pairs = scan_as(&self.tree.view(), &Bounds::all(), at, Direction::Forward, &|value| self.change_of(value));
        assert_eq!(pairs.expect("whole"), expected);
        let documents: Vec<_> = seen.documents.iter().map(id_of).collect();
        assert_eq!(documents.iter().copied().collect::<BTreeSet<_>>(), self.documents);
        assert_eq!(documents.len(), self.documents.len(), "a document is reported once");
    }

    fn check_space(&self) {
        let space = self.tree.space();
        self.tree.root();
        // No reader holds an older version where this is called, except in the middle of a run.
        assert!(space.live_bytes + space.dead_bytes <= space.bytes);
    }

    fn documents(&self) -> &BTreeSet<u64> {
        &self.documents
    }
}

fn upkeeps() -> impl Strategy<Value = Upkeeps> {
    prop_oneof![
        Just(Upkeeps::Always(When::Busy)),
        Just(Upkeeps::Always(When::Idle)),
        (1..20_000_usize).prop_map(Upkeeps::Stretches),
        Just(Upkeeps::Seldom),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_a_map_of_versions(
        upkeeps in upkeeps(),
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(Home::new(cache, upkeeps), universe(), 0, &steps);
    }
}

/// What was saved.
#[derive(Default)]
struct Saved {
    pairs: Vec<(Vec<u8>, u64)>,
    lost: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Rescue for Saved {
    fn pairs(&mut self, pairs: &[PairRef<'_>]) -> ControlFlow<()> {
        self.pairs.extend(pairs.iter().map(|pair| (pair.key.to_vec(), pair.seq.0)));
        ControlFlow::Continue(())
    }

    fn lost(&mut self, lost: Lost) {
        self.lost.push((lost.low, lost.high));
    }
}

#[test]
fn what_is_outside_the_lost_keys_is_saved_as_it_was() {
    let mut home = Home::new(0, Upkeeps::Always(When::Busy));
    let key = |number: u64| (number * 7 % 3000).to_be_bytes().to_vec();
    for seq in 1..=12 {
        let keys = (0..700).map(|number| key(number * seq)).collect::<BTreeSet<_>>();
        home.apply(&Updates::puts(keys, seq, &[7; 120]), &[]);
    }
    let expected: Vec<(Vec<u8>, u64)> = {
        let pairs = scan_as(&home.tree.view(), &Bounds::all(), 12, Direction::Forward, &|value| home.change_of(value));
        pairs.expect("whole").into_iter().map(|(key, seq, _)| (key, seq)).collect()
    };
    let files: Vec<_> = home.disk.files().into_iter().filter(|path| path.to_string_lossy().ends_with(".sst")).collect();
    assert!(files.len() > 2, "{files:?}");
    let mut damaged = 0;
    for path in &files {
        let bytes = home.disk.read_file(path).expect("it is there").len() as u64;
        for at in (5..bytes).step_by(1777) {
            assert!(home.disk.flip_bit(path, at));
            // The tops are read again.
            home.checkpoint();
            home.shared = shared(&home.disk, 0);
            let tree = Tree::open(Arc::clone(&home.shared), TABLE, &home.checkpoint).expect("whole");
            let (mut saved, mut seen) = (Saved::default(), Seen::default());
            tree.salvage(&mut saved);
            tree.view().verify(&mut seen).expect("a disk that works");
            assert!(saved.lost.is_empty() || !seen.findings.is_empty());
            damaged += usize::from(!saved.lost.is_empty());
            let is_lost = |key: &[u8]| {
                saved
                    .lost
                    .iter()
                    .any(|(low, high)| low.as_slice() <= key && high.as_deref().is_none_or(|high| key < high))
            };
            assert!(saved.pairs.is_sorted());
            let rest: Vec<_> = expected.iter().filter(|(key, _)| !is_lost(key)).cloned().collect();
            assert_eq!(saved.pairs, rest, "{} at byte {at}", path.display());
            assert!(rest.len() * 2 > expected.len() || saved.lost.len() == 1, "little is lost");
            assert!(home.disk.flip_bit(path, at));
        }
    }
    assert!(damaged > 20, "{damaged} times something was lost");
}
