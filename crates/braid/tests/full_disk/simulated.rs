//! A disk of a few megabytes, filled to the last byte, with values in leaves and in documents.

use std::{
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use braid::{Database, Durability, ManualClock, Options, Structure};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    model::{Change, Model, is_full, puts},
    seeds,
};

/// Keys below this one are deleted as a range.
const END: &[u8] = &[0xc0];
/// Puts of one batch.
const BATCH: u64 = 40;
/// Values of fewer bytes are small.
const SMALL: usize = 1000;
const MINUTE: Duration = Duration::from_secs(60);

struct World {
    disk: SimDisk,
    clock: ManualClock,
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

fn open(disk: &SimDisk, clock: &ManualClock) -> Database {
    options().clock(clock.clone()).open_on(disk.psync(), Path::new("/db")).expect("opens")
}

impl World {
    fn new(structure: Structure, capacity: u64, value_bytes: usize) -> Self {
        let disk = SimDisk::new(capacity ^ value_bytes as u64);
        disk.set_capacity(Some(capacity));
        let clock = ManualClock::new(UNIX_EPOCH + Duration::from_millis(1_800_000_000_000));
        let db = open(&disk, &clock);
        Self { disk, clock, db, model: Model::new(structure), value_bytes, next: 0 }
    }

    fn write(&mut self, changes: &[Change]) -> bool {
        !is_full(self.model.write(&self.db, changes, Durability::Sync))
    }

    /// Puts new keys until the disk is full; batches that went in.
    fn fill(&mut self) -> u64 {
        (0..100_000).find(|_| !self.fill_one()).expect("the disk fills")
    }

    /// Puts a batch of new keys, if it goes in.
    fn fill_one(&mut self) -> bool {
        let batch = if self.value_bytes > 10_000 { 4 } else { BATCH };
        let changes = puts(self.next..self.next + batch, self.value_bytes);
        let fits = self.write(&changes);
        self.next += if fits { batch } else { 0 };
        fits
    }

    /// Likewise, but the first refusal may only say that what is kept of the log for those who follow it has to go.
    fn fill_again(&mut self) -> u64 {
        self.fill() + self.fill()
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
        self.db = open(&self.disk, &self.clock);
    }

    /// Deletes all keys but every `keep`-th: segments of documents are left with a part alive. Every batch must go in.
    fn delete(&mut self, keep: usize) {
        let keys: Vec<_> = self.model.keys().into_iter().enumerate().filter(|(at, _)| at % keep > 0).collect();
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
fn run_with_ranges(structure: Structure, capacity: u64, value_bytes: usize) {
    let mut world = World::new(structure, capacity, value_bytes);
    let filled = world.fill();
    world.press();
    world.model.check(&world.db);
    for (table, content) in world.model.open(&world.db).expect("the tables open").iter().zip(&mut world.model.tables) {
        // As with deletes of keys, the first attempt may find the write buffer or the log full.
        if is_full(table.delete_range(..END).map(drop)) {
            table.delete_range(..END).expect("range deletes go on");
        }
        content.retain(|key, _| key.as_slice() >= END);
    }
    world.model.check(&world.db);
    // The first one may give room to what waits.
    if is_full(world.db.checkpoint()) {
        world.db.checkpoint().expect("a checkpoint fits");
    }
    world.model.check(&world.db);
    let again = world.fill_again();
    assert!(again >= filled / 3, "{again} of {filled} batches fit after most was deleted");
    world.model.check(&world.db);
    world.reopen(true);
    world.model.check(&world.db);
}

/// Fills a disk with what then expires, and nobody deletes anything; then the same disk, but what comes last, and waits
/// for space, stays.
fn run_with_expiry(structure: Structure, capacity: u64, value_bytes: usize) {
    let mut world = World::new(structure, capacity, value_bytes);
    world.model.lifetime = Some(MINUTE);
    let filled = world.fill();
    world.press();
    let again = fill_after_expiry(&mut world);
    assert!(again >= filled / 3, "{again} of {filled} batches fit after everything had expired");
    world.reopen(true);
    world.model.check(&world.db);

    let mut world = World::new(structure, capacity, value_bytes);
    world.model.lifetime = Some(MINUTE);
    (0..filled * 4 / 5).for_each(|_| assert!(world.fill_one(), "it did before"));
    world.model.lifetime = None;
    world.fill();
    let again = fill_after_expiry(&mut world);
    assert!(again >= filled / 3, "{again} of {filled} batches fit after most had expired");
}

/// Time passes: what expires does. Batches that fit then.
fn fill_after_expiry(world: &mut World) -> u64 {
    world.model.check(&world.db);
    world.clock.advance(Duration::from_millis(2 * 60_000));
    world.model.expire();
    world.model.check(&world.db);
    // The first one may give room to what waits, and lets go of no documents that are swept behind it.
    is_full(world.db.checkpoint());
    world.db.checkpoint().expect("a checkpoint fits");
    world.model.check(&world.db);
    let again = world.fill_again();
    world.model.check(&world.db);
    again
}

/// Fills a disk, and goes through everything that a user may then do.
fn run(structure: Structure, capacity: u64, value_bytes: usize) {
    let mut world = World::new(structure, capacity, value_bytes);
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

    world.delete(5);
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

/// Disks and values are those of B-trees. Tries keep more room, and of the smallest values they would hold a great many
/// before even that is full.
///
/// Small values fill the smallest disk alone, unless `BRAID_DISK_WHOLE` is set: there are so many of them that the
/// other disks would take most of the time.
fn run_all(structure: Structure, run: fn(Structure, u64, usize), capacities: &[u64], sizes: &[usize]) {
    let mut failures = Vec::new();
    let (step, more, least) = if structure == Structure::BTree { (1, 0, 0) } else { (2, 4 << 20, 200) };
    let is_whole = std::env::var_os("BRAID_DISK_WHOLE").is_some();
    for (number, capacity) in capacities.iter().step_by(step).map(|capacity| capacity + more).enumerate() {
        let few = |bytes: &&usize| is_whole || number == 0 || **bytes >= SMALL;
        for value_bytes in sizes.iter().filter(few).map(|bytes| *bytes.max(&least)) {
            if std::panic::catch_unwind(|| run(structure, capacity, value_bytes)).is_err() {
                failures.push((capacity, value_bytes));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "these failed (capacity, bytes of a value): {failures:?}\n  repeat with: BRAID_DISK_WHOLE=1 cargo test -p braid --test full_disk"
    );
}

fn values_in_leaves(structure: Structure) {
    run_all(structure, run, &[4 << 20, 5 << 20, 9 << 20], &[20, 300, 2000]);
}

fn values_in_documents(structure: Structure) {
    run_all(structure, run, &[4 << 20, 5 << 20, 9 << 20], &[3000, 70_000]);
}

fn large_values_in_scattered_pages(structure: Structure) {
    run_all(structure, run, &[6 << 20, 7 << 20, 8 << 20], &[1500, 2000]);
}

fn values_that_have_expired(structure: Structure) {
    run_all(structure, run_with_expiry, &[4 << 20, 5 << 20, 9 << 20], &[20, 300, 2000, 3000, 70_000]);
}

fn ranges_that_are_deleted(structure: Structure) {
    run_all(structure, run_with_ranges, &[4 << 20, 5 << 20, 9 << 20], &[20, 300, 2000, 3000, 70_000]);
}

/// Any disk and any length of values: `BRAID_DISK_SEEDS` says how many.
fn disks_of_any_size(structure: Structure) {
    seeds::run_all("BRAID_DISK", "full_disk disks_of_any_size", 8, |seed| {
        let mut random = StdRng::seed_from_u64(seed);
        let least = if structure == Structure::BTree { 4 << 20 } else { 8 << 20 };
        let capacity = random.random_range(least..least + (6 << 20));
        let value_bytes = [250, 400, 700, 1000, 2000, 2048, 3000, 20_000][random.random_range(0..8)];
        let run = match seed % 4 {
            2 => run_with_expiry,
            3 => run_with_ranges,
            _ => run,
        };
        std::panic::catch_unwind(|| run(structure, capacity, value_bytes))
            .map_err(|_| format!("seed {seed}: a disk of {capacity} bytes, and values of {value_bytes}"))
    });
}

on_every_structure!(
    disks_of_any_size,
    values_in_leaves,
    values_in_documents,
    large_values_in_scattered_pages,
    values_that_have_expired,
    ranges_that_are_deleted,
);
