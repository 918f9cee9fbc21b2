//! What a database gives back to the disk when nobody writes, and what a compaction does.

use std::path::Path;

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use psync::sim::SimDisk;

const VALUE_BYTES: usize = 100;
const MIB: u64 = 1 << 20;

fn open(disk: &SimDisk) -> Database {
    let options = Options::new().background(false).cache_bytes(4 << 20).write_buffer_bytes(1 << 20);
    options.open_on(disk.psync(), Path::new("/db")).expect("opens")
}

fn key(number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    key
}

fn fill(db: &Database, table: &Table, numbers: std::ops::Range<u32>, byte: u8) {
    for first in numbers.clone().step_by(500) {
        let mut batch = WriteBatch::new();
        let numbers = first..(first + 500).min(numbers.end);
        numbers.for_each(|number| batch.put(table, key(number), [byte; VALUE_BYTES]));
        db.write_with(&batch, Durability::Os).expect("writes");
    }
}

/// Bytes of the files whose paths begin so.
fn bytes(disk: &SimDisk, path: &str) -> u64 {
    let files = disk.files().into_iter().filter(|file| file.to_string_lossy().starts_with(path));
    files.map(|file| disk.read_file(file).map_or(0, |content| content.len() as u64)).sum()
}

/// Bytes that the database takes for each that its user has in it.
fn per_user_byte(disk: &SimDisk, pairs: u32) -> f64 {
    disk.used_bytes() as f64 / (f64::from(pairs) * (16 + VALUE_BYTES) as f64)
}

fn compact(db: &Database) {
    db.compact().expect("compacts");
}

on_every_structure!(
    a_table_that_was_emptied_gives_its_room_back,
    what_was_loaded_in_random_order_takes_little_more_than_half_as_much_again,
    what_is_packed_takes_little_more_than_it_is,
    what_was_given_back_comes_again_with_its_use,
);

fn a_table_that_was_emptied_gives_its_room_back(structure: Structure) {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.table("t", structure).expect("a table");
    fill(&db, &table, 0..100_000, 1);
    (0..100_000).for_each(|number| table.delete_with(key(number), Durability::Os).map(drop).expect("deletes"));
    compact(&db);
    assert!(disk.used_bytes() <= 8 * MIB, "{} bytes", disk.used_bytes());
    assert!(bytes(&disk, "/db/wal") <= 4 * MIB, "{} bytes of log", bytes(&disk, "/db/wal"));
    drop((table, db));
    disk.restart();
    let db = open(&disk);
    assert_eq!(db.table("t", structure).expect("a table").iter().count(), 0);
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}

fn what_was_loaded_in_random_order_takes_little_more_than_half_as_much_again(structure: Structure) {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.table("t", structure).expect("a table");
    fill(&db, &table, 0..300_000, 1);
    db.checkpoint().expect("a checkpoint");
    let most = if structure == Structure::Append { 1.6 } else { 1.5 };
    let taken = per_user_byte(&disk, 300_000);
    assert!(taken <= most, "{taken} bytes for each of the user");
    assert_eq!(table.iter().count(), 300_000);
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}

fn what_is_packed_takes_little_more_than_it_is(structure: Structure) {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let [table, other] = ["t", "u"].map(|name| db.table(name, structure).expect("a table"));
    fill(&db, &table, 0..200_000, 1);
    // What lies behind all of it stands in the way, and is not compacted itself.
    fill(&db, &other, 0..1000, 2);
    db.drain().expect("applies");
    (0..200_000)
        .filter(|number| number % 8 > 0)
        .for_each(|number| table.delete(key(number)).map(drop).expect("deletes"));
    table.compact().expect("compacts");
    let log = bytes(&disk, "/db/wal");
    assert!(log <= 4 * MIB, "{log} bytes of log");
    // With the room that is kept for deletes.
    let kept = match structure {
        Structure::Append => 5 * MIB,
        Structure::Lsm => 2 * MIB,
        _ => MIB,
    };
    let user = 26_000 * (16 + VALUE_BYTES as u64);
    let data = disk.used_bytes() - log;
    assert!(data <= user * 5 / 4 + kept, "{data} bytes for {user}");
    assert_eq!((table.iter().count(), other.iter().count()), (25_000, 1000));
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}

fn what_was_given_back_comes_again_with_its_use(structure: Structure) {
    let disk = SimDisk::new(1);
    let mut db = open(&disk);
    for round in 1..6_u8 {
        let table = db.table("t", structure).expect("a table");
        fill(&db, &table, 0..40_000, round);
        if round % 2 == 0 {
            table.delete_range(..&[0x80][..]).expect("deletes");
        }
        db.checkpoint().expect("a checkpoint");
        assert!(bytes(&disk, "/db/wal") <= 4 * MIB);
        assert!(per_user_byte(&disk, 40_000) < 4.0, "round {round}: {}", per_user_byte(&disk, 40_000));
        drop((table, db));
        // Without what was not flushed.
        disk.restart();
        db = open(&disk);
        let table = db.table("t", structure).expect("a table");
        let there = if round % 2 == 0 { 20_000 } else { 40_000 };
        let found = table.iter().inspect(|pair| assert_eq!(pair.as_ref().expect("a pair").1[..], [round; VALUE_BYTES]));
        let found = found.count();
        assert!((there - 1000..=there + 1000).contains(&found), "round {round}: {found} pairs");
    }
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}
