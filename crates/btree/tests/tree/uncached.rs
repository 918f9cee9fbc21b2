//! A tree whose internal nodes do not fit in the cache: everything works, in batches, and reads nothing twice.

use std::collections::BTreeSet;

use btree::Shape;
use index::{Bounds, Direction, Index};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::common::{Change, Home, Model, Updates, found, scan};

/// Keys with long separators, so that a node holds few children.
fn key(number: u64) -> Vec<u8> {
    let middle = [b'm'; 300];
    [&(number / 8).to_be_bytes()[..], &middle, &(number % 8).to_be_bytes()].concat()
}

fn puts(numbers: impl IntoIterator<Item = u64>, seq: u64) -> Updates {
    Updates::puts(numbers.into_iter().map(key), seq, &[seq.to_le_bytes()[0]; 700])
}

const KEYS: u64 = 4000;

/// A tree of four levels at least, whose internal nodes are far more than the cache holds.
fn grown(cache_bytes: u64) -> (Home, Model, Shape) {
    let mut home = Home::new(1, 1, cache_bytes);
    let mut model = Model::default();
    for (batch, from) in (0..KEYS).step_by(1000).enumerate() {
        let updates = puts(from..from + 1000, 1 + batch as u64);
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
    }
    home.shared.cache().clear();
    let stats = home.tree.shape().expect("whole");
    assert!(stats.height >= 4 && stats.internal_pages * 4096 > 10 * cache_bytes, "{stats:?}");
    home.shared.cache().clear();
    (home, model, stats)
}

const CACHES: [u64; 2] = [0, 32 << 10];

#[test]
fn many_keys_go_down_with_one_psync_a_level_and_read_each_node_once() {
    for cache in CACHES {
        let (home, model, stats) = grown(cache);
        let mut random = StdRng::seed_from_u64(1);
        let mut numbers: Vec<u64> = (0..KEYS).chain((0..90).map(|_| random.random_range(0..KEYS))).collect();
        numbers.shuffle(&mut random);
        let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let expected: Vec<_> = keys.iter().map(|key| model.get(key, u64::MAX)).collect();
        let (before, reads) = (home.shared.counters(), home.pages.file().counters().snapshot().reads);
        assert_eq!(found(&*home.tree.view(), &keys, u64::MAX).expect("whole"), expected);
        let after = home.shared.counters();
        assert_eq!(after.node_reads - before.node_reads, stats.internal_pages, "each node once");
        assert_eq!(after.leaf_reads - before.leaf_reads, stats.leaves, "each leaf once");
        assert_eq!(after.node_psyncs - before.node_psyncs, u64::from(stats.height) - 1, "one psync a level");
        let reads = home.pages.file().counters().snapshot().reads - reads;
        assert_eq!(reads, stats.internal_pages + stats.leaves);
    }
}

#[test]
fn few_keys_read_their_own_paths_alone() {
    let (home, model, stats) = grown(0);
    let keys: Vec<_> = [5, 6, 7, 5, 3999].map(key).to_vec();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key, u64::MAX)).collect();
    let before = home.shared.counters();
    assert_eq!(found(&*home.tree.view(), &keys, u64::MAX).expect("whole"), expected);
    let after = home.shared.counters();
    let height = u64::from(stats.height);
    assert_eq!(after.node_psyncs - before.node_psyncs, height - 1);
    // The first keys are neighbours: their paths part above leaves at the earliest, one level up if they are unlucky.
    let nodes = after.node_reads - before.node_reads;
    assert!((2 * (height - 1) - 1..=2 * (height - 1)).contains(&nodes), "{nodes} nodes in {height} levels");
}

#[test]
fn a_batch_reads_each_node_once_and_leaves_it_right() {
    for cache in CACHES {
        let (mut home, mut model, stats) = grown(cache);
        let before = home.shared.counters();
        let updates = puts((0..KEYS).step_by(3), 100);
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
        let after = home.shared.counters();
        // No node is underfull, so that none is read as a neighbour.
        assert_eq!(after.node_reads - before.node_reads, stats.internal_pages);
        home.check(&model, u64::MAX);
        home.check_pages();
    }
}

#[test]
fn scans_and_mass_deletes_are_right() {
    for cache in CACHES {
        let (mut home, mut model, stats) = grown(cache);
        let expected = model.range(&Bounds::all(), u64::MAX);
        for direction in [Direction::Forward, Direction::Backward] {
            let before = home.shared.counters();
            assert_eq!(scan(&home.tree.view(), &Bounds::all(), u64::MAX, direction).expect("whole"), expected);
            let after = home.shared.counters();
            // Lookups before this left some in what the cache had to spare.
            let read = after.leaf_reads - before.leaf_reads;
            assert!(read <= stats.leaves && read + cache / 4096 >= stats.leaves, "{read} of {}", stats.leaves);
        }
        let mut numbers: Vec<u64> = (0..KEYS).collect();
        numbers.shuffle(&mut StdRng::seed_from_u64(2));
        for (batch, numbers) in numbers.chunks(900).enumerate() {
            let gone: BTreeSet<_> = numbers.iter().map(|number| key(*number)).collect();
            let seq = 100 + batch as u64;
            let updates = Updates::new(gone.into_iter().map(|key| (key, seq, Change::Delete)).collect());
            home.apply(&updates, &[]).expect("a disk that works");
            model.apply(&updates);
            home.check(&model, u64::MAX);
        }
        home.check_pages();
        assert_eq!(home.tree.shape().expect("whole"), Shape::default());
    }
}
