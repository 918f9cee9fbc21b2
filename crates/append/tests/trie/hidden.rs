//! What range deletes hide goes when its group is written for another reason.

use index::testing::steps::Store;
use index::testing::{Change, Updates, found};
use index::{Horizon, Index, RangeTombstones, Seq};
use psync::sim::SimDisk;

use crate::common::Home;

#[test]
fn what_range_deletes_hide_goes_with_the_next_update_of_its_group() {
    let mut home = Home::new(SimDisk::new(1), 8, 1 << 20, 1 << 20);
    let key = |end: &str| format!("together/{end}").into_bytes();
    let keys = ["a", "b", "bb", "c"].map(key);
    // With another key the beginning of these is no skip, but the chunk of a group.
    home.apply(&Updates::puts(keys.iter().cloned().chain([b"other".to_vec()]), 1, b"old"), &[]);
    let mut horizon = Horizon { visible: Seq(2), ..Horizon::default() };
    let mut tombstones = RangeTombstones::default();
    tombstones.add(&key("b"), Some(&key("c")), Seq(2), &horizon);
    horizon.tombstones = tombstones;

    let updates = Updates::puts([key("a")], 3, b"new");
    let applied = home.trie.apply(&updates, &horizon, &|_| {}).expect("a disk that works");
    home.flush(&applied.files).expect("a disk that works");
    home.logged(&updates, &applied);
    let keys = keys.each_ref().map(Vec::as_slice);
    let put = |seq, value: &[u8]| Some((seq, Change::Put(value.to_vec())));
    assert_eq!(found(&*home.trie.view(), &keys, 9).expect("whole"), [put(3, b"new"), None, None, put(1, b"old")]);
    assert_eq!(home.trie.view().stats().expect("whole").entries, 3);
    let seen = home.verify();
    assert_eq!((seen.findings, seen.keys), (Vec::new(), 3));
}
