//! Walks past what is deleted and not applied yet: what they show, and what they cost.

use std::{
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use braid::{Database, Expires, ManualClock, Options, Structure, Table, TableOptions, WriteBatch};
use psync::sim::SimDisk;

const KEYS: u32 = 20_000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn options() -> Options {
    Options::new().background(false).cache_bytes(64 << 10).write_buffer_bytes(16 << 20).leaf_pages(1)
}

fn open(structure: Structure, history: u32) -> (Database, Table) {
    let db = options().open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = db.table_with("t", structure, &TableOptions::new().history(history)).expect("a table");
    table.load((0..KEYS).map(|number| (key(number), [7; 60]))).expect("loads");
    (db, table)
}

fn delete(db: &Database, table: &Table, numbers: std::ops::Range<u32>) {
    let mut batch = WriteBatch::new();
    numbers.for_each(|number| batch.delete(table, key(number)));
    db.write(&batch).expect("deletes");
}

fn first(table: &Table) -> Option<u32> {
    let (key, _) = table.iter().next()?.expect("reads");
    Some(u32::from_be_bytes(key.try_into().expect("four bytes")))
}

fn last(table: &Table) -> Option<u32> {
    let (key, _) = table.iter().rev().next()?.expect("reads");
    Some(u32::from_be_bytes(key.try_into().expect("four bytes")))
}

fn leaf_reads(db: &Database) -> u64 {
    let parts = db.stats().expect("stats").cache.structures;
    let leaves = parts.iter().flat_map(|part| &part.lookups).filter(|of| of.nodes == "leaves");
    leaves.map(|of| of.reads).sum()
}

/// Reads of leaves, of which the cache holds few.
fn a_walk_passes_over_what_another_has_passed_over(structure: Structure) {
    let (db, table) = open(structure, 0);
    delete(&db, &table, 0..15_000);
    assert_eq!(first(&table), Some(15_000));
    let before = leaf_reads(&db);
    for taken in 15_000..15_300 {
        assert_eq!(first(&table), Some(taken));
        delete(&db, &table, taken..taken + 1);
    }
    assert!(leaf_reads(&db) - before < 400, "{} leaves for 300 walks", leaf_reads(&db) - before);
    delete(&db, &table, 18_000..KEYS);
    assert_eq!(last(&table), Some(17_999));
    let before = leaf_reads(&db);
    assert_eq!((0..50).filter_map(|_| last(&table)).max(), Some(17_999));
    assert!(leaf_reads(&db) - before < 100, "{} leaves for 50 walks", leaf_reads(&db) - before);

    // What comes among them is shown, whether it waits or is applied.
    table.put(key(77), "again").expect("put");
    table.put(key(19_000), "again").expect("put");
    assert_eq!((first(&table), last(&table)), (Some(77), Some(19_000)));
    db.drain().expect("applies");
    assert_eq!((first(&table), last(&table)), (Some(77), Some(19_000)));
    assert_eq!(table.iter().count(), (17_999 - 15_300 + 1) + 2);
}

fn an_older_snapshot_sees_what_it_saw(structure: Structure) {
    let (db, table) = open(structure, 0);
    let then = db.snapshot();
    delete(&db, &table, 0..10_000);
    let between = db.snapshot();
    delete(&db, &table, 10_000..12_000);
    assert_eq!(first(&table), Some(12_000));
    assert_eq!(first(&table), Some(12_000));
    assert_eq!(then.iter(&table).count(), KEYS as usize);
    assert_eq!(between.iter(&table).count(), KEYS as usize - 10_000);
    assert_eq!(table.iter().count(), KEYS as usize - 12_000);
}

/// Whoever notes a gap first, a transaction, a snapshot or somebody without either: all pass over it, be their clock
/// ahead or behind.
fn gaps_are_for_all_who_see_the_deletes(structure: Structure) {
    let clock = ManualClock::new(UNIX_EPOCH + Duration::from_millis(1_800_000_000_000));
    let options = options().clock(clock.clone());
    let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    for expires in [false, true] {
        let table = db.table(&format!("expires {expires}"), structure).expect("a table");
        table.load((0..KEYS).map(|number| (key(number), [7; 60]))).expect("loads");
        if expires {
            let expiry = Expires::After(Duration::from_secs(1));
            (0..100).for_each(|number| table.put_expiring(key(number), [8; 60], expiry).map(drop).expect("put"));
        }
        delete(&db, &table, 100..8_000);
        if !expires {
            delete(&db, &table, 0..100);
        }
        let early = db.snapshot();
        clock.advance(Duration::from_millis(2_000));
        let late = db.begin().expect("begins");
        let first_of_late = || late.iter(&table).next().map(|pair| pair.expect("reads").0);
        assert_eq!(first_of_late().as_deref(), Some(key(8_000).as_slice()));
        let before = leaf_reads(&db);
        for _ in 0..50 {
            assert_eq!(first(&table), Some(8_000));
            assert_eq!(first_of_late().as_deref(), Some(key(8_000).as_slice()));
        }
        assert!(leaf_reads(&db) - before < 300, "{} leaves for 100 walks", leaf_reads(&db) - before);
        let expected = if expires { 0 } else { 8_000 };
        for _ in 0..50 {
            let pair = early.iter(&table).next().expect("a pair").expect("reads");
            assert_eq!(pair.0, key(expected));
        }
        let read = leaf_reads(&db) - before;
        assert!(read < 500, "{read} leaves for 150 walks");
    }
}

/// A gap that the whole table was, and rows that come into it later.
fn what_comes_into_a_gap_is_read_as_if_there_were_none(structure: Structure) {
    let (db, table) = open(structure, 0);
    delete(&db, &table, 0..KEYS);
    assert_eq!(first(&table), None);
    let mut batch = WriteBatch::new();
    (KEYS / 2..KEYS).for_each(|number| batch.put(&table, key(number), [9; 60]));
    db.write(&batch).expect("puts");
    assert_eq!((first(&table), last(&table)), (Some(KEYS / 2), Some(KEYS - 1)));
    db.drain().expect("applies");
    assert_eq!((first(&table), last(&table)), (Some(KEYS / 2), Some(KEYS - 1)));
    assert_eq!(table.iter().count(), (KEYS / 2) as usize);
}

on_every_structure!(
    a_walk_passes_over_what_another_has_passed_over,
    an_older_snapshot_sees_what_it_saw,
    gaps_are_for_all_who_see_the_deletes,
    what_comes_into_a_gap_is_read_as_if_there_were_none,
);

#[test]
fn what_is_gone_is_there_again_where_a_table_is_rolled_back() {
    let (db, table) = open(Structure::Append, 8);
    db.checkpoint().expect("retains");
    let to = table.history().last().expect("a state").seq;
    delete(&db, &table, 0..10_000);
    assert_eq!((first(&table), first(&table)), (Some(10_000), Some(10_000)));
    table.roll_back(to).expect("rolls back");
    assert_eq!(first(&table), Some(0));
    assert_eq!(table.iter().count(), KEYS as usize);
}

#[test]
fn walks_show_what_the_model_has() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        crate::walks::run(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
