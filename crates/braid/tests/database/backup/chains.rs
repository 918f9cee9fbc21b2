//! Incremental backups: what they continue, and what they hold.

use std::path::Path;

use braid::{BackupPoint, Database, Durability, Error, ErrorKind, Structure, WriteBatch};
use psync::sim::SimDisk;

use super::{assert_holds, database, full, on, options, restored, table, tables};

/// A chain as it grows.
struct Chain {
    stream: Vec<u8>,
    point: BackupPoint,
}

impl Chain {
    fn begin(db: &Database) -> Self {
        let mut stream = Vec::new();
        let summary = db.begin_backup().expect("begins").stream(&mut stream, &mut on).expect("backs up");
        Self { stream, point: summary.point }
    }

    /// Continues it, and looks whether it holds what the database does; the changes that came.
    #[track_caller]
    fn go_on(&mut self, db: &Database) -> u64 {
        let backup = db.begin_backup().expect("begins");
        let summary = backup.stream_since(&self.point, &mut self.stream, &mut on).expect("backs up");
        assert!(summary.incremental);
        self.point = summary.point;
        assert_holds(&self.stream, &tables(db));
        summary.changes
    }
}

fn a_chain_holds_what_comes_and_goes_between_its_backups(structure: Structure) {
    let db = database(&SimDisk::new(1));
    let one = table(&db, structure, "one");
    one.put("a", "1").expect("puts");
    one.put("b", vec![2; 5000]).expect("puts");
    one.put("long", vec![3; 600 << 10]).expect("puts");
    table(&db, structure, "goes").put("x", "y").expect("puts");
    let mut chain = Chain::begin(&db);
    assert_eq!(chain.go_on(&db), 0, "nothing changed");

    one.put("a", "other").expect("puts");
    one.delete("b").expect("deletes");
    one.put("new", vec![4; 700 << 10]).expect("puts");
    one.put("empty", "").expect("puts");
    assert_eq!(chain.go_on(&db), 4);

    db.drop_table("goes").expect("drops");
    assert_eq!(chain.go_on(&db), 1);

    // The same name again, with something else in it.
    table(&db, structure, "goes").put("z", "z").expect("puts");
    let mut batch = WriteBatch::new();
    batch.delete(&one, "a");
    batch.put(&table(&db, structure, "goes"), "both", "tables");
    db.write(&batch).expect("writes");
    chain.go_on(&db);

    // One that comes and goes between two backups.
    table(&db, structure, "short").put("k", "v").expect("puts");
    db.drop_table("short").expect("drops");
    db.drop_table("goes").expect("drops");
    chain.go_on(&db);
    assert_eq!(chain.go_on(&db), 0);
}

fn loads_are_in_it_though_the_log_has_not_what_they_brought(structure: Structure) {
    let db = database(&SimDisk::new(1));
    let loaded = table(&db, structure, "loaded");
    loaded.put("before", "the load").expect("puts");
    loaded.delete("before").expect("deletes");
    let mut chain = Chain::begin(&db);

    let pairs = || (0..5000_u32).map(|number| (number.to_be_bytes(), vec![7; (number % 3000) as usize]));
    assert_eq!(loaded.load(pairs()).expect("loads"), 5000);
    loaded.put(77_u32.to_be_bytes(), "changed since").expect("puts");
    loaded.delete(78_u32.to_be_bytes()).expect("deletes");
    let other = table(&db, structure, "other");
    other.load([("a", "b")]).expect("loads");
    other.put("c", "d").expect("puts");
    // Loaded, and gone.
    table(&db, structure, "gone").load(pairs()).expect("loads");
    db.drop_table("gone").expect("drops");
    chain.go_on(&db);

    other.put("later", "on").expect("puts");
    loaded.put(1_u32.to_be_bytes(), "later").expect("puts");
    assert_eq!(chain.go_on(&db), 2);

    // Emptied, and loaded once more, twice in one backup.
    for _ in 0..2 {
        other.iter().keys_only().for_each(|pair| other.delete(pair.expect("scans").0).map(drop).expect("deletes"));
        other.load([("again", "and again")]).expect("loads");
    }
    chain.go_on(&db);
}

fn a_chain_goes_on_after_the_database_was_closed_killed_or_lost_its_power(structure: Structure) {
    let disk = SimDisk::new(5);
    let mut db = database(&disk);
    table(&db, structure, "t").put("k", "0").expect("puts");
    let mut chain = Chain::begin(&db);
    for life in 1..30_u32 {
        // What is only in memory when a backup begins is durable when it has: else its seq could come again.
        let durability =
            if life % 2 == 0 { Durability::Os } else { Durability::Lazy(std::time::Duration::from_secs(3600)) };
        for number in 0..life {
            table(&db, structure, "t").put_with(number.to_be_bytes(), life.to_be_bytes(), durability).expect("puts");
        }
        chain.go_on(&db);
        table(&db, structure, "t").put_with("lost, perhaps", life.to_be_bytes(), durability).expect("puts");
        match life % 3 {
            0 => db.close().expect("closes"),
            1 => {
                disk.kill();
                drop(db);
            }
            _ => {
                disk.restart();
                drop(db);
            }
        }
        db = database(&disk);
        chain.go_on(&db);
    }
}

#[test]
fn what_cannot_be_continued_is_refused_and_says_what_to_do() {
    let disk = SimDisk::new(1);
    let db = database(&disk);
    let t = table(&db, Structure::BTree, "t");
    t.put("a", "1").expect("puts");
    let chain = Chain::begin(&db);
    let refused = |db: &Database, point: &BackupPoint| {
        let backup = db.begin_backup().expect("begins");
        backup.stream_since(point, std::io::sink(), &mut on).expect_err("it is refused")
    };

    let another = database(&SimDisk::new(2));
    let error = refused(&another, &chain.point);
    assert!(matches!(&error, Error::BackupChain { problem, .. } if problem == "it is of another database"), "{error}");

    let ahead = chain.point.to_string().rsplit_once('-').map(|(ids, _)| format!("{ids}-99")).expect("a point");
    let error = refused(&db, &ahead.parse().expect("a point"));
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("the database is at seq 2 only"), "{error}");

    drop(t);
    db.close().expect("closes");
    let db = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
    for number in 0..40_000_u32 {
        table(&db, Structure::BTree, "t").put_with(number.to_be_bytes(), [1; 100], Durability::Os).expect("puts");
    }
    db.checkpoint().expect("checkpoints");
    let error = refused(&db, &chain.point);
    assert!(matches!(error, Error::BackupGap { after: 2, oldest } if oldest > 3), "{error}");
    assert!(error.to_string().contains("Make a full backup"), "{error}");
}

#[test]
fn backups_in_the_wrong_order_are_refused() {
    let db = database(&SimDisk::new(1));
    let mut parts = Vec::new();
    let first = db.begin_backup().expect("begins");
    parts.push(full(&first));
    let mut point = first.stream(std::io::sink(), &mut on).expect("backs up").point;
    for number in 0..2_u8 {
        table(&db, Structure::BTree, "t").put([number], "value").expect("puts");
        let mut bytes = Vec::new();
        let backup = db.begin_backup().expect("begins");
        point = backup.stream_since(&point, &mut bytes, &mut on).expect("backs up").point;
        parts.push(bytes);
    }
    let of = |order: &[usize]| order.iter().flat_map(|&part| parts[part].clone()).collect::<Vec<u8>>();
    let (_, summary) = restored(&of(&[0, 1, 2])).expect("restores");
    assert_eq!((summary.backups, summary.seq), (3, point.seq()));
    for (wrong, problem) in [
        (&[1, 2][..], "nothing is before it"),
        (&[0, 2], "it continues another one"),
        (&[0, 2, 1], "it continues another one"),
        (&[0, 1, 1], "it continues another one"),
        (&[0, 1, 0], "it is a full one"),
    ] {
        let error = restored(&of(wrong)).map(drop).expect_err("it is refused");
        assert!(
            matches!(error, Error::BackupChain { .. }) && error.to_string().contains(problem),
            "{wrong:?}: {error}"
        );
    }
}

on_every_structure!(
    a_chain_holds_what_comes_and_goes_between_its_backups,
    loads_are_in_it_though_the_log_has_not_what_they_brought,
    a_chain_goes_on_after_the_database_was_closed_killed_or_lost_its_power,
);
