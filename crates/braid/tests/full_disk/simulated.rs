//! A disk of a few megabytes, filled to the last byte, with values in leaves and in documents.

use std::path::Path;

use braid::{Database, Durability, Options};
use psync::sim::SimDisk;

use crate::model::{Change, Model, is_full, puts, tables};

/// Keys below this one are deleted as a range.
const END: u8 = 0xc0;
/// Puts of one batch.
const BATCH: u64 = 40;

struct World {
    disk: SimDisk,
    db: Database,
    model: Model,
    value_bytes: usize,
    next: u64,
}

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(128 << 10)
        .leaf_pages(2)
}

fn open(disk: &SimDisk) -> Database {
    options().open_on(disk.psync(), Path::new("/db")).expect("opens")
}

impl World {
    fn new(capacity: u64, value_bytes: usize) -> Self {
        let disk = SimDisk::new(capacity ^ value_bytes as u64);
        disk.set_capacity(Some(capacity));
        let db = open(&disk);
        Self { disk, db, model: Model::default(), value_bytes, next: 0 }
    }

    fn write(&mut self, changes: &[Change]) -> bool {
        !is_full(self.model.write(&self.db, changes, Durability::Sync))
    }

    /// Puts new keys until the disk is full; batches that went in.
    fn fill(&mut self) -> u64 {
        let batch = if self.value_bytes > 10_000 { 4 } else { BATCH };
        for count in 0..100_000 {
            let changes = puts(self.next..self.next + batch, self.value_bytes);
            if !self.write(&changes) {
                return count;
            }
            self.next += batch;
        }
        panic!("the disk never fills");
    }

    /// Tries batches of all sorts; each goes in or meets the full disk.
    fn press(&mut self) {
        for (count, bytes) in [(1, 0), (1, self.value_bytes), (30, 10), (3, 2500), (1, 60_000), (BATCH, 500)] {
            let changes = puts(self.next..self.next + count, bytes);
            if self.write(&changes) {
                self.next += count;
            }
            // An overwrite of what is there must not harm it when it is refused.
            let changes = puts(0..count, bytes);
            self.write(&changes);
        }
    }

    /// Closes or cuts the power, and opens again on the same full disk.
    fn reopen(&mut self, power_cut: bool) {
        if power_cut {
            self.disk.restart();
        } else {
            // On a full disk the last checkpoint may not fit: then the log still has everything.
            let _ = self.db.clone().close();
            self.disk.restart();
        }
        self.db = open(&self.disk);
    }

    /// Deletes all keys but every `keep`-th; every batch must go in.
    fn delete(&mut self, keep: usize) {
        let keys: Vec<_> =
            self.model.keys().into_iter().enumerate().filter(|(at, _)| keep == 0 || at % keep > 0).collect();
        for some in keys.chunks(64) {
            let changes: Vec<Change> = some.iter().map(|(_, (which, key))| (*which, key.clone(), None)).collect();
            // The first attempt may find the log full, and ask for a checkpoint, which trims it.
            if is_full(self.model.write(&self.db, &changes, Durability::Sync)) {
                self.model.write(&self.db, &changes, Durability::Sync).expect("deletes go on");
            }
        }
    }
}

/// Fills a disk, and deletes most of it as ranges.
fn run_with_ranges(capacity: u64, value_bytes: usize) {
    let mut world = World::new(capacity, value_bytes);
    let filled = world.fill();
    world.press();
    world.model.check(&world.db);
    for (table, content) in tables(&world.db).expect("the tables open").iter().zip(&mut world.model.tables) {
        // As with deletes of keys, the first attempt may find the write buffer or the log full.
        if is_full(table.delete_range(..[END])) {
            table.delete_range(..[END]).expect("range deletes go on");
        }
        content.retain(|key, _| key[0] >= END);
    }
    world.model.check(&world.db);
    // The first one may give room to what waits.
    if is_full(world.db.checkpoint()) {
        world.db.checkpoint().expect("a checkpoint fits");
    }
    world.model.check(&world.db);
    let again = world.fill();
    assert!(again >= filled / 3, "{again} of {filled} batches fit after most was deleted");
    world.model.check(&world.db);
    world.reopen(true);
    world.model.check(&world.db);
}

/// Fills a disk, and goes through everything that a user may then do.
fn run(capacity: u64, value_bytes: usize) {
    let documents = value_bytes > 2048;
    let mut world = World::new(capacity, value_bytes);
    let filled = world.fill();
    assert!(filled > 0);
    world.model.check(&world.db);
    world.press();
    world.model.check(&world.db);
    world.reopen(true);
    world.model.check(&world.db);
    world.press();
    world.reopen(false);
    world.model.check(&world.db);

    world.delete(if documents { 0 } else { 5 });
    world.model.check(&world.db);
    world.db.checkpoint().expect("a checkpoint fits");
    world.model.check(&world.db);
    let again = world.fill();
    assert!(again >= filled / 3, "{again} of {filled} batches fit after most was deleted");
    world.model.check(&world.db);

    world.disk.set_capacity(Some(capacity * 2));
    let more = world.fill();
    assert!(more >= filled / 2, "{more} more batches fit on a disk of twice the size, {filled} before");
    world.reopen(true);
    world.model.check(&world.db);
    world.db.clone().close().ok();
}

fn run_all(run: fn(u64, usize), capacities: &[u64], sizes: &[usize]) {
    let mut failures = Vec::new();
    for &capacity in capacities {
        for &value_bytes in sizes {
            if std::panic::catch_unwind(|| run(capacity, value_bytes)).is_err() {
                failures.push((capacity, value_bytes));
            }
        }
    }
    assert!(failures.is_empty(), "these failed (capacity, bytes of a value): {failures:?}");
}

#[test]
fn values_in_leaves() {
    run_all(run, &[4 << 20, 5 << 20, 9 << 20], &[20, 300, 2000]);
}

#[test]
fn values_in_documents() {
    run_all(run, &[4 << 20, 5 << 20, 9 << 20], &[3000, 70_000]);
}

#[test]
fn large_values_in_scattered_pages() {
    run_all(run, &[6 << 20, 7 << 20, 8 << 20], &[1500, 2000]);
}

#[test]
fn ranges_that_are_deleted() {
    run_all(run_with_ranges, &[4 << 20, 5 << 20, 9 << 20], &[20, 300, 2000]);
}
