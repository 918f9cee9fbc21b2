//! Scans from random records on, by one thread, with both ends known.

use rand::Rng;

use super::{Figure, Metric, Place, Set};
use crate::data::{ScanCheck, key, loaded};
use crate::drive::drive;
use crate::error::{Error, Result};
use crate::store::{Durability, Scan};

/// Records between two counts: a long scan must not wait for its end to count.
const COUNTED: u64 = 64;

pub(super) fn run(place: &Place<'_>, length: u64) -> Result<Vec<Figure>> {
    let store = place.open(Durability::Os)?;
    let length = length.min(place.records);
    let value_bytes = Set::Small.value_bytes();
    let measured = drive(1, place.pace, &|thread, worker| {
        let mut random = place.random(thread);
        while worker.goes_on() {
            let first = random.random_range(0..=place.records - length);
            let range = Scan { from: key(loaded(first)), to: Some(key(loaded(first + length))), limit: usize::MAX };
            let (mut check, mut uncounted) = (ScanCheck::new(first, value_bytes), 0);
            store.scan(&range, &mut |key, value| {
                check.see(key, value);
                uncounted += 1;
                if uncounted == COUNTED {
                    worker.done(std::mem::take(&mut uncounted));
                }
            })?;
            worker.done(uncounted);
            let shown = check.records()?;
            if shown != length {
                return Err(Error::Wrong(format!("a scan of {length} records from {first} on shows {shown}")));
            }
        }
        Ok(())
    })?;
    store.close()?;
    Ok(vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }])
}
