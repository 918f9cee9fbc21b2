//! A tree does what a map of versions does, whatever is done to it.

use index::testing::steps::{Step, run, step, universe};
use proptest::prelude::*;

use crate::common::{Home, LOANS};

/// Long keys whose separators are long as well and begin differently: a node holds a few children, so the tree is high.
fn deep_universe() -> Vec<Vec<u8>> {
    let key = |first: u8, last: u8| [&[first; 1][..], &[b'x'; 1000], &[last; 1]].concat();
    (0..80).flat_map(|first| (0..5).map(move |last| key(first, last))).collect()
}

#[test]
fn the_high_tree_is_high() {
    let fill = Step::Fill { from: 0, count: 400, delete: false };
    let height = run(Home::new(1, 1, 0), deep_universe(), 900, &[fill]);
    assert!(height >= 4, "{height} levels");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_a_map_of_versions(
        leaf_pages in prop_oneof![1..4_u32, 8..20_u32],
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        lent in prop_oneof![Just(0), Just(LOANS)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut home = Home::new(1, leaf_pages, cache);
        home.lend(lent);
        run(home, universe(), 0, &steps);
    }

    #[test]
    fn a_high_tree_is_a_map_of_versions(
        cache in prop_oneof![Just(0_u64), Just(64 << 10), Just(8 << 20)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(Home::new(1, 1, cache), deep_universe(), 900, &steps);
    }
}
