//! Random direct reads per second of each backend, in batches and as a stream, on a scratch file.
//!
//! `cargo run --release -p braid-psync --example rates -- <directory> [MiB] [milliseconds per cell]`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use psync::{BackendKind, Buffer, File, OpenOptions, Psync, Request};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MIB: usize = 1 << 20;
const BATCH: usize = 128;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("which directory?")?);
    let mib: usize = arguments.next().as_deref().unwrap_or("1024").parse()?;
    let millis: u64 = arguments.next().as_deref().unwrap_or("60").parse()?;
    let path = directory.join(format!("rates-{}.scratch", std::process::id()));
    let measured = measure(&path, mib, Duration::from_millis(millis));
    std::fs::remove_file(&path)?;
    Ok(measured?)
}

/// The median of five rounds, each of which measures every cell once, so that what disturbs a moment disturbs all
/// alike.
fn measure(path: &Path, mib: usize, time: Duration) -> psync::Result<()> {
    fill(path, mib)?;
    println!("{:>6} {:>5} {:>9} {:>9} {:>9}", "bytes", "depth", "backend", "run/s", "stream/s");
    for bytes in [4096, 16384] {
        for depth in [1, 32, 128] {
            let mut rounds = [const { (Vec::new(), Vec::new()) }; BackendKind::ALL.len()];
            for _ in 0..ROUNDS {
                for (kind, (runs, streams)) in BackendKind::ALL.into_iter().zip(&mut rounds) {
                    let psync = Psync::new(Some(kind))?.with_pio_max(depth);
                    let options = OpenOptions { direct: true, ..OpenOptions::default() };
                    let file = psync.open(path, &options)?;
                    runs.push(batches(&psync, &file, bytes, time)?);
                    streams.push(streamed(&psync, &file, bytes, depth, time)?);
                }
            }
            for (kind, (runs, streams)) in BackendKind::ALL.into_iter().zip(&mut rounds) {
                let (run, stream) = (median(runs), median(streams));
                println!("{bytes:>6} {depth:>5} {kind:>9} {run:>9.0} {stream:>9.0}");
            }
        }
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn fill(path: &Path, mib: usize) -> psync::Result<()> {
    let psync = Psync::new(None)?;
    let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
    let file = psync.open(path, &options)?;
    let mut random = SmallRng::seed_from_u64(1);
    let mut requests = Vec::new();
    for chunk in 0..mib {
        let mut buffer = Buffer::zeroed(MIB);
        random.fill(&mut buffer[..]);
        requests.push(Request::write(&file, (chunk * MIB) as u64, buffer, 0));
    }
    requests.push(Request::flush(&file, 0));
    psync.run_all(requests)?;
    Ok(())
}

/// Draws reads of `bytes` at random places.
fn reader(file: &File, bytes: usize) -> psync::Result<impl FnMut(Buffer) -> Request> {
    let places = file.len()? / bytes as u64;
    let mut random = SmallRng::seed_from_u64(2);
    let file = file.clone();
    Ok(move |buffer| {
        let offset = random.random_range(0..places) * bytes as u64;
        Request::read(&file, offset, buffer, 0)
    })
}

fn batches(psync: &Psync, file: &File, bytes: usize, time: Duration) -> psync::Result<f64> {
    let mut read = reader(file, bytes)?;
    let begin = Instant::now();
    let mut count = 0;
    while begin.elapsed() < time {
        let batch = if psync.pio_max() == 1 { 8 } else { BATCH };
        let requests = (0..batch).map(|_| read(Buffer::zeroed(bytes))).collect();
        psync.run_all(requests)?;
        count += batch;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

fn streamed(psync: &Psync, file: &File, bytes: usize, depth: usize, time: Duration) -> psync::Result<f64> {
    let mut read = reader(file, bytes)?;
    let mut stream = psync.stream(depth);
    let begin = Instant::now();
    for _ in 0..depth {
        stream.push(read(Buffer::zeroed(bytes)));
    }
    let mut count = 0;
    while let Some(completion) = stream.next() {
        completion.result?;
        count += 1;
        if begin.elapsed() < time {
            stream.push(read(Buffer::zeroed(bytes)));
        }
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}
