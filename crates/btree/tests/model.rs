//! A tree does what a map of versions does, whatever is done to it.

mod common;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use common::{Change, Home, Model, Updates, found, scan};
use index::{Bounds, Direction, Index, Seq, View};
use proptest::prelude::*;
use proptest::sample::Index as Pick;

/// One thing that is done to a tree.
#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(Pick, Kind)>),
    /// A dense run of keys from one of them on.
    Fill {
        from: usize,
        count: usize,
        delete: bool,
    },
    Snapshot,
    ReleaseSnapshot(Pick),
    HoldView,
    ReleaseView(Pick),
    /// The last batch once more.
    Again,
    /// Documents move: the same versions are written again, with other pointers.
    Relocate(Vec<Pick>),
    Checkpoint,
    Reopen,
    ClearCache,
    Get(Vec<Pick>),
    Scan {
        from: Pick,
        to: Pick,
        inclusive: (bool, bool),
        forward: bool,
        open: (bool, bool),
    },
}

#[derive(Clone, Debug)]
enum Kind {
    Put(usize),
    Document,
    Delete,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => (0..60_usize).prop_map(Kind::Put),
        1 => (0..=2048_usize).prop_map(Kind::Put),
        1 => Just(Kind::Document),
        3 => Just(Kind::Delete),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pick = any::<Pick>;
    prop_oneof![
        6 => prop::collection::vec((pick(), kind()), 1..60).prop_map(Step::Apply),
        3 => (0..2000_usize, 1..400_usize, any::<bool>()).prop_map(|(from, count, delete)| Step::Fill { from, count, delete }),
        1 => Just(Step::Snapshot),
        1 => pick().prop_map(Step::ReleaseSnapshot),
        1 => Just(Step::HoldView),
        1 => pick().prop_map(Step::ReleaseView),
        1 => Just(Step::Again),
        2 => prop::collection::vec(pick(), 1..20).prop_map(Step::Relocate),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        1 => Just(Step::ClearCache),
        3 => prop::collection::vec(pick(), 1..50).prop_map(Step::Get),
        3 => (pick(), pick(), any::<(bool, bool)>(), any::<bool>(), any::<(bool, bool)>())
            .prop_map(|(from, to, inclusive, forward, open)| Step::Scan { from, to, inclusive, forward, open }),
    ]
}

/// A universe of keys: dense short ones, some with long common beginnings, some of the greatest length.
fn universe() -> Vec<Vec<u8>> {
    let mut keys = BTreeSet::new();
    for number in 0..600_u32 {
        keys.insert(number.to_be_bytes()[2..].to_vec());
        keys.insert(format!("user/{number:05}").into_bytes());
    }
    for number in 0..24_u8 {
        let mut long = vec![b'x'; 1023];
        long.push(number);
        keys.insert(long);
        keys.insert(vec![number.wrapping_mul(11); 1 + usize::from(number) * 40]);
    }
    keys.into_iter().collect()
}

/// Long keys whose separators are long as well and begin differently: a node holds a few children, so the tree is high.
fn deep_universe() -> Vec<Vec<u8>> {
    let key = |first: u8, last: u8| [&[first; 1][..], &[b'x'; 1000], &[last; 1]].concat();
    (0..80).flat_map(|first| (0..5).map(move |last| key(first, last))).collect()
}

/// A version that is held, what it should hold, and at which seqs it can be asked.
struct Held {
    view: Arc<dyn View>,
    model: Model,
    ats: Vec<u64>,
}

struct Run {
    home: Home,
    model: Model,
    keys: Vec<Vec<u8>>,
    seq: u64,
    document: u64,
    snapshots: Vec<u64>,
    held: Vec<Held>,
    last: Updates,
    /// Least bytes of a value.
    value_bytes_min: usize,
    /// Most levels that there were.
    height: u32,
}

impl Run {
    fn ats(&self) -> Vec<u64> {
        self.snapshots.iter().copied().chain([self.seq, u64::MAX]).collect()
    }

    fn apply(&mut self, updates: Updates) {
        self.home.apply(&updates, &self.snapshots).expect("a disk that works");
        self.model.apply(&updates);
        self.last = updates;
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(changes) => {
                let updates = changes.iter().map(|(key, kind)| {
                    self.seq += 1;
                    let change = match kind {
                        Kind::Put(length) => {
                            Change::Put(vec![self.seq.to_le_bytes()[0]; (*length).max(self.value_bytes_min)])
                        }
                        Kind::Document => {
                            self.document += 1;
                            Change::Document(self.document)
                        }
                        Kind::Delete => Change::Delete,
                    };
                    (key.get(&self.keys).clone(), self.seq, change)
                });
                let updates = Updates::new(updates.collect());
                self.apply(updates);
            }
            Step::Fill { from, count, delete } => {
                self.seq += 1;
                let from = from % self.keys.len();
                let keys = self.keys[from..].iter().take(*count).cloned();
                let change = if *delete { Change::Delete } else { Change::Put(vec![7; self.value_bytes_min.max(40)]) };
                let updates = Updates::new(keys.map(|key| (key, self.seq, change.clone())).collect());
                self.apply(updates);
            }
            Step::Snapshot => self.snapshots.push(self.seq),
            Step::ReleaseSnapshot(pick) if !self.snapshots.is_empty() => {
                self.snapshots.remove(pick.index(self.snapshots.len()));
            }
            Step::HoldView => {
                let held = Held { view: self.home.tree.view(), model: self.model.clone(), ats: self.ats() };
                self.held.push(held);
            }
            Step::ReleaseView(pick) if !self.held.is_empty() => {
                self.held.remove(pick.index(self.held.len()));
            }
            Step::Again => {
                // Versions that were dropped must not come back: what is written again is what is there.
                let last = self.last.iter().filter(|(key, seq, change)| {
                    let newest = self.model.get(key, u64::MAX);
                    newest.as_ref() == Some(&(*seq, change.clone()))
                });
                let updates = Updates::new(last.cloned().collect());
                self.apply(updates);
            }
            Step::Relocate(picks) => {
                let all = self.model.range(&Bounds::all(), u64::MAX);
                let stored: Vec<_> =
                    all.into_iter().filter(|(_, _, change)| matches!(change, Change::Document(_))).collect();
                if !stored.is_empty() {
                    let moved = picks.iter().map(|pick| {
                        let (key, seq, _) = pick.get(&stored).clone();
                        self.document += 1;
                        (key, seq, Change::Document(self.document))
                    });
                    let updates = Updates::new(moved.collect());
                    self.apply(updates);
                }
            }
            Step::Checkpoint => self.home.checkpoint(),
            Step::Reopen => {
                self.held.clear();
                self.home.reopen();
                self.home.check_pages();
            }
            Step::ClearCache => self.home.shared.clear_cache(),
            Step::Get(picks) => {
                let keys: Vec<_> = picks.iter().map(|pick| pick.get(&self.keys).as_slice()).collect();
                self.each(|view, model, at| {
                    let expected: Vec<_> = keys.iter().map(|key| model.get(key, at)).collect();
                    assert_eq!(found(&**view, &keys, at).expect("whole"), expected);
                    assert_eq!(found(&**view, &keys[..1], at).expect("whole"), expected[..1]);
                });
            }
            Step::Scan { from, to, inclusive, forward, open } => {
                let bound = |pick: &Pick, inclusive, open| match (open, inclusive) {
                    (true, _) => Bound::Unbounded,
                    (_, true) => Bound::Included(pick.get(&self.keys).clone()),
                    _ => Bound::Excluded(pick.get(&self.keys).clone()),
                };
                let bounds = Bounds { lower: bound(from, inclusive.0, open.0), upper: bound(to, inclusive.1, open.1) };
                let direction = if *forward { Direction::Forward } else { Direction::Backward };
                self.each(|view, model, at| {
                    assert_eq!(scan(view, &bounds, at, direction).expect("whole"), model.range(&bounds, at));
                });
            }
            Step::ReleaseSnapshot(_) | Step::ReleaseView(_) => {}
        }
    }

    /// Calls for the newest version and for those that are held, at every seq that can be asked.
    fn each(&self, call: impl Fn(&Arc<dyn View>, &Model, u64)) {
        let newest = Held { view: self.home.tree.view(), model: self.model.clone(), ats: self.ats() };
        for held in self.held.iter().chain([&newest]) {
            held.ats.iter().for_each(|at| call(&held.view, &held.model, *at));
        }
    }
}

fn run(leaf_pages: u32, cache_bytes: u64, deep: bool, steps: &[Step]) -> u32 {
    let mut run = Run {
        home: Home::new(1, leaf_pages, cache_bytes),
        model: Model::default(),
        keys: if deep { deep_universe() } else { universe() },
        seq: 0,
        document: 0,
        snapshots: Vec::new(),
        held: Vec::new(),
        last: Updates::default(),
        value_bytes_min: if deep { 900 } else { 0 },
        height: 0,
    };
    for step in steps {
        run.step(step);
        run.home.check(&run.model, run.seq);
        run.height = run.height.max(run.home.tree.view().stats().expect("whole").height);
    }
    run.held.clear();
    run.home.check_pages();
    // With everything deleted and nobody looking, nothing is left. A leaf with many versions of a key has fewer tombstones than
    // half of its entries at first.
    run.snapshots.clear();
    for round in 0.. {
        run.seq += 1;
        let gone = run.keys.iter().map(|key| (key.clone(), run.seq, Change::Delete)).collect();
        run.apply(Updates::new(gone));
        run.home.check_pages();
        if run.home.tree.view().stats().expect("whole") == index::Stats::default() {
            break;
        }
        assert!(round < 100, "an empty tree has nothing");
    }
    assert_eq!(run.home.documents.len(), 0, "every document is dropped");
    let mut out = vec![None];
    run.home.tree.view().get_many(&[b"user/00001"], Seq::MAX, &mut out).expect("whole");
    assert_eq!(out, vec![None]);
    run.height
}

#[test]
fn the_high_tree_is_high() {
    let fill = Step::Fill { from: 0, count: 400, delete: false };
    let height = run(1, 0, true, &[fill]);
    assert!(height >= 4, "{height} levels");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_a_map_of_versions(
        leaf_pages in prop_oneof![1..4_u32, 8..20_u32],
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(leaf_pages, cache, false, &steps);
    }

    #[test]
    fn a_high_tree_is_a_map_of_versions(
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(1, cache, true, &steps);
    }
}
