//! The cost of a get on a table in memory: rates of one and of several threads, or a number of gets whose instructions
//! are to be counted.
//!
//! `cargo run --release -p braid-bench --example warm -- DIRECTORY [RECORDS [SECONDS]]`
//!
//! For instructions: `valgrind --tool=callgrind --toggle-collect='*counted_get_with*' target/release/examples/warm
//! DIRECTORY 300000 0`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};

const VALUE_BYTES: usize = 100;
const BATCH: u64 = 1000;
/// Gets whose instructions are counted.
const COUNTED: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("give a directory for the database")?;
    let records = arguments.next().map_or(Ok(3_000_000), |records| records.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |seconds| seconds.parse())?;
    for &structure in Structure::ALL {
        let scratch = tempfile::tempdir_in(&directory)?;
        let options = Options::new().cache_bytes(2 << 30).write_buffer_bytes(64 << 20).durability(Durability::Os);
        let db = options.open(scratch.path())?;
        let table = db.table("table", structure)?;
        fill(&db, &table, records)?;
        for _ in 0..2 {
            for number in 0..records {
                table.get(key(number))?.ok_or("a record is missing")?;
            }
        }
        println!("{structure:?}: {records} records, {:?}", db.stats()?.cache);
        if seconds == 0.0 {
            counted_get(&table, records)?;
            counted_get_with(&table, records)?;
            continue;
        }
        for (name, look) in [("get", get as Look), ("get_with", get_with)] {
            for threads in [1, 2] {
                let rate = rate(&table, records, look, threads, Duration::from_secs_f64(seconds))?;
                println!("{structure:?} {name}, {threads} threads: {rate:.2} M/s");
            }
        }
    }
    Ok(())
}

/// Keys in no order.
fn key(number: u64) -> [u8; 16] {
    let mix = |number: u64| {
        let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    };
    let first = mix(number.wrapping_add(0x9E37_79B9_7F4A_7C15));
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&mix(first).to_be_bytes());
    key
}

fn fill(db: &Database, table: &Table, records: u64) -> braid::Result<()> {
    for first in (0..records).step_by(usize::try_from(BATCH).expect("few")) {
        let mut batch = WriteBatch::new();
        for number in first..(first + BATCH).min(records) {
            batch.put(table, key(number), [number.to_le_bytes()[0]; VALUE_BYTES]);
        }
        db.write(&batch)?;
    }
    db.checkpoint()
}

type Look = fn(&Table, u64) -> braid::Result<bool>;

fn get(table: &Table, number: u64) -> braid::Result<bool> {
    Ok(table.get(key(number))?.is_some_and(|value| value[0] == number.to_le_bytes()[0]))
}

fn get_with(table: &Table, number: u64) -> braid::Result<bool> {
    let is_right = table.get_with(key(number), |value| value[0] == number.to_le_bytes()[0])?;
    Ok(is_right == Some(true))
}

#[inline(never)]
fn counted_get(table: &Table, records: u64) -> braid::Result<()> {
    look_up(table, records, get)
}

#[inline(never)]
fn counted_get_with(table: &Table, records: u64) -> braid::Result<()> {
    look_up(table, records, get_with)
}

fn look_up(table: &Table, records: u64, look: Look) -> braid::Result<()> {
    let mut number = 1;
    for _ in 0..COUNTED {
        number = (number + 7919) % records;
        assert!(look(table, number)?, "a record is missing");
    }
    Ok(())
}

/// Millions of gets per second.
fn rate(table: &Table, records: u64, look: Look, threads: u64, time: Duration) -> braid::Result<f64> {
    let (stop, all) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let read = |thread: u64| -> braid::Result<()> {
        let (mut number, mut done) = (thread * records / threads, 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..100 {
                number = (number + 7919) % records;
                assert!(look(table, number)?, "a record is missing");
            }
            done += 100;
        }
        all.fetch_add(done, Ordering::Relaxed);
        Ok(())
    };
    std::thread::scope(|scope| {
        let read = &read;
        let readers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().try_for_each(|reader| reader.join().expect("a reader"))
    })?;
    Ok(all.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64() / 1e6)
}
