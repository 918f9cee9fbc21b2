//! Databases that are made, given one record, closed and removed, as tests do.

use std::sync::atomic::{AtomicU64, Ordering};

use bench::block;

use super::{Figure, Metric, Place, Set, clear};
use crate::data::{Record, loaded};
use crate::drive::drive;
use crate::error::{Error, Result};
use crate::store::Durability;

pub(super) fn run(place: &Place<'_>, threads: usize) -> Result<Vec<Figure>> {
    place.make()?;
    let before = block::written_bytes(&place.directory);
    let made = AtomicU64::new(0);
    let measured = drive(threads, place.pace, &|thread, worker| {
        let directory = place.directory.join(thread.to_string());
        let mut record = Record::default();
        record.become_index(loaded(thread as u64), 0, Set::Small.value_bytes());
        while worker.goes_on() {
            std::fs::create_dir_all(&directory).map_err(Error::io("creating", &directory))?;
            let store = (place.contestant.open)(&directory, place.memory, Durability::Sync)?;
            store.put(std::slice::from_ref(&record))?;
            store.close()?;
            clear(&directory)?;
            made.fetch_add(1, Ordering::Relaxed);
            worker.done(1);
        }
        Ok(())
    })?;
    let mut figures = vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }];
    if let Some(written) = block::written_since(&place.directory, before) {
        let made = made.into_inner().max(1) as f64;
        figures.push(Figure { metric: Metric::WrittenPerOperation, value: written as f64 / made });
    }
    Ok(figures)
}
