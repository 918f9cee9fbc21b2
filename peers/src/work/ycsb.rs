//! The core workloads of YCSB, with the generators of `bench::ycsb`.
//!
//! A record is one value: an update overwrites the value without reading (`writeallfields`); a read-modify-write reads
//! the value first. Inserts go to random places between the records, as hashed keys do. The keys asked for are those of
//! loaded records.

use std::sync::atomic::{AtomicU64, Ordering};

use bench::keys::Permutation;
use bench::ycsb::{Core, Distribution, Kind, Requests, SCAN_RECORDS_MAX};
use rand::Rng;
use rand::rngs::SmallRng;

use super::read::lookup;
use super::{Figure, Metric, Place, Set, YCSB_THREADS};
use crate::data::{Record, ScanCheck, inserted, key, loaded};
use crate::drive::drive;
use crate::error::{Error, Result};
use crate::store::{Durability, Scan, Store};

pub(super) fn run(place: &Place<'_>, core: Core, distribution: Distribution) -> Result<Vec<Figure>> {
    let store = place.open(Durability::Os)?;
    let requests = Requests::new(distribution, core, place.records, 0);
    let next_insert = AtomicU64::new(0);
    let order = Permutation::new(place.records, place.seed);
    let measured = drive(YCSB_THREADS, place.pace, &|thread, worker| {
        let mut client = Client {
            store: &*store,
            records: place.records,
            requests: requests.clone(),
            random: place.random(thread),
            record: Record::default(),
        };
        while worker.goes_on() {
            match core.choose(client.random.random()) {
                Kind::Insert => {
                    let place = order.at(next_insert.fetch_add(1, Ordering::Relaxed) % client.records);
                    client.put(inserted(place))?;
                }
                kind => client.do_one(kind)?,
            }
            worker.done(1);
        }
        Ok(())
    })?;
    store.close()?;
    Ok(vec![Figure { metric: Metric::PerSecond, value: measured.per_second() }])
}

struct Client<'a> {
    store: &'a dyn Store,
    records: u64,
    requests: Requests,
    random: SmallRng,
    record: Record,
}

impl Client<'_> {
    fn do_one(&mut self, kind: Kind) -> Result<()> {
        let record = self.requests.next(self.records, &mut self.random);
        match kind {
            Kind::Read => lookup(self.store, record, Set::Small.value_bytes()),
            Kind::ReadModifyWrite => {
                lookup(self.store, record, Set::Small.value_bytes())?;
                self.put(loaded(record))
            }
            Kind::Scan => self.scan(record),
            Kind::Update | Kind::Insert => self.put(loaded(record)),
        }
    }

    fn put(&mut self, index: u64) -> Result<()> {
        self.record.become_index(index, self.random.random(), Set::Small.value_bytes());
        self.store.put(std::slice::from_ref(&self.record))
    }

    /// From a record on, up to so many pairs, both loaded and inserted.
    fn scan(&mut self, first: u64) -> Result<()> {
        let length = self.random.random_range(1..=SCAN_RECORDS_MAX);
        let limit = usize::try_from(length).unwrap_or(usize::MAX);
        let (mut check, mut pairs) = (ScanCheck::new(first, Set::Small.value_bytes()), 0);
        let range = Scan { from: key(loaded(first)), to: None, limit };
        self.store.scan(&range, &mut |key, value| {
            check.see(key, value);
            pairs += 1;
        })?;
        check.records()?;
        // Behind the first, there are at least as many pairs as were loaded.
        let least = length.min(self.records - first);
        if pairs < least {
            return Err(Error::Wrong(format!("a scan of {length} pairs from record {first} on shows {pairs}")));
        }
        Ok(())
    }
}
