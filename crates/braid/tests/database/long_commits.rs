//! Commits whose record is longer than a segment of the log: whole or not there, for whoever looks, and within the
//! memory that the options give.

use std::{path::Path, thread};

use braid::{
    ChangeEvent, Database, Durability, Error, ErrorKind, Options, Seq, Structure, Table, TransactionOptions, WriteBatch,
};
use psync::sim::{Fault, SimDisk};

/// A segment has 64 KiB. A commit may have about 330 KiB: it is twice in memory, for which there are the write buffer
/// and half of the cache.
fn options(background: bool) -> Options {
    Options::new()
        .cache_bytes(1 << 20)
        .write_buffer_bytes(192 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages(1)
        .background(background)
}

fn open(disk: &SimDisk, background: bool, structure: Structure) -> (Database, Table) {
    let db = options(background).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    (db, table)
}

/// Puts of 1,000 bytes to the keys below `count`, which go to the log: `append` has longer keys in place of them.
fn batch_of(table: &Table, count: u32, fill: u8) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for number in 0..count {
        match table.structure() {
            Structure::Append => batch.put(table, long_key(number), [fill; 8]),
            _ => batch.put(table, number.to_be_bytes(), [fill; 1000]),
        }
    }
    batch
}

fn long_key(number: u32) -> Vec<u8> {
    [number.to_be_bytes().as_slice(), &[b'k'; 990]].concat()
}

/// How many of the keys below `count` have a value of `fill`.
fn found(table: &Table, count: u32, fill: u8) -> usize {
    let key = |number: u32| match table.structure() {
        Structure::Append => long_key(number),
        _ => number.to_be_bytes().to_vec(),
    };
    let keys: Vec<_> = (0..count).map(key).collect();
    let values = table.get_many(&keys).expect("reads");
    values.iter().flatten().filter(|value| value[0] == fill).count()
}

#[test]
fn a_commit_may_be_longer_than_a_segment_of_the_log() {
    for structure in Structure::ALL.iter().copied() {
        for background in [true, false] {
            let disk = SimDisk::new(1);
            let (db, table) = open(&disk, background, structure);
            db.write(&batch_of(&table, 20, 1)).expect("a short one");
            let seq = db.write(&batch_of(&table, 300, 2)).expect("a long one");
            assert_eq!(found(&table, 300, 2), 300);
            // A kill: the log is replayed.
            drop(table);
            disk.kill();
            drop(db);
            let (db, table) = open(&disk, background, structure);
            assert_eq!(found(&table, 300, 2), 300);
            db.verify().expect("whole");
            let written = db.write_with(&batch_of(&table, 300, 3), Durability::Os).expect("another");
            assert!(written > seq);
            db.checkpoint().expect("applies");
            assert_eq!(found(&table, 300, 3), 300);
            db.close().expect("closes");
            drop(table);
            let (_db, table) = open(&disk, background, structure);
            assert_eq!(found(&table, 300, 3), 300);
        }
    }
}

#[test]
fn whenever_the_power_goes_all_of_it_is_there_or_nothing() {
    for structure in Structure::ALL.iter().copied() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..120 {
            let disk = SimDisk::new(seed);
            let (db, table) = open(&disk, false, structure);
            db.write(&batch_of(&table, 300, 1)).expect("the first");
            let fault = seed
                .is_multiple_of(3)
                .then_some([Fault::Flush, Fault::Write][usize::try_from(seed % 2).expect("small")]);
            match fault {
                Some(fault) => disk.fail_operation(fault, seed % 17, 5),
                None => disk.crash_after(seed),
            }
            let done = db.write(&batch_of(&table, 300, 2));
            drop((table, db));
            disk.restart();
            let (_db, table) = open(&disk, false, structure);
            let there = found(&table, 300, 2);
            assert_eq!(found(&table, 300, 1) + there, 300, "seed {seed}: {there} of the second");
            assert!(there == 300 || there == 0 && done.is_err(), "seed {seed}: {there} of the second, {done:?}");
            if there == 0 { lost += 1 } else { kept += 1 }
        }
        assert!(lost > 10 && kept > 10, "{structure:?}: {lost} lost, {kept} kept");
    }
}

#[test]
fn transactions_tickets_and_changes_have_them_too() {
    let disk = SimDisk::new(2);
    let db = options(true).retain_log_bytes(16 << 20).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", Structure::BTree).expect("a table");
    let mut transaction = db.begin_with(TransactionOptions::new()).expect("begins");
    for number in 0..300_u32 {
        transaction.put(&table, number.to_be_bytes(), [1; 1000]).expect("puts");
    }
    let first = transaction.commit().expect("commits");
    let ticket = db.submit(&batch_of(&table, 250, 2), Durability::Sync).expect("submits");
    let second = ticket.seq();
    ticket.wait().expect("is durable");
    assert_eq!((found(&table, 300, 1), found(&table, 300, 2)), (50, 250));
    let commits = |from: Seq| {
        let changes = db.changes(from).expect("they are kept");
        let commits = changes.map(|change| change.expect("reads"));
        let count =
            |event: &ChangeEvent| if let ChangeEvent::Commit(operations) = event { operations.len() } else { 0 };
        commits.map(|change| (change.seq, count(&change.event))).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(commits(Seq(0)), [(first, 300), (second, 250)]);
    assert_eq!(commits(first), [(second, 250)]);
}

#[test]
fn the_cache_gives_the_memory_of_a_long_transaction_and_gets_it_back() {
    let disk = SimDisk::new(5);
    let db = options(true).cache_bytes(32 << 20).write_buffer_bytes(1 << 20).segment_bytes(1 << 20);
    let db = db.open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", Structure::BTree).expect("a table");
    let capacity = || db.stats().expect("stats").cache.structures.iter().map(|part| part.capacity_bytes).sum::<u64>();
    let before = capacity();
    for commits in [true, false] {
        let mut transaction = db.begin().expect("begins");
        for number in 0..6000_u32 {
            transaction.put(&table, number.to_be_bytes(), [7; 1000]).expect("fits");
        }
        assert!(capacity() <= before - (4 << 20), "{} of {before}", capacity());
        if commits {
            transaction.commit().expect("commits");
        } else {
            drop(transaction);
        }
        assert_eq!(capacity(), before);
    }
    assert_eq!(found(&table, 6000, 7), 6000);
    let mut transaction = db.begin().expect("begins");
    let put = |number: u32| transaction.put(&table, number.to_be_bytes(), [7; 1000]).err();
    let refused = (0..20_000).find_map(put).expect("there is a limit");
    assert!(matches!(refused, Error::TransactionTooLarge { .. }), "{refused}");
}

#[test]
fn beside_other_writers_each_is_seen_whole() {
    let disk = SimDisk::new(3);
    let (db, table) = open(&disk, true, Structure::BTree);
    let other = db.table("other", Structure::Append).expect("a table");
    db.write(&batch_of(&table, 300, 0)).expect("the first");
    thread::scope(|scope| {
        for writer in 0..3_u32 {
            let (db, other) = (&db, &other);
            scope.spawn(move || {
                for number in 0..400_u32 {
                    let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                    let mut batch = WriteBatch::new();
                    batch.put(other, key, [7; 200]);
                    db.write_with(&batch, Durability::Os).expect("writes");
                }
            });
        }
        for half in 0..2_u8 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for turn in 0..6 {
                    db.write_with(&batch_of(table, 300, 1 + half + 2 * turn), Durability::Os).expect("a long one");
                }
            });
        }
        for _ in 0..30 {
            let snapshot = db.snapshot();
            let values: Vec<_> = snapshot.range::<&[u8]>(&table, ..).map(|pair| pair.expect("reads").1).collect();
            assert_eq!(values.len(), 300);
            assert!(values.iter().all(|value| value == &values[0]), "parts of two commits");
        }
    });
    assert_eq!(other.range::<&[u8]>(..).count(), 1200);
    db.verify().expect("whole");
}

#[test]
fn what_the_memory_or_the_disk_cannot_hold_is_refused_and_nothing_is_written() {
    let disk = SimDisk::new(4);
    let (db, table) = open(&disk, true, Structure::BTree);
    db.write(&batch_of(&table, 10, 1)).expect("the first");
    let refused = db.write(&batch_of(&table, 360, 2));
    assert!(
        matches!(refused, Err(Error::BatchTooLarge { bytes, limit, .. }) if bytes > limit && limit == (704 << 10) / 2 - 80 * 360)
    );
    let free = disk.used_bytes() + (100 << 10);
    disk.set_capacity(Some(free));
    let full = db.write(&batch_of(&table, 300, 2)).expect_err("there is no room");
    assert_eq!(full.kind(), ErrorKind::DiskFull, "{full}");
    assert_eq!((found(&table, 360, 2), found(&table, 10, 1)), (0, 10));
    disk.set_capacity(None);
    db.checkpoint().expect("there is room");
    db.write(&batch_of(&table, 300, 2)).expect("there is room");
    assert_eq!(found(&table, 300, 2), 300);
    db.verify().expect("whole");
}
