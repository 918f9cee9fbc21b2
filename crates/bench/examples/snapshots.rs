//! The costs of snapshots: opening one, reading through one, writing while many are open. Medians of interleaved pairs.
//!
//! `cargo run --release -p braid-bench --example snapshots -- DIRECTORY`

use std::time::{Duration, Instant};

use braid::{Database, Durability, Options, Snapshot, Structure, Table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const RECORDS: u64 = 1_000_000;
const PAIRS: usize = 7;
const SLICE: Duration = Duration::from_millis(1500);
const MANY: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("give a directory on the device to measure")?;
    let scratch = tempfile::tempdir_in(directory)?;
    let options = Options::new().cache_bytes(256 << 20).write_buffer_bytes(64 << 20).durability(Durability::Os);
    let db = options.open(scratch.path())?;
    let table = db.table("table", Structure::BTree)?;
    table.load((0..RECORDS).map(|key| (key.to_be_bytes(), [0; 100])))?;
    let mut random = SmallRng::seed_from_u64(1);
    gets(&table, None, &mut random)?;
    println!("{RECORDS} records of 8 + 100 B, all in 256 MiB of cache, 64 MiB of write buffer, durability os");
    opening(&db);
    reading(&db, &table, &mut random)?;
    writing(&db, &table, &mut random)?;
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Nanoseconds to open and drop a snapshot, and to open one while many are open.
fn opening(db: &Database) {
    const TIMES: u32 = 20_000;
    let (mut alone, mut among) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let begun = Instant::now();
        (0..TIMES).for_each(|_| drop(db.snapshot()));
        alone.push(begun.elapsed().as_nanos() as f64 / f64::from(TIMES));
        let begun = Instant::now();
        let held: Vec<_> = (0..TIMES).map(|_| db.snapshot()).collect();
        among.push(begun.elapsed().as_nanos() as f64 / f64::from(TIMES));
        drop(held);
    }
    println!(
        "opening and dropping a snapshot: {:.0} ns; opening one while others stay open: {:.0} ns",
        median(alone),
        median(among)
    );
}

/// Gets per second.
fn gets(table: &Table, through: Option<&Snapshot>, random: &mut SmallRng) -> braid::Result<f64> {
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < SLICE {
        for _ in 0..256 {
            let key = random.random_range(0..RECORDS).to_be_bytes();
            let found = match through {
                None => table.get(key)?,
                Some(snapshot) => snapshot.get(table, key)?,
            };
            assert!(found.is_some(), "every key is there");
            count += 1;
        }
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

fn reading(db: &Database, table: &Table, random: &mut SmallRng) -> braid::Result<()> {
    let (mut without, mut through, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let one = gets(table, None, random)?;
        let other = gets(table, Some(&db.snapshot()), random)?;
        without.push(one);
        through.push(other);
        ratios.push(other / one);
    }
    println!(
        "cached gets: {:.0}/s, through a snapshot {:.0}/s: {:.3} of it (median of {PAIRS} pairs)",
        median(without),
        median(through),
        median(ratios)
    );
    Ok(())
}

/// Puts per second, including the wait until they are applied to the structure.
fn puts(db: &Database, table: &Table, random: &mut SmallRng) -> braid::Result<f64> {
    const COUNT: u32 = 400_000;
    let begun = Instant::now();
    for number in 0..COUNT {
        let key = random.random_range(0..RECORDS).to_be_bytes();
        table.put(key, [number.to_le_bytes()[0]; 100])?;
    }
    db.drain()?;
    Ok(f64::from(COUNT) / begun.elapsed().as_secs_f64())
}

fn writing(db: &Database, table: &Table, random: &mut SmallRng) -> braid::Result<()> {
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    puts(db, table, random)?;
    for _ in 0..PAIRS {
        let one = puts(db, table, random)?;
        let mut held = Vec::new();
        for number in 0..MANY {
            // Each snapshot has a seq of its own.
            table.put("another", number.to_be_bytes())?;
            held.push(db.snapshot());
        }
        let other = puts(db, table, random)?;
        drop(held);
        without.push(one);
        with.push(other);
        ratios.push(other / one);
    }
    println!(
        "puts, applied: {:.0}/s, while {MANY} snapshots are open {:.0}/s: {:.3} of it (median of {PAIRS} pairs)",
        median(without),
        median(with),
        median(ratios)
    );
    Ok(())
}
