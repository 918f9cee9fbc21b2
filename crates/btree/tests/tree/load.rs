//! A loaded tree, as readers of every seq see it.

use index::{Direction, Index, Payload, Seq};

use crate::common::{self, Change, Home, all, found, scan};

fn ready() -> index::Result<()> {
    Ok(())
}

#[test]
fn below_its_seq_there_is_nothing_and_above_it_goes_on() {
    let mut home = Home::new(1, 1, 1 << 20);
    assert!(home.tree.is_empty());
    let mut load = home.tree.begin_load(Seq(5)).expect("an empty tree");
    let keys: Vec<_> = (0..200_000_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        load.push(key, Payload::Inline(b"loaded"), None, &ready).expect("space");
    }
    let applied = home.tree.take_loaded(load.finish(&ready).expect("space"), Seq(9));
    assert!(home.tree.is_empty(), "not before it is installed");
    home.flush();
    home.tree.install(&applied);
    assert!(home.tree.begin_load(Seq(10)).is_none());
    let first = keys[0].as_slice();
    for view in [home.tree.view(), {
        home.apply(&common::Updates::puts([vec![0xff; 9]], 12, b"later"), &[]).expect("space");
        home.tree.view()
    }] {
        for below in [4, 5, 8] {
            assert_eq!(found(&*view, &[first], below).expect("reads"), [None]);
            assert!(scan(&view, &all(), below, Direction::Backward).expect("reads").is_empty());
        }
        let loaded = Some((5, Change::Put(b"loaded".to_vec())));
        assert_eq!(found(&*view, &[first], 9).expect("reads"), [loaded]);
        assert_eq!(scan(&view, &all(), 9, Direction::Forward).expect("reads").len(), keys.len());
    }
    let stats = home.tree.shape().expect("reads");
    assert!(stats.height > 2 && stats.adjacent_leaves + 8 > stats.leaves, "{stats:?}");
}

#[test]
fn a_load_that_is_refused_gives_everything_back() {
    let home = Home::new(2, 1, 1 << 20);
    let mut load = home.tree.begin_load(Seq(1)).expect("an empty tree");
    let refuse = || Err(index::Error::TooManyVersions { versions: 1, bytes: 1, limit: 1 });
    let pushed =
        (0..200_000_u32).try_for_each(|key| load.push(&key.to_be_bytes(), Payload::Inline(b""), None, &refuse));
    pushed.expect_err("refused before the first write");
    assert!(home.pages.stats().ahead_pages > 0);
    drop(load);
    let stats = home.pages.stats();
    assert_eq!((stats.ahead_pages, stats.total_pages - stats.free_pages), (0, 1));
}
