//! First pairs of ranges that begin anywhere, while another thread overwrites, inserts and deletes at a set rate. All
//! data is in memory.

use std::thread;
use std::time::{Duration, Instant};

use bench::keys;
use rand::Rng;

use super::warm::make;
use super::{Figure, Metric, Place, Set};
use crate::data::{Key, Record, inserted, is_right, key, loaded};
use crate::drive::{Worker, drive};
use crate::error::{Error, Result};
use crate::store::{Durability, Scan, Store};

/// Seeks between two checks whether to stop.
const COUNTED: u64 = 64;
/// Records per commit that are overwritten, and as many inserted, and as many deleted.
const WRITTEN: usize = 34;
/// Interval of the commits: about 20,000 operations a second.
const TICK: Duration = Duration::from_millis(5);

pub(super) fn run(place: &Place<'_>) -> Result<Vec<Figure>> {
    let records = make(place)?;
    let store = place.open(Durability::Os)?;
    let measured = drive(2, place.pace, &|thread, worker| {
        if thread == 1 {
            return write(place, &*store, records, worker);
        }
        let mut random = place.random(thread);
        while worker.goes_on() {
            for _ in 0..COUNTED {
                seek(&*store, random.random_range(0..records - 1))?;
            }
            worker.done(COUNTED);
        }
        Ok(())
    })?;
    store.close()?;
    Ok(vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }])
}

/// The first pair behind a loaded record: an inserted one, or the next loaded one.
fn seek(store: &dyn Store, record: u64) -> Result<()> {
    let mut found = None;
    store.scan(&Scan { from: key(inserted(record)), to: None, limit: 1 }, &mut |key, value| {
        found = keys::index(key).filter(|index| is_right(*index, value, Set::Small.value_bytes()));
    })?;
    match found {
        Some(index) if index == inserted(record) || index == loaded(record + 1) => Ok(()),
        _ => Err(Error::Wrong(format!("the first pair behind record {record} is {found:?}"))),
    }
}

fn write(place: &Place<'_>, store: &dyn Store, records: u64, worker: &Worker<'_>) -> Result<()> {
    let (mut random, begun) = (place.random(1), Instant::now());
    let mut puts = vec![Record::default(); 2 * WRITTEN];
    for commit in 0.. {
        let due = begun + TICK * commit;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if !worker.goes_on() {
            break;
        }
        for (number, put) in puts.iter_mut().enumerate() {
            let record = random.random_range(0..records);
            let index = if number < WRITTEN { loaded(record) } else { inserted(record) };
            put.become_index(index, random.random(), Set::Small.value_bytes());
        }
        let deletes: Vec<Key> = (0..WRITTEN).map(|_| key(inserted(random.random_range(0..records)))).collect();
        store.write(&puts, &deletes)?;
    }
    Ok(())
}
