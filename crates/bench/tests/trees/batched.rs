//! The trees that gather updates in memory and write them together: merges, compactions, space that is used again.

use bench::trees::bftl::{self, Bftl};
use bench::trees::fdtree::{self, FdTree};
use bench::trees::{Setting, Shape, Sorted, Tree};
use proptest::prelude::*;
use psync::sim::SimDisk;

use crate::model::*;

/// An FD-tree with levels that grow by `K`, and a head as small as it gets.
fn fdtree<const K: u32>(setting: &Setting, sorted: &mut Sorted<'_>, _: f64) -> Box<dyn Tree> {
    let tuning = fdtree::Tuning { size_ratio: K, head_bytes: 0 };
    Box::new(FdTree::build(setting, sorted, tuning).expect("built"))
}

/// A BFTL tree with lists of up to `C` pages, and a reservation buffer of one block.
fn bftl<const C: usize>(setting: &Setting, sorted: &mut Sorted<'_>, fill: f64) -> Box<dyn Tree> {
    let tuning = bftl::Tuning { list_pages: C, reservation_bytes: 5000, table_bytes: 0 };
    Box::new(Bftl::build(setting, sorted, tuning, fill).expect("built"))
}

const BUILDS: [Build; 6] = [fdtree::<2>, fdtree::<3>, fdtree::<8>, bftl::<1>, bftl::<2>, bftl::<5>];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_batched_trees_hold_what_a_map_holds(
        map in prop::collection::btree_map(0..400_u16, any::<u64>(), 0..300),
        fill in prop_oneof![Just(0.01), Just(0.7), Just(1.0)],
        shape in prop::sample::select(SHAPES.to_vec()),
        build in prop::sample::select(BUILDS.to_vec()),
        pool_pages in 0..20_u64,
        operations in operations(),
    ) {
        let (disk, mut map) = (SimDisk::new(7), map);
        let tree = built(build, &setting(&disk, shape, pool_pages * 4096), &map, fill);
        for operation in &operations {
            carry_out(&*tree, shape, &mut map, operation);
        }
        for number in 0..600 {
            carry_out(&*tree, shape, &mut map, &Operation::Get(number));
        }
        check_scan(&*tree, shape, &map, 0, u16::MAX);
    }
}

#[test]
fn a_tree_takes_everything_and_gives_everything_up() {
    for build in BUILDS {
        for shape in SHAPES {
            let disk = SimDisk::new(8);
            let tree = built(build, &setting(&disk, shape, 0), &Map::new(), 0.7);
            let mut map = Map::new();
            // Up, down, and criss-cross over what is there.
            let across = (0..2000).map(|step: u16| step.wrapping_mul(7919) % 2000);
            for number in (0..1000).chain((1000..2000).rev()).chain(across) {
                carry_out(&*tree, shape, &mut map, &Operation::Put(number, number.into()));
            }
            check_scan(&*tree, shape, &map, 0, 2500);
            for number in (0..900).chain((901..2000).rev()) {
                carry_out(&*tree, shape, &mut map, &Operation::Delete(number));
            }
            check_scan(&*tree, shape, &map, 0, 2500);
            for last in [
                Operation::Get(900),
                Operation::WriteBack,
                Operation::Get(900),
                Operation::Delete(900),
                Operation::WriteBack,
            ] {
                carry_out(&*tree, shape, &mut map, &last);
            }
            check_scan(&*tree, shape, &map, 0, 2500);
        }
    }
}

/// Puts all of 0..3000 in an order that is not theirs.
fn overwrite(tree: &dyn Tree, shape: Shape, content: u64) {
    for number in (0..3000).map(|step: u16| u16::try_from(u32::from(step) * 7919 % 3000).expect("small")) {
        tree.put(&key(shape, number), &value(shape, content)).expect("put");
    }
    tree.write_back().expect("written");
}

fn delete_all(tree: &dyn Tree, shape: Shape) {
    for number in 0..3000 {
        tree.delete(&key(shape, number)).expect("deleted");
    }
    tree.write_back().expect("written");
}

#[test]
fn runs_that_merges_have_replaced_are_written_over() {
    let (disk, shape) = (SimDisk::new(9), SHAPES[1]);
    let tuning = fdtree::Tuning { size_ratio: 3, head_bytes: 16 << 10 };
    let tree = FdTree::build(&setting(&disk, shape, 64 << 10), &mut |_, _| false, tuning).expect("built");
    let mut lengths = Vec::new();
    for round in 0..6 {
        overwrite(&tree, shape, round);
        lengths.push(tree.pager().file().len().expect("length"));
    }
    let pages = tree.level_pages();
    assert!(pages.len() >= 3 && pages.iter().sum::<u32>() > 3000 / 35, "{pages:?}");
    assert_eq!(lengths[2], lengths[5], "{lengths:?}");
    for _ in 0..6 {
        delete_all(&tree, shape);
    }
    // Filters that come into the lowest level go, with what they delete.
    let left = tree.level_pages();
    assert!(left.iter().sum::<u32>() < pages.iter().sum::<u32>() / 2, "{left:?} pages are left of {pages:?}");
}

#[test]
fn pages_that_compactions_have_replaced_are_written_over() {
    let (disk, shape) = (SimDisk::new(10), SHAPES[1]);
    let tuning = bftl::Tuning { list_pages: 3, reservation_bytes: 16 << 10, table_bytes: 0 };
    let tree = Bftl::build(&setting(&disk, shape, 0), &mut |_, _| false, tuning, 0.7).expect("built");
    let mut lengths = Vec::new();
    for round in 0..8 {
        overwrite(&tree, shape, round);
        lengths.push(tree.pager().file().len().expect("length"));
    }
    assert_eq!(lengths[4], lengths[7], "{lengths:?}");
    delete_all(&tree, shape);
    // What is left is an empty leaf, which no page has units of.
    let before = tree.pager().counters();
    assert!(!tree.get(&key(shape, 5), &mut Vec::new()).expect("got"));
    let after = tree.pager().counters();
    assert_eq!((after.reads, after.hits), (before.reads, before.hits));
}

#[test]
fn memory_tells_of_a_table_that_is_larger_than_the_budget() {
    let (disk, shape) = (SimDisk::new(11), SHAPES[2]);
    let mut number = 0;
    let mut sorted = |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        (*into_key, *into_value) = (key(shape, number), value(shape, 1));
        number += 1;
        number <= 8000
    };
    let tuning = bftl::Tuning { list_pages: 16, reservation_bytes: 5000, table_bytes: 0 };
    let tree = Bftl::build(&setting(&disk, shape, 1000), &mut sorted, tuning, 1.0).expect("built");
    // Leaves of four entries, lists of 16 places of four bytes.
    assert!(tree.memory_bytes() > 8000 / 4 * 16 * 4);
}

#[test]
fn a_merge_does_not_disturb_readers() {
    let (disk, shape) = (SimDisk::new(12), SHAPES[1]);
    let mut number = 0;
    let mut sorted = |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        (*into_key, *into_value) = (key(shape, number), value(shape, 0));
        number += 1;
        number <= 3000
    };
    let tuning = fdtree::Tuning { size_ratio: 4, head_bytes: 16 << 10 };
    let tree = FdTree::build(&setting(&disk, shape, 256 << 10), &mut sorted, tuning).expect("built");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..4).for_each(|round| overwrite(&tree, shape, round)));
        let mut found = Vec::new();
        while !writer.is_finished() {
            for number in 0..3000 {
                assert!(tree.get(&key(shape, number), &mut found).expect("got"));
            }
            let count = tree.scan(&key(shape, 0), &key(shape, u16::MAX), &mut |_, _| {}).expect("scanned");
            assert_eq!(count, 3000);
        }
    });
}

#[test]
fn a_short_range_reads_little_and_a_long_one_in_large_requests() {
    let (disk, shape) = (SimDisk::new(17), SHAPES[1]);
    let mut number = 0;
    let mut sorted = |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        (*into_key, *into_value) = (key(shape, number), value(shape, 0));
        number += 1;
        number <= 30_000
    };
    let tuning = fdtree::Tuning { size_ratio: 100, head_bytes: 64 << 10 };
    let tree = FdTree::build(&setting(&disk, shape, 64 << 10), &mut sorted, tuning).expect("built");
    let file = tree.pager().file().counters().clone();
    let scan = |first, end| {
        let before = file.snapshot();
        let count = tree.scan(&key(shape, first), &key(shape, end), &mut |_, _| {}).expect("scanned");
        let after = file.snapshot();
        (count, after.reads - before.reads, (after.read_bytes - before.read_bytes) / 4096)
    };
    // At most two pages have ten entries.
    let (count, reads, pages) = scan(10_000, 10_010);
    assert!(count == 10 && reads <= 2 && pages <= 2, "{count} entries, {reads} reads of {pages} pages");
    let (count, reads, pages) = scan(0, 30_000);
    assert!(count == 30_000 && reads < pages / 8, "{count} entries, {reads} reads of {pages} pages");
}

#[test]
fn entries_of_another_shape_or_out_of_order_are_refused() {
    for build in [fdtree::<4> as Build, bftl::<4> as Build] {
        let (disk, shape) = (SimDisk::new(13), SHAPES[0]);
        let setting = setting(&disk, shape, 0);
        let tree = build(&setting, &mut |_, _| false, 0.7);
        let is_refused = |result| matches!(result, Err(bench::Error::Invalid(_)));
        assert!(is_refused(tree.put(b"short", &value(shape, 1))));
        assert!(is_refused(tree.put(&key(shape, 1), b"short")));
        assert!(is_refused(tree.delete(b"longer than 8")));
        assert!(is_refused(tree.get(b"longer than 8", &mut Vec::new()).map(drop)));
        assert!(is_refused(tree.scan(b"", &key(shape, 9), &mut |_, _| {}).map(drop)));
    }
    let disk = SimDisk::new(14);
    let mut left = 2;
    let mut twice_the_same = |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        (*into_key, *into_value) = (key(SHAPES[0], 5), value(SHAPES[0], 5));
        left -= 1;
        left >= 0
    };
    let tuning = fdtree::Tuning { size_ratio: 4, head_bytes: 0 };
    let refused = FdTree::build(&setting(&disk, SHAPES[0], 0), &mut twice_the_same, tuning);
    assert!(matches!(refused, Err(bench::Error::Invalid(_))));
    let large = Shape { key_bytes: 8, value_bytes: 4000 };
    let refused = FdTree::build(&setting(&SimDisk::new(15), large, 0), &mut |_, _| false, tuning);
    assert!(matches!(refused, Err(bench::Error::Invalid(_))));
    let tuning = bftl::Tuning { list_pages: 4, reservation_bytes: 0, table_bytes: 0 };
    let refused = Bftl::build(&setting(&SimDisk::new(16), large, 0), &mut |_, _| false, tuning, 0.7);
    assert!(matches!(refused, Err(bench::Error::Invalid(_))));
}
