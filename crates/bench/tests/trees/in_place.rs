//! The trees that write in place: tiny pools, joined and split nodes, threads.

use bench::trees::blink::BLinkTree;
use bench::trees::bplus::{BPlusTree, node_bytes_by_cost, node_bytes_by_utility};
use bench::trees::pager::Pager;
use bench::trees::{Setting, Shape, Sorted, Tree};
use proptest::prelude::*;
use psync::Psync;
use psync::probe::{DeviceProfile, ReadCost};
use psync::sim::SimDisk;

use crate::model::*;

/// Nodes that a get of each of the keys visits, which are the same for all: no leaf is deeper than others, or found by
/// a detour.
fn visits(shape: Shape, pager: &Pager, tree: &dyn Tree, numbers: impl Iterator<Item = u16>) -> u64 {
    let visited = || pager.counters().hits + pager.counters().reads;
    let (mut each, mut found) = (None, Vec::new());
    for number in numbers {
        let before = visited();
        tree.get(&key(shape, number), &mut found).expect("got");
        let visits = visited() - before;
        assert_eq!(*each.get_or_insert(visits), visits, "of key {number}");
    }
    each.unwrap_or(0)
}

fn bplus(setting: &Setting, sorted: &mut Sorted<'_>, fill: f64) -> Box<dyn Tree> {
    Box::new(BPlusTree::build(setting, sorted, 4096, fill).expect("built"))
}

fn blink(setting: &Setting, sorted: &mut Sorted<'_>, fill: f64) -> Box<dyn Tree> {
    Box::new(BLinkTree::build(setting, sorted, 4096, fill).expect("built"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_in_place_trees_hold_what_a_map_holds(
        map in prop::collection::btree_map(0..400_u16, any::<u64>(), 0..300),
        fill in prop_oneof![Just(0.01), Just(0.7), Just(1.0)],
        shape in prop::sample::select(SHAPES.to_vec()),
        build in prop::sample::select(vec![bplus as Build, blink as Build]),
        operations in operations(),
    ) {
        let (disk, mut map) = (SimDisk::new(7), map);
        let tree = built(build, &setting(&disk, shape, 0), &map, fill);
        for operation in &operations {
            carry_out(&*tree, shape, &mut map, operation);
        }
        check_scan(&*tree, shape, &map, 0, u16::MAX);
        prop_assert!(tree.memory_bytes() < 10 * (4096 + 200));
    }
}

#[test]
fn a_tree_takes_everything_and_gives_everything_up() {
    for build in [bplus as Build, blink as Build] {
        for shape in SHAPES {
            let disk = SimDisk::new(8);
            let tree = built(build, &setting(&disk, shape, 0), &Map::new(), 0.7);
            let mut map = Map::new();
            // Up, and down.
            for number in (0..1000).chain((1000..2000).rev()) {
                carry_out(&*tree, shape, &mut map, &Operation::Put(number, number.into()));
            }
            check_scan(&*tree, shape, &map, 0, 2000);
            for number in (0..900).chain((901..2000).rev()) {
                carry_out(&*tree, shape, &mut map, &Operation::Delete(number));
            }
            check_scan(&*tree, shape, &map, 0, 2000);
            carry_out(&*tree, shape, &mut map, &Operation::Get(900));
            carry_out(&*tree, shape, &mut map, &Operation::Delete(900));
            check_scan(&*tree, shape, &map, 0, 2000);
        }
    }
}

#[test]
fn nodes_that_deletes_have_emptied_are_used_again() {
    let (disk, shape) = (SimDisk::new(9), SHAPES[2]);
    let setting = setting(&disk, shape, 0);
    let tree = BPlusTree::build(&setting, &mut |_, _| false, 4096, 0.7).expect("built");
    let mut length = None;
    for _ in 0..5 {
        for number in 0..2000 {
            tree.put(&key(shape, number), &value(shape, 1)).expect("put");
        }
        // At least two entries in a leaf and two children in a node.
        assert!((4..=11).contains(&visits(shape, tree.pager(), &tree, 0..2000)));
        let now = tree.pager().file().len().expect("length");
        assert_eq!(*length.get_or_insert(now), now);
        for number in 0..2000 {
            tree.delete(&key(shape, number)).expect("deleted");
        }
        assert_eq!(visits(shape, tree.pager(), &tree, 0..2000), 1);
    }
}

#[test]
fn entries_of_another_shape_or_out_of_order_are_refused() {
    let (disk, shape) = (SimDisk::new(10), SHAPES[0]);
    let setting = setting(&disk, shape, 0);
    let mut left = 2;
    let mut twice_the_same = |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        (*into_key, *into_value) = (key(shape, 5), value(shape, 5));
        left -= 1;
        left >= 0
    };
    let refused = BPlusTree::build(&setting, &mut twice_the_same, 4096, 0.7);
    assert!(matches!(refused, Err(bench::Error::Invalid(_))));
    let tree = BLinkTree::build(&setting, &mut |_, _| false, 4096, 0.7).expect("built");
    assert!(matches!(tree.put(b"short", &value(shape, 1)), Err(bench::Error::Invalid(_))));
    assert!(matches!(tree.put(&key(shape, 1), b"short"), Err(bench::Error::Invalid(_))));
    assert!(matches!(tree.get(b"longer than 8", &mut Vec::new()), Err(bench::Error::Invalid(_))));
    let large = Shape { key_bytes: 8, value_bytes: 4000 };
    let refused = BPlusTree::build(&Setting { shape: large, ..setting }, &mut |_, _| false, 4096, 0.7);
    assert!(matches!(refused, Err(bench::Error::Invalid(_))));
}

#[test]
fn threads_that_insert_and_delete_together_lose_nothing() {
    const THREADS: u16 = 4;
    const EACH: u16 = 1500;
    // Neighbouring keys belong to different threads, so that they meet in the same nodes.
    let number = |thread: u16, round: u16| (round % 500) * 3 * THREADS + round / 500 * THREADS + thread;
    let (directory, shape) = (tempfile::tempdir().expect("temporary directory"), SHAPES[2]);
    let psync = Psync::new(None).expect("a backend");
    let setting = Setting { psync, directory: directory.path().to_owned(), shape, memory_bytes: 64 << 10 };
    let tree = BLinkTree::build(&setting, &mut |_, _| false, 4096, 0.7).expect("built");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || {
                let mut found = Vec::new();
                for round in 0..EACH {
                    let number = number(thread, round);
                    tree.put(&key(shape, number), &value(shape, number.into())).expect("put");
                    assert!(tree.get(&key(shape, number), &mut found).expect("got"));
                    assert_eq!(found, value(shape, number.into()));
                    if round % 5 == 0 {
                        tree.delete(&key(shape, number)).expect("deleted");
                        assert!(!tree.get(&key(shape, number), &mut found).expect("got"));
                    }
                    if round % 50 == 0 {
                        let (mut last, mut in_order) = (Vec::new(), true);
                        let mut visit = |key: &[u8], _: &[u8]| {
                            in_order &= last.as_slice() < key;
                            last = key.to_vec();
                        };
                        tree.scan(&key(shape, number), &key(shape, u16::MAX), &mut visit).expect("scanned");
                        assert!(in_order);
                    }
                }
            });
        }
    });
    let kept =
        (0..THREADS).flat_map(|thread| (0..EACH).filter(|round| round % 5 != 0).map(move |round| (thread, round)));
    let map: Map = kept.map(|(thread, round)| number(thread, round)).map(|number| (number, number.into())).collect();
    check_scan(&tree, shape, &map, 0, u16::MAX);
    assert!((5..=14).contains(&visits(shape, tree.pager(), &tree, 0..EACH * THREADS)));
}

#[test]
fn threads_that_grow_a_tree_from_nothing_make_one_root() {
    const THREADS: u16 = 4;
    const EACH: u16 = 30;
    let shape = SHAPES[2];
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let tree = BLinkTree::build(&setting(&disk, shape, 0), &mut |_, _| false, 4096, 0.7).expect("built");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &tree;
                scope.spawn(move || {
                    for number in (0..EACH).map(|round| round * THREADS + thread) {
                        tree.put(&key(shape, number), &value(shape, number.into())).expect("put");
                    }
                });
            }
        });
        let map: Map = (0..EACH * THREADS).map(|number| (number, number.into())).collect();
        check_scan(&tree, shape, &map, 0, u16::MAX);
        assert!((4..=7).contains(&visits(shape, tree.pager(), &tree, 0..EACH * THREADS)));
    }
}

#[test]
fn the_node_size_follows_the_device_and_the_workload() {
    let profile = |times: [f64; 5]| {
        let mut profile = DeviceProfile::default();
        for (read, alone_us) in profile.reads.iter_mut().zip(times) {
            *read = ReadCost { alone_us, ..*read };
        }
        profile
    };
    let by_utility = |times| node_bytes_by_utility(&profile(times), SHAPES[0]);
    // Entries per page 256, 512, 1024, 2048, 4096: utilities 8, 9, 10, 11, 12.
    assert_eq!(by_utility([80.0, 89.0, 110.0, 150.0, 230.0]), 8192);
    assert_eq!(by_utility([80.0, 91.0, 110.0, 150.0, 230.0]), 4096);
    assert_eq!(by_utility([80.0, 160.0, 320.0, 640.0, 1280.0]), 4096);
    assert_eq!(by_utility([80.0, 80.0, 80.0, 80.0, 80.0]), 65536);
    // With room for all inner nodes a smaller node is read as often, in less time.
    let flat = profile([80.0, 82.0, 84.0, 88.0, 96.0]);
    assert_eq!(node_bytes_by_cost(&flat, SHAPES[0], 1 << 22, 16 << 20, 0.5), 4096);
    // Loaded, so 15/16 full: inner nodes of 4 KiB, with 240 entries each, would take 72 MiB, those of 8 KiB 36, those
    // of 16 KiB 18 of the 28 MiB: then
    // one read is all.
    assert_eq!(node_bytes_by_cost(&flat, SHAPES[0], 1 << 30, 28 << 20, 0.0), 16384);
}
