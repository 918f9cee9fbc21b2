//! Reads that bring something else than what is stored and say nothing of it: a flipped bit, or what lies elsewhere.
//! Each read of a small run is
//! garbled in each way: what is shown is then right, or an error says that it is damaged, and nothing wrong is written.

use std::path::Path;

use braid::{Database, ErrorKind, Options, Structure, Table};
use psync::sim::{Garble, SimDisk};

use crate::content::{Content, difference, read_all, verify};

const TABLES: [&str; 2] = ["small", "large"];
/// Commits behind the last checkpoint.
const YOUNG: u32 = 20;
const COUNTER: &[u8] = b"counter";
const KINDS: [Garble; 4] = [Garble::Bit, Garble::Elsewhere(4096), Garble::Elsewhere(-8192), Garble::Elsewhere(1 << 20)];

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(64 << 10)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages(2)
}

fn open(disk: &SimDisk, options: Options) -> braid::Result<Database> {
    options.open_on(disk.psync(), Path::new("/db"))
}

fn tables(db: &Database) -> braid::Result<[Table; 2]> {
    Ok([db.open_table(TABLES[0])?, db.open_table(TABLES[1])?])
}

fn byte(number: u32) -> u8 {
    number.to_be_bytes()[3]
}

/// What the tables hold behind the young commit of this number.
fn expected(young: u32) -> [Content; 2] {
    let mut all = [Content::new(), Content::new()];
    for number in 0..3000_u32 {
        all[0].insert(number.to_be_bytes().to_vec(), vec![byte(number); 100]);
    }
    for number in 0..90_u32 {
        all[1].insert(number.to_be_bytes().to_vec(), vec![byte(number); 5000]);
    }
    for number in 1..=young {
        all[0].insert(COUNTER.to_vec(), number.to_be_bytes().to_vec());
        all[0].insert((number * 29).to_be_bytes().to_vec(), b"young".to_vec());
        all[1].insert((number + 10).to_be_bytes().to_vec(), vec![!byte(number); 3000]);
    }
    all
}

fn fill(structure: Structure, disk: &SimDisk) {
    let db = open(disk, options()).expect("opens");
    let tables = TABLES.map(|name| db.table(name, structure).expect("a table"));
    for (table, content) in tables.iter().zip(expected(0)) {
        content.iter().for_each(|(key, value)| table.put(key, value).map(drop).expect("put"));
    }
    // The older slot of the superblock has to name a state that is gone.
    db.checkpoint().expect("a checkpoint");
    db.compact().expect("compacts");
    db.checkpoint().expect("a checkpoint");
    for number in 1..=YOUNG {
        let mut batch = braid::WriteBatch::new();
        batch.put(&tables[0], COUNTER, number.to_be_bytes());
        batch.put(&tables[0], (number * 29).to_be_bytes(), "young");
        batch.put(&tables[1], (number + 10).to_be_bytes(), vec![!byte(number); 3000]);
        db.write(&batch).expect("writes");
    }
    disk.kill();
}

/// Everything, looked up at once and walked both ways, if nothing was found to be damaged; the number of young commits.
/// Panics where what is shown is wrong.
fn read(db: &Database) -> braid::Result<u32> {
    let tables = tables(db)?;
    let counter = tables[0].get(COUNTER)?;
    let young = counter.map_or(0, |bytes| u32::from_be_bytes(bytes.try_into().expect("as it was put")));
    for (table, expected) in tables.iter().zip(expected(young)) {
        let mut keys: Vec<_> = expected.keys().cloned().collect();
        keys.push(b"none".to_vec());
        let found = table.get_many(&keys)?;
        for (key, found) in keys.iter().zip(&found) {
            assert_eq!(found.as_ref(), expected.get(key), "{key:?} of {}", table.name());
        }
        let forward = table.iter().collect::<braid::Result<Content>>()?;
        let backward = table.iter().rev().collect::<braid::Result<Content>>()?;
        for walked in [forward, backward] {
            assert_eq!(difference(&expected, &walked), None, "{}", table.name());
        }
    }
    Ok(young)
}

/// It was found, and nothing else is said to be wrong.
fn is_damage(error: &braid::Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}

fn whoever_only_reads_is_shown_what_is_stored_or_an_error(structure: Structure) {
    let disk = SimDisk::new(1);
    fill(structure, &disk);
    let run = || open(&disk, options().read_only(true)).and_then(|db| read(&db));
    let before = disk.reads();
    assert_eq!(run().expect("reads"), YOUNG);
    let reads = disk.reads() - before;
    assert!(reads > 50, "{reads}");
    let mut found = 0;
    for (count, how) in (0..reads).flat_map(|count| KINDS.map(|how| (count, how))) {
        disk.garble_read(count, how);
        let outcome = run();
        disk.kill();
        match outcome {
            Ok(young) => assert_eq!(young, YOUNG, "read {count} garbled: {how:?}"),
            Err(error) => {
                assert!(is_damage(&error), "read {count} garbled: {how:?}: {error}");
                found += 1;
            }
        }
    }
    assert!(found > reads, "{found} of {reads} reads in {} ways", KINDS.len());
    let db = open(&disk, options()).expect("opens");
    assert_eq!(verify(&db), Ok(()));
}

/// Opens, has rounds and a compaction, and says which of the new puts were acknowledged.
fn write(disk: &SimDisk, put: &mut Vec<u32>) -> braid::Result<()> {
    let db = open(disk, options())?;
    let tables = tables(&db)?;
    for number in 5000..5100_u32 {
        tables[0].put(number.to_be_bytes(), [9; 100])?;
        put.push(number);
    }
    db.checkpoint()?;
    db.compact()?;
    db.close()
}

fn whoever_writes_writes_nothing_wrong(structure: Structure) {
    let reads = {
        let disk = SimDisk::new(1);
        fill(structure, &disk);
        let before = disk.reads();
        write(&disk, &mut Vec::new()).expect("writes");
        disk.reads() - before
    };
    assert!(reads > 50, "{reads}");
    let mut found = 0;
    for (count, how) in (0..reads).flat_map(|count| KINDS.map(|how| (count, how))) {
        let disk = SimDisk::new(1);
        fill(structure, &disk);
        disk.garble_read(count, how);
        let mut put = Vec::new();
        let context = format!("read {count} garbled: {how:?}");
        if let Err(error) = write(&disk, &mut put) {
            assert!(is_damage(&error) || error.kind() == ErrorKind::Failed, "{context}: {error}");
            found += 1;
        }
        disk.restart();
        let db = open(&disk, options()).unwrap_or_else(|error| panic!("{context}: {error}"));
        let [small, large] = tables(&db).expect("tables");
        let [mut expected_small, expected_large] = expected(YOUNG);
        put.iter().for_each(|number| drop(expected_small.insert(number.to_be_bytes().to_vec(), vec![9; 100])));
        let mut read_small = read_all(&small).expect("reads");
        // The put that failed may have happened.
        let next = 5000 + u32::try_from(put.len()).expect("a hundred");
        if put.len() < 100 && read_small.remove(&next.to_be_bytes()[..]).is_some() {
            assert!(found > 0);
        }
        assert_eq!(difference(&expected_small, &read_small), None, "{context}");
        assert_eq!(difference(&expected_large, &read_all(&large).expect("reads")), None, "{context}");
        assert_eq!(verify(&db), Ok(()), "{context}");
    }
    assert!(found > reads, "{found} of {reads} reads in {} ways", KINDS.len());
}

on_every_structure!(whoever_only_reads_is_shown_what_is_stored_or_an_error, whoever_writes_writes_nothing_wrong,);
