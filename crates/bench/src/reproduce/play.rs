//! Workloads on one tree, for one sample.
//!
//! 1. A [`Player`] draws its keys from a seed, so that the contestants of one repeat get the same keys.
//! 2. Every value read is checked, and every loaded key must be found: a fast wrong answer is an error, not a figure.
//! 3. A sample with inserts ends when all of them are in the tree ([`crate::trees::Tree::write_back`]), and that time
//!    counts.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::reproduce::lab::Lab;
use crate::reproduce::stock::{Load, Prepared, entry};
use crate::{Error, Result, keys, values};

/// Operations of a mixed sample, and the time of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mixed {
    /// Operations of both kinds.
    pub(super) operations: u64,
    /// Seconds spent in inserts and in bringing them to the tree.
    pub(super) insert_seconds: f64,
    /// Seconds spent in point searches.
    pub(super) search_seconds: f64,
}

impl Mixed {
    /// Microseconds per operation.
    #[must_use]
    pub(super) fn total_us(&self) -> f64 {
        self.insert_us() + self.search_us()
    }

    /// Microseconds of inserts per operation of any kind.
    #[must_use]
    pub(super) fn insert_us(&self) -> f64 {
        self.insert_seconds * 1e6 / self.operations as f64
    }

    /// Microseconds of point searches per operation of any kind.
    #[must_use]
    pub(super) fn search_us(&self) -> f64 {
        self.search_seconds * 1e6 / self.operations as f64
    }
}

/// Plays workloads on a tree that was loaded with even indexes.
pub(super) struct Player<'a> {
    prepared: &'a mut Prepared,
    lab: &'a Lab<'a>,
    entries: u64,
    random: SmallRng,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Player<'a> {
    /// A player whose choices follow from `seed`.
    ///
    /// # Panics
    /// When the tree was loaded with anything else than even indexes, or with nothing.
    pub(super) fn new(lab: &'a Lab<'a>, prepared: &'a mut Prepared, seed: u64) -> Self {
        let Load::Even(entries) = prepared.plan.load else { panic!("workloads of random keys need even indexes") };
        assert!(entries > 0, "a workload needs entries");
        let random = SmallRng::seed_from_u64(seed);
        Self { prepared, lab, entries, random, key: Vec::new(), value: Vec::new() }
    }

    /// Entries that the tree was loaded with.
    #[must_use]
    pub(super) const fn entries(&self) -> u64 {
        self.entries
    }

    fn loaded(&mut self) -> u64 {
        self.random.random_range(0..self.entries) * 2
    }

    fn search(&mut self) -> Result<()> {
        let index = self.loaded();
        self.key.resize(self.prepared.plan.shape.key_bytes, 0);
        keys::write(index, &mut self.key);
        let found = self.prepared.tree.get(&self.key, &mut self.value)?;
        if found && self.value.len() == self.prepared.plan.shape.value_bytes && values::is_right(index, &self.value) {
            return Ok(());
        }
        Err(self.wrong(index))
    }

    fn wrong(&self, index: u64) -> Error {
        Error::WrongValue { table: self.prepared.tree.name().to_owned(), index, bytes: self.value.len() }
    }

    fn insert(&mut self) -> Result<()> {
        let index = self.loaded() + 1;
        entry(self.prepared.plan.shape, index, &mut self.key, &mut self.value);
        self.prepared.tree.put(&self.key, &self.value)?;
        self.prepared.inserted += 1;
        Ok(())
    }

    /// Microseconds per point search, one at a time.
    ///
    /// # Errors
    /// When the tree fails or answers wrongly.
    pub(super) fn searches(&mut self, time: Duration) -> Result<f64> {
        let lab = self.lab;
        let (done, elapsed) = lab.repeat_for(time, || self.search().map(|()| 1))?;
        Ok(elapsed.as_secs_f64() * 1e6 / done as f64)
    }

    /// Microseconds per key of point searches in batches.
    ///
    /// # Errors
    /// As [`Player::searches`].
    pub(super) fn batches(&mut self, batch: usize, time: Duration) -> Result<f64> {
        let key_bytes = self.prepared.plan.shape.key_bytes;
        let mut keys: Vec<Vec<u8>> = vec![vec![0; key_bytes]; batch];
        let lab = self.lab;
        let (done, elapsed) = lab.repeat_for(time, || {
            for key in &mut keys {
                let index = self.random.random_range(0..self.entries) * 2;
                keys::write(index, key);
            }
            let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found = self.prepared.tree.get_many(&wanted)?;
            if found != batch {
                return Err(Error::Invalid(format!(
                    "{} found {found} of {batch} keys that are there",
                    self.prepared.tree.name()
                )));
            }
            Ok(batch as u64)
        })?;
        Ok(elapsed.as_secs_f64() * 1e6 / done as f64)
    }

    /// Microseconds per insert of a random new key.
    ///
    /// # Errors
    /// When the tree fails.
    pub(super) fn inserts(&mut self, time: Duration) -> Result<f64> {
        let begun = Instant::now();
        let lab = self.lab;
        let (done, _) = lab.repeat_for(time, || self.insert().map(|()| 1))?;
        self.prepared.tree.write_back()?;
        Ok(begun.elapsed().as_secs_f64() * 1e6 / done as f64)
    }

    /// Microseconds per search of a range that holds so many loaded keys.
    ///
    /// # Errors
    /// As [`Player::searches`].
    pub(super) fn ranges(&mut self, length: u64, time: Duration) -> Result<f64> {
        let lab = self.lab;
        let (done, elapsed) = lab.repeat_for(time, || self.range(length).map(|()| 1))?;
        Ok(elapsed.as_secs_f64() * 1e6 / done as f64)
    }

    fn range(&mut self, length: u64) -> Result<()> {
        let key_bytes = self.prepared.plan.shape.key_bytes;
        let begin = self.random.random_range(0..=self.entries.saturating_sub(length));
        let (first, end) = (keys::key(begin * 2, key_bytes), keys::key((begin + length) * 2, key_bytes));
        let (mut last, mut in_order, mut loaded) = (0, true, 0);
        let mut visit = |key: &[u8], _: &[u8]| {
            let index = key.first_chunk().map_or(0, |index| u64::from_be_bytes(*index));
            in_order &= index >= last;
            last = index;
            loaded += u64::from(index % 2 == 0);
        };
        self.prepared.tree.scan(&first, &end, &mut visit)?;
        let wanted = length.min(self.entries);
        if in_order && loaded == wanted {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} has {loaded} of {wanted} entries of a range{}",
            self.prepared.tree.name(),
            if in_order { "" } else { ", out of order" }
        )))
    }

    /// Point searches and inserts in random order.
    ///
    /// # Errors
    /// As [`Player::searches`].
    pub(super) fn mixed(&mut self, insert_ratio: f64, time: Duration) -> Result<Mixed> {
        let mut mixed = Mixed::default();
        let lab = self.lab;
        let (done, _) = lab.repeat_for(time, || {
            let is_insert = self.random.random_bool(insert_ratio);
            let begun = Instant::now();
            let seconds = if is_insert {
                self.insert()?;
                &mut mixed.insert_seconds
            } else {
                self.search()?;
                &mut mixed.search_seconds
            };
            *seconds += begun.elapsed().as_secs_f64();
            Ok(1)
        })?;
        let begun = Instant::now();
        self.prepared.tree.write_back()?;
        mixed.insert_seconds += begun.elapsed().as_secs_f64();
        mixed.operations = done;
        Ok(mixed)
    }
}
