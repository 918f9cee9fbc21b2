//! The rate of filling a new table, and the bytes written per byte of the user, by file.
//!
//! `cargo run --release -p braid-bench --example fill -- DIR [RECORDS [STRUCTURE [ORDER [DURABILITY [THREADS]]]]]`
//! makes a database in DIR. The cache has 32 MiB, the write buffer 64 MiB; records of 16 + 100 bytes are put in batches
//! of 1,000. ORDER is `ascending`, `descending`, `random`, or `streams`: 200 prefixes, with ascending keys below each.
//! The first rate is that of the writes; the second counts until all is applied. Then every record is read in key order
//! and checked. The environment may give other VALUE_BYTES, and LEAF_PAGES.
//! every record is read in key order and checked. The environment may give other VALUE_BYTES, and LEAF_PAGES.

use std::{error::Error, str::FromStr, thread, time::Instant};

use bench::{block, keys, values};
use braid::{Database, Durability, Options, Structure, Table, WriteBatch};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const KEY_BYTES: usize = 16;
const BATCH: u64 = 1_000;
const STREAMS: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
    Random,
    Streams,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ascending" => Ok(Self::Ascending),
            "descending" => Ok(Self::Descending),
            "random" => Ok(Self::Random),
            "streams" => Ok(Self::Streams),
            other => Err(format!("no order `{other}`")),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let scratch = tempfile::tempdir_in(arguments.next().ok_or("give a directory on the device to measure")?)?;
    let records = arguments.next().map_or(Ok(3_000_000), |text| text.parse())?;
    let structure = arguments.next().map_or(Ok(Structure::BTree), |text| text.parse())?;
    let order = arguments.next().map_or(Ok(Order::Ascending), |text| text.parse())?;
    let durability = match arguments.next().as_deref() {
        None | Some("os") => Durability::Os,
        Some("sync") => Durability::Sync,
        Some(other) => return Err(format!("no durability `{other}`").into()),
    };
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let mut options = Options::new().durability(durability).cache_bytes(32 << 20).write_buffer_bytes(64 << 20);
    if let Some(pages) = set("LEAF_PAGES") {
        options = options.leaf_pages(pages);
    }
    let db = options.open(scratch.path().join("db"))?;
    let table = db.table("records", structure)?;
    measure(&db, &table, records, order, threads).map_err(|error| error as Box<dyn Error>)
}

/// A number from the environment.
fn set(name: &str) -> Option<u32> {
    std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok())
}

fn value_bytes() -> usize {
    set("VALUE_BYTES").map_or(100, |bytes| bytes as usize)
}

/// The record put at `position`.
fn record(order: Order, records: u64, position: u64) -> u64 {
    let each = records / STREAMS;
    match order {
        Order::Ascending => position,
        Order::Descending => records - 1 - position,
        Order::Random => keys::Permutation::new(records, 1).at(position),
        Order::Streams if position < each * STREAMS => position % STREAMS * each + position / STREAMS,
        Order::Streams => position,
    }
}

fn fill(db: &Database, table: &Table, records: u64, order: Order, thread: u64, threads: u64) -> Outcome<()> {
    let (mut key, mut value) = ([0; KEY_BYTES], vec![0; value_bytes()]);
    let mut batch = WriteBatch::new();
    let mut at = thread * BATCH;
    while at < records {
        for position in at..(at + BATCH).min(records) {
            let record = record(order, records, position);
            keys::write(record, &mut key);
            values::write(record, 0, &mut value);
            batch.put(table, key, &value);
        }
        db.write(&batch)?;
        batch.clear();
        at += threads * BATCH;
    }
    Ok(())
}

fn measure(db: &Database, table: &Table, records: u64, order: Order, threads: u64) -> Outcome<()> {
    let user = records * (KEY_BYTES + value_bytes()) as u64;
    let (device, begun) = (block::written_bytes(db.path()), Instant::now());
    thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads).map(|thread| scope.spawn(move || fill(db, table, records, order, thread, threads))).collect();
        fill(db, table, records, order, 0, threads)?;
        others.into_iter().try_for_each(|other| other.join().expect("a writer that does not panic"))
    })?;
    let wrote = begun.elapsed();
    let at_once = db.stats()?;
    db.drain()?;
    let through = begun.elapsed();
    let rate = |seconds: f64| records as f64 / seconds / 1e3;
    println!("{:.0} k records/s, {:.0} until all is applied", rate(wrote.as_secs_f64()), rate(through.as_secs_f64()));
    let stats = db.stats()?;
    let times = |bytes: u64| bytes as f64 / user as f64;
    for (name, stats) in [("written by then", &at_once), ("written", &stats)] {
        let streams = stats.streams.iter().filter(|stream| stream.written_bytes > 0);
        let streams: Vec<_> = streams
            .map(|stream| {
                let each = stream.written_bytes / stream.writes.max(1) / 1024;
                format!("{} {:.2} ({} writes of {each} KiB)", stream.stream, times(stream.written_bytes), stream.writes)
            })
            .collect();
        println!("{name}, for each byte: {}", streams.join(", "));
    }
    if let Some(written) = block::written_since(db.path(), device) {
        println!("written to the device, for each byte: {:.2}", times(written));
    }
    println!(
        "{} applies of {} operations, {:.2} s; {} checkpoints, {:.2} s of log flushes",
        stats.applies,
        stats.applied_operations,
        stats.apply_seconds,
        stats.checkpoints,
        stats.log.flush_ns as f64 / 1e9
    );
    for table in &stats.tables {
        let filled = table.entry_bytes as f64 / table.stored_bytes.max(1) as f64;
        let figure = |name: &str| table.figure(name).map_or_else(|| "?".to_owned(), |value| value.to_string());
        println!("{} leaves, {filled:.3} full; a new one has {} bytes", figure("leaves"), figure("new leaf"));
    }
    let mut expected = 0;
    for pair in table.iter() {
        let (key, value) = pair?;
        if keys::index(&key) != Some(expected) || !values::is_right(expected, &value) {
            return Err(format!("record {expected} is not what was put").into());
        }
        expected += 1;
    }
    if expected != records {
        return Err(format!("{expected} records of {records}").into());
    }
    Ok(())
}
