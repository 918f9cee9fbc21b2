//! How long opening takes, after a clean close and after kill -9 with 64 MiB of log, by the size of the database. Medians.
//!
//! `cargo run --release -p braid-bench --example opens -- DIRECTORY [MIB]...`

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use braid::{Database, Durability, Options, Structure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const TIMES: usize = 5;
const LOG_BYTES: u64 = 64 << 20;
const VALUE: [u8; 100] = [7; 100];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [child, path, records] if child == "--write" => write(Path::new(path), records.parse()?),
        [directory, sizes @ ..] => {
            let sizes = if sizes.is_empty() { vec![100, 1024, 4096] } else { parse(sizes)? };
            println!("{:>8} {:>14} {:>14} {:>24}", "MiB", "clean open", "after kill -9", "log replayed");
            sizes.into_iter().try_for_each(|mib| measure(Path::new(directory), mib))
        }
        [] => Err("give a directory on the device to measure".into()),
    }
}

fn parse(sizes: &[String]) -> Outcome<Vec<u64>> {
    Ok(sizes.iter().map(|size| size.parse()).collect::<Result<_, _>>()?)
}

fn open(path: &Path) -> braid::Result<Database> {
    Options::new().cache_bytes(64 << 20).write_buffer_bytes(256 << 20).durability(Durability::Os).open(path)
}

/// Opens and closes, with the page cache emptied before; seconds that opening took.
fn timed(path: &Path) -> Outcome<(f64, Database)> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").or_else(|error| {
        eprintln!("the page cache stays as it is: {error}");
        Ok::<_, std::io::Error>(())
    })?;
    let begun = Instant::now();
    let db = open(path)?;
    Ok((begun.elapsed().as_secs_f64(), db))
}

fn measure(directory: &Path, mib: u64) -> Outcome<()> {
    let scratch = tempfile::tempdir_in(directory)?;
    let path = scratch.path();
    // As a loaded leaf has them.
    let records = (mib << 20) / (8 + VALUE.len() as u64);
    let db = open(path)?;
    db.table("table", Structure::BTree)?.load((0..records).map(|key| (key.to_be_bytes(), VALUE)))?;
    db.close()?;
    let (mut clean, mut killed, mut replayed) = (Vec::new(), Vec::new(), 0);
    for _ in 0..TIMES {
        let (seconds, db) = timed(path)?;
        clean.push(seconds);
        db.close()?;
        kill_in_the_middle(path, records)?;
        let (seconds, db) = timed(path)?;
        killed.push(seconds);
        replayed = db.stats()?.recovery.bytes;
        db.close()?;
    }
    let [clean, killed] = [clean, killed].map(median);
    println!(
        "{mib:>8} {:>11.1} ms {:>11.1} ms {:>20.1} MiB",
        clean * 1e3,
        killed * 1e3,
        replayed as f64 / f64::from(1 << 20)
    );
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Has a process put until its log is long enough, and kills it.
fn kill_in_the_middle(path: &Path, records: u64) -> Outcome<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--write")
        .arg(path)
        .arg(records.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("the child has an output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    if line.is_empty() { Err("the writing process ended by itself".into()) } else { Ok(()) }
}

/// Puts records in any order for ever, and says when the log is long enough.
fn write(path: &Path, records: u64) -> Outcome<()> {
    let db = open(path)?;
    let table = db.open_table("table")?;
    let mut random = SmallRng::seed_from_u64(1);
    let (mut count, mut logged) = (0_u64, 0);
    loop {
        table.put(random.random_range(0..records).to_be_bytes(), VALUE)?;
        count += 1;
        // A record takes its key and value and a few dozen bytes.
        logged += 8 + VALUE.len() as u64;
        if count.is_multiple_of(4096) && logged >= LOG_BYTES {
            logged = 0;
            println!("enough");
            std::io::stdout().flush()?;
        }
    }
}
