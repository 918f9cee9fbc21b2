//! Steps that a structure and a model of it take together.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index as Pick;

use super::{Change, Model, Updates, check_documents, found_as, scan_as};
use crate::{Bounds, Direction, Index, Seq, Stored, View};

/// A structure, with everything that is needed to open it again.
pub trait Store {
    /// The structure.
    fn index(&self) -> &dyn Index;
    /// Applies a batch as the layer above does: data, flush, log, install.
    fn apply(&mut self, updates: &Updates, snapshots: &[u64]);
    /// Keeps the state from which the structure can be opened.
    fn checkpoint(&mut self);
    /// Opens the structure from the last checkpoint and the log after that checkpoint.
    fn reopen(&mut self);
    /// Empties the caches.
    fn clear_cache(&self);
    /// The change of a value in a model.
    fn change_of(&self, value: &Stored) -> Change;
    /// Checks the newest version against the model, and the books against each other.
    fn check(&self, model: &Model, at: u64);
    /// Checks that the newest version uses all space that is in use.
    fn check_space(&self);
    /// Documents that were put and not dropped.
    fn documents(&self) -> &BTreeSet<u64>;
}

/// One operation on a structure.
#[derive(Clone, Debug)]
pub enum Step {
    /// A batch.
    Apply(Vec<(Pick, Kind)>),
    /// A dense run of keys from one of them on.
    Fill {
        /// The first.
        from: usize,
        /// How many.
        count: usize,
        /// Whether they are deleted.
        delete: bool,
    },
    /// A snapshot of this moment is held from now on.
    Snapshot,
    /// The hold ends.
    ReleaseSnapshot(Pick),
    /// A reader holds this view from now on.
    HoldView,
    /// The hold ends.
    ReleaseView(Pick),
    /// The last batch once more.
    Again,
    /// Documents move: the same versions are written again, with other pointers.
    Relocate(Vec<Pick>),
    /// As [`Store::checkpoint`].
    Checkpoint,
    /// As [`Store::reopen`].
    Reopen,
    /// As [`Store::clear_cache`].
    ClearCache,
    /// Keys are looked up.
    Get(Vec<Pick>),
    /// Keys are walked.
    Scan {
        /// The first bound.
        from: Pick,
        /// The other bound.
        to: Pick,
        /// Whether each bound belongs to the range.
        inclusive: (bool, bool),
        /// Whether the walk is forward.
        forward: bool,
        /// Whether each bound is absent.
        open: (bool, bool),
    },
}

/// The change of a key.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A value of this number of bytes.
    Put(usize),
    /// A document.
    Document,
    /// A tombstone.
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

/// Any step.
pub fn step() -> impl Strategy<Value = Step> {
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
#[must_use]
pub fn universe() -> Vec<Vec<u8>> {
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

/// A held version, its expected content, and the seqs at which the version can be asked.
struct Held {
    view: Arc<dyn View>,
    model: Model,
    ats: Vec<u64>,
}

/// A structure and its model.
struct Run<S> {
    home: S,
    model: Model,
    keys: Vec<Vec<u8>>,
    seq: u64,
    document: u64,
    snapshots: Vec<u64>,
    held: Vec<Held>,
    last: Updates,
    /// Least bytes of a value.
    value_bytes_min: usize,
    /// Most levels of the structure so far.
    height: u64,
}

impl<S: Store> Run<S> {
    fn ats(&self) -> Vec<u64> {
        self.snapshots.iter().copied().chain([self.seq, u64::MAX]).collect()
    }

    fn found(&self, view: &dyn View, keys: &[&[u8]], at: u64) -> Vec<Option<(u64, Change)>> {
        found_as(view, keys, at, &|value| self.home.change_of(value)).expect("whole")
    }

    fn apply(&mut self, updates: Updates) {
        self.home.apply(&updates, &self.snapshots);
        self.model.apply(&updates);
        self.last = updates;
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(changes) => self.change(changes),
            Step::Fill { from, count, delete } => self.fill(*from, *count, *delete),
            Step::Snapshot => self.snapshots.push(self.seq),
            Step::ReleaseSnapshot(pick) if !self.snapshots.is_empty() => {
                self.snapshots.remove(pick.index(self.snapshots.len()));
            }
            Step::HoldView => {
                let held = Held { view: self.home.index().view(), model: self.model.clone(), ats: self.ats() };
                self.held.push(held);
            }
            Step::ReleaseView(pick) if !self.held.is_empty() => {
                self.held.remove(pick.index(self.held.len()));
            }
            Step::Again => self.apply_again(),
            Step::Relocate(picks) => self.relocate(picks),
            Step::Checkpoint => self.home.checkpoint(),
            Step::Reopen => {
                self.held.clear();
                self.home.reopen();
                self.home.check_space();
            }
            Step::ClearCache => self.home.clear_cache(),
            Step::Get(picks) => self.get(picks),
            Step::Scan { from, to, inclusive, forward, open } => {
                let bound = |pick: &Pick, inclusive, open| match (open, inclusive) {
                    (true, _) => Bound::Unbounded,
                    (_, true) => Bound::Included(pick.get(&self.keys).clone()),
                    _ => Bound::Excluded(pick.get(&self.keys).clone()),
                };
                let bounds = Bounds { lower: bound(from, inclusive.0, open.0), upper: bound(to, inclusive.1, open.1) };
                self.scan(&bounds, if *forward { Direction::Forward } else { Direction::Backward });
            }
            Step::ReleaseSnapshot(_) | Step::ReleaseView(_) => {}
        }
    }

    /// Each change with a seq of its own.
    fn change(&mut self, changes: &[(Pick, Kind)]) {
        let updates = changes.iter().map(|(key, kind)| {
            self.seq += 1;
            let change = match kind {
                Kind::Put(length) => Change::Put(vec![self.seq.to_le_bytes()[0]; (*length).max(self.value_bytes_min)]),
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

    /// Puts or deletes neighbours, with one seq.
    fn fill(&mut self, from: usize, count: usize, delete: bool) {
        self.seq += 1;
        let from = from % self.keys.len();
        let keys = self.keys[from..].iter().take(count).cloned();
        let change = if delete { Change::Delete } else { Change::Put(vec![7; self.value_bytes_min.max(40)]) };
        let updates = Updates::new(keys.map(|key| (key, self.seq, change.clone())).collect());
        self.apply(updates);
    }

    /// Applies those of the last batch that are still there: versions that were dropped must not come back.
    fn apply_again(&mut self) {
        let last = self.last.iter().filter(|(key, seq, change)| {
            let newest = self.model.get(key, u64::MAX);
            newest.as_ref() == Some(&(*seq, change.clone()))
        });
        let updates = Updates::new(last.cloned().collect());
        self.apply(updates);
    }

    /// Gives some versions another document.
    fn relocate(&mut self, picks: &[Pick]) {
        let all = self.model.range(&Bounds::all(), u64::MAX);
        let stored: Vec<_> = all.into_iter().filter(|(_, _, change)| matches!(change, Change::Document(_))).collect();
        if stored.is_empty() {
            return;
        }
        let moved = picks.iter().map(|pick| {
            let (key, seq, _) = pick.get(&stored).clone();
            self.document += 1;
            (key, seq, Change::Document(self.document))
        });
        let updates = Updates::new(moved.collect());
        self.apply(updates);
    }

    fn get(&self, picks: &[Pick]) {
        let keys: Vec<_> = picks.iter().map(|pick| pick.get(&self.keys).as_slice()).collect();
        self.each(|view, model, at| {
            let expected: Vec<_> = keys.iter().map(|key| model.get(key, at)).collect();
            assert_eq!(self.found(&**view, &keys, at), expected);
            assert_eq!(self.found(&**view, &keys[..1], at), expected[..1]);
        });
    }

    fn scan(&self, bounds: &Bounds, direction: Direction) {
        self.each(|view, model, at| {
            let pairs = scan_as(view, bounds, at, direction, &|value| self.home.change_of(value));
            assert_eq!(pairs.expect("whole"), model.range(bounds, at));
        });
    }

    /// Calls for the newest version and for held versions, at every seq that can be asked.
    fn each(&self, call: impl Fn(&Arc<dyn View>, &Model, u64)) {
        let newest = Held { view: self.home.index().view(), model: self.model.clone(), ats: self.ats() };
        for held in self.held.iter().chain([&newest]) {
            held.ats.iter().for_each(|at| call(&held.view, &held.model, *at));
        }
    }
}

/// Takes steps, checks after each, and deletes everything in the end. Values have at least `value_bytes_min` bytes.
/// Returns the most levels of the structure.
pub fn run(home: impl Store, keys: Vec<Vec<u8>>, value_bytes_min: usize, steps: &[Step]) -> u64 {
    let mut run = Run {
        home,
        model: Model::default(),
        keys,
        seq: 0,
        document: 0,
        snapshots: Vec::new(),
        held: Vec::new(),
        last: Updates::default(),
        value_bytes_min,
        height: 0,
    };
    for step in steps {
        run.step(step);
        run.home.check(&run.model, run.seq);
        check_documents(&*run.home.index().view()).expect("whole");
        let stats = run.home.index().view().stats().expect("whole");
        run.height = run.height.max(stats.figure("levels").expect("a structure has levels"));
    }
    run.held.clear();
    run.home.check_space();
    // With everything deleted and no reader left, nothing is left. A leaf with many versions of a key has fewer
    // tombstones than half of its entries at first.
    run.snapshots.clear();
    for round in 0.. {
        run.seq += 1;
        let gone = run.keys.iter().map(|key| (key.clone(), run.seq, Change::Delete)).collect();
        run.apply(Updates::new(gone));
        run.home.check_space();
        let stats = run.home.index().view().stats().expect("whole");
        if (stats.entries, stats.entry_bytes, stats.stored_bytes) == (0, 0, 0)
            && stats.figures.iter().all(|figure| figure.value == 0)
        {
            break;
        }
        assert!(round < 100, "an empty tree has nothing");
    }
    assert_eq!(run.home.documents().len(), 0, "every document is dropped");
    let mut out = vec![None];
    run.home.index().view().get_many(&[b"user/00001"], Seq::MAX.into(), &mut out).expect("whole");
    assert_eq!(out, vec![None]);
    run.height
}
