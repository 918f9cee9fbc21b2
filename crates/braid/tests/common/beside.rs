//! One table is compacted in one thread while another is written in a second one, until the power goes.
//!
//! 1. The pages that rounds of the written table give up are those that compactions of the other table take.
//! 2. Commit number `n` is a function of `n`, and puts a counter too. What is found after the crash must be what the
//!    first so many commits make, and no fewer than were acknowledged as durable.
//! 3. The compacted table has what it always had.

use std::{collections::BTreeMap, path::Path, thread};

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use psync::sim::SimDisk;

const PATH: &str = "/db";
/// Keys of each table.
const KEYS: u32 = 2000;
/// Puts of a commit.
const PUTS: u32 = 40;
/// Each of so many commits is durable once it is acknowledged.
const DURABLE: u32 = 16;
const COUNTER: &[u8] = b"counter";

fn options() -> Options {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(96 << 10).segment_bytes(64 << 10).leaf_pages(1)
}

fn open(disk: &SimDisk, structure: Structure) -> Result<(Database, [Table; 2]), String> {
    let database = options().open_on(disk.psync(), Path::new(PATH)).map_err(|error| error.to_string())?;
    let table = |name: &str| database.table(name, structure).map_err(|error| error.to_string());
    let tables = [table("compacted")?, table("written")?];
    Ok((database, tables))
}

fn puts(commit: u32) -> impl Iterator<Item = ([u8; 4], [u8; 60])> {
    (0..PUTS).map(move |put| {
        let key = (commit * PUTS + put).wrapping_mul(2_654_435_761) % KEYS;
        (key.to_be_bytes(), [commit.to_le_bytes()[0]; 60])
    })
}

/// Commits until the power goes; how many commits had to be durable by then.
fn write(database: &Database, table: &Table) -> u32 {
    let mut durable = 0;
    for commit in 1.. {
        let mut batch = WriteBatch::new();
        puts(commit).for_each(|(key, value)| batch.put(table, key, value));
        batch.put(table, COUNTER, commit.to_be_bytes());
        let durability = if commit % DURABLE == 0 { Durability::Sync } else { Durability::Os };
        if database.write_with(&batch, durability).is_err() {
            break;
        }
        durable = if durability == Durability::Sync { commit } else { durable };
    }
    durable
}

/// The problem, if there is one.
pub(crate) fn life(structure: Structure, seed: u64) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let (database, [compacted, written]) = open(&disk, structure)?;
    for key in 0..KEYS {
        compacted.put_with(key.to_be_bytes(), [9; 60], Durability::Os).map_err(|error| error.to_string())?;
    }
    database.checkpoint().map_err(|error| error.to_string())?;
    disk.crash_after(200 + seed * 37 % 1500);
    let durable = thread::scope(|scope| {
        scope.spawn(|| while compacted.compact().is_ok() {});
        write(&database, &written)
    });
    drop((compacted, written, database));
    disk.restart();

    let (database, [compacted, written]) = open(&disk, structure)?;
    let content = |table: &Table| {
        let pairs: braid::Result<BTreeMap<Vec<u8>, Vec<u8>>> = table.iter().collect();
        pairs.map_err(|error| format!("seed {seed}: {error}"))
    };
    let expected = (0..KEYS).map(|key| (key.to_be_bytes().to_vec(), vec![9; 60])).collect();
    if content(&compacted)? != expected {
        return Err(format!("seed {seed}: the compacted table has changed"));
    }
    let found = content(&written)?;
    let counter =
        found.get(COUNTER).map_or(Some(0), |counter| Some(u32::from_be_bytes(counter.as_slice().try_into().ok()?)));
    let Some(count) = counter.filter(|count| *count >= durable) else {
        return Err(format!("seed {seed}: {counter:?} commits are there, and {durable} were durable"));
    };
    let puts = (1..=count).flat_map(puts).map(|(key, value)| (key.to_vec(), value.to_vec()));
    let mut expected: BTreeMap<_, _> = puts.collect();
    expected.extend((count > 0).then(|| (COUNTER.to_vec(), count.to_be_bytes().to_vec())));
    if found != expected {
        return Err(format!("seed {seed}: the table is not what {count} commits make"));
    }
    let findings = database.verify().map_err(|error| error.to_string())?.findings;
    if findings.is_empty() { Ok(()) } else { Err(format!("seed {seed}: {findings:?}")) }
}
