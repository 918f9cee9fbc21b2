//! Documents are reported dropped by the batch that makes them dead, and leaves are not rewritten for anything less.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{self, Change, Home, Model, Updates};

const NONE: [u64; 0] = [];

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

fn one(number: u64, seq: u64, change: Change) -> Updates {
    Updates::new(vec![(key(number), seq, change)])
}

fn dropped(home: &mut Home, updates: &Updates, snapshots: &[u64]) -> Vec<u64> {
    let applied = home.apply(updates, snapshots).expect("a disk that works");
    applied.dropped_documents.iter().map(common::id_of).collect()
}

fn rewritten(home: &Home) -> u64 {
    let counters = home.shared.counters();
    counters.leaves_shrunk + counters.leaves_split + counters.leaves_merged + counters.leaves_removed
}

/// A tree of `count` documents, numbered as their keys, which are even.
fn loaded(leaf_pages: u32, cache_bytes: u64, count: u64) -> (Home, Model) {
    let mut home = Home::new(1, leaf_pages, cache_bytes);
    let mut model = Model::default();
    let updates = (0..count).map(|number| (key(2 * number), 1, Change::Document(2 * number)));
    let updates = Updates::new(updates.collect());
    assert_eq!(dropped(&mut home, &updates, &[]), NONE);
    model.apply(&updates);
    (home, model)
}

#[test]
fn a_value_that_is_overwritten_drops_its_document_at_once() {
    for cache_bytes in [0, 8 << 20] {
        let mut home = Home::new(1, 4, cache_bytes);
        assert_eq!(dropped(&mut home, &one(1, 1, Change::Document(1)), &[]), NONE);
        for seq in 2..=200 {
            assert_eq!(dropped(&mut home, &one(1, seq, Change::Document(seq)), &[]), [seq - 1]);
        }
        assert_eq!(dropped(&mut home, &one(1, 201, Change::Put(vec![1; 10])), &[]), [200]);
        assert_eq!(dropped(&mut home, &one(1, 202, Change::Document(202)), &[]), NONE);
        assert_eq!(dropped(&mut home, &one(1, 203, Change::Delete), &[]), [202]);
        assert_eq!(home.tree.shape().expect("whole"), btree::Shape::default());
        home.check_pages();
    }
}

#[test]
fn a_version_that_the_same_batch_makes_dead_drops_its_document() {
    let (mut home, mut model) = loaded(4, 0, 2_000);
    let updates = vec![
        (key(7), 2, Change::Document(10_000)),
        (key(7), 3, Change::Document(10_001)),
        (key(2_001), 4, Change::Document(10_002)),
        (key(2_001), 5, Change::Delete),
    ];
    let updates = Updates::new(updates);
    assert_eq!(dropped(&mut home, &updates, &[]), [10_000, 10_002]);
    model.apply(&updates);
    home.check(&model, u64::MAX);
}

#[test]
fn a_document_that_moved_is_dropped_at_once() {
    let (mut home, mut model) = loaded(4, 0, 2_000);
    for number in [0, 500, 3_998] {
        let moved = one(number, 1, Change::Document(10_000 + number));
        assert_eq!(dropped(&mut home, &moved, &[]), [number]);
        assert_eq!(dropped(&mut home, &moved, &[]), NONE);
        model.apply(&moved);
    }
    home.check(&model, u64::MAX);
}

#[test]
fn a_document_that_a_snapshot_sees_waits_for_the_next_update_of_its_key() {
    let (mut home, _) = loaded(4, 0, 200);
    let before = rewritten(&home);
    assert_eq!(dropped(&mut home, &one(8, 2, Change::Document(1_000)), &[1]), NONE);
    assert_eq!(dropped(&mut home, &one(8, 3, Change::Document(1_001)), &[1, 2]), NONE);
    assert_eq!(rewritten(&home), before, "nothing could be dropped");
    assert_eq!(dropped(&mut home, &one(10, 4, Change::Put(vec![0; 9])), &[1]), NONE);
    let mut both = dropped(&mut home, &one(8, 5, Change::Delete), &[2]);
    both.sort_unstable();
    assert_eq!(both, [8, 1_001]);
    // A rewrite drops the dead of other keys as well.
    assert_eq!(dropped(&mut home, &one(8, 6, Change::Delete), &[]), [1_000, 10]);
}

#[test]
fn new_keys_among_documents_are_appended() {
    for (cache_bytes, documents) in [(0, true), (0, false), (8 << 20, true), (8 << 20, false)] {
        let (mut home, mut model) = loaded(4, cache_bytes, 20_000);
        let leaves = home.tree.shape().expect("whole").leaves;
        for seq in 2..6 {
            let before = (home.shared.counters(), rewritten(&home));
            let change =
                |number| if documents { Change::Document(100_000 * seq + number) } else { Change::Put(vec![6; 30]) };
            let some = (0..20_000).step_by(800).map(|number| 2 * (number + seq) + 1);
            let some = Updates::new(some.map(|number| (key(number), seq, change(number))).collect());
            assert_eq!(dropped(&mut home, &some, &[]), NONE);
            model.apply(&some);
            let after = home.shared.counters();
            assert_eq!(rewritten(&home), before.1);
            let appended = after.runs_appended - before.0.runs_appended;
            assert_eq!(after.leaf_pages_written - before.0.leaf_pages_written, appended);
            // To know that nothing died, each leaf is read once, unless it is cached.
            let reads = if cache_bytes == 0 { appended } else { 0 };
            assert_eq!(after.leaf_reads - before.0.leaf_reads, reads);
            assert_eq!(after.tail_reads, before.0.tail_reads);
        }
        assert_eq!(home.tree.shape().expect("whole").leaves, leaves);
        home.check(&model, u64::MAX);
    }
}

#[test]
fn a_leaf_whose_documents_are_gone_is_appended_to_without_being_read() {
    let (mut home, _) = loaded(4, 0, 60);
    let inline = Updates::puts((0..60).map(|number| key(2 * number)), 2, &[1; 30]);
    assert_eq!(dropped(&mut home, &inline, &[]).len(), 60);
    let before = home.shared.counters();
    for seq in 3..8 {
        assert_eq!(dropped(&mut home, &one(2, seq, Change::Put(vec![2; 30])), &[]), NONE);
    }
    let after = home.shared.counters();
    assert_eq!((after.leaf_reads - before.leaf_reads, after.tail_reads - before.tail_reads), (0, 5));
    assert_eq!(after.runs_appended - before.runs_appended, 5);
}

#[test]
fn without_snapshots_no_dead_document_is_left() {
    for seed in 0..30 {
        println!("seed {seed}");
        let random = &mut StdRng::seed_from_u64(seed);
        let mut home =
            Home::new(seed, [1, 2, 4, 9][random.random_range(0..4)], [0, 64 << 10, 8 << 20][random.random_range(0..3)]);
        let mut model = Model::default();
        let mut document = 0;
        for seq in 1..30 {
            let updates = (0..random.random_range(1..100)).map(|_| {
                document += 1;
                let change = match random.random_range(0..5) {
                    0 => Change::Delete,
                    1..3 => Change::Put(vec![3; random.random_range(0..100)]),
                    _ => Change::Document(document),
                };
                (key(random.random_range(0..800)), seq, change)
            });
            let updates = Updates::new(updates.collect());
            home.apply(&updates, &[]).expect("a disk that works");
            model.apply(&updates);
            home.check(&model, u64::MAX);
            let live = model.range(&common::all(), u64::MAX);
            let live = live.iter().filter(|(_, _, change)| matches!(change, Change::Document(_))).count();
            assert_eq!(home.documents.len(), live);
        }
    }
}
