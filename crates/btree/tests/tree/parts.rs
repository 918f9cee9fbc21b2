//! Batches applied in parts, interrupted and applied again as a whole, or as other batches: nothing is wrong, and each
//! document
//! is reported dropped once in the history that the log knows.

use std::collections::{BTreeMap, BTreeSet};

use index::{Horizon, Index, Seq};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::common::{self, Change, Home, Model, Updates, found};

const NONE: [u64; 0] = [];

type Operation = (Vec<u8>, u64, Change);

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:04}").into_bytes()
}

/// A database in small: a log of operations, and a tree that has a part of them.
struct Story {
    random: StdRng,
    home: Home,
    model: Model,
    /// Operations that the tree may not have.
    log: Vec<Operation>,
    /// The tree has everything up to here.
    applied: u64,
    seq: u64,
    document: u64,
    snapshots: Vec<u64>,
    /// The newest seq that the tree has of a key, where it is above `applied`.
    ahead: BTreeMap<Vec<u8>, u64>,
    keys: u64,
    crashes: usize,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let home = Home::new(
            seed,
            [1, 2, 3, 12][random.random_range(0..4)],
            [0, 32 << 10, 4 << 20][random.random_range(0..3)],
        );
        let keys = [10, 100, 600][random.random_range(0..3)];
        Self {
            random,
            home,
            model: Model::default(),
            log: Vec::new(),
            applied: 0,
            seq: 0,
            document: 0,
            snapshots: Vec::new(),
            ahead: BTreeMap::new(),
            keys,
            crashes: 0,
        }
    }

    fn commit(&mut self) {
        let before = self.log.len();
        for _ in 0..self.random.random_range(1..120) {
            self.seq += 1;
            let change = match self.random.random_range(0..9) {
                0..3 => Change::Delete,
                3..6 => {
                    self.document += 1;
                    Change::Document(self.document)
                }
                _ => Change::Put(vec![self.seq.to_le_bytes()[0]; self.random.random_range(0..300)]),
            };
            self.log.push((key(self.random.random_range(0..self.keys)), self.seq, change));
            if self.random.random_bool(0.02) {
                self.snapshots.push(self.seq);
            }
        }
        let new = Updates::new(self.log[before..].to_vec());
        self.home.retain(&new);
        self.model.apply(&new);
    }

    /// What is applied next: everything up to some seq. Versions without documents that nobody sees may be left out.
    fn freeze(&mut self) -> (Vec<Operation>, u64) {
        let from = self.log.first().map_or(self.seq, |(_, seq, _)| *seq);
        let through = if self.random.random_bool(0.7) { self.seq } else { self.random.random_range(from..=self.seq) };
        let mut all: Vec<_> = self.log.iter().filter(|(_, seq, _)| *seq <= through).cloned().collect();
        all.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        if self.random.random_bool(0.5) {
            let horizon: Horizon = self.snapshots.iter().copied().map(Seq).collect();
            let needed = |index: usize| {
                let (key, seq, change) = &all[index];
                let newer = all.get(index + 1).filter(|(other, _, _)| other == key);
                matches!(change, Change::Document(_))
                    || newer.is_none_or(|(_, newer, _)| horizon.sees(Seq(*seq), Seq(*newer)))
            };
            let stays: Vec<_> = (0..all.len()).map(needed).collect();
            let mut stays = stays.into_iter();
            all.retain(|_| stays.next().expect("one for each"));
        }
        (all, through)
    }

    /// Cuts a batch between keys, in any order.
    fn parts(&mut self, batch: &[Operation]) -> Vec<Vec<Operation>> {
        let mut keys: Vec<_> = batch.chunk_by(|one, other| one.0 == other.0).map(<[_]>::to_vec).collect();
        let mut out = Vec::new();
        while !keys.is_empty() {
            let most = if self.random.random_bool(0.5) { keys.len() } else { keys.len().min(8) };
            let count = self.random.random_range(1..=most);
            out.push(keys.drain(..count).flatten().collect());
        }
        if self.random.random_bool(0.5) {
            out.shuffle(&mut self.random);
        }
        out
    }

    /// Applies what was frozen; false if it crashed meanwhile.
    fn round(&mut self) -> bool {
        let (batch, through) = self.freeze();
        let parts = self.parts(&batch);
        let count = parts.len();
        for (number, part) in parts.into_iter().enumerate() {
            let last = number + 1 == count;
            let updates = Updates::part(&part, if last { through } else { self.applied });
            let chance = if count == 1 { 0.3 } else { 0.6 / count as f64 };
            if self.random.random_bool(chance) {
                // It is applied, but the log never hears of it.
                let horizon: Horizon = self.snapshots.iter().copied().map(Seq).collect();
                let lost = self.home.tree.apply(&updates, &horizon, &|_| {}).expect("a disk that works");
                if self.random.random_bool(0.5) {
                    self.home.tree.discard(&lost);
                } else {
                    drop(lost);
                    self.crash();
                    return false;
                }
            }
            self.home.apply_retained(&updates, &self.snapshots);
            if last {
                self.applied = through;
                self.log.retain(|(_, seq, _)| *seq > through);
                self.ahead.retain(|_, seq| *seq > through);
            } else {
                for (key, seq, _) in part {
                    let newest = self.ahead.entry(key).or_default();
                    *newest = seq.max(*newest);
                }
            }
            self.check();
            if !last && self.random.random_bool(chance / 2.0) {
                self.crash();
                return false;
            }
            self.relocate();
        }
        true
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.home.disk.crash();
        self.home.disk.restart();
        self.home.reopen();
        self.snapshots.clear();
        self.check();
    }

    /// Moves some documents that the tree has and that will not come again.
    fn relocate(&mut self) {
        if !self.random.random_bool(0.2) {
            return;
        }
        let mut moved = Vec::new();
        for key in self.model.keys() {
            let newest = self.model.get(key, u64::MAX);
            if let Some((seq, Change::Document(_))) = newest.filter(|(seq, _)| *seq <= self.applied)
                && self.random.random_bool(0.1)
            {
                self.document += 1;
                moved.push((key.clone(), seq, Change::Document(self.document)));
            }
        }
        let updates = Updates::part(&moved, self.applied);
        self.home.retain(&updates);
        let dropped = self.home.apply_retained(&updates, &self.snapshots).dropped_documents;
        self.model.apply(&updates);
        assert!(dropped.iter().all(|dropped| !self.is_live(common::id_of(dropped))));
        self.check();
    }

    fn is_live(&self, document: u64) -> bool {
        let ats = self.snapshots.iter().copied().chain([u64::MAX]);
        let mut newest = ats.flat_map(|at| self.model.keys().map(move |key| self.model.get(key, at)));
        newest.any(|version| matches!(version, Some((_, Change::Document(id))) if id == document))
    }

    /// What has to be true at any time.
    fn check(&self) {
        let seen = self.home.verify();
        assert_eq!(seen.findings, Vec::<String>::new());
        let documents: BTreeSet<_> = seen.documents.iter().copied().collect();
        assert_eq!(documents.len(), seen.documents.len(), "a document is reported once");
        assert!(documents.is_subset(&self.home.documents), "what the tree refers to was not dropped");
        let waiting: BTreeSet<_> = self
            .log
            .iter()
            .filter_map(|(_, _, change)| if let Change::Document(id) = change { Some(*id) } else { None })
            .collect();
        let lost: Vec<_> =
            self.home.documents.iter().filter(|id| !documents.contains(*id) && !waiting.contains(*id)).collect();
        assert!(lost.is_empty(), "nobody will drop {lost:?}");
        for key in self.model.keys() {
            for at in self.snapshots.iter().copied().chain([u64::MAX]) {
                let wanted = self.model.get(key, at);
                if let Some((_, Change::Document(id))) = &wanted {
                    assert!(self.home.documents.contains(id), "a version refers to {id}");
                }
                // What the tree does not have is in a queue above it.
                let has = self.ahead.get(key).copied().unwrap_or(self.applied).max(self.applied);
                if self.log.iter().all(|(other, seq, _)| other != key || *seq <= has || *seq > at) {
                    assert_eq!(found(&*self.home.tree.view(), &[key], at).expect("whole"), [wanted]);
                }
            }
        }
        self.home.check_pages();
    }
}

#[test]
fn parts_that_come_again_change_nothing() {
    let mut crashes = 0;
    for seed in 0..100 {
        println!("seed {seed}");
        let mut story = Story::new(seed);
        for _ in 0..8 {
            story.commit();
            story.round();
            if story.random.random_bool(0.3) && !story.snapshots.is_empty() {
                story.snapshots.remove(0);
            }
            if story.random.random_bool(0.2) {
                story.home.checkpoint();
            }
        }
        while story.applied < story.seq {
            story.round();
        }
        story.home.check(&story.model, u64::MAX);
        story.home.check_pages();
        crashes += story.crashes;
    }
    assert!(crashes > 200, "{crashes} crashes");
}

fn documents_of(home: &mut Home, updates: &Updates) -> Vec<u64> {
    home.apply_retained(updates, &[]).dropped_documents.iter().map(common::id_of).collect()
}

#[test]
fn what_was_dropped_and_comes_again_is_not_reported_again() {
    let mut home = Home::new(1, 2, 0);
    let a = || b"a".to_vec();
    let batch = vec![(a(), 3, Change::Document(3)), (a(), 5, Change::Delete), (b"b".to_vec(), 4, Change::Document(4))];
    home.retain(&Updates::new(batch.clone()));
    assert_eq!(documents_of(&mut home, &Updates::part(&batch[..2], 0)), [3]);
    for _ in 0..3 {
        // The part again after a crash, then another one.
        home.reopen();
        assert_eq!(documents_of(&mut home, &Updates::part(&batch[..2], 0)), NONE);
        assert_eq!(documents_of(&mut home, &Updates::part(&batch[2..], 0)), NONE);
    }
    assert_eq!(documents_of(&mut home, &Updates::part(&batch, 5)), NONE);
    assert_eq!(found(&*home.tree.view(), &[b"a", b"b"], 9).expect("whole"), [None, Some((4, Change::Document(4)))]);
    // From now on the tombstone hides nothing that could come.
    let again = Updates::new(vec![(a(), 6, Change::Delete)]);
    assert_eq!(documents_of(&mut home, &again), NONE);
    let moved = Updates::part(&[(b"b".to_vec(), 4, Change::Document(40))], 6);
    home.retain(&moved);
    assert_eq!(documents_of(&mut home, &moved), [4]);
    assert_eq!(documents_of(&mut home, &moved), NONE);
    assert_eq!(home.verify().documents, [40]);
    let entries = home.tree.shape().expect("whole").entries;
    assert!(entries <= 3, "{entries} entries");
}
