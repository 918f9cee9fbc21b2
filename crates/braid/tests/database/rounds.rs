//! Rounds: operations reach their structure a few sections of the keys at a time, and nothing else shows that.
//!
//! Everything is done by the calls that make it due, on a simulated disk, so each test repeats exactly.

use std::path::Path;

use braid::{Database, Durability, Options, Stats, Structure, Table, WriteBatch};
use psync::sim::SimDisk;

use crate::whole::leaves;

const BUDGET: u64 = 1 << 20;
const SEGMENT: u64 = 64 << 10;
/// Rounds keep the log below three quarters of this, and a checkpoint is written when at most half of it can go.
const LOG_LIMIT: u64 = BUDGET / 4 * 7;

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(8 << 20)
        .write_buffer_bytes(BUDGET)
        .segment_bytes(SEGMENT)
        .leaf_pages(1)
}

/// Key number `number`: rising numbers are spread over the key space.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn put(db: &Database, table: &Table, numbers: std::ops::Range<u64>) {
    for first in numbers.clone().step_by(100) {
        let mut batch = WriteBatch::new();
        (first..numbers.end.min(first + 100)).for_each(|number| batch.put(table, key(number), [7; 100]));
        db.write_with(&batch, Durability::Sync).expect("writes");
        let stats = db.stats().expect("stats");
        assert!(stats.write_buffer_bytes <= BUDGET, "{} bytes wait", stats.write_buffer_bytes);
    }
}

/// A table of some hundred leaves, with nothing waiting.
fn filled(structure: Structure, disk: &SimDisk, options: Options) -> (Database, Table) {
    let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    put(&db, &table, 0..10_000);
    db.drain().expect("drains");
    (db, table)
}

fn waiting(stats: &Stats) -> u64 {
    stats.tables.iter().map(|table| table.waiting_operations).sum()
}

fn a_round_takes_a_part_and_the_rest_waits(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(1), options());
    let (mut before, mut seen) = (db.stats().expect("stats"), 0);
    for number in 10_000..20_000 {
        table.put(key(number), [7; 100]).expect("writes");
        let stats = db.stats().expect("stats");
        if stats.applies > before.applies {
            let (taken, rounds) =
                (stats.applied_operations - before.applied_operations, stats.applies - before.applies);
            // One section of eight, or two where the fullest is less than a round: each holds up to twice the mean.
            assert!(5 * taken / rounds < 3 * waiting(&before), "{rounds} rounds took {taken} of {}", waiting(&before));
            assert!(5 * waiting(&stats) > 2 * waiting(&before), "{} of {} are left", waiting(&stats), waiting(&before));
            seen += 1;
        }
        before = stats;
    }
    assert!(seen > 5, "{seen} rounds");
    let keys: Vec<_> = (0..20_000).map(key).collect();
    assert!(table.get_many(&keys).expect("reads").iter().all(Option::is_some));
    assert_eq!(table.iter().count(), 20_000);
    assert_eq!(table.iter().rev().count(), 20_000);
}

fn recovery_brings_back_what_waited_and_nothing_else(structure: Structure) {
    let disk = SimDisk::new(2);
    let (db, table) = filled(structure, &disk, options());
    put(&db, &table, 10_000..20_000);
    // The last of them may have begun a round, whose end the log has not flushed: then it would be applied again.
    table.put(key(0), [7; 100]).expect("writes");
    let before = db.stats().expect("stats");
    assert!(waiting(&before) > 1000 && waiting(&before) < 8000, "{}", waiting(&before));
    disk.restart();
    drop((table, db));
    let db = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
    assert_eq!(waiting(&db.stats().expect("stats")), waiting(&before));
    let table = db.open_table("t").expect("the table");
    assert_eq!(table.iter().count(), 20_000);
    assert!(db.verify().expect("verifies").findings.is_empty());
}

fn a_cold_section_does_not_pin_the_log(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(3), options());
    table.put([0xff; 8], "cold").expect("writes");
    for number in 0..100_000_u64 {
        // All in one corner of the key space.
        table.put_with((number % 5000).to_be_bytes(), [8; 100], Durability::Os).expect("writes");
    }
    let retained = db.stats().expect("stats").log.retained_bytes;
    assert!(retained <= 4 * BUDGET + 4 * SEGMENT, "the log holds {retained} bytes");
    assert_eq!(table.get([0xff; 8]).expect("reads"), Some(b"cold".to_vec()));
}

fn the_log_is_bounded_as_the_write_buffer_is(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(6), options());
    let (mut longest, mut most) = (0, 0);
    for number in 0..40_000 {
        // Keys come in any order, so a section is applied when all others have been. Such short values take twice as
        // much of the log as of the write buffer.
        table.put_with(key(number * 7), [8; 20], Durability::Os).expect("writes");
        let stats = db.stats().expect("stats");
        longest = longest.max(stats.log.retained_bytes);
        most = most.max(stats.write_buffer_bytes);
    }
    assert!(longest <= LOG_LIMIT + LOG_LIMIT / 4 + SEGMENT, "the log held {longest} bytes");
    assert!(most >= BUDGET / 3, "at most {most} bytes waited");
}

fn range_deletes_do_not_make_the_log_long(structure: Structure) {
    let (db, table) = filled(structure, &SimDisk::new(7), options());
    let other = db.table("other", structure).expect("a table");
    other.put("key", "waits").expect("writes");
    let mut longest = 0;
    // They enter no queue.
    for _ in 0..8_000 {
        let mut batch = WriteBatch::new();
        batch.delete_range(&table, [7; 200]..[8; 200]);
        db.write_with(&batch, Durability::Os).expect("writes");
        longest = longest.max(db.stats().expect("stats").log.retained_bytes);
    }
    assert!(longest <= LOG_LIMIT + LOG_LIMIT / 4 + SEGMENT, "the log held {longest} bytes");
    assert_eq!(other.get("key").expect("reads"), Some(b"waits".to_vec()));
}

fn bcnt_bounds_every_round(structure: Structure) {
    const BCNT: u64 = 150;
    let (db, table) = filled(structure, &SimDisk::new(4), options().bcnt(150).speriod(50));
    let mut before = db.stats().expect("stats");
    assert!(before.applied_operations <= before.applies * BCNT, "{before:?}");
    for number in 10_000..14_000 {
        table.put_with(key(number), [9; 100], Durability::Os).expect("writes");
        let stats = db.stats().expect("stats");
        let (taken, rounds) = (stats.applied_operations - before.applied_operations, stats.applies - before.applies);
        assert!(taken <= rounds * BCNT, "{rounds} rounds took {taken}");
        before = stats;
    }
    db.drain().expect("drains");
    assert_eq!(table.iter().count(), 14_000);
    assert_eq!(waiting(&db.stats().expect("stats")), 0);
}

fn a_fill_in_order_packs_what_it_writes(structure: Structure) {
    const COUNT: u64 = 60_000;
    let (disk, options) = (SimDisk::new(4), options().write_buffer_bytes(4 << 20).leaf_pages(2));
    let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    for first in (0..COUNT).step_by(200) {
        let mut batch = WriteBatch::new();
        (first..first + 200).for_each(|number| batch.put(&table, number.to_be_bytes(), [7; 100]));
        db.write_with(&batch, Durability::Os).expect("writes");
        let looked_at = [0, first, first + 199, first + 200].map(u64::to_be_bytes);
        let found = table.get_many(&looked_at).expect("reads");
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);
        if first % 10_000 == 0 {
            assert_eq!(table.iter().rev().take(500).count() as u64, 500.min(first + 200));
            assert_eq!(table.range(first.to_be_bytes()..).count(), 200);
        }
    }
    db.drain().expect("drains");
    let stats = db.stats().expect("stats");
    assert!(stats.applies >= 5, "{} rounds", stats.applies);
    // What runs and nodes add to a pair is some bytes: with them leaves are 90 % full, whole pages of the last ones of
    // rounds apart.
    let of_table = &stats.tables[0];
    let leaves = leaves(of_table);
    let page = of_table.stored_bytes / leaves;
    let least = COUNT * 108 / page;
    assert!(leaves <= least * 115 / 100, "{leaves} leaves, {least} would be full");
    assert_eq!(table.iter().count() as u64, COUNT);
    // Rounds write each leaf once, but for the last one of the round before, and nodes at the edge. Space that is grown
    // into a little at a time is written twice.
    let nodes = stats.streams.iter().filter(|stream| stream.stream == "node");
    let written: u64 = nodes.map(|stream| stream.written_bytes).sum();
    let grown = stats.space.total_pages * 4096;
    let pages = leaves * page;
    assert!(written <= pages + grown + pages / 8, "{written} bytes for leaves of {pages}");
}

on_every_structure!(
    a_round_takes_a_part_and_the_rest_waits,
    recovery_brings_back_what_waited_and_nothing_else,
    a_cold_section_does_not_pin_the_log,
    the_log_is_bounded_as_the_write_buffer_is,
    range_deletes_do_not_make_the_log_long,
    bcnt_bounds_every_round,
    a_fill_in_order_packs_what_it_writes,
);
