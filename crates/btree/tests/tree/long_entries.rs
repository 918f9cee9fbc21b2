//! Leaves of long entries have more pages than those of short ones, as far as the tree may choose.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::common::{self, Home, Model, Updates};

const LEAF_PAGES: u32 = 4;
const BATCH: usize = 700;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:012}").into_bytes()
}

/// Puts so many keys in random order, with values of so many bytes.
fn put(home: &mut Home, model: &mut Model, keys: u64, value_bytes: usize, seq: &mut u64) {
    let mut numbers: Vec<u64> = (0..keys).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(keys));
    for batch in numbers.chunks(BATCH) {
        *seq += 1;
        let updates = Updates::puts(batch.iter().copied().map(key), *seq, &vec![7; value_bytes]);
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
    }
}

fn pages_of_a_leaf(home: &Home) -> f64 {
    let stats = home.stats();
    stats.leaf_pages as f64 / stats.leaves as f64
}

#[test]
fn leaves_are_as_long_as_their_entries_ask_for() {
    for (value_bytes, may, expected) in
        [(100, true, 4.0), (300, true, 4.0), (600, true, 8.0), (1024, true, 16.0), (1024, false, 4.0)]
    {
        let (mut home, mut model, mut seq) =
            (Home::with_longer_leaves(1, LEAF_PAGES, 1 << 20, may), Model::default(), 0);
        put(&mut home, &mut model, 4_000, value_bytes, &mut seq);
        let pages = pages_of_a_leaf(&home);
        assert!((pages - expected).abs() < expected / 8.0, "values of {value_bytes} bytes: {pages} pages");
        home.check(&model, u64::MAX);
    }
}

#[test]
fn leaves_follow_when_values_become_short_and_keys_go() {
    let (mut home, mut model, mut seq) = (Home::with_longer_leaves(2, LEAF_PAGES, 1 << 20, true), Model::default(), 0);
    put(&mut home, &mut model, 4_000, 1024, &mut seq);
    home.reopen();
    // Each leaf is full several times over, and made anew.
    for _ in 0..60 {
        put(&mut home, &mut model, 4_000, 60, &mut seq);
    }
    let pages = pages_of_a_leaf(&home);
    assert!(pages < 6.0, "{pages} pages of short entries");
    put(&mut home, &mut model, 4_000, 1024, &mut seq);
    let random = &mut StdRng::seed_from_u64(7);
    let gone: Vec<u64> = (0..4_000).filter(|_| random.random_bool(0.95)).collect();
    for batch in gone.chunks(BATCH) {
        seq += 1;
        let updates = Updates::new(batch.iter().map(|number| (key(*number), seq, common::Change::Delete)).collect());
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
    }
    let (stats, live) = (home.stats(), 200 * 1040);
    assert!(stats.leaf_pages * 4096 < 8 * live + 16 * 4096, "{stats:?}");
    home.check(&model, u64::MAX);
    home.check_pages();
}
