//! Lookups of random records, from a database that no cache holds when they begin.

use rand::Rng;

use super::{Figure, MULTI_GET_KEYS, Metric, Place, Set};
use crate::data::{self, Key, check, is_right, key, loaded};
use crate::drive::{Measured, drive};
use crate::error::{Error, Result};
use crate::store::{Durability, Store};

pub(super) fn get(place: &Place<'_>, set: Set, threads: usize) -> Result<Vec<Figure>> {
    let store = place.open(Durability::Os)?;
    let (records, value_bytes) = (set.records(place.records), set.value_bytes());
    let measured = drive(threads, place.pace, &|thread, worker| {
        let mut random = place.random(thread);
        while worker.goes_on() {
            lookup(&*store, random.random_range(0..records), value_bytes)?;
            worker.done(1);
        }
        Ok(())
    })?;
    store.close()?;
    Ok(figures(&measured))
}

/// Looks up one loaded record, and checks its value.
pub(super) fn lookup(store: &dyn Store, record: u64, value_bytes: usize) -> Result<()> {
    let (index, mut right, mut bytes) = (loaded(record), false, 0);
    let found = store.get(&key(index), &mut |value| {
        right = is_right(index, value, value_bytes);
        bytes = value.len();
    })?;
    match (found, right) {
        (true, true) => Ok(()),
        (true, false) => Err(Error::Wrong(format!("index {index} has {bytes} bytes that nobody wrote"))),
        (false, _) => check(index, None, value_bytes),
    }
}

fn absent_key(store: &dyn Store, record: u64) -> Result<()> {
    let index = data::absent(record);
    match store.get(&key(index), &mut |_| {})? {
        false => Ok(()),
        true => Err(Error::Wrong(format!("index {index} is there, though nobody put it"))),
    }
}

pub(super) fn absent(place: &Place<'_>, threads: usize) -> Result<Vec<Figure>> {
    let store = place.open(Durability::Os)?;
    let records = place.records;
    let measured = drive(threads, place.pace, &|thread, worker| {
        let mut random = place.random(thread);
        while worker.goes_on() {
            absent_key(&*store, random.random_range(0..records))?;
            worker.done(1);
        }
        Ok(())
    })?;
    store.close()?;
    Ok(figures(&measured))
}

pub(super) fn multi_get(place: &Place<'_>) -> Result<Vec<Figure>> {
    let store = place.open(Durability::Os)?;
    let (records, value_bytes) = (place.records, Set::Small.value_bytes());
    let measured = drive(1, place.pace, &|thread, worker| {
        let mut random = place.random(thread);
        let mut indexes = [0; MULTI_GET_KEYS];
        let mut keys = [Key::default(); MULTI_GET_KEYS];
        while worker.goes_on() {
            for (index, into) in indexes.iter_mut().zip(&mut keys) {
                *index = loaded(random.random_range(0..records));
                *into = key(*index);
            }
            let mut seen = [false; MULTI_GET_KEYS];
            store.get_many(&keys, &mut |place, value| {
                seen[place] = is_right(indexes[place], value, value_bytes);
            })?;
            if let Some(place) = seen.iter().position(|seen| !seen) {
                return Err(Error::Wrong(format!("a multi-get shows no right value of index {}", indexes[place])));
            }
            worker.done(MULTI_GET_KEYS as u64);
        }
        Ok(())
    })?;
    store.close()?;
    Ok(figures(&measured))
}

fn figures(measured: &Measured) -> Vec<Figure> {
    let read = measured.read_bytes.map(|bytes| bytes as f64 / measured.operations as f64);
    let rate = Figure { metric: Metric::PerSecond, value: measured.per_second() };
    let read = read.map(|value| Figure { metric: Metric::ReadPerOperation, value });
    std::iter::once(rate).chain(read).collect()
}
