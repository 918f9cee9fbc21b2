//! The work of a client thread in each workload.
//!
//! 1. A [`Job`] is the table and the sizes. A job outlives the slices, so a scan continues at the point where the slice
//!    before stopped.
//! 2. Reads compare every value with the value that belongs to the index ([`crate::values`]).
//!
//! Invariant: no two threads put the same key in a fill, so a fill of `num` records leaves `num` keys.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid::{Database, Table, WriteBatch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::keys::{self, Permutation};
use crate::slice::{Shared, Tally};
use crate::values::Values;
use crate::{Config, Error, Result, Workload};

/// Records between two checks of the clock and the stop flag, where a call is short.
const CHECK_EVERY: u64 = 64;

/// Divisor of the write buffer, and of the records, for the puts queued before they are applied: fewer than the
/// database applies unasked.
const QUEUED_SHARE: u64 = 8;

/// Operations of one commit beside seeks, and the interval of the commits: 20,000 operations a second.
const WRITES_PER_COMMIT: u64 = 100;
const COMMIT_EVERY: Duration = Duration::from_millis(5);

/// Records put in one call beside seeks.
const QUEUED_BATCH: u64 = 1024;

/// Records read back in one call.
const READ_BACK_BATCH: usize = 128;

/// One workload on one table.
pub(crate) struct Job<'a> {
    database: &'a Database,
    table: &'a Table,
    config: &'a Config,
    /// Whether the table's records have no value.
    are_empty: bool,
    /// Position of each thread's scan, as an index.
    positions: Vec<AtomicU64>,
    /// Counts slices, so that each slice draws other keys.
    slices: AtomicU64,
    /// Counts the begins and ends of applying queued puts: odd while puts are being applied.
    applies: AtomicU64,
}

impl<'a> Job<'a> {
    /// `value_bytes` of a present or future record.
    pub(crate) fn new(database: &'a Database, table: &'a Table, config: &'a Config, value_bytes: usize) -> Self {
        let are_empty = value_bytes == 0;
        let start = |thread| AtomicU64::new(keys::share(config.num, thread, config.threads).start);
        let positions = (0..config.threads).map(start).collect();
        Self { database, table, config, are_empty, positions, slices: AtomicU64::new(0), applies: AtomicU64::new(0) }
    }

    /// Called once before each slice.
    pub(crate) fn next_slice(&self) {
        self.slices.fetch_add(1, Ordering::Relaxed);
    }

    /// The work of one thread for one slice.
    pub(crate) fn work(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        match self.config.workload {
            Workload::FillSeq | Workload::FillRandom | Workload::Overwrite => self.put_all(thread, shared, tally),
            Workload::ReadRandom => self.read_random(thread, shared, tally),
            Workload::MultiReadRandom => self.multi_read_random(thread, shared, tally),
            Workload::ReadSeq => self.read_seq(thread, shared, tally),
            Workload::SeekRandom => self.seek_random(thread, shared, tally),
            Workload::ReadWhileWriting if thread == self.config.threads => self.keep_applying(thread, shared),
            Workload::ReadWhileWriting => self.read_while_applying(thread, shared, tally),
            Workload::SeekRandomWhileWriting if thread == self.config.threads => self.keep_writing(thread, shared),
            Workload::SeekRandomWhileWriting => self.seek_random(thread, shared, tally),
            Workload::Commit => self.commit(thread, shared, tally),
            Workload::Queue | Workload::YcsbLoad | Workload::Ycsb(_) => unreachable!("these have clients of their own"),
        }
    }

    fn random(&self, thread: usize) -> SmallRng {
        let slice = self.slices.load(Ordering::Relaxed);
        SmallRng::seed_from_u64(keys::mix(self.config.seed ^ keys::mix(slice << 16 | thread as u64)))
    }

    fn put_all(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let config = self.config;
        let order = Permutation::new(config.num, config.seed);
        let mut random = self.random(thread);
        let mut record = Record::new(config);
        let mut batch = WriteBatch::new();
        for position in keys::share(config.num, thread, config.threads) {
            if !shared.goes_on() {
                break;
            }
            let index = match config.workload {
                Workload::FillSeq => position,
                Workload::FillRandom => order.at(position),
                _ => random.random_range(0..config.num),
            };
            record.set(index, random.random());
            if config.batch == 1 {
                let begun = Instant::now();
                self.table.put_with(&record.key, &record.value, config.durability)?;
                tally.call(begun, 1);
                tally.put_bytes += config.record_bytes();
                shared.progress(1);
            } else {
                batch.put(self.table, &record.key, &record.value);
                if batch.len() >= config.batch {
                    self.write(&mut batch, shared, tally)?;
                }
            }
        }
        self.write(&mut batch, shared, tally)
    }

    /// Writes a batch whose operations are its records.
    fn write(&self, batch: &mut WriteBatch, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let operations = batch.len() as u64;
        if operations == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        self.database.write_with(batch, self.config.durability)?;
        batch.clear();
        tally.call(begun, operations);
        tally.put_bytes += operations * self.config.record_bytes();
        shared.progress(operations);
        Ok(())
    }

    /// Commits of `batch` puts each; an operation is a commit.
    fn commit(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut random = self.random(thread);
        let mut record = Record::new(self.config);
        while shared.goes_on() {
            let mut batch = WriteBatch::new();
            for _ in 0..self.config.batch {
                record.set(random.random_range(0..self.config.num), random.random());
                batch.put(self.table, &record.key, &record.value);
            }
            let begun = Instant::now();
            self.database.write_with(&batch, self.config.durability)?;
            tally.call(begun, 1);
            tally.put_bytes += self.config.batch as u64 * self.config.record_bytes();
            shared.progress(1);
        }
        Ok(())
    }

    /// The reads of a workload with a writer, in the time without the writer.
    pub(crate) fn read_alone(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        match self.config.workload {
            Workload::SeekRandomWhileWriting => self.seek_random(thread, shared, tally),
            _ => self.read_random(thread, shared, tally),
        }
    }

    fn read_random(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut random = self.random(thread);
        let mut key = vec![0; self.config.key_size];
        while shared.goes_on() {
            let index = random.random_range(0..self.config.num);
            keys::write(index, &mut key);
            let begun = Instant::now();
            let value = self.table.get(&key)?;
            tally.call(begun, 1);
            shared.progress(1);
            self.check(index, value.as_deref(), tally)?;
        }
        Ok(())
    }

    /// Reads all the time. The latency is that of the calls during which queued puts were applied for at least a
    /// moment, including a call that waited until the end of an apply.
    fn read_while_applying(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut random = self.random(thread);
        let mut key = vec![0; self.config.key_size];
        while shared.goes_on() {
            let index = random.random_range(0..self.config.num);
            keys::write(index, &mut key);
            let before = self.applies.load(Ordering::Acquire);
            let begun = Instant::now();
            let value = self.table.get(&key)?;
            if before % 2 == 1 || self.applies.load(Ordering::Acquire) != before {
                tally.call(begun, 1);
            } else {
                tally.operations += 1;
            }
            shared.progress(1);
            self.check(index, value.as_deref(), tally)?;
        }
        Ok(())
    }

    /// Queues puts of random records and has them applied, in turns.
    fn keep_applying(&self, thread: usize, shared: &Shared<'_>) -> Result<()> {
        let mut random = self.random(thread);
        let mut record = Record::new(self.config);
        let waiting = self.config.write_buffer_bytes / QUEUED_SHARE / self.config.record_bytes();
        let queued = waiting.min(self.config.num / QUEUED_SHARE).max(1);
        while shared.goes_on() {
            let mut left = queued;
            while left > 0 && shared.goes_on() {
                let mut batch = WriteBatch::new();
                for _ in 0..left.min(QUEUED_BATCH) {
                    record.set(random.random_range(0..self.config.num), random.random());
                    batch.put(self.table, &record.key, &record.value);
                }
                left -= batch.len() as u64;
                self.database.write_with(&batch, self.config.durability)?;
            }
            self.applies.fetch_add(1, Ordering::AcqRel);
            let drained = self.database.drain();
            self.applies.fetch_add(1, Ordering::AcqRel);
            drained?;
        }
        Ok(())
    }

    /// Overwrites random records and deletes absent keys beside them, at a set rate, so that many operations of both
    /// kinds wait at the sought keys.
    fn keep_writing(&self, thread: usize, shared: &Shared<'_>) -> Result<()> {
        let mut random = self.random(thread);
        let mut record = Record::new(self.config);
        for commit in 0.. {
            if !shared.sleep_until(shared.begin() + COMMIT_EVERY * commit) {
                break;
            }
            let mut batch = WriteBatch::new();
            for _ in 0..WRITES_PER_COMMIT / 2 {
                record.set(random.random_range(0..self.config.num), random.random());
                batch.put(self.table, &record.key, &record.value);
                record.set(random.random_range(0..self.config.num), 0);
                record.key.push(0);
                batch.delete(self.table, &record.key);
                record.key.pop();
            }
            self.database.write_with(&batch, self.config.durability)?;
        }
        Ok(())
    }

    fn multi_read_random(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut random = self.random(thread);
        let mut indexes = vec![0; self.config.batch];
        let mut batch = vec![vec![0; self.config.key_size]; self.config.batch];
        while shared.goes_on() {
            for (index, key) in indexes.iter_mut().zip(&mut batch) {
                *index = random.random_range(0..self.config.num);
                keys::write(*index, key);
            }
            let begun = Instant::now();
            let found = self.table.get_many(&batch)?;
            tally.call(begun, batch.len() as u64);
            shared.progress(batch.len() as u64);
            for (index, value) in indexes.iter().zip(&found) {
                self.check(*index, value.as_deref(), tally)?;
            }
        }
        Ok(())
    }

    /// Scans the thread's share of the keys, again and again; an operation is a record, a call [`CHECK_EVERY`] of them.
    fn read_seq(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let share = keys::share(self.config.num, thread, self.config.threads);
        if share.is_empty() {
            return Ok(());
        }
        let size = self.config.key_size;
        let mut expected = self.positions[thread].load(Ordering::Relaxed);
        while shared.goes_on() {
            let mut range = self.table.range(keys::key(expected, size)..keys::key(share.end, size));
            let mut ended = false;
            while !ended && shared.goes_on() {
                let begun = Instant::now();
                let mut records = 0;
                let paused = range.visit(|key, value| {
                    match self.check_pair(key, value, expected, tally) {
                        Ok(index) => expected = index + 1,
                        Err(wrong) => return ControlFlow::Break(Err(wrong)),
                    }
                    records += 1;
                    if records < CHECK_EVERY { ControlFlow::Continue(()) } else { ControlFlow::Break(Ok(())) }
                })?;
                match paused {
                    ControlFlow::Continue(()) => ended = true,
                    ControlFlow::Break(checked) => checked?,
                }
                tally.call(begun, records);
                shared.progress(records);
            }
            if ended {
                tally.not_found += share.end - expected;
                expected = share.start;
            }
        }
        self.positions[thread].store(expected, Ordering::Relaxed);
        Ok(())
    }

    /// Seeks and reads `batch` records; an operation is a seek with its records.
    fn seek_random(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut random = self.random(thread);
        let most = self.config.batch as u64;
        while shared.goes_on() {
            let start = random.random_range(0..self.config.num);
            let key = keys::key(start, self.config.key_size);
            let begun = Instant::now();
            let pairs = self.table.range(key..).take(self.config.batch).collect::<braid::Result<Vec<_>>>()?;
            tally.call(begun, 1);
            shared.progress(1);
            let mut expected = start;
            for (key, value) in &pairs {
                expected = self.check_pair(key, value, expected, tally)? + 1;
            }
            let wanted = most.min(self.config.num - start);
            tally.not_found += wanted.saturating_sub(pairs.len() as u64);
        }
        Ok(())
    }

    /// Reads every `step`th record back; returns how many were read and how many of those were missing. A wrong value
    /// is an error.
    pub(crate) fn read_back(&self, step: u64) -> Result<(u64, u64)> {
        let (mut read, mut tally) = (0, Tally::new());
        let mut indexes = (0..self.config.num).step_by(usize::try_from(step).unwrap_or(usize::MAX)).peekable();
        while indexes.peek().is_some() {
            let portion: Vec<u64> = indexes.by_ref().take(READ_BACK_BATCH).collect();
            let batch: Vec<_> = portion.iter().map(|index| keys::key(*index, self.config.key_size)).collect();
            for (index, value) in portion.iter().zip(self.table.get_many(&batch)?) {
                self.check(*index, value.as_deref(), &mut tally)?;
            }
            read += portion.len() as u64;
        }
        Ok((read, tally.not_found))
    }

    fn check(&self, index: u64, value: Option<&[u8]>, tally: &mut Tally) -> Result<()> {
        match value {
            None => tally.not_found += 1,
            Some(value) if self.is_right(index, value) => {}
            Some(value) => return Err(wrong(index, value)),
        }
        Ok(())
    }

    #[inline]
    fn is_right(&self, index: u64, value: &[u8]) -> bool {
        value.is_empty() == self.are_empty && self.config.values().is_right(index, value)
    }

    /// Checks a scanned record whose index should be `expected`, counts the skipped records, and returns the record's
    /// index.
    #[inline]
    fn check_pair(&self, key: &[u8], value: &[u8], expected: u64, tally: &mut Tally) -> Result<u64> {
        match keys::index(key).filter(|_| key.len() == self.config.key_size) {
            Some(index) if index >= expected && self.is_right(index, value) => {
                tally.not_found += index - expected;
                Ok(index)
            }
            found => Err(self.not_the_pair(found, value, expected)),
        }
    }

    /// The error for a scanned record; `found` is the index of its key, if the key has one.
    #[cold]
    fn not_the_pair(&self, found: Option<u64>, value: &[u8], expected: u64) -> Error {
        match found {
            Some(index) if index >= expected => wrong(index, value),
            Some(index) => Error::Disorder { table: self.table.name().to_owned(), index, expected },
            _ => foreign(self.config),
        }
    }
}

fn wrong(index: u64, value: &[u8]) -> Error {
    Error::WrongValue { table: crate::TABLE.into(), index, bytes: value.len() }
}

/// The error for a table whose contents differ from the configuration.
pub(crate) fn foreign(config: &Config) -> Error {
    Error::ForeignTable { table: crate::TABLE.into(), made_with: format!("--key-size {}", config.key_size) }
}

/// Room for one record.
struct Record {
    key: Vec<u8>,
    value: Vec<u8>,
    values: Values,
}

impl Record {
    fn new(config: &Config) -> Self {
        Self { key: vec![0; config.key_size], value: vec![0; config.value_size], values: config.values() }
    }

    fn set(&mut self, index: u64, nonce: u64) {
        keys::write(index, &mut self.key);
        self.values.write(index, nonce, &mut self.value);
    }
}
