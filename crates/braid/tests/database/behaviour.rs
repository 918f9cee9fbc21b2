//! What users rely on: pairs, batches, ranges, limits, on every I/O backend.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use braid::{BackendKind, Database, Durability, ErrorKind, Options, Structure, WriteBatch};
use proptest::prelude::*;

const BACKENDS: [BackendKind; 4] = [BackendKind::IoUring, BackendKind::Libaio, BackendKind::Threads, BackendKind::Sync];

fn small() -> Options {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10).segment_bytes(256 << 10)
}

fn scratch() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = small().open(directory.path()).expect("opens");
    (directory, db)
}

#[derive(Clone, Debug)]
enum Action {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Batch(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Range(Vec<u8>, Vec<u8>, bool),
    Drain,
    Checkpoint,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0u16..300).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..20),
        1 => (any::<u8>(), 900usize..1024).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), prop_oneof![10 => 0usize..200, 2 => 1000usize..2100, 1 => 2100usize..20_000])
        .prop_map(|(byte, length)| vec![byte; length])
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        20 => (key(), value()).prop_map(|(key, value)| Action::Put(key, value)),
        5 => key().prop_map(Action::Delete),
        8 => prop::collection::vec((key(), prop::option::of(value())), 1..60).prop_map(Action::Batch),
        5 => (key(), key(), any::<bool>()).prop_map(|(from, to, backward)| Action::Range(from, to, backward)),
        2 => Just(Action::Drain),
        1 => Just(Action::Checkpoint),
        1 => Just(Action::Reopen),
    ]
}

fn a_table_is_an_ordered_map(structure: Structure) {
    let config = ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() };
    proptest!(config, |(actions in prop::collection::vec(action(), 1..120), backend in 0usize..4, leaf_pages in 1u32..6)| {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || small().backend(BACKENDS[backend]).leaf_pages(leaf_pages).durability(Durability::Os).open(directory.path());
        let mut db = open().expect("opens");
        let mut table = db.table("t", structure).expect("a table");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for action in actions {
            match action {
                Action::Put(key, value) => {
                    table.put(&key, &value).expect("put");
                    model.insert(key, value);
                }
                Action::Delete(key) => {
                    table.delete(&key).expect("delete");
                    model.remove(&key);
                }
                Action::Batch(operations) => {
                    let mut batch = WriteBatch::new();
                    for (key, value) in operations {
                        match value {
                            Some(value) => {
                                batch.put(&table, &key, &value);
                                model.insert(key, value);
                            }
                            None => {
                                batch.delete(&table, &key);
                                model.remove(&key);
                            }
                        }
                    }
                    db.write(&batch).expect("write");
                }
                Action::Range(from, to, backward) => {
                    let bounds = (Bound::Excluded(from.clone()), Bound::Included(to.clone()));
                    let range = table.range::<Vec<u8>>(bounds.clone());
                    let range = if backward { range.rev() } else { range };
                    let found: Vec<_> = range.map(|pair| pair.expect("reads")).collect();
                    let mut expected: Vec<_> = if from < to {
                        model.range::<Vec<u8>, _>(bounds).map(|(key, value)| (key.clone(), value.clone())).collect()
                    } else {
                        Vec::new()
                    };
                    if backward {
                        expected.reverse();
                    }
                    prop_assert_eq!(found, expected);
                }
                Action::Drain => db.drain().expect("drain"),
                Action::Checkpoint => db.checkpoint().expect("checkpoint"),
                Action::Reopen => {
                    drop(table);
                    db.close().expect("closes");
                    db = open().expect("opens again");
                    table = db.open_table("t").expect("is there");
                }
            }
        }
        let keys: Vec<_> = model.keys().cloned().chain([b"absent".to_vec()]).collect();
        let found = table.get_many(&keys).expect("reads");
        for (key, found) in keys.iter().zip(found) {
            prop_assert_eq!(model.get(key), found.as_ref());
        }
        let verified = db.verify().expect("runs");
        prop_assert_eq!(verified.findings, Vec::<String>::new());
    });
}

fn limits_are_named_and_nothing_is_written(structure: Structure) {
    let limit = structure.key_bytes_max();
    let (_directory, db) = scratch();
    let table = db.table("t", structure).expect("a table");
    let longest = vec![1; limit];
    table.put(&longest, "at the limit").expect("fits");
    table.put([0], "shortest").expect("fits");
    for key in [vec![], vec![1; limit + 1], vec![1; 100_000]] {
        let mut batch = WriteBatch::new();
        batch.put(&table, "beside", "x");
        batch.put(&table, &key, "x");
        let error = db.write(&batch).expect_err("outside the limits");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&limit.to_string()), "{error}");
    }
    assert_eq!(table.get("beside").expect("reads"), None);
    assert_eq!(table.get(&longest).expect("reads"), Some(b"at the limit".to_vec()));
    assert_eq!(table.get(b"").expect_err("no table has an empty key").kind(), ErrorKind::InvalidInput);
    let mut batch = WriteBatch::new();
    for key in 0..20_000u32 {
        batch.put(&table, key.to_be_bytes(), [0; 100]);
    }
    let error = db.write(&batch).expect_err("does not fit a record");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(db.table("", structure).is_err());
    assert!(db.table(&"n".repeat(300), structure).is_err());
}

fn large_values_come_back_whole(structure: Structure) {
    let (_directory, db) = scratch();
    let table = db.table("t", structure).expect("a table");
    for length in [0, 1, 2047, 2048, 2049, 4096, 65_537, 3 << 20, 80 << 20] {
        let value: Vec<u8> = (0..=250).cycle().take(length).collect();
        table.put("k", &value).expect("put");
        assert!(table.get("k").expect("get") == Some(value.clone()), "{length} bytes from the queue");
        db.drain().expect("drain");
        assert!(table.get("k").expect("get") == Some(value), "{length} bytes from the tree");
    }
}

fn space_of_dropped_tables_and_dead_documents_returns(structure: Structure) {
    let (_directory, db) = scratch();
    for round in 0..4 {
        let table = db.table("t", structure).expect("a table");
        for key in 0..3000u32 {
            table.put_with(key.to_be_bytes(), vec![round; 300], Durability::Os).expect("put");
        }
        table.put("large", vec![round; 1 << 20]).expect("put");
        db.drain().expect("drain");
        db.drop_table("t").expect("drops");
        assert_eq!(table.get("large").expect_err("dropped").kind(), ErrorKind::NotFound);
        drop(table);
        db.checkpoint().expect("checkpoint");
        let stats = db.stats().expect("stats");
        assert!(stats.space.total_pages - stats.space.free_pages < 20, "{:?}", stats.space);
    }
    let left: Vec<_> = std::fs::read_dir(db.path().join("doc")).into_iter().flatten().collect();
    assert_eq!(left.len(), 0, "{left:?}");
    assert_eq!(db.verify().expect("runs").findings, Vec::<String>::new());
}

fn a_range_sees_one_moment_while_everything_changes(structure: Structure) {
    let (_directory, db) = scratch();
    let table = db.table("t", structure).expect("a table");
    let put_all = |value: u8| {
        for chunk in 0..10u32 {
            let mut batch = WriteBatch::new();
            for key in chunk * 500..(chunk + 1) * 500 {
                batch.put(&table, key.to_be_bytes(), [value; 50]);
            }
            db.write_with(&batch, Durability::Os).expect("write");
        }
    };
    put_all(1);
    db.drain().expect("drain");
    put_all(2);
    let mut range = table.iter();
    let first = range.next().expect("a pair").expect("reads");
    assert_eq!(first.1, vec![2; 50]);
    for value in 3..8 {
        put_all(value);
        db.drain().expect("drain");
    }
    let rest: Vec<_> = range.map(|pair| pair.expect("reads")).collect();
    assert_eq!(rest.len(), 4999);
    assert!(rest.iter().all(|(_, value)| *value == vec![2; 50]));
}

fn readers_and_writers_do_not_disturb_each_other(structure: Structure) {
    let (_directory, db) = scratch();
    let left = db.table("left", structure).expect("a table");
    let right = db.table("right", structure).expect("a table");
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            let (db, left, right, stop) = (&db, &left, &right, &stop);
            scope.spawn(move || {
                for round in 0..600u32 {
                    let mut batch = WriteBatch::new();
                    for key in 0..20u32 {
                        let key = (writer * 1_000_000 + (round * 37 + key * 101) % 2000).to_be_bytes();
                        batch.put(left, key, round.to_be_bytes());
                        batch.put(right, key, round.to_be_bytes());
                    }
                    let durability = if round % 50 == 0 { Durability::Sync } else { Durability::Os };
                    db.write_with(&batch, durability).expect("write");
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            let (left, stop) = (&left, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let pairs: Vec<_> = left.iter().map(|pair| pair.expect("reads")).collect();
                    assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0));
                    let keys: Vec<_> = pairs.iter().step_by(7).map(|(key, _)| key).collect();
                    assert!(left.get_many(&keys).expect("reads").iter().all(Option::is_some));
                }
            });
        }
    });
    let pairs = |table: &braid::Table| table.iter().map(|pair| pair.expect("reads")).collect::<Vec<_>>();
    assert_eq!(pairs(&left), pairs(&right));
    assert_eq!(db.verify().expect("runs").findings, Vec::<String>::new());
}

fn lazy_commits_are_visible_at_once_and_flushed_in_time(structure: Structure) {
    let (_directory, db) = scratch();
    let table = db.table("t", structure).expect("a table");
    let before = db.stats().expect("stats").log.flushes;
    table.put_with("k", "v", Durability::Lazy(Duration::from_millis(5))).expect("put");
    assert_eq!(table.get("k").expect("reads"), Some(b"v".to_vec()));
    while db.stats().expect("stats").log.flushes == before {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn segments_are_made_ahead_while_lazy_commits_are_always_due(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = small().segment_bytes(1 << 20).open(directory.path().join("db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    // Half of the first segment; from then on the log is to have two spares, and nobody but the keeper makes them.
    let mut batch = WriteBatch::new();
    (0..2048u32).for_each(|key| batch.put(&table, key.to_be_bytes(), [7; 250]));
    db.write_with(&batch, Durability::Lazy(Duration::ZERO)).expect("written");
    for _ in 0..3000 {
        table.put_with("k", "v", Durability::Lazy(Duration::ZERO)).expect("put");
        if std::fs::read_dir(db.path().join("wal")).expect("lists").count() >= 3 {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("no segment was made ahead");
}

fn a_read_only_database_reads_and_refuses_to_write(structure: Structure) {
    let (directory, db) = scratch();
    let table = db.table("t", structure).expect("a table");
    table.put("applied", "1").expect("put");
    db.checkpoint().expect("checkpoint");
    table.put("in the log", "2").expect("put");
    let copy = tempfile::tempdir().expect("a directory");
    // A copy of the files as they are now is what a killed process leaves.
    for entry in walk(directory.path()) {
        let to = copy.path().join(entry.strip_prefix(directory.path()).expect("within"));
        std::fs::create_dir_all(to.parent().expect("has one")).expect("made");
        std::fs::copy(&entry, to).expect("copied");
    }
    let bytes =
        |path: &std::path::Path| walk(path).iter().map(|file| std::fs::read(file).expect("reads")).collect::<Vec<_>>();
    let before = bytes(copy.path());
    let reader = small().read_only(true).open(copy.path()).expect("opens");
    let table = reader.open_table("t").expect("is there");
    assert_eq!(table.get_many(&["applied", "in the log"]).expect("reads"), [Some(b"1".to_vec()), Some(b"2".to_vec())]);
    assert_eq!(table.put("k", "v").expect_err("read-only").kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.drop_table("t").expect_err("read-only").kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.checkpoint().expect_err("read-only").kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.verify().expect("runs").findings, Vec::<String>::new());
    drop((table, reader));
    assert!(before == bytes(copy.path()), "a read-only database changes no file but its lock");
}

fn walk(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(walk(&path));
        } else if path.file_name().is_some_and(|name| name != "LOCK") {
            files.push(path);
        }
    }
    files.sort();
    files
}

on_every_kind!(
    a_table_is_an_ordered_map,
    large_values_come_back_whole,
    space_of_dropped_tables_and_dead_documents_returns,
    a_range_sees_one_moment_while_everything_changes,
    readers_and_writers_do_not_disturb_each_other,
    lazy_commits_are_visible_at_once_and_flushed_in_time,
    segments_are_made_ahead_while_lazy_commits_are_always_due,
    a_read_only_database_reads_and_refuses_to_write;
    limits_are_named_and_nothing_is_written,
);
