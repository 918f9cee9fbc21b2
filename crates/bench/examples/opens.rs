//! Time to open a database with default options, by the size of the database: after a clean close, and after kill -9 of
//! a process that put at full speed until its write buffer was full. Medians of five, each with the page cache as left
//! by the process, and with the page cache emptied.
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
/// Bytes that a process puts before the kill: seven times the write buffer.
const PUT_BYTES: u64 = 256 << 20;
const VALUE: [u8; 100] = [7; 100];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [child, path, records] if child == "--write" => write(Path::new(path), records.parse()?),
        [directory, sizes @ ..] => {
            let sizes = if sizes.is_empty() { vec![102, 1024, 10240] } else { parse(sizes)? };
            println!("milliseconds, warm / cold page cache; what waits then, and the log that was replayed");
            println!("{:>8} {:>18} {:>18} {:>12} {:>12}", "MiB", "clean open", "after kill -9", "waiting", "replayed");
            sizes.into_iter().try_for_each(|mib| measure(Path::new(directory), mib))
        }
        [] => Err("give a directory on the device to measure".into()),
    }
}

fn parse(sizes: &[String]) -> Outcome<Vec<u64>> {
    Ok(sizes.iter().map(|size| size.parse()).collect::<Result<_, _>>()?)
}

fn open(path: &Path) -> braid::Result<Database> {
    Options::new().durability(Durability::Os).open(path)
}

/// Opens the database; returns the milliseconds taken.
fn timed(path: &Path) -> Outcome<(f64, Database)> {
    let begun = Instant::now();
    let db = open(path)?;
    Ok((begun.elapsed().as_secs_f64() * 1e3, db))
}

fn empty_page_cache() {
    if let Err(error) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
        eprintln!("the page cache stays as it is: {error}");
    }
}

fn measure(directory: &Path, mib: u64) -> Outcome<()> {
    let scratch = tempfile::tempdir_in(directory)?;
    let path = scratch.path();
    // A record has the bytes of its key and its value, as in a loaded leaf.
    let records = (mib << 20) / (8 + VALUE.len() as u64);
    let db = open(path)?;
    db.table("table", Structure::BTree)?.load((0..records).map(|key| (key.to_be_bytes(), VALUE)))?;
    db.close()?;
    let mut times = [const { Vec::new() }; 4];
    let (mut waiting, mut replayed) = (0.0, 0.0);
    for _ in 0..TIMES {
        for is_cold in [false, true] {
            if is_cold {
                empty_page_cache();
            }
            let (time, db) = timed(path)?;
            times[usize::from(is_cold)].push(time);
            db.close()?;
            kill_in_the_middle(path, records)?;
            if is_cold {
                empty_page_cache();
            }
            let (time, db) = timed(path)?;
            times[2 + usize::from(is_cold)].push(time);
            let stats = db.stats()?;
            [waiting, replayed] =
                [stats.write_buffer_bytes, stats.recovery.bytes].map(|bytes| bytes as f64 / f64::from(1 << 20));
            db.close()?;
        }
    }
    let [clean_warm, clean_cold, killed_warm, killed_cold] = times.map(median);
    println!(
        "{mib:>8} {clean_warm:>8.1} / {clean_cold:>7.1} {killed_warm:>8.1} / {killed_cold:>7.1} {waiting:>8.1} MiB {replayed:>8.1} MiB"
    );
    Ok(())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Lets a process put until it reports enough, and kills it.
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

/// Puts records in random order for ever, and reports when they are enough.
fn write(path: &Path, records: u64) -> Outcome<()> {
    let db = open(path)?;
    let table = db.open_table("table")?;
    let mut random = SmallRng::seed_from_u64(1);
    let (mut count, mut bytes) = (0_u64, 0);
    loop {
        table.put(random.random_range(0..records).to_be_bytes(), VALUE)?;
        count += 1;
        bytes += 8 + VALUE.len() as u64;
        if count.is_multiple_of(4096) && bytes >= PUT_BYTES {
            bytes = 0;
            println!("enough");
            std::io::stdout().flush()?;
        }
    }
}
