//! Commits per second by the number of committing threads, where each put of 16 B + 100 B is waited for until durable.
//! Also the cost of a commit beside its flush: the commits per flush, the waits of the calling thread, and the
//! processor time. Medians of rounds in which every number of threads has its turn.
//!
//! `cargo run --release -p braid-bench --example commits -- DIRECTORY [SECONDS [ROUNDS [THREADS]...]]`

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use braid::{Database, Durability, Options, Structure, Table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const RECORDS: u64 = 1_000_000;
const VALUE: [u8; 100] = [7; 100];
const COLUMNS: usize = 7;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("give a directory on the device to measure")?;
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |seconds| seconds.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let mut threads: Vec<usize> = arguments.map(|threads| threads.parse()).collect::<Result<_, _>>()?;
    if threads.is_empty() {
        threads = vec![1, 2, 4, 8, 16, 32, 64];
    }
    let scratch = tempfile::tempdir_in(Path::new(&directory))?;
    let db = Options::new().durability(Durability::Sync).open(scratch.path())?;
    let table = db.table("table", Structure::BTree)?;
    let time = Duration::from_secs_f64(seconds);
    commit(&db, &table, 4, time.min(Duration::from_millis(500)))?;
    let mut samples = vec![Vec::new(); threads.len()];
    for _ in 0..rounds.max(1) {
        for (samples, &threads) in samples.iter_mut().zip(&threads) {
            samples.push(commit(&db, &table, threads, time)?);
        }
    }
    println!(
        "{:>8} {:>11} {:>11} {:>15} {:>11} {:>14} {:>9} {:>11}",
        "threads", "commits/s", "flushes/s", "commits/flush", "flush us", "waits/commit", "user us", "system us"
    );
    for (samples, threads) in samples.iter().zip(threads) {
        let [commits, flushes, shared, flush, waits, user, system] = std::array::from_fn(|column| {
            median(samples.iter().map(|sample: &[f64; COLUMNS]| sample[column]).collect())
        });
        println!(
            "{threads:>8} {commits:>11.0} {flushes:>11.0} {shared:>15.1} {flush:>11.0} {waits:>14.2} {user:>9.1} {system:>11.1}"
        );
    }
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Commits of so many threads for so long: the columns of the table.
fn commit(db: &Database, table: &Table, threads: usize, time: Duration) -> Outcome<[f64; COLUMNS]> {
    let (before, cpu_before, begun) = (db.stats()?.log, cpu()?, Instant::now());
    let stop = AtomicBool::new(false);
    let client = |number: usize| {
        let (mut random, mut commits) = (SmallRng::seed_from_u64(number as u64), 0_u64);
        while !stop.load(Ordering::Relaxed) {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&random.random_range(0..RECORDS).to_be_bytes());
            table.put(key, VALUE)?;
            commits += 1;
        }
        Ok::<_, braid::Error>((commits, waits()))
    };
    let clients: Vec<(u64, u64)> = thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..threads).map(|number| scope.spawn(move || client(number))).collect();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("no panic")).collect::<Result<_, _>>()
    })?;
    let (log, cpu, seconds) = (db.stats()?.log, cpu()?, begun.elapsed().as_secs_f64());
    let (commits, waits) = clients.iter().fold((0, 0), |sum, client| (sum.0 + client.0, sum.1 + client.1));
    let (commits, flushes) = (commits as f64, (log.flushes - before.flushes) as f64);
    let [user, system] = [0, 1].map(|mode| (cpu[mode] - cpu_before[mode]) / commits * 1e6);
    let flush = (log.flush_ns - before.flush_ns) as f64 / 1e3 / flushes;
    Ok([commits / seconds, flushes / seconds, commits / flushes, flush, waits as f64 / commits, user, system])
}

/// Number of times that the calling thread gave up its processor to wait.
fn waits() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let waits = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    waits.and_then(|waits| waits.trim().parse().ok()).unwrap_or(0)
}

/// Seconds of processor time of this process: in its own code, and in the kernel on its behalf.
fn cpu() -> Outcome<[f64; 2]> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The fields follow the name of the command, which may contain spaces; a tick is a hundredth of a second.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<f64>().ok()).ok_or("no such field");
    Ok([ticks(11)? / 100.0, ticks(12)? / 100.0])
}
