//! Lookups in memory: a database a third as large as the cache, read once before.

use bench::keys::Permutation;
use rand::Rng;

use super::fill::put_all;
use super::read::lookup;
use super::{Figure, Metric, Place, Set};
use crate::data::KEY_BYTES;
use crate::drive::drive;
use crate::error::Result;
use crate::store::Durability;

/// Lookups between two checks whether to stop.
const COUNTED: u64 = 64;
/// Ratio of the cache to the records.
const ROOM: u64 = 3;

/// Records that the cache holds with room to spare, provided the run has so many.
pub(crate) fn records(cache_bytes: u64, records: u64) -> u64 {
    (cache_bytes / ROOM / (KEY_BYTES + Set::Small.value_bytes()) as u64).clamp(1, records)
}

/// Makes a database that the cache holds, and returns its number of records. The lookups find records in the structure,
/// not in the queue of waiting operations.
pub(super) fn make(place: &Place<'_>) -> Result<u64> {
    place.make()?;
    let (records, value_bytes) = (records(place.memory.cache_bytes, place.records), Set::Small.value_bytes());
    let store = place.open(Durability::Os)?;
    put_all(&*store, records, value_bytes, Some(Permutation::new(records, place.seed)))?;
    store.flush()?;
    store.rest()?;
    store.close()?;
    Ok(records)
}

pub(super) fn run(place: &Place<'_>, threads: usize) -> Result<Vec<Figure>> {
    let (records, value_bytes) = (make(place)?, Set::Small.value_bytes());
    let store = place.open(Durability::Os)?;
    for record in 0..records {
        lookup(&*store, record, value_bytes)?;
    }
    let measured = drive(threads, place.pace, &|thread, worker| {
        let mut random = place.random(thread);
        while worker.goes_on() {
            for _ in 0..COUNTED {
                lookup(&*store, random.random_range(0..records), value_bytes)?;
            }
            worker.done(COUNTED);
        }
        Ok(())
    })?;
    store.close()?;
    Ok(vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }])
}
