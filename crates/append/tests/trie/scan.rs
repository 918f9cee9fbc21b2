//! What scans and lookups read, and where errors of scans come out.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use append::{Shared, Trie};
use doclog::{DocImage, DocLog};
use index::testing::steps::Store;
use index::testing::{Change, Model, Updates, found};
use index::{Bounds, Direction, Error, Horizon, Index, PairRef, Part, Payload, ReadAhead, Seq, TableId, Upkeep};
use psync::sim::{Fault, SimDisk};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use space::{FileDamage, FileStore, StreamKind};

use crate::common::Home;

const EIO: i32 = 5;
const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];
/// More bytes than a node has.
const NODE_BYTES_MAX: u64 = 8 << 10;

type Pairs = Vec<(Vec<u8>, u64, Change)>;

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
    trie.install(&applied);
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
    let part = Part { from: &from, until: Some(&until), reclaims: true, ..Part::whole() };
    let before = read_bytes(&store);
    let done = trie.compact(part, Seq::MAX, &Horizon::default()).expect("whole").expect("not empty");
    trie.install(&done.applied);
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
            going |= (0..100).try_fold(true, |more, _| Ok::<_, Error>(more & cursor.advance()?)).expect("whole");
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

/// A trie of nodes in no order on the device.
fn scattered(cache_bytes: u64) -> (Home, Model) {
    let (mut home, mut model) = (Home::new(SimDisk::new(1), 8, cache_bytes, 16 << 20), Model::default());
    let mut random = StdRng::seed_from_u64(6);
    for (seq, count) in [(1, 4000), (2, 60), (3, 60), (4, 60)] {
        let updates = (0..count).map(|_| {
            let change = if random.random_bool(0.1) { Change::Delete } else { Change::Put(vec![9; 80]) };
            (key(random.random_range(0..3000)), seq, change)
        });
        let updates = Updates::new(updates.collect());
        home.apply(&updates, &[]);
        model.apply(&updates);
    }
    (home, model)
}

/// How a scan of everything is asked for it: whether all of it is expected to be, and whether it is by many pairs at a
/// time.
#[derive(Clone, Copy, Debug)]
struct Way {
    direction: Direction,
    eager: bool,
    runs: bool,
}

fn ways() -> impl Iterator<Item = Way> {
    let of = |direction| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(eager, runs)| Way { direction, eager, runs })
    };
    BOTH.into_iter().flat_map(of)
}

fn owned(pair: PairRef<'_>) -> (Vec<u8>, u64, Change) {
    let Payload::Inline(value) = pair.value else { panic!("a document") };
    (pair.key.to_vec(), pair.seq.0, Change::Put(value.to_vec()))
}

/// What a scan shows until its end or an error.
fn walk(home: &Home, way: Way) -> (Pairs, Option<Error>) {
    let mut cursor =
        home.trie.view().cursor(&Bounds::all(), Seq::MAX.into(), way.direction).expect("nothing is read yet");
    if way.eager {
        cursor.expect_all();
    }
    let mut pairs = Pairs::new();
    let outcome = if way.runs {
        let ran = cursor.run(None, &mut |run| {
            pairs.extend(run.map(owned));
            ControlFlow::Continue(())
        });
        ran.map(drop)
    } else {
        loop {
            match cursor.advance() {
                Ok(true) => pairs.push(owned(cursor.current().expect("a pair"))),
                over => break over.map(drop),
            }
        }
    };
    assert!(cursor.current().is_none());
    assert!(!cursor.advance().expect("an error ends a scan"));
    (pairs, outcome.err())
}

fn turned(mut pairs: Pairs, direction: Direction) -> Pairs {
    if direction == Direction::Backward {
        pairs.reverse();
    }
    pairs
}

#[test]
fn damage_comes_out_where_it_is_and_after_everything_before_it() {
    for cache_bytes in [0, 8 << 20] {
        let (home, model) = scattered(cache_bytes);
        let all = model.range(&Bounds::all(), u64::MAX);
        let scan = |way| {
            // What a scan begins with may be cached.
            home.shared.cache().clear();
            let before = read_bytes(home.shared.store());
            let (pairs, error) = walk(&home, way);
            (pairs, error, read_bytes(home.shared.store()) - before)
        };
        let whole = ways().map(|way| scan(way).2).max().expect("some");
        let (mut damaged, mut failed) = (BTreeSet::new(), 0);
        for file in home.disk.files() {
            let length = home.disk.read_file(&file).expect("it is there").len() as u64;
            for at in (0..length).step_by(1500) {
                assert!(home.disk.flip_bit(&file, at));
                for way in ways() {
                    let expected = turned(all.clone(), way.direction);
                    let (pairs, error, read) = scan(way);
                    assert_eq!(pairs, expected[..pairs.len()]);
                    let Some(error) = error else {
                        assert_eq!(pairs.len(), expected.len(), "nothing is there any more");
                        break;
                    };
                    let Error::Document(doclog::Error::Corrupt(FileDamage { file: of, offset, .. })) = error else {
                        panic!("{error}")
                    };
                    assert!(of == file && (offset..offset + NODE_BYTES_MAX).contains(&at), "{of:?} at byte {offset}");
                    // The way to the first pair that is missing leads through the damaged node: nothing before it was
                    // lost.
                    let missing = &expected[pairs.len()].0;
                    assert!(found(&*home.trie.view(), &[missing], u64::MAX).is_err(), "{way:?}, {file:?} at byte {at}");
                    assert!(read < 2 * whole, "{read} bytes were read");
                    failed += usize::from(!pairs.is_empty() && pairs.len() + 200 < expected.len());
                    damaged.insert((of, offset));
                }
                assert!(home.disk.flip_bit(&file, at));
            }
        }
        assert!(damaged.len() > 50 && failed > 400, "{} nodes, {failed} in the middle", damaged.len());
    }
}

#[test]
fn a_read_that_fails_comes_out_after_everything_before_it() {
    let (home, model) = scattered(0);
    let all = model.range(&Bounds::all(), u64::MAX);
    for way in ways() {
        let expected = turned(all.clone(), way.direction);
        let before = home.disk.reads();
        assert!(walk(&home, way).1.is_none());
        let mut lengths = BTreeSet::new();
        for count in 0..home.disk.reads() - before {
            home.disk.fail_operation(Fault::Read, count, EIO);
            let (pairs, error) = walk(&home, way);
            assert!(error.is_none() && pairs == expected, "nodes that were read together are read again one by one");
            assert_eq!(home.disk.faults_left(), 0);
            // Two that fail: in one psync, or the second where a node is read alone.
            for behind in [1, 2, 4, 16] {
                home.disk.fail_operation(Fault::Read, count, EIO);
                home.disk.fail_operation(Fault::Read, count + behind, EIO);
                let (pairs, error) = walk(&home, way);
                assert_eq!(pairs, expected[..pairs.len()]);
                match error {
                    None => assert_eq!(pairs.len(), expected.len()),
                    Some(Error::Document(doclog::Error::Io(_))) => _ = lengths.insert(pairs.len()),
                    Some(error) => panic!("{error}"),
                }
                while home.disk.faults_left() > 0 {
                    walk(&home, way);
                }
            }
        }
        assert!(lengths.len() > 20, "{lengths:?}");
    }
}
