//! Seeks over neighbours that were deleted one by one.
//!
//! `cargo run --release -p braid-bench --example deleted -- DIR [STRUCTURE [DELETED]]` makes a database in DIR with
//! records on both sides of DELETED (a million) keys, which are put, applied, and deleted. Then it seeks from random
//! keys among the deleted ones to the next record, forward and backward: right after the deletes, when they are
//! applied, and at rest; each with and without a snapshot from before the deletes.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Outcome<T> = Result<T, Box<dyn Error>>;

const AROUND: u64 = 100_000;
const BATCH: u64 = 1000;
const SEEKS: usize = 1000;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let scratch = tempfile::tempdir_in(arguments.next().ok_or("give a directory on the device to measure")?)?;
    let structure = arguments.next().map_or(Ok(Structure::Lsm), |text| text.parse())?;
    let deleted = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    for with_snapshot in [false, true] {
        let name = if with_snapshot { "with a snapshot" } else { "without a snapshot" };
        measure(&scratch.path().join(name), structure, deleted, with_snapshot)?;
    }
    Ok(())
}

fn measure(path: &Path, structure: Structure, deleted: u64, with_snapshot: bool) -> Outcome<()> {
    let db = Options::new().durability(Durability::Os).open(path)?;
    let table = db.table("records", structure)?;
    let all = AROUND + deleted + AROUND;
    in_batches(&db, 0..all, |batch, number| batch.put(&table, number.to_be_bytes(), [7; 100]))?;
    db.checkpoint()?;
    let snapshot = with_snapshot.then(|| db.snapshot());
    let gone = AROUND..AROUND + deleted;
    in_batches(&db, gone, |batch, number| batch.delete(&table, number.to_be_bytes()))?;
    let name = if with_snapshot { "with a snapshot" } else { "without a snapshot" };
    seek(&table, deleted, &format!("{structure}, {name}, deletes just made"))?;
    db.drain()?;
    seek(&table, deleted, &format!("{structure}, {name}, deletes applied"))?;
    db.checkpoint()?;
    std::thread::sleep(std::time::Duration::from_secs(40));
    db.drop_caches();
    seek(&table, deleted, &format!("{structure}, {name}, at rest, nothing cached"))?;
    drop(snapshot);
    Ok(())
}

fn in_batches(db: &Database, numbers: std::ops::Range<u64>, mut each: impl FnMut(&mut WriteBatch, u64)) -> Outcome<()> {
    let mut from = numbers.start;
    while from < numbers.end {
        let mut batch = WriteBatch::new();
        let until = numbers.end.min(from + BATCH);
        (from..until).for_each(|number| each(&mut batch, number));
        db.write(&batch)?;
        from = until;
    }
    Ok(())
}

fn seek(table: &Table, deleted: u64, what: &str) -> Outcome<()> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut latency = [Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3)?, Histogram::new(3)?];
    for _ in 0..SEEKS {
        let from = AROUND + random.random_range(0..deleted);
        let begun = Instant::now();
        let next = table.range(from.to_be_bytes()..).next().transpose()?;
        latency[0].record(u64::try_from(begun.elapsed().as_nanos())?)?;
        if next.map(|(key, _)| key) != Some((AROUND + deleted).to_be_bytes().to_vec()) {
            return Err("another record came next".into());
        }
        let begun = Instant::now();
        let before = table.range(..from.to_be_bytes()).next_back().transpose()?;
        latency[1].record(u64::try_from(begun.elapsed().as_nanos())?)?;
        if before.map(|(key, _)| key) != Some((AROUND - 1).to_be_bytes().to_vec()) {
            return Err("another record came before".into());
        }
    }
    for (direction, latency) in ["forward", "backward"].into_iter().zip(&latency) {
        let [p50, p99] = [0.5, 0.99].map(|quantile| latency.value_at_quantile(quantile) as f64 / 1e6);
        println!("{what}, {direction}: p50 {p50:.3} ms, p99 {p99:.3} ms, longest {:.1} ms", latency.max() as f64 / 1e6);
    }
    Ok(())
}
