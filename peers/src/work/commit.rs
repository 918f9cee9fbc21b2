//! Commits of single records, each on stable storage when the call returns, and read back afterwards.

use std::sync::atomic::{AtomicU64, Ordering};

use bench::keys::Permutation;

use super::read::lookup;
use super::{Figure, Metric, Place, Set};
use crate::data::{Record, loaded};
use crate::drive::drive;
use crate::error::Result;
use crate::store::Durability;

/// Places of the random order that belong to one thread.
const PLACES: u64 = 1 << 24;

pub(super) fn run(place: &Place<'_>, threads: usize) -> Result<Vec<Figure>> {
    place.make()?;
    let store = place.open(Durability::Sync)?;
    let value_bytes = Set::Small.value_bytes();
    let order = Permutation::new(PLACES * threads as u64, place.seed);
    let committed: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let number = |thread: usize, commit: u64| order.at(commit * threads as u64 + thread as u64);
    let measured = drive(threads, place.pace, &|thread, worker| {
        let mut record = Record::default();
        for commit in 0..PLACES {
            if !worker.goes_on() {
                break;
            }
            record.become_index(loaded(number(thread, commit)), commit, value_bytes);
            store.put(std::slice::from_ref(&record))?;
            committed[thread].store(commit + 1, Ordering::Relaxed);
            worker.done(1);
        }
        Ok(())
    })?;
    store.close()?;
    let store = place.open(Durability::Sync)?;
    for (thread, commits) in committed.iter().enumerate() {
        for commit in 0..commits.load(Ordering::Relaxed) {
            lookup(&*store, number(thread, commit), value_bytes)?;
        }
    }
    store.close()?;
    Ok(vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }])
}
