//! Deletes of ranges: what they cost, who sees them, and what becomes of the space.

use std::path::Path;

use braid::{Database, ErrorKind, Options, Range, Structure, Table, WriteBatch};
use psync::sim::SimDisk;

use crate::whole::{Content, check_whole, content, figure, leaves};

const KEYS: u32 = 20_000;

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(64 << 10)
        .write_buffer_bytes(128 << 10)
        .segment_bytes(128 << 10)
        .leaf_pages(1)
}

fn open(structure: Structure, disk: &SimDisk) -> (Database, Table) {
    let db = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    (db, table)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A table with many keys in its structure.
fn filled(structure: Structure, disk: &SimDisk) -> (Database, Table) {
    let (db, table) = open(structure, disk);
    table.load((0..KEYS).map(|number| (key(number), [7; 60]))).expect("loads");
    db.drain().expect("applies");
    (db, table)
}

fn count(table: &Table) -> usize {
    pairs(table.iter())
}

fn pairs(range: Range) -> usize {
    range.inspect(|pair| assert!(pair.is_ok(), "{pair:?}")).count()
}

fn leaf_reads(db: &Database) -> u64 {
    let parts = db.stats().expect("stats").cache.structures;
    let leaves = parts.iter().flat_map(|part| &part.lookups).filter(|of| of.nodes == "leaves" || of.nodes == "blocks");
    leaves.map(|of| of.reads).sum()
}

fn later_operations_of_a_batch_stay_and_earlier_ones_go(structure: Structure) {
    let (db, table) = open(structure, &SimDisk::new(1));
    table.put("b", "old").expect("put");
    let mut batch = WriteBatch::new();
    batch.put(&table, "a", "before");
    batch.put(&table, "x", "outside");
    batch.delete_range(&table, "a".."f");
    batch.put(&table, "c", "after");
    batch.delete_range(&table, "d"..="d");
    db.write(&batch).expect("writes");
    let expected: Content = [("c", "after"), ("x", "outside")].map(|(key, value)| (key.into(), value.into())).into();
    assert_eq!(content(&table), expected);
    table.delete_range("m".."a").expect("an empty range is nothing");
    table.delete_prefix("x").expect("deletes");
    assert_eq!(count(&table), 1);
    table.delete_range::<&str>(..).expect("deletes");
    assert_eq!(count(&table), 0);
}

/// A snapshot keeps the sweep away, so that what was deleted is still in the structure.
fn scans_do_not_pay_for_what_was_deleted(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(1));
    let then = db.snapshot();
    table.delete_range(key(100)..key(KEYS - 100)).expect("deletes");
    db.drop_caches();
    let before = leaf_reads(&db);
    assert_eq!(count(&table), 200);
    assert_eq!(pairs(table.iter().rev()), 200);
    assert!(table.range(key(200)..key(300)).next().is_none());
    assert_eq!(table.get(key(5000)).expect("gets"), None);
    let after_delete = leaf_reads(&db) - before;
    let stats = table.stats().expect("stats");
    let all = if structure == Structure::Lsm { figure(&stats, "blocks") } else { leaves(&stats) };
    assert!(all > 300 && after_delete < 60, "{after_delete} reads of {all} leaves");
    // Something newer is in the queue, and then among what is hidden.
    table.put(key(5000), "new").expect("put");
    assert_eq!(count(&table), 201);
    db.drain().expect("applies");
    assert_eq!(count(&table), 201);
    assert_eq!(table.get(key(5000)).expect("gets").as_deref(), Some(&b"new"[..]));
    assert_eq!(pairs(then.iter(&table)), KEYS as usize);
    check_whole(&db);
}

fn the_space_comes_back_without_a_look_at_what_was_deleted(structure: Structure) {
    let disk = SimDisk::new(1);
    let (db, table) = filled(structure, &disk);
    table.put(key(7), vec![1; 9000]).expect("a document");
    db.drain().expect("applies");
    let before = table.stats().expect("stats");
    db.drop_caches();
    let reads = leaf_reads(&db);
    table.delete_range(key(100)..key(KEYS - 100)).expect("deletes");
    db.drain().expect("sweeps");
    let after = table.stats().expect("stats");
    assert!(after.stored_bytes * 20 < before.stored_bytes, "{before:?} {after:?}");
    assert!(leaf_reads(&db) - reads < 20, "{} reads", leaf_reads(&db) - reads);
    table.delete_range(..key(100)).expect("deletes");
    db.drain().expect("sweeps");
    assert_eq!(table.stats().expect("stats").document_live_bytes, 0);
    check_whole(&db);
    assert_eq!(count(&table), 100);
    drop((db, table));
    disk.restart();
    let (db, table) = open(structure, &disk);
    assert_eq!(count(&table), 100);
    check_whole(&db);
}

fn snapshots_see_what_they_saw_through_sweeps_and_compactions(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(1));
    let mut seen = vec![(db.snapshot(), KEYS as usize)];
    table.delete_range(key(1000)..key(2000)).expect("deletes");
    seen.push((db.snapshot(), KEYS as usize - 1000));
    (1000..1100).for_each(|number| table.put(key(number), "again").map(drop).expect("put"));
    seen.push((db.snapshot(), KEYS as usize - 900));
    table.delete_range(key(1050)..key(3000)).expect("deletes");
    while !seen.is_empty() {
        db.drain().expect("applies");
        table.compact().expect("compacts");
        seen.iter().for_each(|(then, expected)| assert_eq!(pairs(then.iter(&table)), *expected));
        assert_eq!(count(&table), KEYS as usize - 1950);
        check_whole(&db);
        // The oldest goes first.
        seen.remove(0);
    }
    db.drain().expect("sweeps");
    assert_eq!(table.stats().expect("stats").entries, u64::from(KEYS) - 1950);
}

fn a_transaction_is_in_conflict_over_a_range_and_a_range_over_a_transaction(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(1));
    let mut one = db.begin().expect("begins");
    one.put(&table, key(150), "mine").expect("put");
    table.delete_range(key(100)..key(200)).expect("deletes");
    assert_eq!(one.commit().map_err(|error| error.kind()), Err(ErrorKind::Conflict));

    for between in [0, 1] {
        let mut other = db.begin().expect("begins");
        if between == 0 {
            table.put(key(350), "theirs").expect("put");
        }
        other.delete_range(&table, key(300)..key(400)).expect("deletes");
        assert_eq!(other.get(&table, key(350)).expect("gets"), None);
        assert_eq!(other.range(&table, key(290)..key(410)).count(), 20);
        if between == 1 {
            table.put(key(350), "theirs").expect("put");
        }
        assert_eq!(other.commit().map_err(|error| error.kind()), Err(ErrorKind::Conflict), "{between}");
    }
    let mut own = db.begin().expect("begins");
    own.put(&table, key(305), "before").expect("put");
    own.delete_range(&table, key(300)..key(400)).expect("deletes");
    own.put(&table, key(310), "after").expect("put");
    own.commit().expect("nobody was in the way");
    assert_eq!(table.range(key(300)..key(400)).count(), 1);
}

fn the_ranges_of_a_batch_count_too(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(1));
    let _then = db.snapshot();
    let write = |from: u32, count: u32| {
        let mut batch = WriteBatch::new();
        (from..from + count).for_each(|number| batch.delete_range(&table, key(2 * number)..key(2 * number + 1)));
        db.write(&batch).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(write(0, 4097), Err(ErrorKind::InvalidInput));
    assert_eq!(write(0, 4000), Ok(()));
    assert_eq!(write(4000, 97), Err(ErrorKind::Conflict));
    assert_eq!(write(4000, 96), Ok(()));
    assert_eq!(count(&table), KEYS as usize - 4096);
}

/// Whatever the worker has swept by the time that the last deletes come, it goes on.
fn a_range_that_takes_many_stretches_is_waited_for(structure: Structure) {
    let db = options().background(true).open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    table.load((0..10 * KEYS).map(|number| (key(number), [7; 60]))).expect("loads");
    let then = db.snapshot();
    let first = 9 * KEYS;
    table.delete_range(..key(first)).expect("deletes");
    // Leaves have to be looked at for it.
    table.put(key(1), "later").expect("puts");
    db.drain().expect("applies");
    let mut batch = WriteBatch::new();
    (0..4094).for_each(|number| batch.delete_range(&table, key(first + 2 * number)..key(first + 2 * number + 1)));
    db.write(&batch).expect("deletes");
    drop(then);
    let mut batch = WriteBatch::new();
    (0..4000).for_each(|number| {
        batch.delete_range(&table, key(first + 10_000 + 2 * number)..key(first + 10_001 + 2 * number))
    });
    db.write(&batch).expect("waits until the first ones are swept");
    db.close().expect("closes");
}

fn many_ranges_are_bounded_and_swept(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(1));
    let then = db.snapshot();
    let refused = (0..KEYS / 2).find_map(|number| table.delete_range(key(2 * number)..key(2 * number + 1)).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Conflict));
    let left = count(&table);
    assert!(left < KEYS as usize - 4000, "{left}");
    drop(then);
    for number in 0..KEYS / 2 {
        table.delete_range(key(2 * number)..key(2 * number + 1)).expect("older ones are swept");
    }
    assert_eq!(count(&table), KEYS as usize / 2);
    db.drain().expect("sweeps");
    assert_eq!(table.stats().expect("stats").entries, u64::from(KEYS / 2));
    check_whole(&db);
}

on_every_structure!(
    later_operations_of_a_batch_stay_and_earlier_ones_go,
    scans_do_not_pay_for_what_was_deleted,
    the_space_comes_back_without_a_look_at_what_was_deleted,
    snapshots_see_what_they_saw_through_sweeps_and_compactions,
    a_transaction_is_in_conflict_over_a_range_and_a_range_over_a_transaction,
    the_ranges_of_a_batch_count_too,
    a_range_that_takes_many_stretches_is_waited_for,
    many_ranges_are_bounded_and_swept,
);
