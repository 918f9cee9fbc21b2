//! A queue of jobs, each pushed, claimed as the first unclaimed one, and acknowledged: three commits, each on stable
//! storage when the call returns.
//!
//! The clients share the knowledge of the jobs under way, as the workers of one process do, so claims need not wait for
//! one another's commits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bench::keys;
use bench::queue::Claims;

use super::{Figure, Metric, Place, Set};
use crate::data::{Record, check, key, loaded};
use crate::drive::drive;
use crate::error::{Error, Result};
use crate::store::{Durability, Scan, Store};

/// Prefix of the keys of claimed jobs, which sort behind all waiting jobs.
const CLAIMED: u64 = 1 << 40;

pub(super) fn run(place: &Place<'_>, threads: usize) -> Result<Vec<Figure>> {
    place.make()?;
    let store = place.open(Durability::Sync)?;
    let (next, claims) = (AtomicU64::new(0), Mutex::new(Claims::default()));
    let measured = drive(threads, place.pace, &|_, worker| {
        let mut record = Record::default();
        while worker.goes_on() {
            let pushed = next.fetch_add(1, Ordering::Relaxed);
            record.become_index(loaded(pushed), pushed, Set::Small.value_bytes());
            store.put(std::slice::from_ref(&record))?;
            let job = claim(&*store, &claims)?;
            record.become_index(CLAIMED + loaded(job), job, Set::Small.value_bytes());
            store.write(std::slice::from_ref(&record), &[key(loaded(job))])?;
            lock(&claims).committed(job);
            store.write(&[], &[record.key])?;
            worker.done(1);
        }
        Ok(())
    })?;
    store.close()?;
    let store = place.open(Durability::Sync)?;
    let mut left = 0_u64;
    store.scan(&Scan { from: key(0), to: None, limit: usize::MAX }, &mut |_, _| left += 1)?;
    store.close()?;
    if left > 0 {
        return Err(Error::Wrong(format!("{left} jobs are left of those that were all acknowledged")));
    }
    Ok(vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }])
}

/// The first waiting job that no client has claimed. A client that has pushed a job always finds one.
fn claim(store: &dyn Store, claims: &Mutex<Claims>) -> Result<u64> {
    let mut claims = lock(claims);
    let limit = claims.under_way() + 1;
    let mut first: Result<Option<u64>> = Ok(None);
    store.scan(&Scan { from: key(0), to: Some(key(CLAIMED)), limit }, &mut |key, value| {
        if matches!(first, Ok(None)) {
            first = job_of(key, value).and_then(|job| {
                let is_ours = claims.claim(job).map_err(|error| Error::Wrong(error.to_string()))?;
                Ok(is_ours.then_some(job))
            });
        }
    })?;
    first?.ok_or_else(|| Error::Wrong("no job waits for who has pushed one".into()))
}

fn job_of(key: &[u8], value: &[u8]) -> Result<u64> {
    let index = keys::index(key).ok_or_else(|| Error::Wrong("a key that nobody put is in the queue".into()))?;
    check(index, Some(value), Set::Small.value_bytes())?;
    Ok(index / loaded(1))
}

fn lock(claims: &Mutex<Claims>) -> std::sync::MutexGuard<'_, Claims> {
    claims.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
