//! Walks over a table in which many keys are deleted, against a model.
//!
//! 1. A seed decides everything. Jobs are pushed behind all others and taken from the front; keys anywhere are put,
//!    deleted and let expire, some by ranges; what waits
//!    is applied now and then.
//! 2. Meanwhile ranges in both directions, that begin anywhere, show what the model has, now and in snapshots: most
//!    begin where others began, so that what one passed over
//!    is passed over by the next.

use std::{
    collections::BTreeMap,
    ops::Bound,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use braid::{Database, Durability, ManualClock, Options, Snapshot, Structure, Table, WriteBatch};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng};

const BEGIN: u64 = 1_800_000_000_000;
const STEPS: usize = 400;
/// Keys are put anywhere below this, and jobs from it on.
const JOBS: u64 = 700;

/// Values, and when they expire.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

struct World {
    random: StdRng,
    db: Database,
    table: Table,
    clock: ManualClock,
    now: u64,
    model: Model,
    pushed: u64,
    snapshots: Vec<(Snapshot, Model, u64)>,
}

fn key(number: u64) -> Vec<u8> {
    format!("queue/of-jobs/{number:06}").into_bytes()
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new(UNIX_EPOCH + Duration::from_millis(BEGIN));
        let options = Options::new()
            .background(false)
            .durability(Durability::Os)
            .cache_bytes(1 << 20)
            .write_buffer_bytes(if seed.is_multiple_of(2) { 96 << 10 } else { 1 << 20 })
            .segment_bytes(256 << 10)
            .leaf_pages(1)
            .clock(clock.clone());
        let options = if seed % 5 == 4 { options.speriod(50) } else { options };
        let db = options.open_on(SimDisk::new(seed).psync(), Path::new("/db")).expect("opens");
        let structure = match seed / 2 % 3 {
            0 => Structure::BTree,
            1 => Structure::Append,
            _ => Structure::Lsm,
        };
        let table = db.table("t", structure).expect("created");
        let random = StdRng::seed_from_u64(seed);
        Self { random, db, table, clock, now: BEGIN, model: Model::new(), pushed: JOBS, snapshots: Vec::new() }
    }

    fn write(&mut self, puts: &[(Vec<u8>, Option<u64>)], deletes: &[Vec<u8>]) {
        let mut batch = WriteBatch::new();
        for (key, minutes) in puts {
            let value = self.random.random::<u64>().to_le_bytes().to_vec();
            match minutes {
                None => batch.put(&self.table, key, &value),
                Some(minutes) => batch.put_expiring(&self.table, key, &value, Duration::from_secs(60 * minutes)),
            }
            let expiry = minutes.map(|minutes| self.now + 60_000 * minutes);
            self.model.insert(key.clone(), (value, expiry));
        }
        for key in deletes {
            batch.delete(&self.table, key);
            self.model.remove(key);
        }
        self.db.write(&batch).expect("writes");
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.random_range(0..100) {
            0..14 => {
                let count = self.random.random_range(1..40);
                let jobs: Vec<_> = (self.pushed..self.pushed + count).map(|job| (key(job), None)).collect();
                self.pushed += count;
                self.write(&jobs, &[]);
            }
            14..34 => {
                let count = self.random.random_range(1..30);
                let from = if self.random.random() { key(JOBS) } else { Vec::new() };
                let taken: Vec<_> = self.model.range(from..).take(count).map(|(key, _)| key.clone()).collect();
                self.write(&[], &taken);
            }
            34..44 => {
                let number = self.random.random_range(0..self.pushed);
                let minutes = self.random.random_bool(0.3).then(|| self.random.random_range(1..9));
                self.write(&[(key(number), minutes)], &[]);
            }
            44..47 => {
                let (low, count) = (self.random.random_range(0..self.pushed), self.random.random_range(1..90));
                self.table.delete_range(key(low)..key(low + count)).expect("deletes");
                self.model.retain(|other, _| *other < key(low) || *other >= key(low + count));
            }
            47..50 => {
                let passed = 60_000 * self.random.random_range(0..4);
                self.now += passed;
                self.clock.advance(Duration::from_millis(passed));
            }
            50..53 => self.db.drain().expect("applies"),
            53..55 if self.snapshots.len() < 3 => {
                self.snapshots.push((self.db.snapshot(), self.model.clone(), self.now));
            }
            55..57 if !self.snapshots.is_empty() => {
                let released = self.random.random_range(0..self.snapshots.len());
                drop(self.snapshots.swap_remove(released));
            }
            _ => return self.walk(),
        }
        Ok(())
    }

    fn walk(&mut self) -> Result<(), String> {
        let mut end = |usual: Bound<Vec<u8>>| match self.random.random_range(0..4) {
            0 => Bound::Included(key(self.random.random_range(0..self.pushed))),
            1 => Bound::Excluded(key(JOBS)),
            _ => usual,
        };
        let bounds = (end(Bound::Unbounded), end(Bound::Unbounded));
        let (backward, most) =
            (self.random.random::<bool>(), *[1, 1, 3, 200].get(self.random.random_range(0..4)).unwrap_or(&1));
        let then = self.random.random_range(0..4);
        let (range, model, now) = match self.snapshots.get(then) {
            Some((snapshot, model, now)) => (snapshot.range(&self.table, bounds.clone()), model, *now),
            None => (self.table.range(bounds.clone()), &self.model, self.now),
        };
        let is_there = |(key, (value, expiry)): (&Vec<u8>, &(Vec<u8>, Option<u64>))| {
            let is_within = std::ops::RangeBounds::contains(&bounds, key);
            (is_within && expiry.is_none_or(|expiry| expiry > now)).then(|| (key.clone(), value.clone()))
        };
        let (shown, expected): (braid::Result<Vec<_>>, Vec<_>) = if backward {
            (range.rev().take(most).collect(), model.iter().rev().filter_map(is_there).take(most).collect())
        } else {
            (range.take(most).collect(), model.iter().filter_map(is_there).take(most).collect())
        };
        let shown = shown.map_err(|error| error.to_string())?;
        if shown == expected {
            return Ok(());
        }
        let text = |pairs: &[(Vec<u8>, Vec<u8>)]| {
            let keys = pairs.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
            keys.collect::<Vec<_>>().join(" ")
        };
        Err(format!("{bounds:?} shows {} and not {}", text(&shown), text(&expected)))
    }
}

/// A world of this seed; what was wrong in it.
pub(crate) fn run(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.step().map_err(|wrong| format!("seed {seed}, step {step}: {wrong}"))?;
    }
    world.db.drain().expect("applies");
    world.walk().map_err(|wrong| format!("seed {seed}, at the end: {wrong}"))
}
