//! Fills: every record once, in batches, by one thread.
//!
//! 1. The first rate is that of the commits: its time ends when the last commit has returned.
//! 2. The store brings all its data to stable storage, and the time of the second rate ends.
//! 3. The store comes to rest. Only then are the bytes counted that the device wrote, because merges that are still due
//!    would otherwise be paid for later, outside the figure.
//! 4. Everything is scanned and counted, which is not timed.

use std::path::Path;
use std::time::Instant;

use bench::block;
use bench::keys::Permutation;
use bench::process::bytes_below;

use super::{FILL_BATCH, Figure, Metric, Place, Set};
use crate::data::{KEY_BYTES, Record, ScanCheck, key, loaded};
use crate::error::{Error, Result};
use crate::store::{Durability, Scan, Store};

pub(super) fn run(place: &Place<'_>, set: Set, sorted: bool) -> Result<Vec<Figure>> {
    place.make()?;
    let (records, value_bytes) = (set.records(place.records), set.value_bytes());
    let before = block::written_bytes(&place.directory);
    let store = place.open(Durability::Os)?;
    let order = (!sorted).then(|| Permutation::new(records, place.seed));
    let begun = Instant::now();
    put_all(&*store, records, value_bytes, order)?;
    let committed = begun.elapsed().as_secs_f64();
    store.flush()?;
    let flushed = begun.elapsed().as_secs_f64();
    store.rest()?;
    let written = block::written_since(&place.directory, before);
    let space = bytes_on_storage(&place.directory)?;
    count(&*store, records, value_bytes)?;
    store.close()?;
    let user_bytes = (records * (KEY_BYTES + value_bytes) as u64) as f64;
    let mut figures = vec![
        Figure { metric: Metric::PerSecond, value: records as f64 / committed },
        Figure { metric: Metric::FlushedPerSecond, value: records as f64 / flushed },
        Figure { metric: Metric::SpacePerByte, value: space as f64 / user_bytes },
    ];
    figures.extend(written.map(|bytes| Figure { metric: Metric::WrittenPerByte, value: bytes as f64 / user_bytes }));
    Ok(figures)
}

/// Puts records `0..records`, in a random order or in key order.
pub(super) fn put_all(store: &dyn Store, records: u64, value_bytes: usize, order: Option<Permutation>) -> Result<()> {
    let mut batch: Vec<Record> = Vec::new();
    let mut next = 0;
    while next < records {
        let count = (records - next).min(FILL_BATCH as u64);
        batch.resize_with(usize::try_from(count).unwrap_or(FILL_BATCH), Record::default);
        for (record, position) in batch.iter_mut().zip(next..) {
            let number = order.map_or(position, |order| order.at(position));
            record.become_index(loaded(number), position, value_bytes);
        }
        store.put(&batch)?;
        next += count;
    }
    Ok(())
}

/// Scans everything; an error where the scan misses a record.
fn count(store: &dyn Store, records: u64, value_bytes: usize) -> Result<()> {
    let mut check = ScanCheck::new(0, value_bytes);
    let everything = Scan { from: key(0), to: Some(key(loaded(records))), limit: usize::MAX };
    store.scan(&everything, &mut |key, value| check.see(key, value))?;
    match check.records()? {
        counted if counted == records => Ok(()),
        counted => Err(Error::Wrong(format!("a scan of everything shows {counted} of {records} records"))),
    }
}

/// Bytes of the blocks of the files, or the files' lengths where blocks are not known. A file may be longer than its
/// blocks.
fn bytes_on_storage(directory: &Path) -> Result<u64> {
    match block::allocated_bytes(directory) {
        Some(bytes) => Ok(bytes),
        None => Ok(bytes_below(directory)?),
    }
}
