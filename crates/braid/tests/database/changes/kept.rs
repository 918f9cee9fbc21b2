//! How far back a feed goes: what is kept of the log and with it, what that costs, and what is told beyond it.

use std::path::Path;

use braid::{ChangeEvent, ChangeOperation, Database, Error, ErrorKind, Options, Seq, Structure, WriteBatch};
use psync::sim::SimDisk;

use crate::whole::directory_of;

const SEGMENT_BYTES: u64 = 64 << 10;

fn options(retain: u64) -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(256 << 10)
        .segment_bytes(SEGMENT_BYTES)
        .leaf_pages(1)
        .retain_log_bytes(retain)
}

fn open(disk: &SimDisk, retain: u64) -> Database {
    options(retain).open_on(disk.psync(), Path::new("/db")).expect("opens")
}

/// Every change behind `from`: its seq, and its event for short.
fn told(db: &Database, from: u64) -> Vec<(u64, String)> {
    let changes = db.changes(Seq(from)).expect("it is kept");
    changes.map(|change| change.map(|change| (change.seq.0, short(&change.event))).expect("it reads")).collect()
}

fn short(event: &ChangeEvent) -> String {
    match event {
        ChangeEvent::Commit(operations) => operations.iter().map(operation).collect::<Vec<_>>().join(" "),
        ChangeEvent::TableCreated { table, structure, .. } => format!("create {} {} {structure}", table.id, table.name),
        ChangeEvent::TableDropped { table } => format!("drop {} {}", table.id, table.name),
        ChangeEvent::Loaded { table } => format!("load {} {}", table.id, table.name),
        other => format!("{other:?}"),
    }
}

fn operation(operation: &ChangeOperation) -> String {
    match operation {
        ChangeOperation::Put { table, key, value, .. } => {
            let (key, first) = (key.escape_ascii(), value.first().copied().unwrap_or_default());
            format!("{}:{key}={}x{first}", table.name, value.len())
        }
        ChangeOperation::Delete { table, key } => format!("{}:{}-", table.name, key.escape_ascii()),
        ChangeOperation::DeleteRange { table, from, to } => {
            let to = to.as_ref().map(|to| to.escape_ascii().to_string()).unwrap_or_default();
            format!("{}:{}..{to}-", table.name, from.escape_ascii())
        }
    }
}

/// Writes about so many bytes of log.
fn write_log(db: &Database, bytes: u64) {
    let table = db.table("filler", Structure::BTree).expect("a table");
    for number in 0..bytes / 1024 {
        table.put((number % 50).to_be_bytes(), vec![7; 960]).expect("put");
    }
}

fn names(disk: &SimDisk, directory: &str) -> Vec<String> {
    let names = disk.files().into_iter().filter(|path| path.starts_with(directory));
    names.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

fn documents(disk: &SimDisk) -> Vec<String> {
    names(disk, "/db/doc")
}

#[test]
fn every_kind_of_change_is_told() {
    let disk = SimDisk::new(1);
    let db = open(&disk, 1 << 20);
    let table = db.table("t", Structure::BTree).expect("a table");
    table.put("a", [1; 10]).expect("put");
    let mut batch = WriteBatch::new();
    batch.put(&table, "a", [2; 3000]);
    batch.put(&table, "b", []);
    batch.delete(&table, "c");
    batch.put(&table, "b", [9; 2]);
    db.write(&batch).expect("writes");
    let loaded = db.table("loaded", Structure::BTree).expect("a table");
    loaded.load([("k", [1; 5000])]).expect("loads");
    loaded.put("k", [3; 1]).expect("put");
    db.compact().expect("compacts");
    drop(loaded);
    db.drop_table("loaded").expect("drops");
    let expected = [
        (1, "create 1 t btree"),
        (2, "t:a=10x1"),
        (3, "t:a=3000x2 t:c- t:b=2x9"),
        (4, "create 2 loaded btree"),
        (5, "load 2 loaded"),
        (6, "loaded:k=1x3"),
        (7, "drop 2 loaded"),
    ];
    let expected: Vec<_> = expected.map(|(seq, what)| (seq, what.to_owned())).into();
    assert_eq!(told(&db, 0), expected);
    assert_eq!(told(&db, 3), expected[3..]);
    assert!(told(&db, 7).is_empty());
    // The same after a checkpoint, that frees the pages of the table that is gone, in another life, and for who only
    // reads.
    db.checkpoint().expect("a checkpoint");
    assert_eq!(told(&db, 0), expected);
    drop(table);
    db.close().expect("closes");
    let db = options(1 << 20).read_only(true).open_on(disk.psync(), Path::new("/db")).expect("opens");
    assert_eq!(told(&db, 0), expected);
    drop(db);
    let db = open(&disk, 1 << 20);
    assert_eq!(told(&db, 0), expected);
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}

#[test]
fn nobody_can_go_on_from_what_is_not_there() {
    let disk = SimDisk::new(2);
    let db = open(&disk, 0);
    let error = db.changes(Seq(1)).expect_err("nothing was committed");
    assert!(matches!(error, Error::ChangesAhead { after: 1, newest: 0 }), "{error}");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let table = db.table("t", Structure::BTree).expect("a table");
    table.put("a", "1").expect("put");
    db.checkpoint().expect("a checkpoint");
    table.put("a", "2").expect("put");
    let error = db.changes(Seq(1)).expect_err("a checkpoint has them, and nothing else was asked for");
    assert!(matches!(error, Error::ChangesGone { after: 1, oldest: 3 }), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().contains("begins with seq 3") && error.to_string().contains("retain_log_bytes"),
        "{error}"
    );
    assert_eq!(db.stats().expect("stats").log.oldest_seq, 3);
    assert_eq!(told(&db, 2), [(3, "t:a=1x50".to_owned())]);
}

#[test]
fn so_much_of_the_log_is_kept_and_no_more() {
    let disk = SimDisk::new(3);
    let retain = 5 * SEGMENT_BYTES;
    let db = open(&disk, retain);
    for round in 0..8 {
        write_log(&db, 3 * SEGMENT_BYTES);
        db.checkpoint().expect("a checkpoint");
        let log = db.stats().expect("stats").log;
        let written = (round + 1) * 3 * SEGMENT_BYTES;
        assert!(log.kept_bytes >= retain.min(written * 9 / 10), "round {round}: {log:?}");
        assert!(log.kept_bytes <= retain + 2 * SEGMENT_BYTES, "round {round}: {log:?}");
        assert!(log.retained_bytes <= 2 * SEGMENT_BYTES, "round {round}: recovery needs less: {log:?}");
        let told = told(&db, log.oldest_seq - 1);
        assert!(told.iter().map(|(seq, _)| *seq).eq(log.oldest_seq..=db.stats().expect("stats").visible_seq));
        assert_eq!(log.oldest_seq == 1, written <= retain, "round {round}: {log:?}");
    }
    let oldest = db.stats().expect("stats").log.oldest_seq;
    db.close().expect("closes");
    // Opening keeps it; a checkpoint of who wants less gives it up.
    let db = open(&disk, 0);
    assert_eq!(db.stats().expect("stats").log.oldest_seq, oldest);
    let mut feed = db.changes(Seq(oldest - 1)).expect("it is kept");
    assert_eq!(feed.next().expect("a change").expect("it reads").seq, Seq(oldest));
    write_log(&db, 2 * SEGMENT_BYTES);
    db.checkpoint().expect("a checkpoint");
    let newest = db.stats().expect("stats").visible_seq;
    assert_eq!(db.stats().expect("stats").log.oldest_seq, newest + 1);
    // What was read ahead is shown, and then it is told that there is no more.
    let mut last = oldest;
    let error = loop {
        match feed.next().expect("it is not through") {
            Ok(change) => {
                assert_eq!(change.seq.0, last + 1);
                last += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::ChangesGone { after, .. } if after == last), "{error}, after {last}");
    assert_eq!(feed.seq(), Seq(last));
}

fn documents_stay_as_long_as_a_kept_commit_names_them(structure: Structure) {
    let disk = SimDisk::new(4);
    let retain = 8 * SEGMENT_BYTES;
    let db = open(&disk, retain);
    let table = db.table("t", structure).expect("a table");
    table.put("a", [1; 20_000]).expect("put");
    drop(table);
    db.close().expect("closes");
    // The segment is sealed by now.
    let db = open(&disk, retain);
    let table = db.open_table("t").expect("a table");
    table.put("a", "short").expect("put");
    db.checkpoint().expect("a checkpoint");
    assert_eq!(db.stats().expect("stats").tables[0].document_live_bytes, 0);
    assert_eq!(documents(&disk), ["1-1.doc"]);
    assert_eq!(told(&db, 1)[0], (2, "t:a=20000x1".to_owned()));
    drop(table);
    db.close().expect("closes");
    let db = open(&disk, retain);
    assert_eq!(told(&db, 1)[0], (2, "t:a=20000x1".to_owned()));
    write_log(&db, retain + 3 * SEGMENT_BYTES);
    db.checkpoint().expect("a checkpoint");
    assert!(db.stats().expect("stats").log.oldest_seq > 2);
    assert_eq!(documents(&disk), [""; 0]);
}

fn documents_that_are_kept_count_like_the_log(structure: Structure) {
    let disk = SimDisk::new(5);
    let retain = 8 * SEGMENT_BYTES;
    for life in 0..6_u64 {
        let db = open(&disk, retain);
        let table = db.table("t", structure).expect("a table");
        table.put("a", vec![7; 300_000]).expect("put");
        db.checkpoint().expect("a checkpoint");
        let stats = db.stats().expect("stats");
        let dead = stats.tables[0].document_bytes - stats.tables[0].document_live_bytes;
        assert!(dead + stats.log.kept_bytes <= retain + 2 * SEGMENT_BYTES, "life {life}: {dead} and {:?}", stats.log);
        assert_eq!(stats.log.oldest_seq > 1, life >= 2, "life {life}");
        told(&db, stats.log.oldest_seq - 1);
        drop(table);
        db.close().expect("closes");
    }
}

fn a_dropped_table_gives_its_space_back_and_is_told_all_the_same(structure: Structure) {
    let disk = SimDisk::new(6);
    let retain = 4 * SEGMENT_BYTES;
    let db = open(&disk, retain);
    let table = db.table("gone", structure).expect("a table");
    table.put("a", [1; 20_000]).expect("put");
    let mut batch = WriteBatch::new();
    (0..100_u8).for_each(|number| batch.put(&table, [number], [number; 500]));
    db.write(&batch).expect("writes");
    db.checkpoint().expect("a checkpoint");
    let used = |db: &Database| {
        let space = db.stats().expect("stats").space;
        space.total_pages - space.free_pages
    };
    let before = used(&db);
    let nodes = || names(&disk, &format!("/db/{}", directory_of(structure)));
    assert_eq!(nodes().is_empty(), structure == Structure::BTree);
    drop(table);
    db.drop_table("gone").expect("drops");
    db.checkpoint().expect("a checkpoint");
    match structure {
        Structure::BTree => assert!(used(&db) + 10 < before, "{} pages of {before}", used(&db)),
        // What became documents when it was applied goes too: no commit names it.
        _ => assert_eq!((nodes(), documents(&disk)), (vec![], vec!["1-1.doc".to_owned()])),
    }
    let expected = told(&db, 0);
    assert_eq!((expected.len(), expected[1].1.as_str(), expected[3].1.as_str()), (4, "gone:a=20000x1", "drop 1 gone"));
    db.close().expect("closes");
    let db = open(&disk, retain);
    assert_eq!(documents(&disk), ["1-1.doc"]);
    assert_eq!(told(&db, 0), expected);
    assert!(db.tables().is_empty());
    write_log(&db, retain + 3 * SEGMENT_BYTES);
    db.checkpoint().expect("a checkpoint");
    assert!(db.changes(Seq(3)).is_err());
    assert_eq!(documents(&disk), [""; 0]);
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}

#[test]
fn on_a_full_disk_the_log_is_not_kept() {
    let disk = SimDisk::new(7);
    let db = open(&disk, 1 << 30);
    write_log(&db, 16 * SEGMENT_BYTES);
    db.checkpoint().expect("a checkpoint");
    assert_eq!(db.stats().expect("stats").log.oldest_seq, 1);
    let used: u64 = disk.files().iter().map(|path| disk.read_file(path).map_or(0, |bytes| bytes.len() as u64)).sum();
    disk.set_capacity(Some(used + 4 * SEGMENT_BYTES));
    // Every put goes in: the log that was kept makes room.
    write_log(&db, 100 * SEGMENT_BYTES);
    let log = db.stats().expect("stats").log;
    assert!(log.oldest_seq > 1000 && log.kept_bytes < used + 4 * SEGMENT_BYTES, "{log:?}");
    // With room again it is kept again.
    disk.set_capacity(None);
    write_log(&db, 20 * SEGMENT_BYTES);
    db.checkpoint().expect("a checkpoint");
    assert!(db.stats().expect("stats").log.kept_bytes > 19 * SEGMENT_BYTES);
}

on_every_structure!(
    documents_stay_as_long_as_a_kept_commit_names_them,
    documents_that_are_kept_count_like_the_log,
    a_dropped_table_gives_its_space_back_and_is_told_all_the_same,
);
