//! Bytes that a database takes on the disk per byte of its user: loaded in random order, packed, overwritten again and
//! again, and emptied. The cache has 32 MiB, the write buffer 64 MiB; the other options are the defaults.
//!
//! `cargo run --release -p braid-bench --example space -- DIRECTORY [RECORDS]`

use std::path::Path;

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const RECORDS: u64 = 3_000_000;
const BATCH: u64 = 1000;
/// Records of the table that is overwritten as a whole.
const OVERWRITTEN: u64 = 600_000;
/// Number of times that a table of short values is overwritten, key by key in random order.
const TURNS: u64 = 3;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, others @ ..] = arguments.as_slice() else {
        return Err("give a directory on the device to measure".into());
    };
    let records = others.first().map_or(Ok(RECORDS), |records| records.parse())?;
    println!("bytes on the disk for each of the user; of these the log");
    println!("{:<44} {:>8} {:>14} {:>14}", "", "", "all", "log");
    for &structure in Structure::ALL {
        for measure in [random_load, overwritten, short_values] {
            let scratch = tempfile::tempdir_in(directory)?;
            let options = Options::new().cache_bytes(32 << 20).write_buffer_bytes(64 << 20);
            let db = options.durability(Durability::Os).open(scratch.path())?;
            let table = db.table("table", structure)?;
            measure(scratch.path(), db, table, records)?;
        }
    }
    Ok(())
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn put(db: &Database, table: &Table, numbers: impl Iterator<Item = u64>, value: &[u8]) -> Outcome<()> {
    in_batches(db, numbers, |batch, number| batch.put(table, key(number), value))
}

fn in_batches(
    db: &Database, numbers: impl Iterator<Item = u64>, mut add: impl FnMut(&mut WriteBatch, u64),
) -> Outcome<()> {
    let mut batch = WriteBatch::new();
    for number in numbers {
        add(&mut batch, number);
        if batch.len() as u64 == BATCH {
            db.write(&batch)?;
            batch.clear();
        }
    }
    db.write(&batch)?;
    Ok(())
}

/// Bytes of files on the disk.
fn disk_bytes(path: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        // The file may have been released meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

fn show(what: &str, structure: Structure, path: &Path, user_bytes: u64) -> Outcome<()> {
    let (all, log) = (disk_bytes(path)?, disk_bytes(&path.join("wal"))?);
    if user_bytes == 0 {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!("{what:<44} {structure:>8} {:>10.2} MiB {:>10.2} MiB", mib(all), mib(log));
    } else {
        let each = |bytes: u64| bytes as f64 / user_bytes as f64;
        println!("{what:<44} {structure:>8} {:>13.3}x {:>13.3}x", each(all), each(log));
    }
    Ok(())
}

fn compact(db: &Database) -> Outcome<()> {
    db.compact()?;
    Ok(())
}

fn random_load(path: &Path, db: Database, table: Table, records: u64) -> Outcome<()> {
    let structure = table.structure();
    let user_bytes = records * 116;
    put(&db, &table, 0..records, &[7; 100])?;
    show("loaded in random order", structure, path, user_bytes)?;
    db.checkpoint()?;
    show("  and a checkpoint", structure, path, user_bytes)?;
    let mut random = SmallRng::seed_from_u64(1);
    put(&db, &table, (0..records / 3).map(|_| random.random_range(0..records)), &[8; 100])?;
    db.checkpoint()?;
    show("  a third updated, and a checkpoint", structure, path, user_bytes)?;
    compact(&db)?;
    show("  compacted", structure, path, user_bytes)?;
    in_batches(&db, 0..records, |batch, number| batch.delete(&table, key(number)))?;
    db.checkpoint()?;
    show("  all keys deleted, and a checkpoint", structure, path, 0)?;
    compact(&db)?;
    show("  compacted", structure, path, 0)?;
    drop(table);
    db.close()?;
    show("  closed", structure, path, 0)
}

fn overwritten(path: &Path, db: Database, table: Table, _records: u64) -> Outcome<()> {
    let structure = table.structure();
    for turn in 0..4 {
        put(&db, &table, 0..OVERWRITTEN, &[turn; 100])?;
    }
    db.checkpoint()?;
    show("70 MB overwritten three times, a checkpoint", structure, path, OVERWRITTEN * 116)?;
    compact(&db)?;
    show("  compacted", structure, path, OVERWRITTEN * 116)
}

/// Measures the most space during the overwriting, at the moment of the most space beside the log.
fn short_values(path: &Path, db: Database, table: Table, records: u64) -> Outcome<()> {
    let structure = table.structure();
    let user_bytes = records * 32;
    put(&db, &table, 0..records, &[7; 16])?;
    let mut random = SmallRng::seed_from_u64(1);
    let (mut most, mut most_log) = (0, 0);
    for _ in 0..TURNS * 20 {
        put(&db, &table, (0..records / 20).map(|_| random.random_range(0..records)), &[8; 16])?;
        let (all, log) = (disk_bytes(path)?, disk_bytes(&path.join("wal"))?);
        if all - log > most {
            (most, most_log) = (all - log, log);
        }
    }
    let each = |bytes: u64| bytes as f64 / user_bytes as f64;
    println!(
        "{:<44} {structure:>8} {:>13.3}x {:>13.3}x",
        "values of 16 B overwritten, at most, no log",
        each(most),
        each(most_log)
    );
    db.checkpoint()?;
    show("  and a checkpoint", structure, path, user_bytes)?;
    compact(&db)?;
    show("  compacted", structure, path, user_bytes)
}
