//! The speed of a backup of a gigabyte as a share of the device's copy speed, alone and while two threads overwrite at
//! full speed. The backup is then restored and compared, key by key, with its snapshot.
//!
//! `cargo run --release -p braid-bench --example backup -- DIR [VALUE_BYTES]` makes a database in DIR, with keys of 16
//! bytes that came in random order and values of 100 bytes, or of `VALUE_BYTES`. Five samples of each measurement are
//! taken in turns; the medians are printed:
//!
//! 1. the device's rates of reading, of writing, and of both at once: a file of 1 GiB, in requests of 1 MiB, 8 at a
//!    time, past the page cache, flushed;
//! 2. a scan of a snapshot that looks at each pair, and a full backup into a directory, alone;
//! 3. the backup while two threads put random keys again, with durability `Os`, and the rate of those puts.

use std::{
    error::Error,
    fs,
    ops::ControlFlow,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Instant,
};

use bench::limits::median;
use braid::{Backup, BackupKind, BackupSummary, Database, Durability, Options, Structure, Table, WriteBatch};
use psync::{Buffer, File, OpenOptions, Psync, Request};
use rand::{Rng, SeedableRng, rngs::SmallRng};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BYTES: u64 = 1 << 30;
const KEY_BYTES: u64 = 16;
const ROUNDS: usize = 5;
const WRITERS: u64 = 2;
const REQUEST_BYTES: usize = 1 << 20;
const DEPTH: usize = 8;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let scratch = tempfile::tempdir_in(arguments.next().ok_or("give a directory on the device to measure")?)?;
    let home = scratch.path().to_owned();
    let value_bytes = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let records = BYTES / (KEY_BYTES + value_bytes as u64);
    let db = Options::new().durability(Durability::Os).open(home.join("db"))?;
    let table = db.table("records", Structure::BTree)?;
    fill(&db, &table, records, value_bytes)?;
    let device = Device::new(&home)?;

    let mut figures = Figures::default();
    let backups = home.join("backups");
    for _ in 0..ROUNDS {
        figures.read.push(device.run(true, false)?);
        figures.written.push(device.run(false, true)?);
        figures.copied.push(device.run(true, true)?);
        figures.scanned.push(scan(&db, &table)?);
        figures.alone.push(back_up(&db.begin_backup()?, &backups)?.1);
        let (rate, puts) = back_up_while_writing(&db, &table, records, value_bytes, &backups)?;
        figures.busy.push(rate);
        figures.puts.push(puts);
    }
    figures.print(value_bytes);
    check(&db, &table, records, value_bytes, &home)
}

/// Bytes per second; for puts, puts per second.
#[derive(Default)]
struct Figures {
    read: Vec<f64>,
    written: Vec<f64>,
    copied: Vec<f64>,
    scanned: Vec<f64>,
    alone: Vec<f64>,
    busy: Vec<f64>,
    puts: Vec<f64>,
}

impl Figures {
    fn print(&self, value_bytes: usize) {
        let middle = |figures: &[f64]| median(figures).unwrap_or(0.0);
        let rate = |figures: &[f64]| middle(figures) / f64::from(1 << 20);
        let share = |of: &[f64]| {
            let shares: Vec<f64> = of.iter().zip(&self.copied).map(|(one, copied)| one / copied).collect();
            middle(&shares)
        };
        println!("16 B keys, {value_bytes} B values, 1 GiB; medians of {ROUNDS}");
        println!("  the device reads           {:6.0} MiB/s", rate(&self.read));
        println!("  it writes                  {:6.0} MiB/s", rate(&self.written));
        println!("  it copies                  {:6.0} MiB/s", rate(&self.copied));
        println!("  a scan, nobody writes      {:6.0} MiB/s", rate(&self.scanned));
        println!("  backup, nobody writes      {:6.0} MiB/s, {:.2} of a copy", rate(&self.alone), share(&self.alone));
        println!(
            "  backup, {WRITERS} threads write    {:6.0} MiB/s, {:.2} of a copy",
            rate(&self.busy),
            share(&self.busy)
        );
        println!("  puts meanwhile             {:6.0} a second", middle(&self.puts));
    }
}

/// Scattered keys that differ for each number.
fn key(number: u64) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(mixed ^ (mixed >> 29)).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn fill(db: &Database, table: &Table, records: u64, value_bytes: usize) -> Outcome<()> {
    let begun = Instant::now();
    let mut random = SmallRng::seed_from_u64(1);
    let mut value = vec![0; value_bytes];
    let mut batch = WriteBatch::new();
    for number in 0..records {
        random.fill(&mut value[..]);
        batch.put(table, key(number), &value);
        if batch.bytes() > 1 << 20 || number + 1 == records {
            db.write(&batch)?;
            batch.clear();
        }
    }
    db.drain()?;
    println!("{records} records written in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Bytes of keys and values of a snapshot, read per second.
fn scan(db: &Database, table: &Table) -> Outcome<f64> {
    let begun = Instant::now();
    let mut bytes = 0;
    let shown = db.snapshot().iter(table).visit(|key, value| {
        bytes += key.len() + value.len();
        ControlFlow::<()>::Continue(())
    })?;
    assert!(shown.is_continue() && bytes > 0, "nothing breaks it");
    Ok(BYTES as f64 / begun.elapsed().as_secs_f64())
}

/// Bytes of keys and values in a backup, written per second.
fn back_up(backup: &Backup, directory: &Path) -> Outcome<(BackupSummary, f64)> {
    let _ = fs::remove_dir_all(directory);
    let begun = Instant::now();
    let summary = backup.write_to(directory, BackupKind::Full, &mut |_| ControlFlow::Continue(()))?;
    let rate = BYTES as f64 / begun.elapsed().as_secs_f64();
    Ok((summary, rate))
}

/// Runs `work` while threads put random keys again; returns the puts per second.
fn while_writing<T>(
    table: &Table, records: u64, value_bytes: usize, work: impl FnOnce() -> Outcome<T>,
) -> Outcome<(T, f64)> {
    let (done, puts) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = |seed| {
            let (done, puts) = (&done, &puts);
            move || -> braid::Result<()> {
                let mut random = SmallRng::seed_from_u64(seed);
                let mut value = vec![0; value_bytes];
                while !done.load(Ordering::Relaxed) {
                    random.fill(&mut value[..]);
                    table.put(key(random.random_range(0..records)), &value)?;
                    puts.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|seed| scope.spawn(writer(seed))).collect();
        let begun = Instant::now();
        let worked = work();
        let rate = puts.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok((worked?, rate))
    })
}

fn back_up_while_writing(
    db: &Database, table: &Table, records: u64, value_bytes: usize, directory: &Path,
) -> Outcome<(f64, f64)> {
    let ((_, rate), puts) = while_writing(table, records, value_bytes, || back_up(&db.begin_backup()?, directory))?;
    // Each sample begins with all waiting operations applied.
    db.drain()?;
    Ok((rate, puts))
}

/// Restores a backup made beside writers, and compares the result with its snapshot, key by key.
fn check(db: &Database, table: &Table, records: u64, value_bytes: usize, home: &Path) -> Outcome<()> {
    let (backups, again) = (home.join("backups"), home.join("again"));
    let (backup, _) = while_writing(table, records, value_bytes, || {
        let backup = db.begin_backup()?;
        back_up(&backup, &backups)?;
        Ok(backup)
    })?;
    let begun = Instant::now();
    let summary = Options::new().restore(&backups, &again, &mut |_| ControlFlow::Continue(()))?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "restored {} MiB in {seconds:.1} s: {:.0} MiB/s",
        summary.bytes >> 20,
        BYTES as f64 / seconds / 1_048_576.0
    );
    let restored = Options::new().read_only(true).open(&again)?;
    let mut found = restored.open_table("records")?.iter();
    let mut expected = backup.snapshot().iter(table);
    let mut compared = 0;
    loop {
        match (expected.next_pair()?, found.next_pair()?) {
            (None, None) => break,
            (one, other) if one == other => compared += 1,
            (one, other) => return Err(format!("{one:?} was restored as {other:?}").into()),
        }
    }
    println!("compared with the snapshot of seq {}: {compared} records are the same", backup.seq().0);
    Ok(())
}

/// Two files, past the page cache.
struct Device {
    psync: Psync,
    from: File,
    to: File,
}

impl Device {
    fn new(home: &Path) -> Outcome<Self> {
        let psync = Psync::new(None)?;
        let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
        let file = |name: &str| psync.open(&home.join(name), &options);
        let device = Self { from: file("from")?, to: file("to")?, psync: psync.clone() };
        // Both files are written in full beforehand, so that reads find written blocks and writes overwrite.
        for file in [&device.from, &device.to] {
            device.requests(file, true)?;
        }
        Ok(device)
    }

    /// Bytes per second read from one file, written to the other, or copied between them.
    fn run(&self, reads: bool, writes: bool) -> Outcome<f64> {
        let begun = Instant::now();
        let (read, written) = thread::scope(|scope| {
            let reading = scope.spawn(|| if reads { self.requests(&self.from, false) } else { Ok(()) });
            let written = if writes { self.requests(&self.to, true) } else { Ok(()) };
            (reading.join(), written)
        });
        written?;
        read.map_err(|_| "the reader panicked")??;
        Ok(BYTES as f64 / begun.elapsed().as_secs_f64())
    }

    fn requests(&self, file: &File, write: bool) -> Result<(), psync::Error> {
        let mut stream = self.psync.stream(DEPTH);
        for request in 0..BYTES / REQUEST_BYTES as u64 {
            let buffer = if stream.in_flight() < DEPTH {
                Some(Buffer::zeroed(REQUEST_BYTES))
            } else if let Some(completion) = stream.next() {
                completion.result?;
                completion.buffer
            } else {
                None
            };
            let buffer = buffer.unwrap_or_else(|| Buffer::zeroed(REQUEST_BYTES));
            let offset = request * REQUEST_BYTES as u64;
            stream.push(if write {
                Request::write(file, offset, buffer, 0)
            } else {
                Request::read(file, offset, buffer, 0)
            });
            stream.submit();
        }
        if write {
            stream.push(Request::flush(file, 0));
        }
        stream.try_for_each(|completion| completion.result)
    }
}
