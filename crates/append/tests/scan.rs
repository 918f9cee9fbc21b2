//! What scans and lookups read.

use std::path::Path;
use std::sync::Arc;

use append::{Shared, Trie};
use doclog::{DocImage, DocLog};
use index::testing::Updates;
use index::{Bounds, Direction, Horizon, Index, Part, ReadAhead, Seq, TableId};
use psync::sim::SimDisk;
use space::{FileStore, StreamKind};

/// One segment has all of them: what is read of it is not rounded up to blocks.
const KEYS: u32 = 12_000;

fn key(number: u32) -> Vec<u8> {
    format!("some/long/beginning/{:03}/{number:08}", number / 100).into_bytes()
}

/// A trie whose nodes have to be read each time.
fn uncached(read_ahead: &Arc<ReadAhead>) -> (FileStore, Trie) {
    let store = FileStore::open(SimDisk::new(1).psync(), Path::new("/db"), false).expect("a store");
    let shared = Shared::new(&store, 0).with_read_ahead(Arc::clone(read_ahead));
    let documents = Arc::new(DocLog::open(&store, 7, &DocImage::default(), 1 << 20).expect("opens"));
    let trie = Trie::create(Arc::new(shared), TableId(7), documents, 8).expect("a trie");
    let updates = Updates::puts((0..KEYS).map(key), 1, &[7; 60]);
    let applied = trie.apply(&updates, &Horizon::default(), &|_| {}).expect("a disk that works");
    trie.publish(&applied);
    (store, trie)
}

fn read_bytes(store: &FileStore) -> u64 {
    store.counters(StreamKind::Node).snapshot().read_bytes
}

#[test]
fn a_short_scan_reads_little_and_a_long_one_nothing_twice() {
    let read_ahead = Arc::new(ReadAhead::new(u64::MAX));
    let (store, trie) = uncached(&read_ahead);
    let live = trie.room().live_bytes;
    for direction in [Direction::Forward, Direction::Backward] {
        let before = read_bytes(&store);
        let mut cursor = trie.view().cursor(&Bounds::all(), Seq::MAX.into(), direction).expect("opens");
        for _ in 0..10 {
            assert!(cursor.advance().expect("whole"));
        }
        let few = read_bytes(&store) - before;
        assert!(few <= 24 * 4096, "ten pairs took {few} bytes of {live}");
        let mut count = 10;
        while cursor.advance().expect("whole") {
            count += 1;
        }
        assert_eq!(count, KEYS);
        let all = read_bytes(&store) - before;
        assert!(all <= live + live / 8, "a scan of {live} bytes read {all}");
    }
}

#[test]
fn who_makes_a_few_keys_anew_reads_the_way_to_them_and_little_beside() {
    let (store, trie) = uncached(&Arc::new(ReadAhead::new(u64::MAX)));
    let (from, until) = (key(5000), key(5001));
    let part = Part { from: &from, until: Some(&until), bytes: 1 << 20, reclaims: true };
    let before = read_bytes(&store);
    let done = trie.compact(part, 1, Seq::MAX, &Horizon::default()).expect("whole").expect("not empty");
    trie.publish(&done.applied);
    let read = read_bytes(&store) - before;
    assert!(done.leaves <= 2 && read <= 24 * 4096, "{read} bytes were read for {} leaves", done.leaves);
}

#[test]
fn scans_share_the_memory_that_they_read_ahead() {
    let read_ahead = Arc::new(ReadAhead::new(128 << 10));
    let (_, trie) = uncached(&read_ahead);
    let open = |_| trie.view().cursor(&Bounds::all(), Seq::MAX.into(), Direction::Forward).expect("opens");
    let mut cursors: Vec<_> = (0..4).map(open).collect();
    cursors.iter_mut().for_each(|cursor| cursor.expect_all());
    let (mut most, mut going) = (0, true);
    while going {
        going = false;
        for cursor in &mut cursors {
            going |= (0..100).try_fold(true, |more, _| Ok::<_, index::Error>(more & cursor.advance()?)).expect("whole");
            most = most.max(read_ahead.held_bytes());
        }
    }
    // Two nodes is the least that a scan reads.
    assert!(most <= (128 << 10) + 4 * 2 * 4096, "{most} bytes were read ahead");
    drop(cursors);
    assert_eq!(read_ahead.held_bytes(), 0);
}

#[test]
fn what_many_keys_share_is_read_once() {
    let (store, trie) = uncached(&Arc::new(ReadAhead::new(u64::MAX)));
    let keys: Vec<_> = (0..KEYS).step_by(200).map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let reads = || store.counters(StreamKind::Node).snapshot().reads;
    let before = reads();
    let mut out = vec![None; keys.len()];
    trie.view().get_many(&keys, Seq::MAX.into(), &mut out).expect("whole");
    assert!(out.iter().all(Option::is_some));
    let together = reads() - before;
    let before = reads();
    for key in &keys {
        trie.view().get_many(&[key], Seq::MAX.into(), &mut [None]).expect("whole");
    }
    let apart = reads() - before;
    assert!(together * 10 < apart * 7, "{together} reads together, {apart} one by one");
}
