//! What operations cost: pages read and written, space used.

use std::sync::Arc;

use btree::cost::{Memory, Workload, estimate};
use index::{Bounds, Direction, Index, Seq};
use psync::probe::DeviceProfile;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use space::PAGE;

use crate::common::{Change, Home, Model, Updates, all, found, scan};

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:012}").into_bytes()
}

/// Share of the leaves' pages that is filled with runs.
fn fill(home: &Home) -> f64 {
    let stats = home.tree.shape().expect("whole");
    stats.run_bytes as f64 / (stats.leaf_pages * PAGE as u64) as f64
}

/// A tree of `count` keys, loaded in order with one batch.
fn loaded(leaf_pages: u32, cache_bytes: u64, count: u64) -> (Home, Model) {
    let mut home = Home::new(1, leaf_pages, cache_bytes);
    let mut model = Model::default();
    let updates = Updates::puts((0..count).map(|number| key(2 * number)), 1, &[5; 30]);
    home.apply(&updates, &[]).expect("a disk that works");
    model.apply(&updates);
    (home, model)
}

#[test]
fn a_cold_get_reads_one_leaf() {
    let (home, model) = loaded(4, 1 << 20, 20_000);
    let before = home.shared.counters();
    let view = home.tree.view();
    let wanted = key(2 * 777);
    let reads = home.pages.file().counters().snapshot().reads;
    assert_eq!(found(&*view, &[&wanted], 9).expect("whole"), vec![model.get(&wanted, 9)]);
    let after = home.shared.counters();
    assert_eq!((after.leaf_reads - before.leaf_reads, after.node_reads - before.node_reads), (1, 0));
    assert_eq!(home.pages.file().counters().snapshot().reads - reads, 1);
    found(&*view, &[&wanted], 9).expect("whole");
    let again = home.shared.counters();
    assert_eq!((again.leaf_reads - after.leaf_reads, again.leaf_hits - after.leaf_hits), (0, 1));
}

#[test]
fn many_keys_of_a_leaf_read_it_once() {
    // Nothing is cached: what is read once is read once because the search knows.
    let (home, model) = loaded(4, 0, 20_000);
    let keys: Vec<_> = (0..100).rev().chain(50..60).map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key, 9)).collect();
    let height = u64::from(home.tree.shape().expect("whole").height);
    let reads = home.pages.file().counters().snapshot().reads;
    assert_eq!(found(&*home.tree.view(), &keys, 9).expect("whole"), expected);
    assert_eq!(home.pages.file().counters().snapshot().reads - reads, height);
    assert_eq!(home.shared.counters().leaf_reads, 1);
}

#[test]
fn an_append_reads_and_writes_one_page_of_a_leaf() {
    let (mut home, _) = loaded(4, 0, 20_000);
    let leaves = home.tree.shape().expect("whole").leaves;
    let before = home.shared.counters();
    let some = Updates::puts((0..20_000).step_by(400).map(|number| key(2 * number + 1)), 2, &[6; 30]);
    let redo = home.apply(&some, &[]).expect("a disk that works").redo;
    let after = home.shared.counters();
    let touched = after.tail_reads - before.tail_reads;
    assert!((25..=50).contains(&touched), "{touched} leaves touched");
    assert_eq!(after.leaf_reads, before.leaf_reads);
    assert_eq!(after.leaf_pages_written - before.leaf_pages_written, touched);
    assert_eq!(after.runs_appended - before.runs_appended, touched);
    assert_eq!(home.tree.shape().expect("whole").leaves, leaves);
    assert!(redo.len() < 400, "a redo of {} bytes", redo.len());
}

#[test]
fn an_append_to_a_cached_leaf_reads_nothing_and_the_image_follows() {
    let (mut home, mut model) = loaded(4, 8 << 20, 2_000);
    let keys: Vec<_> = (0..4_000).map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    found(&*home.tree.view(), &keys, 9).expect("whole");
    let before = home.pages.file().counters().snapshot().reads;
    for seq in 2..6 {
        let some = Updates::puts((0..2_000).step_by(100).map(|number| key(2 * number + 1)), seq, &[6; 30]);
        home.apply(&some, &[]).expect("a disk that works");
        model.apply(&some);
        let expected: Vec<_> = keys.iter().map(|key| model.get(key, 9)).collect();
        assert_eq!(found(&*home.tree.view(), &keys, 9).expect("whole"), expected);
    }
    assert_eq!(home.pages.file().counters().snapshot().reads, before);
}

#[test]
fn the_last_pages_that_were_written_are_cached() {
    let (mut home, _) = loaded(4, 8 << 20, 2_000);
    for seq in 2..4 {
        let some = Updates::puts((0..2_000).step_by(100).map(|number| key(2 * number + 1)), seq, &[6; 30]);
        home.apply(&some, &[]).expect("a disk that works");
    }
    assert_eq!(home.shared.counters().tail_reads, 0);
    assert!(home.shared.counters().tail_hits > 0);
}

#[test]
fn a_short_scan_reads_two_pages_and_a_long_one_each_once() {
    let (home, model) = loaded(4, 8 << 20, 20_000);
    let view = home.tree.view();
    let before = home.shared.counters();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = Arc::clone(&view).cursor(&all(), Seq(9).into(), direction).expect("whole");
        for _ in 0..10 {
            cursor.next().expect("whole").expect("a pair");
        }
    }
    let short = home.shared.counters();
    assert!(short.leaf_reads - before.leaf_reads <= 4);
    assert!(short.leaf_read_bytes - before.leaf_read_bytes <= 4 * 4096);
    // The same pages again come from the cache.
    let mut cursor = Arc::clone(&view).cursor(&all(), Seq(9).into(), Direction::Forward).expect("whole");
    for _ in 0..10 {
        cursor.next().expect("whole").expect("a pair");
    }
    assert_eq!(home.shared.counters().leaf_reads - short.leaf_reads, 1, "the page that is read ahead");
    drop(cursor);
    home.shared.cache().clear();
    let (short, bytes) = (home.shared.counters(), home.shared.cache().stats().bytes);
    let all_of_it = scan(&view, &Bounds::all(), 9, Direction::Backward).expect("whole");
    assert_eq!(all_of_it, model.range(&Bounds::all(), 9));
    let long = home.shared.counters();
    // What is in use of the leaves' pages.
    let (stats, bytes_read) = (home.tree.shape().expect("whole"), long.leaf_read_bytes - short.leaf_read_bytes);
    assert!((stats.run_bytes..=stats.leaf_pages * 4096).contains(&bytes_read), "{bytes_read} bytes of {stats:?}");
    let kept = home.shared.cache().stats().bytes - bytes;
    let nodes = stats.internal_pages * 4096 * 2;
    assert!(kept <= nodes + (64 << 10) * 5 / 4, "a long scan keeps the leaves that it begins with, not {kept} bytes");
}

#[test]
fn leaves_are_full_where_keys_come_in_order() {
    for (per_batch, rising) in [(10_000, true), (700, true), (53, true), (700, false)] {
        let mut home = Home::new(1, 4, 8 << 20);
        for batch in 0..20_000 / per_batch {
            let numbers = batch * per_batch..(batch + 1) * per_batch;
            let order = |number| if rising { number } else { 1_000_000 - number };
            let updates = Updates::puts(numbers.map(|number| key(order(number))), batch + 1, &[5; 30]);
            home.apply(&updates, &[]).expect("a disk that works");
        }
        let fill = fill(&home);
        assert!(fill >= 0.9, "{per_batch} keys a batch, rising {rising}: {fill}");
        home.check_pages();
    }
}

#[test]
fn leaves_have_room_where_keys_come_from_all_over() {
    let mut random = StdRng::seed_from_u64(3);
    let mut home = Home::new(1, 4, 8 << 20);
    let mut numbers: Vec<u64> = (0..60_000).collect();
    numbers.shuffle(&mut random);
    for (batch, numbers) in numbers.chunks(2_000).enumerate() {
        let updates = Updates::puts(numbers.iter().map(|number| key(*number)), batch as u64 + 1, &[5; 30]);
        home.apply(&updates, &[]).expect("a disk that works");
    }
    let fill = fill(&home);
    assert!((0.55..0.85).contains(&fill), "{fill}");
}

#[test]
fn deleting_gives_back_leaves_before_all_are_gone() {
    let (mut home, mut model) = loaded(2, 8 << 20, 20_000);
    let leaves = home.tree.shape().expect("whole").leaves;
    let mut random = StdRng::seed_from_u64(4);
    let mut live: Vec<u64> = (0..20_000).collect();
    live.shuffle(&mut random);
    for seq in 2..20 {
        let gone = live.drain(..1_000).map(|number| (key(2 * number), seq, Change::Delete)).collect();
        let updates = Updates::new(gone);
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
    }
    home.check(&model, 99);
    home.check_pages();
    let left = home.tree.shape().expect("whole");
    assert!(left.leaves * 3 < leaves, "{} of {leaves} leaves for a tenth of the keys", left.leaves);
    assert!(home.shared.counters().leaves_merged > 0);
}

#[test]
fn a_held_view_keeps_its_pages_and_gives_them_back() {
    let (mut home, model) = loaded(2, 1 << 20, 5_000);
    let before = home.pages.stats();
    let held = home.tree.view();
    let mut younger = Vec::new();
    let mut random = StdRng::seed_from_u64(5);
    for seq in 2..12 {
        let keys = (0..2_000).map(|_| key(random.random_range(0..10_000)));
        home.apply(&Updates::puts(keys, seq, &[8; 50]), &[]).expect("a disk that works");
        younger.push(home.tree.view());
    }
    younger.drain(..9);
    assert!(home.pages.stats().retired_pages > 0);
    home.shared.cache().clear();
    let old = scan(&held, &Bounds::all(), 1, Direction::Forward).expect("whole");
    assert_eq!(old, model.range(&Bounds::all(), 1));
    drop(held);
    home.log_is_durable();
    assert_eq!(home.pages.stats().retired_pages, 0, "the newest version retires nothing");
    home.check_pages();
    drop(younger);
    let gone = (0..10_000).map(|number| (key(number), 99, Change::Delete)).collect();
    home.apply(&Updates::new(gone), &[]).expect("a disk that works");
    let gone = (0..10_000).map(|number| (key(number), 100, Change::Delete)).collect();
    home.apply(&Updates::new(gone), &[]).expect("a disk that works");
    home.log_is_durable();
    let after = home.pages.stats();
    assert_eq!(after.free_pages, after.total_pages - 1, "all but the header: {before:?} {after:?}");
}

#[test]
fn the_cost_model_counts_what_the_tree_does() {
    const RECORDS: u64 = 150_000;
    const BATCH: usize = 5_000;
    let mut random = StdRng::seed_from_u64(6);
    let mut home = Home::new(1, 2, 1 << 20);
    let mut numbers: Vec<u64> = (0..RECORDS).collect();
    numbers.shuffle(&mut random);
    let (mut before, mut touched) = (home.shared.counters(), 0);
    for (batch, numbers) in numbers.chunks(BATCH).enumerate() {
        let updates = Updates::puts(numbers.iter().map(|number| key(*number)), batch as u64 + 1, &[5; 100]);
        home.apply(&updates, &[]).expect("a disk that works");
        let after = home.shared.counters();
        touched = after.runs_appended - before.runs_appended + after.leaves_split - before.leaves_split;
        before = after;
    }
    let workload = Workload {
        records: RECORDS,
        record_bytes: 116,
        insert_share: 1.0,
        batched_share: 0.0,
        memory: Memory::Total { bytes: 0 },
    };
    // A write buffer that has as many for each leaf when a round takes them: 156 B an operation, 1.6 times what it
    // holds.
    let found = estimate(&DeviceProfile::default(), &workload, 2, 1 << 20, 156 * BATCH as u64 * 10 / 16);
    let shape = home.tree.shape().expect("whole");
    let shared = BATCH as f64 / touched as f64;
    let near = |what: &str, counted: f64, modelled: f64, by: f64| {
        assert!((counted / modelled - 1.0).abs() < by, "{what}: {counted} counted, {modelled} by the model");
    };
    near("leaves", shape.leaves as f64, found.leaves, 0.15);
    near("internal nodes", shape.internal_pages as f64, found.nodes, 0.4);
    near("operations that share a leaf", shared, found.shared, 0.15);
}
