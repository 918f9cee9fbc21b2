//! Space and put latency while records of two sizes are overwritten at random, with cleaning in the background: the
//! space relative to the live bytes, and the longest wait of a put.
//!
//! `cargo run --release -p braid-bench --example overwrite -- DIR [RECORDS [STRUCTURE [STATES]]]` makes a database in
//! DIR. Half of its records have values of 100 bytes and half of 4 KiB. Two threads with durability `Os` put each
//! record once, and then three times as many at random; STATES of an `append` table are retained. The space is the
//! length of all files, sampled all the time.
//!
//! At the end the database is verified, and every record is read. The run fails where space or waiting exceeds the
//! bounds below. Retained states take further space, so with them only the waiting is checked.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use bench::{keys, process::bytes_below, values};
use braid::{Database, Durability, Options, Structure, Table, TableOptions};
use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng, rngs::SmallRng};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WRITERS: u64 = 2;
const ROUNDS: u64 = 3;
const KEY_BYTES: usize = 16;
const LOOK: Duration = Duration::from_millis(50);
/// Bound on the bytes of the files as a multiple of the live bytes, and bound on the latency of 99.99 % of all puts.
const SPACE_MAX: f64 = 2.2;
const PUT_MS_P9999_MAX: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let scratch = tempfile::tempdir_in(arguments.next().ok_or("give a directory on the device to measure")?)?;
    let records = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let structure = arguments.next().map_or(Ok(Structure::BTree), |text| text.parse())?;
    let states = arguments.next().map_or(Ok(0), |text| text.parse())?;
    measure(&scratch.path().join("db"), records, structure, states).map_err(|error| error as Box<dyn Error>)
}

fn value_bytes(record: u64) -> usize {
    if record.is_multiple_of(2) { 100 } else { 4096 }
}

fn measure(path: &Path, records: u64, structure: Structure, states: u32) -> Outcome<()> {
    let db = Options::new().durability(Durability::Os).open(path)?;
    let table = db.table_with("records", structure, &TableOptions::new().history(states))?;
    let mut missed = Vec::new();
    let live: u64 = (0..records).map(|record| (KEY_BYTES + value_bytes(record)) as u64).sum();
    println!("{records} records, {:.1} MiB of keys and values, {structure}", mib(live));
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        let order = keys::Permutation::new(records, 1);
        let pick = |random: &mut SmallRng, position| {
            if round == 0 { order.at(position) } else { random.random_range(0..records) }
        };
        let (latency, most) = put_all(path, &table, records, round, &pick)?;
        let took = begun.elapsed().as_secs_f64();
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e6;
        println!(
            "round {round}: {:.0} puts/s; p50 {:.3} ms, p99 {:.2} ms, p99.99 {:.1} ms, longest {:.1} ms; space at most {:.2} of what lives",
            records as f64 / took,
            at(0.5),
            at(0.99),
            at(0.9999),
            latency.max() as f64 / 1e6,
            most as f64 / live as f64
        );
        if states == 0 && most as f64 > SPACE_MAX * live as f64 {
            missed.push(format!("round {round} took more than {SPACE_MAX} times what lives"));
        }
        if at(0.9999) > PUT_MS_P9999_MAX {
            missed.push(format!("puts of round {round} took more than {PUT_MS_P9999_MAX} ms at p99.99"));
        }
    }
    db.drain()?;
    let all = bytes_below(path)?;
    let [log, documents] = ["wal", "doc"].map(|part| bytes_below(&path.join(part)).unwrap_or(0));
    println!(
        "{:.2} of what lives when all is applied: documents {:.1} MiB, log {:.1} MiB, the rest {:.1} MiB",
        all as f64 / live as f64,
        mib(documents),
        mib(log),
        mib(all - log - documents)
    );
    check(&db, &table, records)?;
    if missed.is_empty() { Ok(()) } else { Err(missed.join("; ").into()) }
}

/// A histogram of nanoseconds, up to an hour.
fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Puts as many records as there are; returns the latency of the puts in nanoseconds, and the most space meanwhile.
fn put_all(
    path: &Path, table: &Table, records: u64, round: u64, pick: &(dyn Fn(&mut SmallRng, u64) -> u64 + Sync),
) -> Outcome<(Histogram<u64>, u64)> {
    let (done, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |writer: u64| -> Outcome<Histogram<u64>> {
        let mut random = SmallRng::seed_from_u64(round * WRITERS + writer);
        let mut latency = histogram()?;
        let mut value = vec![0; 4096];
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            if position >= records {
                return Ok(latency);
            }
            let record = pick(&mut random, position);
            let value = &mut value[..value_bytes(record)];
            values::write(record, random.random(), value);
            let key = keys::key(record, KEY_BYTES);
            let begun = Instant::now();
            table.put(key, &value)?;
            latency.saturating_record(u64::try_from(begun.elapsed().as_nanos())?);
        }
    };
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(bytes_below(path)?);
                thread::sleep(LOOK);
            }
            Ok::<_, bench::Error>(most)
        });
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let mut all = histogram()?;
        let wrote = writers.into_iter().try_for_each(|writer| -> Outcome<()> {
            all.add(writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)?;
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        let most = looking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        wrote?;
        Ok((all, most))
    })
}

fn check(db: &Database, table: &Table, records: u64) -> Outcome<()> {
    let findings = db.verify()?.findings;
    println!("verify: {} findings", findings.len());
    if let Some(finding) = findings.first() {
        return Err(finding.clone().into());
    }
    let (mut pairs, mut wrong) = (0, 0_u64);
    let mut range = table.iter();
    while let Some((key, value)) = range.next_pair()? {
        let right = keys::index(key)
            .is_some_and(|record| value.len() == value_bytes(record) && values::is_right(record, value));
        pairs += 1;
        wrong += u64::from(!right);
    }
    println!("{pairs} of {records} records are there, {wrong} of them wrong");
    if pairs == records && wrong == 0 { Ok(()) } else { Err("records are missing or wrong".into()) }
}
