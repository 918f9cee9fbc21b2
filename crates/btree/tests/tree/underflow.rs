//! Leaves and nodes that lose most of what is in them: their space comes back, at once and all of it.

use btree::Shape;
use index::Index;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use space::{Class, PAGE};

use crate::common::{self, Change, Home, Model, Updates};

const KEYS: u64 = 20_000;

/// Bytes of a value.
const VALUE: usize = 30;

/// After deletes, pages of leaves hold at most so many times the bytes of the keys and values that are left, and one
/// leaf. By
/// design a leaf was a quarter full when it was last rewritten, and a third of its entries lives.
const SPACE_FACTOR: u64 = 8;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:012}").into_bytes()
}

fn puts(numbers: impl IntoIterator<Item = u64>, seq: u64) -> Updates {
    Updates::puts(numbers.into_iter().map(key), seq, &[5; VALUE])
}

fn deletes(numbers: &[u64], seq: u64) -> Updates {
    Updates::new(numbers.iter().map(|number| (key(*number), seq, Change::Delete)).collect())
}

fn live_bytes(model: &Model) -> u64 {
    let live = model.range(&common::all(), u64::MAX);
    live.iter().map(|(key, _, _)| (key.len() + VALUE) as u64).sum()
}

/// Leaf space is in proportion to what is left, the tree is no higher than a loaded one would be, and the books are
/// right.
fn check_space(home: &Home, model: &Model, what: &str) {
    home.check(model, u64::MAX);
    home.check_pages();
    let (stats, live) = (home.stats(), live_bytes(model));
    let bound = SPACE_FACTOR * live + u64::from(home.leaf_pages) * PAGE as u64;
    let bytes = stats.leaf_pages * PAGE as u64;
    assert!(bytes <= bound, "{what}: {bytes} bytes of leaves for {live}: {stats:?}");
    assert!(stats.internal_pages <= 1 + stats.leaves / 5, "{what}: {stats:?}");
    if live == 0 {
        assert_eq!(stats, Shape::default(), "{what}");
    }
}

/// In which order keys go, and which stay.
#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    Rising,
    Falling,
    /// Ranges in random order.
    Ranges,
    /// One of so many stays.
    Except(u64),
}

fn gone(order: Order, random: &mut StdRng) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..KEYS).collect();
    match order {
        Order::Random => numbers.shuffle(random),
        Order::Rising => {}
        Order::Falling => numbers.reverse(),
        Order::Ranges => {
            let mut ranges: Vec<_> = numbers.chunks(700).map(<[_]>::to_vec).collect();
            ranges.shuffle(random);
            numbers = ranges.concat();
        }
        Order::Except(each) => {
            numbers.retain(|number| number % each != each / 2);
            numbers.shuffle(random);
        }
    }
    numbers
}

const ORDERS: [Order; 8] = [
    Order::Random,
    Order::Rising,
    Order::Falling,
    Order::Ranges,
    Order::Except(2),
    Order::Except(10),
    Order::Except(400),
    Order::Except(5000),
];

#[test]
fn space_comes_back_in_whatever_order_keys_go() {
    for (order, leaf_pages, batches) in
        ORDERS.into_iter().flat_map(|order| [(order, 1, 1), (order, 1, 20), (order, 2, 7), (order, 4, 40)])
    {
        let what = format!("{order:?}, {leaf_pages} pages, {batches} batches");
        let mut random = StdRng::seed_from_u64(7);
        let mut home = Home::new(1, leaf_pages, 64 << 10);
        let mut model = Model::default();
        let load = puts(0..KEYS, 1);
        home.apply(&load, &[]).expect("a disk that works");
        model.apply(&load);
        let full = home.pages.stats().total_pages;
        let gone = gone(order, &mut random);
        for (batch, numbers) in gone.chunks(gone.len().div_ceil(batches)).enumerate() {
            let updates = deletes(numbers, 2 + batch as u64);
            home.apply(&updates, &[]).expect("a disk that works");
            model.apply(&updates);
        }
        check_space(&home, &model, &what);
        // And it is used again.
        for from in (0..KEYS).step_by(1000) {
            home.apply(&puts(from..from + 1000, 1000 + from), &[]).expect("a disk that works");
        }
        let again = home.pages.stats().total_pages;
        assert!(again <= 2 * full, "{what}: {again} pages after {full}");
        home.check_pages();
    }
}

#[test]
fn overwritten_keys_give_their_leaves_back_too() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut home = Home::new(seed, random.random_range(1..5), 1 << 20);
        let mut model = Model::default();
        let mut seq = 1;
        let mut apply = |updates: Updates| {
            home.apply(&updates, &[]).expect("a disk that works");
            model.apply(&updates);
        };
        apply(puts(0..KEYS, seq));
        // Leaves that have room, and then have several versions of their keys: tombstones will be few beside them.
        seq += 1;
        apply(deletes(&(0..KEYS).filter(|number| number % 8 != 0).collect::<Vec<_>>(), seq));
        for _ in 0..random.random_range(1..12) {
            seq += 1;
            apply(puts((0..KEYS).step_by(8).filter(|_| random.random_bool(0.3)), seq));
        }
        let mut all: Vec<u64> = (0..KEYS).collect();
        all.shuffle(&mut random);
        all.retain(|number| number % 8 == 0);
        for numbers in all.chunks(500) {
            seq += 1;
            apply(deletes(numbers, seq));
        }
        check_space(&home, &model, &format!("seed {seed}"));
    }
}

#[test]
fn a_batch_in_parts_leaves_no_tombstones_behind() {
    let mut home = Home::new(1, 2, 1 << 20);
    let mut model = Model::default();
    let load = puts(0..KEYS, 1);
    home.apply(&load, &[]).expect("a disk that works");
    model.apply(&load);
    let all: Vec<_> = (0..KEYS).map(|number| (key(number), 2, Change::Delete)).collect();
    let parts: Vec<_> = all.chunks(1500).collect();
    for (number, part) in parts.iter().enumerate() {
        // Until the last part is in, all of them may come again.
        let through = if number + 1 == parts.len() { 2 } else { 1 };
        home.apply(&Updates::part(part, through), &[]).expect("a disk that works");
    }
    model.apply(&Updates::new(all));
    check_space(&home, &model, "in parts");
}

#[test]
fn a_discarded_batch_does_not_forget_what_is_to_be_cleared() {
    let mut home = Home::new(1, 1, 1 << 20);
    let mut model = Model::default();
    let load = puts(0..2000, 1);
    home.apply(&load, &[]).expect("a disk that works");
    model.apply(&load);
    let all: Vec<_> = (0..2000).map(|number| (key(number), 2, Change::Delete)).collect();
    home.apply(&Updates::part(&all[..1000], 1), &[]).expect("a disk that works");
    let last = Updates::part(&all[1000..], 2);
    let discarded = home.tree.apply(&last, &index::Horizon::default(), &|_| {}).expect("a disk that works");
    home.tree.discard(&discarded);
    home.check_pages();
    home.apply(&last, &[]).expect("a disk that works");
    model.apply(&Updates::new(all));
    check_space(&home, &model, "after one that was discarded");
}

#[test]
fn a_leaf_that_pinned_versions_made_long_is_of_usual_size_again() {
    let mut home = Home::new(1, 2, 1 << 20);
    let mut model = Model::default();
    let mut snapshots = Vec::new();
    for seq in 1..=1500 {
        let updates = puts(0..3, seq);
        home.apply(&updates, &snapshots).expect("a disk that works");
        snapshots.push(seq);
        model.apply(&updates);
    }
    assert!(home.stats().leaf_pages > 2 * home.stats().leaves, "{:?}", home.stats());
    for number in 0..3 {
        let touch = puts([number], 1501 + number);
        home.apply(&touch, &[]).expect("a disk that works");
        model.apply(&touch);
    }
    let stats = home.stats();
    assert_eq!((stats.leaves, stats.leaf_pages, stats.height), (1, 2, 1), "{stats:?}");
    home.check(&model, u64::MAX);
    home.check_pages();
}

#[test]
fn a_tree_that_grows_at_its_end_is_left_packed() {
    let mut home = Home::new(1, 1, 1 << 20);
    for seq in 1..=400 {
        home.apply(&puts((seq - 1) * 100..seq * 100, seq), &[]).expect("a disk that works");
    }
    let stats = home.stats();
    let fill = stats.run_bytes as f64 / (stats.leaf_pages * PAGE as u64) as f64;
    assert!(fill > 0.9 && home.shared.counters().leaves_merged == 0, "{fill}: {stats:?}");
    assert!(stats.internal_pages <= stats.leaves / 25, "{stats:?}");
}

/// A tree of which all but the last part of a batch that deletes most keys is in, and that last part.
fn nearly_emptied() -> (Home, Model, Updates) {
    let mut home = Home::new(1, 2, 1 << 20);
    let mut model = Model::default();
    let load = puts(0..8000, 1);
    home.apply(&load, &[]).expect("a disk that works");
    model.apply(&load);
    let gone = (0..8000).filter(|number| number % 20 != 0);
    let gone: Vec<_> = gone.map(|number| (key(number), 2, Change::Delete)).collect();
    let (before, last) = gone.split_at(gone.len() - 10);
    home.apply(&Updates::part(before, 1), &[]).expect("a disk that works");
    home.log_is_durable();
    model.apply(&Updates::new(before.to_vec()));
    (home, model, Updates::part(last, 2))
}

#[test]
fn where_there_is_no_room_to_clear_up_the_batch_is_in_and_a_later_one_does_it() {
    let mut outcomes = [0; 3];
    for room in 0..40 {
        let (mut home, mut model, last) = nearly_emptied();
        home.disk.set_capacity(Some(home.pages.file().len().expect("a length")));
        let mut taken = Vec::new();
        while let Ok(extent) = home.pages.allocate(1, Class::Reclaim) {
            taken.push(extent);
        }
        home.pages.discard(&taken.split_off(taken.len() - room)).expect("taken");
        let applied = home.apply(&last, &[]);
        home.pages.discard(&taken).expect("taken");
        home.disk.set_capacity(None);
        if applied.is_ok() {
            model.apply(&last);
            home.check(&model, u64::MAX);
            home.check_pages();
            outcomes[if home.stats().entries > 420 { 1 } else { 2 }] += 1;
        } else {
            outcomes[0] += 1;
        }
        let again = Updates::part(&[(key(0), 3, Change::Delete)], 3);
        home.apply(&last, &[]).expect("there is room");
        home.apply(&again, &[]).expect("there is room");
        model.apply(&last);
        model.apply(&again);
        check_space(&home, &model, "with room again");
        assert!(home.stats().entries <= 420, "{:?}", home.stats());
    }
    assert!(outcomes.iter().all(|count| *count > 0), "refused, in, and cleared up: {outcomes:?}");
}

#[test]
fn a_high_tree_loses_its_height() {
    let long = |number: u64| [&(number / 4).to_be_bytes()[..], &[b'-'; 990], &number.to_be_bytes()].concat();
    for keep in [3, 40, 700] {
        let mut random = StdRng::seed_from_u64(keep);
        let mut home = Home::new(keep, 1, 64 << 10);
        let mut model = Model::default();
        let load = Updates::puts((0..3000).map(long), 1, &[5; VALUE]);
        home.apply(&load, &[]).expect("a disk that works");
        model.apply(&load);
        assert!(home.stats().height >= 5, "{:?}", home.stats());
        let mut gone: Vec<u64> = (0..3000).filter(|number| number % keep != 0).collect();
        gone.shuffle(&mut random);
        for (batch, numbers) in gone.chunks(600).enumerate() {
            let seq = 2 + batch as u64;
            let updates = Updates::new(numbers.iter().map(|number| (long(*number), seq, Change::Delete)).collect());
            home.apply(&updates, &[]).expect("a disk that works");
            model.apply(&updates);
        }
        home.check(&model, u64::MAX);
        home.check_pages();
        let (stats, left) = (home.stats(), 3000_u64.div_ceil(keep));
        // A key fills a quarter of a leaf, and a node has two children at least.
        assert!(stats.leaves <= left, "{left} keys in {stats:?}");
        assert!(stats.internal_pages < stats.leaves, "{stats:?}");
        assert!(stats.height <= 1 + stats.leaves.next_power_of_two().ilog2(), "{stats:?}");
    }
}
