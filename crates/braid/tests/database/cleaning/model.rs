//! Tables of documents, and what they must hold.

use std::{ops::ControlFlow, path::Path};

use braid::{CompactOptions, Compaction, Database, Durability, Options, Structure, Table, WriteBatch};
use psync::sim::SimDisk;
use rand::{Rng, rngs::StdRng};

use crate::whole::{Content, check_whole, content};

pub(crate) fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(128 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages(2)
}

pub(crate) fn open(disk: &SimDisk) -> braid::Result<Database> {
    options().open_on(disk.psync(), Path::new("/db"))
}

pub(crate) fn fresh(structure: Structure, seed: u64) -> (SimDisk, Database, Table) {
    let disk = SimDisk::new(seed);
    let db = open(&disk).expect("opens");
    let table = db.table("t", structure).expect("created");
    (disk, db, table)
}

pub(crate) fn key(number: u32) -> Vec<u8> {
    number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
}

/// Mostly documents.
pub(crate) fn value(random: &mut StdRng) -> Vec<u8> {
    let length = match random.random_range(0..10) {
        0 => random.random_range(0..2000),
        1 => random.random_range(9000..40_000),
        _ => random.random_range(2049..5000),
    };
    let first: u8 = random.random();
    (0..=u8::MAX).cycle().take(length).map(|step| first.wrapping_add(step)).collect()
}

/// Puts and deletes some of `keys` keys in one commit.
pub(crate) fn change(
    db: &Database, table: &Table, model: &mut Content, random: &mut StdRng, keys: u32, count: u32,
) -> braid::Result<()> {
    let mut batch = WriteBatch::new();
    for _ in 0..count {
        let key = key(random.random_range(0..keys));
        if random.random_bool(0.1) {
            batch.delete(table, &key);
            model.remove(&key);
        } else {
            let value = value(random);
            batch.put(table, &key, &value);
            model.insert(key, value);
        }
    }
    db.write_with(&batch, Durability::Sync).map(drop)
}

pub(crate) fn compact(table: &Table, options: &CompactOptions) -> Compaction {
    table.compact_with(options, &mut |_| ControlFlow::Continue(())).expect("compacts")
}

/// Everything is there, nothing is counted that is not, and a power cut takes nothing of it.
pub(crate) fn check(disk: &SimDisk, db: Database, table: Table, model: &Content) -> (Database, Table) {
    db.drop_caches();
    assert!(content(&table) == *model, "the content is another");
    check_whole(&db);
    drop((table, db));
    disk.restart();
    let db = open(disk).expect("opens again");
    let table = db.open_table("t").expect("there");
    assert!(content(&table) == *model, "a power cut changed the content");
    check_whole(&db);
    (db, table)
}
