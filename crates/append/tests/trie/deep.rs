//! Keys of the greatest length that are the beginnings of one another: a B+-tree below another for each few chunks.

use index::Index;
use index::testing::steps::Store;
use index::testing::{Change, Model, Updates};
use psync::sim::SimDisk;

use crate::common::Home;

fn key(length: usize) -> Vec<u8> {
    vec![b'k'; length * append::KEY_BYTES_MAX / 1024]
}

fn fill(lengths: &[usize]) {
    let (mut home, mut model) = (Home::new(SimDisk::new(1), 8, 64 << 20, 16 << 20), Model::default());
    let mut seq = 0;
    let mut apply = |home: &mut Home, lengths: &[usize], change: Change| {
        seq += 1;
        let updates = Updates::new(lengths.iter().map(|length| (key(*length), seq, change.clone())).collect());
        home.apply(&updates, &[]);
        model.apply(&updates);
        home.check(&model, seq);
    };
    for lengths in lengths.chunks(300) {
        apply(&mut home, lengths, Change::Put(vec![7; 200]));
    }
    let height = home.trie.view().stats().expect("whole").figure("levels").expect("a trie has levels");
    assert!(height > 100, "{height} levels");
    for lengths in lengths.chunks(300) {
        apply(&mut home, lengths, Change::Delete);
    }
    let stats = home.trie.view().stats().expect("whole");
    assert_eq!((stats.figure("levels"), stats.figure("leaves"), stats.entries), (Some(0), Some(0), 0));
}

#[test]
fn a_trie_is_as_deep_as_keys_are_long_whichever_come_first() {
    let rising: Vec<usize> = (1..=1024).collect();
    fill(&rising);
    fill(&rising.iter().rev().copied().collect::<Vec<_>>());
}

/// Each key leaves another chunk of what a B+-tree skips, so that all of it comes apart at once; on a stack that is
/// smaller than most.
#[test]
fn a_batch_may_leave_what_is_skipped_at_every_chunk() {
    let run = || {
        let (mut home, mut model) = (Home::new(SimDisk::new(1), 8, 64 << 20, 16 << 20), Model::default());
        let mut apply = |keys: Vec<Vec<u8>>, seq: u64| {
            let updates = Updates::new(keys.into_iter().map(|key| (key, seq, Change::Put(vec![7; 20]))).collect());
            home.apply(&updates, &[]);
            model.apply(&updates);
            home.check(&model, seq);
        };
        let long = key(1024);
        apply(vec![long.clone(), [&long[1..], b"l"].concat()], 1);
        apply((0..1020).map(|chunks| [&long[..chunks * 8], b"z"].concat()).collect(), 2);
    };
    let small = std::thread::Builder::new().stack_size(512 << 10).spawn(run);
    small.expect("a thread").join().expect("a stack that is large enough");
}
