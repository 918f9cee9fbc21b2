//! What is free of the write buffer serves reads, and is the write buffer's again as soon as it is wanted.

use std::path::Path;

use braid::{Database, Options, Structure, Table, TableOptions, WriteBatch};
use psync::sim::SimDisk;

const BUFFER: u64 = 4 << 20;
const KEYS: u32 = 40_000;

on_every_structure!(
    what_was_read_is_not_read_again,
    a_loan_goes_back_as_operations_come_and_comes_again,
    nothing_is_lent_where_that_is_not_wanted,
);

fn options() -> Options {
    Options::new().cache_bytes(256 << 10).write_buffer_bytes(BUFFER).background(false)
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9E37_79B9).to_be_bytes()
}

fn open(options: Options, structure: Structure) -> (Database, Table) {
    let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = database.table_with("table", structure, &TableOptions::new()).expect("created");
    (database, table)
}

fn fill(database: &Database, table: &Table, version: u8) {
    for first in (0..KEYS).step_by(1000) {
        let mut batch = WriteBatch::new();
        (first..first + 1000).for_each(|number| batch.put(table, key(number), [version; 60]));
        database.write(&batch).expect("commits");
    }
}

fn read_all(table: &Table, numbers: &[u32], version: u8) {
    for number in numbers {
        assert_eq!(table.get(key(*number)).expect("reads"), Some(vec![version; 60]));
    }
    let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
    assert!(table.get_many(&keys).expect("reads").iter().all(|value| value.as_deref() == Some(&[version; 60])));
}

/// Requests that read tables.
fn reads(database: &Database) -> u64 {
    let streams = database.stats().expect("stats").streams;
    streams.iter().filter(|stream| stream.stream != "wal").map(|stream| stream.reads).sum()
}

fn what_was_read_is_not_read_again(structure: Structure) {
    let (database, table) = open(options(), structure);
    fill(&database, &table, 1);
    database.drain().expect("applies");
    // Keys of many leaves, more than the cache has room for.
    let numbers: Vec<_> = (0..KEYS).step_by(73).collect();
    read_all(&table, &numbers, 1);
    let before = reads(&database);
    read_all(&table, &numbers, 1);
    let cache = database.stats().expect("stats").cache;
    assert!(cache.secondary_hits > 100 && cache.secondary_bytes > 1 << 20, "{cache:?}");
    assert!(reads(&database) - before < 50, "{} of {}", reads(&database) - before, 2 * numbers.len());
    // Other values are other pages.
    fill(&database, &table, 2);
    read_all(&table, &numbers, 2);
    database.drain().expect("applies");
    read_all(&table, &numbers, 2);
    database.drop_caches();
    assert_eq!(database.stats().expect("stats").cache.secondary_bytes, 0);
    read_all(&table, &numbers, 2);
}

fn a_loan_goes_back_as_operations_come_and_comes_again(structure: Structure) {
    let (database, table) = open(options(), structure);
    let lent = || database.stats().expect("stats").cache.lent_bytes;
    assert_eq!(lent(), BUFFER / 4 * 3);
    let (mut least, mut both) = (u64::MAX, 0);
    for round in 0..20 {
        fill(&database, &table, round);
        read_all(&table, &(0..KEYS).step_by(500).collect::<Vec<_>>(), round);
        let stats = database.stats().expect("stats");
        least = least.min(stats.cache.lent_bytes);
        both = both.max(stats.write_buffer_bytes + stats.cache.secondary_bytes);
        assert!(stats.cache.secondary_bytes <= stats.cache.lent_bytes);
    }
    assert!(least < BUFFER / 4, "{least} bytes were lent while {BUFFER} were filled");
    assert!(both <= BUFFER, "{both} of {BUFFER}");
    database.drain().expect("applies");
    assert!(lent() > BUFFER / 8 * 5, "{} bytes", lent());
    read_all(&table, &(0..KEYS).collect::<Vec<_>>(), 19);
}

fn nothing_is_lent_where_that_is_not_wanted(structure: Structure) {
    let (database, table) = open(options().lend_write_buffer(false), structure);
    fill(&database, &table, 1);
    database.drain().expect("applies");
    read_all(&table, &(0..KEYS).step_by(73).collect::<Vec<_>>(), 1);
    let cache = database.stats().expect("stats").cache;
    assert_eq!((cache.lent_bytes, cache.secondary_bytes, cache.secondary_hits), (0, 0, 0));
}
