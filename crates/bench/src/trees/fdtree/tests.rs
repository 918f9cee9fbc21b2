//! The tree against a map, with heads so small that merges reach all levels.

use proptest::prelude::*;

use super::*;
use crate::trees::model::{self, SHAPES, loaded, setting, steps};

const KEYS: u16 = 3000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn it_does_what_a_map_does(
        shape in 0..SHAPES.len(), size_ratio in 2u32..6, head_pages in 0u64..5, loads: bool, steps in steps(KEYS, 120),
    ) {
        let (_directory, setting) = setting(SHAPES[shape], 64 << 10);
        let tuning = Tuning { size_ratio, head_bytes: head_pages * page::PAGE_BYTES as u64 };
        let (mut sorted, mut model) = loaded(setting.shape, if loads { KEYS } else { 0 });
        let tree = FdTree::build(&setting, &mut sorted, tuning).expect("built");
        model.run(&tree, steps, KEYS);
    }
}

#[test]
fn space_is_used_again_and_what_was_deleted_goes() {
    let (_directory, setting) = setting(SHAPES[2], 64 << 10);
    let tuning = Tuning { size_ratio: 3, head_bytes: 16 << 10 };
    let (mut sorted, _) = loaded(setting.shape, 0);
    let tree = FdTree::build(&setting, &mut sorted, tuning).expect("built");
    let mut lengths = Vec::new();
    for round in 0..6 {
        for number in 0..KEYS {
            let key = model::key(setting.shape, number);
            tree.put(&key, &model::value(setting.shape, number, round)).expect("put");
        }
        lengths.push(tree.pager().file().len().expect("length"));
    }
    assert!(tree.level_pages().len() >= 3, "{:?}", tree.level_pages());
    assert_eq!(lengths[2], lengths[5], "{lengths:?}");
    // Filters that come into the lowest level go with what they delete.
    for _ in 0..6 {
        for number in 0..KEYS {
            tree.delete(&model::key(setting.shape, number)).expect("deleted");
        }
    }
    let left: u64 = tree.state.read().levels.runs.iter().map(|run| run.entries).sum();
    assert!(left < u64::from(KEYS) / 2, "{left} entries and filters are left");
}

#[test]
fn readers_go_on_during_merges() {
    let (_directory, setting) = setting(SHAPES[1], 256 << 10);
    let (mut sorted, _) = loaded(setting.shape, KEYS);
    let tree = FdTree::build(&setting, &mut sorted, Tuning { size_ratio: 4, head_bytes: 16 << 10 }).expect("built");
    let shape = setting.shape;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..4 {
                for number in (0..KEYS).step_by(3) {
                    let value = model::value(shape, number, round);
                    tree.put(&model::key(shape, number), &value).expect("put");
                }
            }
        });
        let mut value = Vec::new();
        while !writer.is_finished() {
            for number in (0..KEYS).step_by(3) {
                assert!(tree.get(&model::key(shape, number), &mut value).expect("got"));
                assert_eq!(value[..2], number.to_be_bytes());
            }
            let end = vec![0xFF; shape.key_bytes];
            let count = tree.scan(&vec![0; shape.key_bytes], &end, &mut |_, _| {}).expect("scanned");
            assert_eq!(count, u64::from(KEYS.div_ceil(3)));
        }
    });
}
