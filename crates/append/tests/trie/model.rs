//! A trie does what a map of versions does, whatever is done to it.

use index::testing::steps::{Step, run, step, universe};
use proptest::prelude::*;
use psync::sim::SimDisk;

use crate::common::Home;

fn home(chunk_bytes: usize, cache_bytes: u64) -> Home {
    Home::new(SimDisk::new(1), chunk_bytes, cache_bytes, 64 << 10)
}

/// Keys that are the beginnings of one another, and keys that differ late.
fn nested() -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (1..400_usize).map(|length| vec![b'n'; length * 5]).collect();
    for number in 0..400_u32 {
        let long =
            [&[b'p'; 300][..], &number.to_be_bytes(), &number.to_be_bytes().repeat(10), &number.to_be_bytes()].concat();
        keys.extend([long.clone(), [&long[..], b"\0"].concat(), vec![0; number as usize % 40 + 1]]);
    }
    keys.sort();
    keys.dedup();
    keys
}

fn chunk_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 1..4_usize, 2 => Just(8), 1 => Just(16), 1 => Just(append::KEY_BYTES_MAX)]
}

#[test]
fn the_nested_trie_is_high() {
    let fill = Step::Fill { from: 0, count: 1500, delete: false };
    let height = run(home(2, 0), nested(), 60, &[fill]);
    assert!(height >= 4, "{height} levels");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_trie_is_a_map_of_versions(
        chunk_bytes in chunk_bytes(),
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(home(chunk_bytes, cache), universe(), 0, &steps);
    }

    #[test]
    fn a_nested_trie_is_a_map_of_versions(
        chunk_bytes in chunk_bytes(),
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        value_bytes in prop_oneof![Just(0_usize), Just(100), Just(250), Just(1000)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(home(chunk_bytes, cache), nested(), value_bytes, &steps);
    }
}
