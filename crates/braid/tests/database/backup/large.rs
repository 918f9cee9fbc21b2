//! Backups of tables that several threads walk.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use braid::{Database, Error, Options, Structure, Table, WriteBatch};
use psync::sim::SimDisk;

use super::{Tables, assert_holds, database, full, on, options, restored, table, tables};

const PAIRS: u32 = 30_000;
/// Bytes of a value that stays in its leaf, whatever the structure, by four.
const VALUE: usize = 60;
const DOCUMENTS: u32 = 2000;

/// Scattered, so that documents lie in no order of keys.
fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9E37_79B1).to_be_bytes()
}

/// More than a few stretches of pairs, and more documents than are gathered at a time.
fn fill(db: &Database, structure: Structure) -> Table {
    let table = table(db, structure, "large");
    let mut batch = WriteBatch::new();
    for number in 0..PAIRS {
        batch.put(&table, key(number), [number.to_le_bytes(); VALUE].concat());
        if number % (PAIRS / DOCUMENTS) == 0 {
            batch.put(&table, [&key(number)[..], b"document"].concat(), [number.to_le_bytes(); 1300].concat());
        }
        if batch.bytes() > 1 << 20 {
            db.write(&batch).expect("writes");
            batch.clear();
        }
    }
    db.write(&batch).expect("writes");
    db.drain().expect("is applied");
    table
}

fn small_buffer() -> Options {
    options().write_buffer_bytes(64 << 10)
}

fn all_of_a_large_table_is_there_once_while_it_is_written_to(structure: Structure) {
    for options in [options(), small_buffer(), small_buffer().background(false)] {
        let disk = SimDisk::new(1);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let large = fill(&db, structure);
        let backup = db.begin_backup().expect("begins");
        let expected = tables(&db);
        let done = AtomicBool::new(false);
        let mut stream = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..PAIRS).cycle() {
                    large.put(key(number), number.to_le_bytes()).expect("puts");
                    large.delete([&key(number)[..], b"document"].concat()).expect("deletes");
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let summary = backup.stream(&mut stream, &mut on).expect("backs up");
            done.store(true, Ordering::Relaxed);
            assert_eq!((summary.pairs, summary.changes), (u64::from(PAIRS + DOCUMENTS), 0));
        });
        let (_, summary) = restored(&stream).expect("restores");
        assert_eq!((summary.pairs, summary.changes), (u64::from(PAIRS), u64::from(DOCUMENTS)));
        assert_holds(&stream, &expected);
    }
}

fn a_table_that_was_dropped_since_is_there(structure: Structure) {
    let db = database(&SimDisk::new(1));
    let large = fill(&db, structure);
    let backup = db.begin_backup().expect("begins");
    let expected = tables(&db);
    drop(large);
    db.drop_table("large").expect("drops");
    assert_holds(&full(&backup), &expected);
    assert_eq!(tables(&db), Tables::new());
}

fn what_one_thread_finds_damaged_is_told(structure: Structure) {
    let disk = SimDisk::new(1);
    let open = || options().cache_bytes(64 << 10).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let db = open();
    drop(fill(&db, structure));
    db.close().expect("closes");
    let wanted = [(PAIRS / 2).to_le_bytes(); VALUE].concat();
    // Whichever copy is walked: others may be left of what was made anew since.
    let mut damaged = Vec::new();
    for file in disk.files().into_iter().filter(|file| !file.starts_with("/db/wal")) {
        let bytes = disk.read_file(&file).expect("a file");
        let copies = bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted);
        for (at, _) in copies {
            assert!(disk.flip_bit(&file, at as u64 + 100));
            damaged.push(file.clone());
        }
    }
    assert!(!damaged.is_empty(), "it is stored");
    let db = open();
    let mut stream = Vec::new();
    let outcome = db.begin_backup().expect("begins").stream(&mut stream, &mut on);
    let is_told =
        matches!(&outcome, Err(Error::Corrupt { file, .. }) if damaged.iter().any(|one| Path::new(file) == one));
    assert!(is_told, "{outcome:?}");
    assert!(restored(&stream).is_err(), "it has no end");
}

on_every_structure!(
    all_of_a_large_table_is_there_once_while_it_is_written_to,
    a_table_that_was_dropped_since_is_there,
    what_one_thread_finds_damaged_is_told,
);
