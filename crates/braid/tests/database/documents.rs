//! Values that are documents for their structures: which commits write them as such, and what that spares.

use std::path::Path;

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use psync::sim::SimDisk;

const VALUE: usize = 1024;
const MANY: u32 = 200;

fn open(disk: &SimDisk) -> Database {
    let options = Options::new().cache_bytes(256 << 10).write_buffer_bytes(4 << 20).background(false);
    options.open_on(disk.psync(), Path::new("/db")).expect("opens")
}

fn value(number: u32, version: u8) -> Vec<u8> {
    let mut value = vec![version; VALUE];
    value[..4].copy_from_slice(&number.to_be_bytes());
    value
}

fn put(db: &Database, table: &Table, numbers: std::ops::Range<u32>, version: u8) {
    let mut batch = WriteBatch::new();
    numbers.for_each(|number| batch.put(table, number.to_be_bytes(), value(number, version)));
    db.write_with(&batch, Durability::Sync).expect("commits");
}

fn check(table: &Table, numbers: std::ops::Range<u32>, version: u8) {
    for number in numbers {
        assert_eq!(table.get(number.to_be_bytes()).expect("reads"), Some(value(number, version)));
    }
}

/// Bytes written of one kind, and requests that read.
fn of(db: &Database, stream: &str) -> (u64, u64) {
    let streams = db.stats().expect("stats").streams;
    streams.iter().filter(|of| of.stream == stream).fold((0, 0), |sum, of| (sum.0 + of.written_bytes, sum.1 + of.reads))
}

#[test]
fn many_values_of_a_commit_are_written_once() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.table("table", Structure::Append).expect("created");
    let all = u64::from(MANY) * VALUE as u64;
    // A checkpoint gives documents their part of the cache, and of what is lent.
    put(&db, &table, 0..MANY, 0);
    db.checkpoint().expect("a checkpoint");
    let before = of(&db, "doc");
    put(&db, &table, 0..MANY, 1);
    let (waits, documents) = (db.stats().expect("stats").write_buffer_bytes, of(&db, "doc").0 - before.0);
    assert!(waits < all / 4 && documents >= all && documents < all + all / 8, "{waits}, {documents} bytes for {all}");
    // They are in memory still.
    check(&table, 0..MANY, 1);
    assert_eq!(of(&db, "doc").1, before.1);
    db.drain().expect("applies");
    assert_eq!(of(&db, "doc").0, before.0 + documents);
    check(&table, 0..MANY, 1);
    put(&db, &table, 0..MANY, 2);
    check(&table, 0..MANY, 2);
    drop((table, db));
    disk.restart();
    let db = open(&disk);
    let table = db.open_table("table").expect("there");
    check(&table, 0..MANY, 2);
    db.checkpoint().expect("a checkpoint");
    check(&table, 0..MANY, 2);
}

#[test]
fn what_a_commit_wrote_as_documents_survives_the_power() {
    let disk = SimDisk::new(1);
    let run = || {
        let db = open(&disk);
        let table = db.table("table", Structure::Append).expect("created");
        put(&db, &table, 0..MANY, 1);
        // Nothing but the log knows of it: a checkpoint when it is closed is too late, if there is one.
        disk.crash_after(0);
        drop(db.close());
    };
    run();
    disk.restart();
    let db = open(&disk);
    let table = db.open_table("table").expect("there");
    assert_eq!(table.stats().expect("stats").waiting_operations, u64::from(MANY));
    check(&table, 0..MANY, 1);
    db.drain().expect("applies");
    check(&table, 0..MANY, 1);
}

#[test]
fn documents_begin_where_a_table_gets_many() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let [one, other] = ["one", "other"].map(|name| db.table(name, Structure::Append).expect("created"));
    let mut batch = WriteBatch::new();
    for number in 0..63_u32 {
        batch.put(&one, number.to_be_bytes(), value(number, 1));
        batch.put(&other, number.to_be_bytes(), value(number, 1));
    }
    db.write(&batch).expect("commits");
    assert_eq!(of(&db, "doc").0, 0);
    put(&db, &one, 0..64, 2);
    assert!(of(&db, "doc").0 >= 64 * VALUE as u64);
    check(&one, 0..64, 2);
    check(&other, 0..63, 1);
}

#[test]
fn ends_of_ranges_are_no_documents() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.table("table", Structure::Append).expect("created");
    let prefix = [7; 3000];
    table.put([&prefix[..], b"key"].concat(), "gone").expect("puts");
    let mut batch = WriteBatch::new();
    batch.delete_prefix(&table, prefix);
    (0..MANY).for_each(|number| batch.put(&table, number.to_be_bytes(), value(number, 1)));
    db.write(&batch).expect("commits");
    let all = u64::from(MANY) * VALUE as u64;
    // Each with its header, and nothing else.
    assert!(of(&db, "doc").0 < all + u64::from(MANY) * 32, "{} bytes", of(&db, "doc").0);
    assert_eq!(table.get([&prefix[..], b"key"].concat()).expect("reads"), None);
    check(&table, 0..MANY, 1);
}

#[test]
fn few_values_of_a_commit_go_through_the_log() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.table("table", Structure::Append).expect("created");
    put(&db, &table, 0..10, 1);
    assert_eq!(of(&db, "doc").0, 0);
    check(&table, 0..10, 1);
    db.drain().expect("applies");
    assert!(of(&db, "doc").0 >= 10 * VALUE as u64);
    check(&table, 0..10, 1);
}

#[test]
fn each_structure_has_documents_of_its_own_lengths() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let [tree, trie] = [("tree", Structure::BTree), ("trie", Structure::Append)]
        .map(|(name, structure)| db.table(name, structure).expect("created"));
    put(&db, &tree, 0..MANY, 1);
    assert_eq!(of(&db, "doc").0, 0);
    // In one commit, and with values that neither has as documents.
    let mut batch = WriteBatch::new();
    for number in 0..MANY {
        batch.put(&tree, number.to_be_bytes(), value(number, 2));
        batch.put(&trie, number.to_be_bytes(), value(number, 2));
        batch.put(&trie, (MANY + number).to_be_bytes(), b"short");
    }
    db.write_with(&batch, Durability::Sync).expect("commits");
    let (all, documents) = (u64::from(MANY) * VALUE as u64, of(&db, "doc").0);
    assert!(documents >= all && documents < all + all / 8, "{documents} bytes");
    for _ in 0..2 {
        check(&tree, 0..MANY, 2);
        check(&trie, 0..MANY, 2);
        assert_eq!(trie.get(MANY.to_be_bytes()).expect("reads").as_deref(), Some(&b"short"[..]));
        db.drain().expect("applies");
    }
}
