//! A queue of jobs: each job is pushed, claimed as the first unclaimed one, and acknowledged.
//!
//! 1. A job is a key that rises with the job's number. A claim moves the job behind all waiting jobs, and the
//!    acknowledgement deletes the moved job: three commits per job.
//! 2. The threads share the knowledge of the jobs under way, as the workers of one process do, so claims do not wait
//!    for one another's commits.
//!
//! Invariants: no job is claimed twice; in the end no job is left.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use braid::{Database, Table, WriteBatch};

use crate::config::QUEUE_TABLE;
use crate::slice::{Shared, Tally};
use crate::{Config, Error, Result, keys};

/// Prefix of the keys of claimed jobs.
const CLAIMED: u64 = 1 << 62;

/// The threads that work on a queue.
pub(crate) struct Clients<'a> {
    database: &'a Database,
    table: &'a Table,
    config: &'a Config,
    next: AtomicU64,
    claims: Mutex<Claims>,
}

/// The workers' shared knowledge of claimed jobs. Jobs are numbered from 0.
#[derive(Debug, Default)]
pub struct Claims {
    /// Jobs whose claims are not committed yet.
    under_way: BTreeSet<u64>,
    /// All jobs below this number were claimed, and also the jobs listed beside.
    below: u64,
    beside: BTreeSet<u64>,
}

impl Claims {
    /// Upper bound on the number of waiting jobs that are claimed already.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Claims a waiting job; false when another worker has claimed the job already, in which case the job will not wait
    /// for long.
    ///
    /// # Errors
    /// When the job's claim was committed before, because then the job should not be waiting.
    pub fn claim(&mut self, job: u64) -> Result<bool> {
        if self.under_way.contains(&job) {
            return Ok(false);
        }
        if job < self.below || !self.beside.insert(job) {
            return Err(wrong("a job waits that was claimed already"));
        }
        while self.beside.remove(&self.below) {
            self.below += 1;
        }
        Ok(self.under_way.insert(job))
    }

    /// Notes that the claim of a job is committed, so the job waits no longer.
    pub fn committed(&mut self, job: u64) {
        self.under_way.remove(&job);
    }
}

impl<'a> Clients<'a> {
    pub(crate) fn new(database: &'a Database, table: &'a Table, config: &'a Config) -> Self {
        Self { database, table, config, next: AtomicU64::new(0), claims: Mutex::default() }
    }

    /// The work of one thread: jobs, until the intended number is pushed. An operation is one job pushed and one job
    /// acknowledged.
    pub(crate) fn work(&self, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut value = vec![0; self.config.value_size];
        while shared.goes_on() {
            let pushed = self.next.fetch_add(1, Ordering::Relaxed);
            if pushed >= self.config.num {
                break;
            }
            let begun = Instant::now();
            self.config.values().write(pushed, pushed, &mut value);
            self.table.put_with(self.key(pushed), &value, self.config.durability)?;
            let job = self.claim()?;
            self.config.values().write(CLAIMED + job, job, &mut value);
            let mut claim = WriteBatch::new();
            claim.delete(self.table, self.key(job));
            claim.put(self.table, self.key(CLAIMED + job), &value);
            self.database.write_with(&claim, self.config.durability)?;
            self.claims().committed(job);
            self.table.delete_with(self.key(CLAIMED + job), self.config.durability)?;
            tally.call(begun, 1);
            tally.put_bytes += 2 * self.config.record_bytes();
            shared.progress(1);
        }
        Ok(())
    }

    /// The first waiting job that no worker has claimed. A thread that has pushed a job always finds one.
    fn claim(&self) -> Result<u64> {
        let mut claims = self.claims();
        let mut waiting = self.table.range(..self.key(CLAIMED));
        while let Some((key, value)) = waiting.next_pair()? {
            let job = keys::index(key).filter(|job| self.config.values().is_right(*job, value));
            let job = job.ok_or_else(|| wrong("a job that nobody pushed waits"))?;
            if claims.claim(job)? {
                return Ok(job);
            }
        }
        Err(wrong("no job waits for a thread that has pushed one"))
    }

    /// Number of jobs left.
    pub(crate) fn left(&self) -> Result<u64> {
        let mut range = self.table.iter().keys_only();
        let mut left = 0;
        while range.next_pair()?.is_some() {
            left += 1;
        }
        Ok(left)
    }

    fn key(&self, index: u64) -> Vec<u8> {
        keys::key(index, self.config.key_size)
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong(what: &str) -> Error {
    Error::Invalid(format!("table `{QUEUE_TABLE}`: {what}"))
}
