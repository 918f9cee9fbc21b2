//! A batch that was applied and is discarded leaves nothing behind.

use std::collections::BTreeMap;

use index::{Horizon, Index};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{Change, Home, Model, Updates, found};

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

/// A batch that appends, splits, shrinks and deletes; its documents are numbered from `seq * 1000` on.
fn random_batch(random: &mut StdRng, seq: u64) -> Updates {
    let count = random.random_range(1..400);
    let (from, width) = (random.random_range(0..2_000), random.random_range(1..2_000));
    let updates = (0..count).map(|number| {
        let change = match random.random_range(0..10) {
            0..3 => Change::Delete,
            3 => Change::Document(seq * 1000 + number),
            _ => Change::Put(vec![seq.to_le_bytes()[0]; random.random_range(0..200)]),
        };
        (key(from + random.random_range(0..width)), seq, change)
    });
    Updates::new(updates.collect())
}

fn used_pages(home: &Home) -> u64 {
    let stats = home.pages.stats();
    stats.total_pages - stats.free_pages - stats.retired_pages
}

#[test]
fn a_discarded_batch_leaves_nothing_behind() {
    for seed in 0..60 {
        println!("seed {seed}");
        let random = &mut StdRng::seed_from_u64(seed);
        let mut home = Home::new(
            seed,
            [1, 2, 3, 12][random.random_range(0..4)],
            [0, 32 << 10, 4 << 20][random.random_range(0..3)],
        );
        let mut model = Model::default();
        for seq in 1..16 {
            let (view, root, used) = (home.tree.view(), home.tree.root(), used_pages(&home));
            // Some are discarded before the next is installed; the same seqs are used by others then.
            for _ in 0..random.random_range(0..3) {
                let gone = random_batch(random, seq);
                let applied = home.tree.apply(&gone, &Horizon::default(), &|_| {}).expect("a disk that works");
                if random.random_bool(0.5) {
                    // Read it, so that its leaves and nodes are cached.
                    let keys: Vec<_> = gone.iter().map(|(key, _, _)| key.as_slice()).collect();
                    found(&*applied.view, &keys, u64::MAX).expect("whole");
                }
                home.tree.discard(&applied);
                assert_eq!(home.tree.root(), root);
                assert_eq!(used_pages(&home), used);
                home.check(&model, u64::MAX);
                home.check_pages();
            }
            let keys: Vec<_> = (0..4_000).step_by(3).map(key).collect();
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> = keys.iter().map(|key| model.get(key, u64::MAX)).collect();
            assert_eq!(found(&*view, &keys, u64::MAX).expect("whole"), expected);
            let updates = random_batch(random, seq);
            home.apply(&updates, &[]).expect("a disk that works");
            model.apply(&updates);
            let expected: Vec<_> = keys.iter().map(|key| model.get(key, u64::MAX)).collect();
            assert_eq!(found(&*home.tree.view(), &keys, u64::MAX).expect("whole"), expected);
            drop(view);
            home.check(&model, u64::MAX);
            home.check_pages();
            if random.random_bool(0.2) {
                home.checkpoint();
            }
            if random.random_bool(0.2) {
                home.disk.crash();
                home.disk.restart();
                home.reopen();
                home.check(&model, u64::MAX);
                home.check_pages();
            }
        }
    }
}

#[test]
fn bytes_that_a_discarded_batch_appended_are_not_seen() {
    for cache_bytes in [0, 8 << 20] {
        let mut home = Home::new(1, 4, cache_bytes);
        let mut model = BTreeMap::new();
        let first = Updates::puts((0..50).map(key), 1, b"first");
        home.apply(&first, &[]).expect("a disk that works");
        model.extend((0..50).map(|number| (key(number), (1, Change::Put(b"first".to_vec())))));
        let appended = home.shared.counters().runs_appended;
        let gone = Updates::puts((0..40).map(|number| key(number + 30)), 2, b"discarded");
        let applied = home.tree.apply(&gone, &Horizon::default(), &|_| {}).expect("a disk that works");
        home.tree.discard(&applied);
        let after = Updates::puts([key(1), key(60)], 3, b"after");
        home.apply(&after, &[]).expect("a disk that works");
        assert_eq!(home.shared.counters().runs_appended - appended, 2, "both were appended to the leaf");
        model.extend([1, 60].map(|number| (key(number), (3, Change::Put(b"after".to_vec())))));
        for cold in [false, true] {
            if cold {
                home.shared.cache().clear();
            }
            for number in 0..80 {
                let expected = model.get(&key(number)).cloned();
                assert_eq!(found(&*home.tree.view(), &[&key(number)], u64::MAX).expect("whole"), [expected]);
            }
        }
    }
}

#[test]
#[should_panic(expected = "was applied, once")]
fn what_was_discarded_is_not_installed() {
    let home = Home::new(1, 2, 0);
    let updates = Updates::puts([key(1)], 1, b"");
    let applied = home.tree.apply(&updates, &Horizon::default(), &|_| {}).expect("a disk that works");
    home.tree.discard(&applied);
    home.tree.install(&applied);
}
