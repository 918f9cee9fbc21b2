//! What needs no thread beside what needs one, in turns within one run: commits of one thread with many tickets in
//! flight beside 64 blocking threads, and lookups of 1,000 tasks of a runtime beside batches of 128 keys. Then 64
//! threads count in one key with transactions. All with `Sync` and nothing set, but for a cache that is small beside
//! the data of the lookups.
//!
//! `cargo run --release -p braid-bench --example tasks -- DIRECTORY [RECORDS [SECONDS]]`

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bench::keys::{Permutation, key};
use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use rand::{Rng, SeedableRng, rngs::SmallRng};

const ROUNDS: usize = 5;
const THREADS: u64 = 64;
const TASKS: u64 = 1000;
const RUNS: u64 = 100_000;
const BATCH: usize = 128;
const VALUE: [u8; 100] = [7; 100];
const CACHE_BYTES: u64 = 16 << 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first() else { return Err("give a directory on the device".into()) };
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (records, time) = (number(1, 3_000_000)?, Duration::from_secs(number(2, 3)?));
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        let directory = Path::new(directory).join(structure.to_string());
        commits(&directory.join("commits"), structure, time)?;
        lookups(&directory.join("lookups"), structure, records, time)?;
    }
    hot(&Path::new(directory).join("hot"))?;
    Ok(())
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures ways to do the same in turns. Prints the median rates, and the medians of the ratios to the first way.
fn in_turns(what: &str, names: &[&str], mut measure: impl FnMut(usize) -> Outcome<f64>) -> Outcome<()> {
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((0..names.len()).map(&mut measure).collect::<Outcome<_>>()?);
    }
    for (way, name) in names.iter().enumerate() {
        let of = |figure: &dyn Fn(&Vec<f64>) -> f64| median(rounds.iter().map(figure).collect());
        println!(
            "{what:<16} {name:<28} {:>10.0}/s {:>6.2}",
            of(&|round| round[way]),
            of(&|round| round[way] / round[0])
        );
    }
    Ok(())
}

fn commits(path: &Path, structure: Structure, time: Duration) -> Outcome<()> {
    let database = Options::new().open(path)?;
    let table = database.table("table", structure)?;
    let names = ["64 threads", "1 thread, 64 tickets", "1 thread, 1,000 tickets"];
    in_turns(&format!("{structure} commits"), &names, |way| match way {
        0 => blocking(&table, time),
        1 => in_flight(&database, &table, 64, time),
        _ => in_flight(&database, &table, 1000, time),
    })?;
    drop(table);
    Ok(database.close()?)
}

fn blocking(table: &Table, time: Duration) -> Outcome<f64> {
    let (begun, done) = (Instant::now(), AtomicU64::new(0));
    thread::scope(|scope| {
        let run = |thread| {
            let (table, done) = (table, &done);
            move || -> braid::Result<()> {
                let mut random = SmallRng::seed_from_u64(thread);
                while begun.elapsed() < time {
                    table.put(key(random.random_range(0..1_000_000), 16), VALUE)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(done.into_inner() as f64 / begun.elapsed().as_secs_f64())
}

fn in_flight(database: &Database, table: &Table, most: usize, time: Duration) -> Outcome<f64> {
    let (begun, mut done) = (Instant::now(), 0_u64);
    let mut random = SmallRng::seed_from_u64(7);
    let (mut tickets, mut batch) = (VecDeque::with_capacity(most), WriteBatch::new());
    while begun.elapsed() < time {
        batch.clear();
        batch.put(table, key(random.random_range(0..1_000_000), 16), VALUE);
        tickets.push_back(database.submit(&batch, Durability::Sync)?);
        if tickets.len() == most {
            tickets.pop_front().expect("there are as many").wait()?;
            done += 1;
        }
    }
    for ticket in tickets {
        ticket.wait()?;
        done += 1;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

fn lookups(path: &Path, structure: Structure, records: u64, time: Duration) -> Outcome<()> {
    let database = Options::new().cache_bytes(CACHE_BYTES).open(path)?;
    let table = database.table("table", structure)?;
    fill(&database, &table, records)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let names = ["get_many of 128", "1,000 tasks of a runtime"];
    in_turns(&format!("{structure} lookups"), &names, |way| match way {
        0 => batches(&table, records, time),
        _ => runtime.block_on(tasks(&table, records, time)),
    })?;
    drop(table);
    Ok(database.close()?)
}

fn fill(database: &Database, table: &Table, records: u64) -> Outcome<()> {
    let (order, mut batch) = (Permutation::new(records, 7), WriteBatch::new());
    for position in 0..records {
        batch.put(table, key(order.at(position), 16), VALUE);
        if batch.len() == 1000 {
            database.write_with(&batch, Durability::Os)?;
            batch.clear();
        }
    }
    database.write(&batch)?;
    Ok(database.checkpoint()?)
}

fn batches(table: &Table, records: u64, time: Duration) -> Outcome<f64> {
    let (begun, mut done) = (Instant::now(), 0_u64);
    let mut random = SmallRng::seed_from_u64(done);
    while begun.elapsed() < time {
        let keys: Vec<_> = (0..BATCH).map(|_| key(random.random_range(0..records), 16)).collect();
        done += table.get_many(&keys)?.into_iter().flatten().count() as u64;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

async fn tasks(table: &Table, records: u64, time: Duration) -> Outcome<f64> {
    let (begun, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (table, done) = (table.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let mut random = SmallRng::seed_from_u64(task);
                while begun.elapsed() < time {
                    let found = table.lookup(key(random.random_range(0..records), 16)).await?;
                    done.fetch_add(u64::from(found.is_some()), Ordering::Relaxed);
                }
                Ok::<(), braid::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// Counts in one key.
fn hot(path: &Path) -> Outcome<()> {
    let database = Options::new().open(path)?;
    let table = database.table("table", Structure::BTree)?;
    let (begun, runs, longest) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let count = || -> braid::Result<()> {
        loop {
            let number = runs.fetch_add(1, Ordering::Relaxed);
            if number >= RUNS {
                return Ok(());
            }
            let called = Instant::now();
            database.run(|transaction| {
                let count = transaction.get(&table, "hot")?.and_then(|count| count.try_into().ok());
                let count = count.map_or(0, u64::from_be_bytes) + 1;
                transaction.put(&table, "hot", count.to_be_bytes())
            })?;
            longest.fetch_max(u64::try_from(called.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let (took, counted) = (begun.elapsed().as_secs_f64(), table.get("hot")?.and_then(|count| count.try_into().ok()));
    let counted = counted.map_or(0, u64::from_be_bytes);
    let longest = longest.into_inner() as f64 / 1e3;
    println!(
        "one hot key: {RUNS} runs by {THREADS} threads, {counted} counted, {took:.0} s; the longest took {longest:.0} ms"
    );
    drop(table);
    database.close()?;
    if counted == RUNS { Ok(()) } else { Err("a run was lost".into()) }
}
