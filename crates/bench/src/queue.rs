//! A queue of jobs: each is pushed, claimed as the first that nobody has, and acknowledged.
//!
//! 1. A job is a key that rises with its number. To claim it is to move it behind all that wait, to acknowledge it to delete it there: three commits.
//! 2. Jobs that are under way are known to the threads, as workers of one process know them: so claims do not wait for one another's commits.
//!
//! Invariants: no job is claimed twice; in the end none is left.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use braid::{Database, Table, WriteBatch};

use crate::slice::{Shared, Tally};
use crate::{Config, Error, Result, keys};

/// The table of the queue.
pub(crate) const TABLE: &str = "queue";
/// Where the keys of claimed jobs are.
const CLAIMED: u64 = 1 << 62;

/// The threads that work at a queue.
pub(crate) struct Clients<'a> {
    database: &'a Database,
    table: &'a Table,
    config: &'a Config,
    next: AtomicU64,
    claims: Mutex<Claims>,
}

/// What the workers of a queue know of jobs that were claimed. Jobs have numbers from 0 on.
#[derive(Debug, Default)]
pub struct Claims {
    /// Jobs whose claims are not committed yet.
    under_way: BTreeSet<u64>,
    /// All below were claimed, and those beside it.
    below: u64,
    beside: BTreeSet<u64>,
}

impl Claims {
    /// How many jobs that wait are claimed already, at most.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Claims a job that waits: false where somebody has already, and it does not wait for long.
    ///
    /// # Errors
    /// When it was claimed and committed before: then it should not wait.
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

    /// The claim of a job is committed: it does not wait any more.
    pub fn committed(&mut self, job: u64) {
        self.under_way.remove(&job);
    }
}

impl<'a> Clients<'a> {
    pub(crate) fn new(database: &'a Database, table: &'a Table, config: &'a Config) -> Self {
        Self { database, table, config, next: AtomicU64::new(0), claims: Mutex::default() }
    }

    /// The work of one thread: jobs, until all there are to be are pushed. An operation is a job, from its push to the acknowledgement of one.
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
            self.database.write_with(claim, self.config.durability)?;
            self.claims().committed(job);
            self.table.delete_with(self.key(CLAIMED + job), self.config.durability)?;
            tally.call(begun, 1);
            tally.put_bytes += 2 * self.config.record_bytes();
            shared.progress(1);
        }
        Ok(())
    }

    /// The first job that waits and that nobody claims. There is one for a thread that has pushed one.
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

    /// Jobs that are left.
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
    Error::Invalid(format!("table `{TABLE}`: {what}"))
}
