//! Values that are looked at, or kept, where they lie: `get_with` and `get_pinned` say what `get_many` says, which
//! copies and goes another way.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use braid::{Compression, Database, Options, Pinned, Snapshot, Structure, Table, TableOptions, WriteBatch};
use braid::{ManualClock, Transaction};
use psync::sim::SimDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const KEYS: u16 = 400;

on_every_structure!(
    they_say_what_a_batch_says,
    what_is_kept_does_not_change,
    what_looks_may_do_anything,
    a_dropped_table_stays_while_it_is_looked_at,
    readers_meet_whole_values_that_do_not_grow_older,
);

fn options() -> Options {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10).segment_bytes(64 << 10).leaf_pages(2)
}

fn key(number: u16) -> Vec<u8> {
    // Of several lengths, with common beginnings.
    let mut key = format!("key{:05}", u32::from(number) * 7919 % 65_536).into_bytes();
    key.resize(8 + usize::from(number % 30), b'.');
    key
}

/// All of it says the same, so that a value that is mixed of two shows; now and then one that compresses badly.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().repeat(bytes / 8 + 1);
    if version.is_multiple_of(5) {
        SmallRng::seed_from_u64(version).fill(&mut value[8..]);
    }
    value
}

/// Somewhere to read.
enum Place<'a> {
    Table,
    Snapshot(&'a Snapshot),
    Transaction(&'a Transaction),
}

impl Place<'_> {
    fn many(&self, table: &Table, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let found = match self {
            Self::Table => table.get_many(keys),
            Self::Snapshot(snapshot) => snapshot.get_many(table, keys),
            Self::Transaction(transaction) => transaction.get_many(table, keys),
        };
        found.expect("read")
    }

    fn one(&self, table: &Table, key: &[u8]) -> [Option<Vec<u8>>; 3] {
        let (got, looked, kept) = match self {
            Self::Table => (table.get(key), table.get_with(key, <[u8]>::to_vec), table.get_pinned(key)),
            Self::Snapshot(of) => {
                (of.get(table, key), of.get_with(table, key, <[u8]>::to_vec), of.get_pinned(table, key))
            }
            Self::Transaction(of) => {
                (of.get(table, key), of.get_with(table, key, <[u8]>::to_vec), of.get_pinned(table, key))
            }
        };
        let kept = kept.expect("read").map(|value| {
            let seen = value.to_vec();
            assert_eq!(seen, Vec::from(value));
            seen
        });
        [got.expect("read"), looked.expect("read"), kept]
    }

    fn check(&self, table: &Table, keys: &[Vec<u8>], what: &str) {
        for (key, expected) in keys.iter().zip(self.many(table, keys)) {
            for found in self.one(table, key) {
                assert!(found == expected, "{what}: {} is not what a batch says", String::from_utf8_lossy(key));
            }
        }
    }
}

fn they_say_what_a_batch_says(structure: Structure) {
    for (seed, compression) in (0..6).zip([Compression::None, Compression::Lz4, Compression::Zstd].into_iter().cycle())
    {
        let mut random = SmallRng::seed_from_u64(seed);
        let (disk, clock) =
            (SimDisk::new(seed), ManualClock::new(UNIX_EPOCH + Duration::from_millis(1_800_000_000_000)));
        let open = || options().background(false).clock(clock.clone()).open_on(disk.psync(), Path::new("/db"));
        let mut db = open().expect("opens");
        let of = TableOptions::new().compression(compression);
        let mut table = db.table_with("table", structure, &of).expect("a table");
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for step in 0..120_u64 {
            let mut batch = WriteBatch::new();
            for _ in 0..random.random_range(0..12) {
                let (key, version) = (key(random.random_range(0..KEYS)), step * 100 + seed);
                let bytes = [0, 20, 100, 300, 1500, 2500, 9000][random.random_range(0..7)];
                match random.random_range(0..12) {
                    0 => batch.delete(&table, key),
                    1 | 2 => {
                        batch.put_expiring(&table, key, value(version, bytes), Duration::from_secs(60 * (1 + step % 9)))
                    }
                    _ => batch.put(&table, key, value(version, bytes)),
                };
            }
            db.write(&batch).expect("written");
            match random.random_range(0..24) {
                0 => db.checkpoint().expect("a checkpoint"),
                1 => db.drop_caches(),
                2 => clock.advance(Duration::from_millis(60_000)),
                3 => snapshots.push(db.snapshot()),
                4 if !snapshots.is_empty() => drop(snapshots.remove(0)),
                5 => {
                    let low = random.random_range(0..KEYS);
                    table.delete_range(key(low)..key(low.wrapping_add(3))).expect("deleted");
                }
                6 => table.compact().map(drop).expect("compacts"),
                7 if seed % 2 == 0 => {
                    snapshots.clear();
                    drop(table);
                    db.close().expect("closes");
                    db = open().expect("opens");
                    table = db.table("table", structure).expect("a table");
                }
                _ => {}
            }
            let some: Vec<_> = (0..30).map(|_| key(random.random_range(0..KEYS + 20))).collect();
            let what = format!("seed {seed}, step {step}");
            // Twice: what was read is in the cache then, and after that in its front.
            for _ in 0..3 {
                Place::Table.check(&table, &some, &what);
            }
            snapshots.iter().for_each(|snapshot| Place::Snapshot(snapshot).check(&table, &some, &what));
            let mut transaction = db.begin().expect("begins");
            transaction.put(&table, &some[0], "its own").expect("put");
            transaction.delete(&table, &some[1]).expect("deleted");
            Place::Transaction(&transaction).check(&table, &some, &what);
            for key in &some {
                let expiry = table.expiry(key).expect("read");
                assert!(expiry.is_none() || table.get(key).expect("read").is_some(), "{what}");
            }
        }
    }
}

fn what_is_kept_does_not_change(structure: Structure) {
    let disk = SimDisk::new(1);
    let db = options().background(false).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("table", structure).expect("a table");
    let sizes = |number: u16| [10, 200, 1000, 5000][usize::from(number % 4)];
    let put = |version: u64| {
        for number in 0..KEYS {
            table.put(key(number), value(version, sizes(number))).expect("put");
        }
    };
    let pin = |kept: &mut Vec<(u64, usize, Pinned)>, version| {
        for number in (0..KEYS).step_by(7) {
            let value = table.get_pinned(key(number)).expect("read").expect("there");
            kept.push((version, sizes(number), value));
        }
    };
    let mut kept = Vec::new();
    put(1);
    // Some of it waits in queues.
    pin(&mut kept, 1);
    db.checkpoint().expect("a checkpoint");
    (0..3).for_each(|_| pin(&mut kept, 1));
    let check = |kept: &[(u64, usize, Pinned)]| {
        assert!(kept.iter().all(|(version, bytes, seen)| **seen == value(*version, *bytes)[..]));
    };
    put(2);
    db.checkpoint().expect("a checkpoint");
    pin(&mut kept, 2);
    check(&kept);
    table.compact().expect("compacts");
    put(3);
    db.drop_caches();
    db.checkpoint().expect("a checkpoint");
    check(&kept);
    drop(table);
    db.drop_table("table").expect("dropped");
    db.checkpoint().expect("a checkpoint");
    let other = db.table("other", structure).expect("a table");
    (0..KEYS).for_each(|number| other.put(key(number), value(9, 1000)).map(drop).expect("put"));
    db.checkpoint().expect("a checkpoint");
    check(&kept);
    drop(other);
    db.close().expect("closes");
    check(&kept);
}

fn what_looks_may_do_anything(structure: Structure) {
    let db = options().background(false).open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = db.table("table", structure).expect("a table");
    table.put("key", "0").expect("put");
    // More than a thread can borrow at no cost, one inside the other, each of which writes what the ones outside it
    // look at.
    fn deeper(db: &Database, table: &Table, depth: u8) {
        let looked = table.get_with("key", |value| {
            assert_eq!(value, depth.to_string().as_bytes());
            table.put("key", (depth + 1).to_string()).expect("put");
            if depth.is_multiple_of(3) {
                db.checkpoint().expect("a checkpoint");
            }
            if depth < 20 {
                deeper(db, table, depth + 1);
            }
            assert_eq!(value, depth.to_string().as_bytes());
        });
        assert_eq!(looked.expect("read"), Some(()));
    }
    deeper(&db, &table, 0);
    assert_eq!(table.get("key").expect("read").as_deref(), Some(&b"21"[..]));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        table.get_with("key", |_| panic!("of the caller's own")).map(|_: Option<()>| ())
    }));
    assert!(panicked.is_err());
    table.put("key", "after").expect("put");
    assert_eq!(table.get_with("key", <[u8]>::to_vec).expect("read").as_deref(), Some(&b"after"[..]));
    assert_eq!(table.get_with("none", <[u8]>::to_vec).expect("read"), None);
}

fn a_dropped_table_stays_while_it_is_looked_at(structure: Structure) {
    let db = options().background(false).open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = db.table("table", structure).expect("a table");
    (0..KEYS).for_each(|number| table.put(key(number), value(7, 200)).map(drop).expect("put"));
    db.checkpoint().expect("a checkpoint");
    let used = || db.stats().map(|stats| stats.space.total_pages - stats.space.free_pages).expect("stats");
    let wanted = key(5);
    for _ in 0..3 {
        table.get(&wanted).expect("read").expect("there");
    }
    let while_it_is_held = table.get_with(&wanted, |seen| {
        db.drop_table("table").expect("dropped");
        (0..2).for_each(|_| db.checkpoint().expect("a checkpoint"));
        assert_eq!(seen, value(7, 200));
        used()
    });
    let held = while_it_is_held.expect("read").expect("there");
    table.get_with(&wanted, |_| ()).expect_err("it was dropped");
    (0..2).for_each(|_| db.checkpoint().expect("a checkpoint"));
    if structure == Structure::BTree {
        assert!(used() < held, "its pages are free when nobody looks at it any more, and not before");
    }
}

fn readers_meet_whole_values_that_do_not_grow_older(structure: Structure) {
    const VERSIONS: u64 = 60;
    const READERS: usize = 3;
    let db = options().open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = db.table("table", structure).expect("a table");
    let bytes = |number: u16| [16, 120, 700, 3000][usize::from(number % 4)];
    // No multiples of five: whole versions.
    let version = |round: u64| round * 5 + 1;
    let put =
        |round: u64, number: u16| table.put(key(number), value(version(round), bytes(number))).map(drop).expect("put");
    (0..KEYS).for_each(|number| put(0, number));
    let writing = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for writer in 0..2_u16 {
            let (put, writing) = (&put, &writing);
            scope.spawn(move || {
                for round in 1..VERSIONS {
                    (0..KEYS).filter(|number| number % 2 == writer).for_each(|number| put(round, number));
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reader in 0..READERS {
            let (table, writing) = (&table, &writing);
            scope.spawn(move || {
                let (mut random, mut last) = (SmallRng::seed_from_u64(reader as u64), vec![0_u64; KEYS.into()]);
                let mut kept: Vec<(u64, Pinned)> = Vec::new();
                let mut goes_on = true;
                while goes_on {
                    goes_on = writing.load(Ordering::SeqCst) > 0;
                    for _ in 0..200 {
                        let number = random.random_range(0..KEYS);
                        let whole = |value: &[u8]| {
                            let version = u64::from_le_bytes(*value.first_chunk().expect("long enough"));
                            assert!(value.chunks_exact(8).all(|word| word == version.to_le_bytes()));
                            assert_eq!(value.len(), bytes(number) / 8 * 8 + 8);
                            version
                        };
                        let version = if random.random() {
                            let value = table.get_pinned(key(number)).expect("read").expect("there");
                            let version = whole(&value);
                            if kept.len() < 50 {
                                kept.push((version, value));
                            }
                            version
                        } else {
                            table.get_with(key(number), whole).expect("read").expect("there")
                        };
                        let last = &mut last[usize::from(number)];
                        assert!(version >= *last, "key {number} had version {last}, and then {version}");
                        *last = version;
                    }
                    for (version, value) in kept.drain(..) {
                        assert!(value.chunks_exact(8).all(|word| word == version.to_le_bytes()));
                    }
                }
            });
        }
    });
}
