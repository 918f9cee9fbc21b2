//! Batches that a full disk has no room for as a whole go in piece by piece; the power may go between any two of them.
//!
//! 1. A disk is filled with a tree of some hundred leaves.
//! 2. Batches overwrite keys all over the tree, so that applying them rewrites more leaves than there are free pages;
//!    among them
//!    are documents, which are overwritten again and again.
//! 3. Now and then the power goes, or the disk gets larger by a little.
//!
//! What is refused is not there, all else is; and of the documents none is counted as dead twice, whatever was applied
//! twice.

use std::path::Path;

use braid::{Database, Durability, Options, Structure};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::model::{Change, Model, is_full, key, puts, value};

const DOCUMENTS: u64 = 30;

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(1 << 20)
        .segment_bytes(256 << 10)
        .leaf_pages(2)
}

fn open(disk: &SimDisk) -> Database {
    options().open_on(disk.psync(), Path::new("/db")).expect("opens")
}

/// Overwrites of some keys, and of a few documents.
fn overwrites(random: &mut StdRng, keys: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..random.random_range(1..60) {
        let number = random.random_range(0..keys);
        let put = random.random_bool(0.9).then(|| value(random.random_range(0..1 << 32), 300));
        changes.push((usize::from(number.is_multiple_of(3)), key(number), put));
    }
    for _ in 0..random.random_range(0..4) {
        let number = keys + random.random_range(0..DOCUMENTS);
        changes.push((
            usize::from(number.is_multiple_of(3)),
            key(number),
            Some(value(random.random_range(0..1 << 32), 2100)),
        ));
    }
    changes
}

fn run(structure: Structure, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(seed);
    let mut db = open(&disk);
    let mut model = Model::new(structure);
    let mut capacity = 6 << 20;
    disk.set_capacity(Some(capacity));
    let mut keys = 0;
    while !is_full(model.write(&db, &puts(keys..keys + 100, 300), Durability::Os)) {
        keys += 100;
    }
    for _ in 0..random.random_range(2..6) {
        for _ in 0..random.random_range(1..150) {
            is_full(model.write(&db, &overwrites(&mut random, keys), Durability::Sync));
        }
        match random.random_range(0..4) {
            0 => drop(db.drain()),
            1 => drop(db.checkpoint()),
            _ => {}
        }
        if random.random_bool(0.3) {
            capacity += random.random_range(0..1 << 20);
            disk.set_capacity(Some(capacity));
        }
        model.check(&db);
        disk.restart();
        drop(db);
        db = open(&disk);
        model.check(&db);
    }
    disk.set_capacity(None);
    for _ in 0..20 {
        model.write(&db, &overwrites(&mut random, keys), Durability::Sync).expect("there is room again");
    }
    db.checkpoint().expect("a checkpoint");
    model.check(&db);
    let all: Vec<Change> = model.keys().into_iter().map(|(which, key)| (which, key, None)).collect();
    for some in all.chunks(500) {
        model.write(&db, some, Durability::Sync).expect("deletes");
    }
    db.checkpoint().expect("a checkpoint");
    db.close().expect("closes");
    let db = open(&disk);
    model.check(&db);
    db.close().expect("closes");
}

fn what_goes_in_piece_by_piece_is_all_there_after_a_power_cut(structure: Structure) {
    let seeds = std::env::var("BRAID_SLICE_SEEDS").map_or(4, |text| text.parse().expect("a whole number"));
    let failed: Vec<u64> =
        (0..seeds).filter(|seed| std::panic::catch_unwind(|| run(structure, *seed)).is_err()).collect();
    assert!(failed.is_empty(), "{} of {seeds} seeds failed: {failed:?}", failed.len());
}

on_every_structure!(what_goes_in_piece_by_piece_is_all_there_after_a_power_cut);
