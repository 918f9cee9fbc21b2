//! How much a search reads: of a large leaf the part that a key may be in, and what was appended.

use index::{Direction, Index, Payload, Seq};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{self, Change, Home, Model, Updates, found};

const PAGE: u64 = 4096;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:08}").into_bytes()
}

/// A tree of leaves of 16 pages, loaded with keys of even numbers, and no cache.
fn loaded(count: u64) -> (Home, Model) {
    let home = Home::new(1, 16, 0);
    let mut model = Model::default();
    let ready = || Ok::<_, index::Error>(());
    let mut load = home.tree.begin_load(Seq(1)).expect("an empty tree");
    for number in 0..count {
        load.push(&key(2 * number), Payload::Inline(&[3; 100]), None, &ready).expect("space");
    }
    let applied = home.tree.take_loaded(load.finish(&ready).expect("space"), Seq(1));
    home.flush();
    home.tree.install(&applied);
    model.apply(&Updates::puts((0..count).map(|number| key(2 * number)), 1, &[3; 100]));
    (home, model)
}

/// Reads of leaves and their bytes, of looking keys up.
fn reads(home: &Home, model: &Model, keys: &[Vec<u8>]) -> (u64, u64) {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = (home.shared.counters().leaf_reads, home.shared.counters().leaf_read_bytes);
    let values = found(&*home.tree.view(), &keys, u64::MAX).expect("a disk that works");
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value, model.get(key, u64::MAX), "{}", key.escape_ascii());
    }
    let after = home.shared.counters();
    (after.leaf_reads - before.0, after.leaf_read_bytes - before.1)
}

#[test]
fn a_search_reads_one_page_of_a_leaf_that_was_loaded() {
    let (home, model) = loaded(20_000);
    let stats = home.tree.shape().expect("reads");
    assert!(stats.leaf_pages == 16 * stats.leaves && stats.leaves > 20, "{stats:?}");
    for number in (0..40_000).step_by(77) {
        assert_eq!(reads(&home, &model, &[key(number)]), (1, PAGE), "key {number}");
    }
    // One page each, whether the keys share it or not.
    let all: Vec<_> = (0..40_000).map(key).collect();
    let (_, bytes) = reads(&home, &model, &all);
    assert!((stats.run_bytes..=stats.leaf_pages * PAGE).contains(&bytes), "{bytes} bytes, {stats:?}");
}

#[test]
fn what_was_appended_is_read_with_it() {
    let (mut home, mut model) = loaded(20_000);
    for round in 0..3 {
        let updates: Vec<_> = (0..40)
            .map(|number| {
                let key = key(number * 1_000 + round);
                let change = if number % 3 == 0 { Change::Delete } else { Change::Put(vec![7; 50]) };
                (key, 2 + round, change)
            })
            .collect();
        let updates = Updates::new(updates);
        home.apply(&updates, &[]).expect("space");
        model.apply(&updates);
        for number in (0..40_000).step_by(501) {
            let (parts, bytes) = reads(&home, &model, &[key(number)]);
            assert!(parts <= 2 && bytes <= 4 * PAGE, "{parts} parts, {bytes} bytes");
        }
        let all: Vec<_> = (0..40_000).map(key).collect();
        reads(&home, &model, &all);
        home.check(&model, u64::MAX);
    }
}

#[test]
fn a_leaf_that_is_the_root_is_searched_in_all_its_parts() {
    let mut home = Home::new(1, 16, 0);
    let mut model = Model::default();
    for round in 0..3 {
        let updates = Updates::puts((0..300).map(|number| key(3 * number + round)), 1 + round, &[9; 20]);
        home.apply(&updates, &[]).expect("space");
        model.apply(&updates);
        assert_eq!(home.tree.shape().expect("reads").height, 1);
        let all: Vec<_> = (0..1_000).map(key).collect();
        reads(&home, &model, &all);
        all.iter().step_by(7).for_each(|key| {
            reads(&home, &model, std::slice::from_ref(key));
        });
    }
}

#[test]
fn parts_in_the_cache_serve_lookups_scans_and_batches() {
    let (mut home, mut model) = loaded(20_000);
    home.cache_bytes = 64 << 20;
    home.checkpoint();
    home.reopen();
    let all: Vec<_> = (0..40_000).map(key).collect();
    reads(&home, &model, &all);
    assert_eq!(reads(&home, &model, &all).0, 0, "everything is cached");
    let before = home.shared.counters().leaf_reads;
    for direction in [Direction::Forward, Direction::Backward] {
        let pairs = common::scan(&home.tree.view(), &common::all(), u64::MAX, direction).expect("reads");
        assert_eq!(pairs.len(), 20_000);
    }
    let updates = Updates::puts((0..200).map(|number| key(number * 200 + 1)), 2, &[1; 80]);
    home.apply(&updates, &[]).expect("space");
    model.apply(&updates);
    assert_eq!(home.shared.counters().leaf_reads, before, "scans and batches find it there");
    assert_eq!(reads(&home, &model, &all).0, 0, "and what was appended is cached too");
}

/// Pages of leaves that `keys` need, each looked up by itself, on average.
fn pages_read(home: &Home, keys: impl Iterator<Item = Vec<u8>>, is_there: bool) -> f64 {
    let view = home.tree.view();
    let (before, mut count) = (home.shared.counters().leaf_read_bytes, 0);
    for key in keys {
        let value = found(&*view, &[&key], u64::MAX).expect("whole");
        assert_eq!(value[0].is_some(), is_there, "{}", key.escape_ascii());
        count += 1;
    }
    (home.shared.counters().leaf_read_bytes - before) as f64 / 4096.0 / f64::from(count)
}

/// Pages that a lookup of a key that is there reads, and one of a key that is not, in a tree that random updates were
/// applied to.
fn steady(leaf_pages: u32, records: u64, batches: u64) -> (f64, f64) {
    let key = |number: u64| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes().to_vec();
    let mut random = StdRng::seed_from_u64(leaf_pages.into());
    let mut home = Home::new(1, leaf_pages, 0);
    home.apply(&Updates::puts((0..records).map(key), 1, &[1; 100]), &[]).expect("a disk that works");
    for seq in 2..2 + batches {
        let mut numbers: Vec<u64> = (0..records / 5).map(|_| random.random_range(0..records)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let updates = Updates::puts(numbers.into_iter().map(key), seq, &[seq.to_le_bytes()[0]; 100]);
        home.apply(&updates, &[]).expect("a disk that works");
    }
    let there = pages_read(&home, (0..3000).map(|_| key(random.random_range(0..records))), true);
    let absent = pages_read(&home, (0..3000).map(|_| key(random.random_range(records..1 << 60))), false);
    (there, absent)
}

#[test]
fn a_lookup_reads_one_page_of_a_leaf_of_any_size() {
    for leaf_pages in [1, 2, 4, 8] {
        let (there, absent) = steady(leaf_pages, 20_000, 25);
        assert!((0.999..=1.1).contains(&there), "{there} pages of leaves of {leaf_pages} for a key that is there");
        assert!(absent <= 0.1, "{absent} pages of leaves of {leaf_pages} for one that is not");
    }
    // The filters of larger leaves have what was appended alone.
    let (there, absent) = steady(16, 20_000, 25);
    assert!((0.999..=1.1).contains(&there), "{there} pages for a key that is there");
    assert!(absent <= 1.1, "{absent} pages for one that is not");
}

#[test]
fn pages_that_were_read_are_not_read_again_while_memory_is_lent() {
    let (mut home, mut model) = loaded(20_000);
    let keys: Vec<_> = (0..40_000).step_by(77).map(key).collect();
    home.lend(4 << 20);
    let (first, _) = reads(&home, &model, &keys);
    assert!(first > 400, "{first}");
    assert_eq!(reads(&home, &model, &keys), (0, 0));
    for key in &keys {
        assert_eq!(reads(&home, &model, std::slice::from_ref(key)), (0, 0), "{}", key.escape_ascii());
    }
    let before = home.tree.view();
    // What was appended since is not in the images that are there: those are of no use any more, and nobody calls them
    // damaged.
    for (seq, step, value) in [(2, 7, [2; 90]), (3, 5, [3; 90]), (4, 3, [4; 90])] {
        let changed = Updates::puts(keys.iter().step_by(step).cloned(), seq, &value);
        model.apply(&changed);
        home.apply(&changed, &[1]).expect("space");
        reads(&home, &model, &keys);
        assert_eq!(reads(&home, &model, &keys), (0, 0));
    }
    // A reader of the older tree sees what it saw, whichever image it finds.
    let older: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = found(&*before, &older, 1).expect("a disk that works");
    assert!(values.iter().zip(&keys).all(|(value, key)| *value == model.get(key, 1)));
    home.lend(0);
    assert_eq!(home.shared.cache().stats().secondary_bytes, 0);
    assert!(reads(&home, &model, &keys).0 > 100);
}
