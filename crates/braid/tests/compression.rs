//! Tables whose documents are compressed.

use std::{ops::ControlFlow, path::Path};

use braid::{ChangeEvent, Compression, Database, Options, Seq, Structure, TableOptions, TableSettings, salvage_on};
use psync::sim::SimDisk;

fn options() -> Options {
    let options = Options::new().background(false).cache_bytes(1 << 20).write_buffer_bytes(1 << 20);
    options.segment_bytes(256 << 10).leaf_pages(1).retain_log_bytes(1 << 20)
}

fn open(disk: &SimDisk, path: &str) -> Database {
    options().open_on(disk.psync(), Path::new(path)).expect("opens")
}

fn each_kind() -> Vec<(String, Structure, Compression)> {
    let of = |structure: Structure| Compression::ALL.map(|compression| (structure, compression));
    let all = Structure::ALL.into_iter().flat_map(of);
    all.map(|(structure, compression)| (format!("{structure} {compression}"), structure, compression)).collect()
}

/// A table of each structure with each compression.
fn create_all(db: &Database) {
    for (name, structure, compression) in each_kind() {
        db.table_with(&name, structure, &TableOptions::new().compression(compression)).expect("a table");
    }
}

fn assert_settings(db: &Database) {
    let mut expected: Vec<_> = each_kind();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    let found: Vec<(String, Structure, TableSettings)> =
        db.tables().into_iter().map(|table| (table.name, table.structure, table.settings)).collect();
    let found: Vec<_> = found.into_iter().map(|(name, of, settings)| (name, of, settings.compression)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_table_keeps_its_settings_over_a_crash_and_a_checkpoint() {
    let disk = SimDisk::new(1);
    let db = open(&disk, "/db");
    create_all(&db);
    assert_settings(&db);
    // Out of the log.
    disk.restart();
    drop(db);
    let db = open(&disk, "/db");
    assert_settings(&db);
    // Out of the checkpoint image.
    db.close().expect("closes");
    let db = open(&disk, "/db");
    assert_settings(&db);
    // One that is there stays as it is.
    let lz4 = TableOptions::new().compression(Compression::Lz4);
    db.table_with("btree zstd", Structure::BTree, &lz4).expect("it is there");
    assert_settings(&db);
}

#[test]
fn every_copy_of_a_table_has_its_settings() {
    let disk = SimDisk::new(1);
    let db = open(&disk, "/db");
    // One that is full of tables, and one that has them from the log.
    let on = &mut |_| ControlFlow::Continue(());
    let (mut full, mut chain) = (Vec::new(), Vec::new());
    let empty = db.begin_backup().expect("begins").stream(&mut chain, on).expect("backs up");
    create_all(&db);
    db.begin_backup().expect("begins").stream(&mut full, on).expect("backs up");
    db.begin_backup().expect("begins").stream_since(&empty.point, &mut chain, on).expect("backs up");
    for (stream, path) in [(&full, "/full"), (&chain, "/chain")] {
        options().restore_on(disk.psync(), &stream[..], Path::new(path)).expect("restores");
        assert_settings(&open(&disk, path));
    }

    // Somebody who follows the changes.
    let follower = open(&disk, "/follower");
    for change in db.changes(Seq(0)).expect("it is kept") {
        if let ChangeEvent::TableCreated { table, structure, settings } = change.expect("it reads").event {
            follower.table_with(&table.name, structure, &TableOptions::new().settings(settings)).expect("a table");
        }
    }
    assert_settings(&follower);

    // Salvage, with a checkpoint and, since it is killed, without one.
    disk.restart();
    drop(db);
    salvage_on(&disk.psync(), Path::new("/db"), Path::new("/logged"), options(), &mut |_| {}).expect("salvages");
    assert_settings(&open(&disk, "/logged"));
    open(&disk, "/db").close().expect("closes");
    salvage_on(&disk.psync(), Path::new("/db"), Path::new("/image"), options(), &mut |_| {}).expect("salvages");
    assert_settings(&open(&disk, "/image"));
}
