//! Latency, in microseconds, of lookups and of the first pairs of ranges while operations wait for the structure: so
//! many puts, or deletes of existing keys. Everything is in memory. The first walk over deleted keys is reported by
//! itself.
//!
//! `cargo run --release -p braid-bench --example waiting -- DIRECTORY [OPERATIONS]...`

use std::path::Path;
use std::time::Instant;

use bench::keys::{Permutation, key};
use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const RECORDS: u64 = 1_200_000;
const VALUE: [u8; 100] = [7; 100];
const TIMES: usize = 2000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, counts @ ..] = arguments.as_slice() else { return Err("give a directory on the device".into()) };
    let mut counts = counts.iter().map(|count| count.parse()).collect::<Result<Vec<u64>, _>>()?;
    if counts.is_empty() {
        counts = vec![0, 1, 100, 4_900, 100_000, 1_000_000];
    }
    println!(
        "{:<7} {:<8} {:>9} {:>8} {:>12} {:>14} {:>14} {:>14} {:>12}",
        "table", "waiting", "", "put", "get", "first pair", "last pair", "any pair", "first walk"
    );
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        for &count in &counts {
            for deletes in [false, true] {
                measure(Path::new(directory), structure, count, deletes)?;
            }
        }
    }
    Ok(())
}

fn measure(directory: &Path, structure: Structure, count: u64, deletes: bool) -> Outcome<()> {
    let scratch = tempfile::tempdir_in(directory)?;
    let db: Database = Options::new()
        .background(false)
        .durability(Durability::Os)
        .cache_bytes(512 << 20)
        .write_buffer_bytes(3 << 30)
        .open(scratch.path())?;
    let table = db.table("t", structure)?;
    table.load((0..RECORDS).map(|number| (key(number, 16), VALUE)))?;
    // Lookups bring leaves into the cache; scans do not.
    for first in (0..RECORDS).step_by(1000) {
        table.get_many(&(first..first + 1000).map(|number| key(number, 16)).collect::<Vec<_>>())?;
    }
    let order = Permutation::new(count.max(1), 1);
    let begun = Instant::now();
    for first in (0..count).step_by(100) {
        let mut batch = WriteBatch::new();
        for position in first..(first + 100).min(count) {
            if deletes {
                batch.delete(&table, key(order.at(position), 16));
            } else {
                batch.put(&table, key(order.at(position), 16), VALUE);
            }
        }
        db.write(&batch)?;
    }
    let put = begun.elapsed().as_secs_f64() * 1e6 / count.max(1) as f64;
    let mut random = SmallRng::seed_from_u64(2);
    let walk = Instant::now();
    first_pair(&table, 0, false)?;
    let walk = walk.elapsed().as_secs_f64() * 1e6;
    let get = median(|| {
        let number = random.random_range(0..count.max(1));
        table.get(key(number, 16)).map(|value| assert!(value.is_none() == (deletes && count > 0)))
    })?;
    let first = median(|| first_pair(&table, 0, false))?;
    let last = median(|| first_pair(&table, RECORDS, true))?;
    let any = median(|| first_pair(&table, random.random_range(0..RECORDS), false))?;
    println!(
        "{structure:<7} {count:>8} {:>9} {put:>8.2} {:>5.2} {:>6.2} {:>7.2} {:>6.2} {:>7.2} {:>6.2} {:>7.2} {:>6.2} {walk:>12.1}",
        if deletes { "deletes" } else { "puts" },
        get[0],
        get[1],
        first[0],
        first[1],
        last[0],
        last[1],
        any[0],
        any[1]
    );
    Ok(())
}

fn first_pair(table: &Table, from: u64, backwards: bool) -> braid::Result<()> {
    let mut range = if backwards { table.range(..key(from, 16)).rev() } else { table.range(key(from, 16)..) };
    range.next_pair().map(|pair| assert!(pair.is_some() || from > 0))
}

/// The median and the 99th percentile, in microseconds.
fn median(mut of: impl FnMut() -> braid::Result<()>) -> Outcome<[f64; 2]> {
    let mut taken = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let begun = Instant::now();
        of()?;
        taken.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    taken.sort_by(f64::total_cmp);
    Ok([taken[TIMES / 2], taken[TIMES * 99 / 100]])
}
