//! Tables whose documents are compressed.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use braid::{
    ChangeEvent, CompactOptions, Compression, Database, Error, Options, Seq, Structure, Table, TableOptions,
    TableSettings, WriteBatch, salvage_on,
};
use psync::sim::SimDisk;

use crate::values::value;

fn options() -> Options {
    let options = Options::new().background(false).cache_bytes(1 << 20).write_buffer_bytes(1 << 20);
    options.segment_bytes(256 << 10).leaf_pages(1).retain_log_bytes(1 << 20)
}

fn open(disk: &SimDisk, path: &str) -> Database {
    options().open_on(disk.psync(), Path::new(path)).expect("opens")
}

fn each_kind() -> Vec<(String, Structure, Compression)> {
    let of = |structure: Structure| Compression::ALL.map(|compression| (structure, compression));
    let all = Structure::ALL.iter().copied().flat_map(of);
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

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values around every threshold, half of which become shorter when they are compressed: 512 MiB is stood for by some
/// MiB, more than a segment has.
fn content() -> Content {
    let lengths = [0, 1, 255, 256, 257, 300, 2047, 2048, 2049, 4096, 70_000, 300_000, 3 << 20];
    let all = lengths.into_iter().flat_map(|bytes| [2, 3, 4].map(|first: u8| (bytes, first)));
    all.map(|(bytes, first)| (format!("{bytes:08}/{first}").into_bytes(), value(first, bytes))).collect()
}

fn fill(db: &Database, table: &Table, content: &Content) {
    // Some by themselves, some together.
    for (index, pairs) in content.iter().collect::<Vec<_>>().chunks(5).enumerate() {
        if index % 2 == 0 {
            pairs.iter().for_each(|(key, value)| table.put(key, value).map(drop).expect("put"));
        } else {
            let mut batch = WriteBatch::new();
            pairs.iter().for_each(|(key, value)| batch.put(table, key, value));
            db.write(&batch).expect("written");
        }
    }
}

/// What can be read of it, whatever way.
fn assert_content(table: &Table, content: &Content) {
    let found: Content = table.iter().collect::<Result<_, _>>().expect("reads");
    assert!(found == *content, "{} has something else", table.name());
    let back: Content = table.iter().rev().collect::<Result<_, _>>().expect("reads");
    assert!(back == *content, "{} has something else backwards", table.name());
    let keys: Vec<_> = content.keys().collect();
    let values = table.get_many(&keys).expect("reads");
    assert!(values.iter().zip(content.values()).all(|(found, value)| found.as_ref() == Some(value)));
    for (key, value) in content {
        assert!(table.get(key).expect("reads").as_ref() == Some(value), "{}", key.escape_ascii());
    }
}

fn assert_whole(db: &Database) {
    assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
}

/// A table that is compressed so, with everything in it.
fn filled(disk: &SimDisk, structure: Structure, compression: Compression) -> (Database, Table) {
    let db = open(disk, "/db");
    let table = db.table_with("table", structure, &TableOptions::new().compression(compression)).expect("a table");
    fill(&db, &table, &content());
    (db, table)
}

fn values_of_every_length_come_back(structure: Structure) {
    let mut live = BTreeMap::new();
    for compression in Compression::ALL {
        let disk = SimDisk::new(1);
        let (db, table) = filled(&disk, structure, compression);
        // Out of the queues, out of the structure, and, with nothing applied and then with everything, after a crash.
        assert_content(&table, &content());
        disk.restart();
        drop((db, table));
        let db = open(&disk, "/db");
        let table = db.open_table("table").expect("it is there");
        assert_content(&table, &content());
        db.drain().expect("drains");
        assert_content(&table, &content());
        assert_whole(&db);
        db.checkpoint().expect("a checkpoint");
        disk.restart();
        drop((db, table));
        let db = open(&disk, "/db");
        let table = db.open_table("table").expect("it is there");
        assert_content(&table, &content());
        assert_whole(&db);
        live.insert(compression, table.stats().expect("stats").document_live_bytes);
    }
    // Two thirds of the bytes become next to nothing.
    for compression in [Compression::Lz4, Compression::Zstd] {
        assert!(live[&compression] * 10 < live[&Compression::None] * 4, "{live:?}");
    }
}

fn short_values_become_compressed_documents_when_they_are_applied(structure: Structure) {
    let bytes = |compression: Compression| {
        let disk = SimDisk::new(1);
        let db = open(&disk, "/db");
        let table = db.table_with("table", structure, &TableOptions::new().compression(compression)).expect("a table");
        let content: Content = (0..200_u8).map(|key| (vec![key], vec![key; 1000])).collect();
        fill(&db, &table, &content);
        db.drain().expect("drains");
        let applied = table.stats().expect("stats").document_live_bytes;
        table.delete_range::<&[u8]>(..).expect("deleted");
        db.checkpoint().expect("a checkpoint");
        table.load(&content).expect("loads");
        assert_content(&table, &content);
        assert_whole(&db);
        (applied, table.stats().expect("stats").document_live_bytes)
    };
    let (plain, zstd) = (bytes(Compression::None), bytes(Compression::Zstd));
    match structure {
        Structure::Append => {
            assert_eq!(plain, (200 * 1024, 200 * 1024));
            assert!(zstd.0 < 200 * 80 && zstd.1 == zstd.0, "{zstd:?}");
        }
        _ => assert_eq!((plain, zstd), ((0, 0), (0, 0))),
    }
}

fn copies_have_the_same_values(structure: Structure) {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let disk = SimDisk::new(1);
        let (db, table) = filled(&disk, structure, compression);
        let on = &mut |_| ControlFlow::Continue(());
        let (mut stream, mut content) = (Vec::new(), content());
        let full = db.begin_backup().expect("begins").stream(&mut stream, on).expect("backs up");
        let live = table.stats().expect("stats").document_live_bytes;
        for (key, value) in [("00002049/2", value(8, 5000)), ("new", value(10, 9000))] {
            table.put(key, &value).expect("put");
            content.insert(key.into(), value);
        }
        db.begin_backup().expect("begins").stream_since(&full.point, &mut stream, on).expect("backs up");
        options().restore_on(disk.psync(), &stream[..], Path::new("/restored")).expect("restores");
        db.checkpoint().expect("a checkpoint");
        drop(table);
        db.close().expect("closes");
        let from = Path::new("/db");
        let report = salvage_on(&disk.psync(), from, Path::new("/salvaged"), options(), &mut |_| {}).expect("salvages");
        assert!(report.tables.iter().all(|table| table.lost.is_empty() && table.documents_lost.is_empty()));
        for path in ["/restored", "/salvaged"] {
            let db = open(&disk, path);
            let table = db.open_table("table").expect("it is there");
            assert_content(&table, &content);
            db.drain().expect("drains");
            let copied = table.stats().expect("stats").document_live_bytes;
            assert!(copied < live + live / 10, "{path}: {copied}, and {live} before");
            assert_whole(&db);
        }
    }
}

fn what_is_moved_stays_as_it_is_stored(structure: Structure) {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let disk = SimDisk::new(1);
        let (db, table) = filled(&disk, structure, compression);
        db.checkpoint().expect("a checkpoint");
        let before = table.stats().expect("stats");
        let done = table.compact_with(&CompactOptions::new(), &mut |_| ControlFlow::Continue(())).expect("compacts");
        assert!(done.documents > 10 && done.damaged_documents == 0);
        let after = table.stats().expect("stats");
        assert_eq!(
            (after.document_live_bytes, done.document_bytes),
            (before.document_live_bytes, before.document_live_bytes)
        );
        db.drop_caches();
        assert_content(&table, &content());
        assert_whole(&db);
    }
}

fn damage_is_told_with_its_file_and_offset(structure: Structure) {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let disk = SimDisk::new(1);
        let db = open(&disk, "/db");
        let table = db.table_with("table", structure, &TableOptions::new().compression(compression)).expect("a table");
        let values = [1, 2, 3].map(|first| value(2 * first, 4000));
        values.iter().zip(1_u8..).for_each(|(value, key)| table.put([key], value).map(drop).expect("put"));
        drop(table);
        db.close().expect("closes");
        let path = disk.files().into_iter().find(|path| path.extension().is_some_and(|suffix| suffix == "doc"));
        let path = path.expect("documents have a file");
        let length = disk.read_file(&path).expect("a file").len() as u64;
        assert!(length < 4000, "three documents have {length} bytes");
        for at in (24..length - 8).step_by(13) {
            assert!(disk.flip_bit(&path, at));
            let db = open(&disk, "/db");
            let table = db.open_table("table").expect("it is there");
            let found: Vec<_> = (1..=3_u8).map(|key| table.get([key])).collect();
            let damaged: Vec<_> = found.iter().filter_map(|found| found.as_ref().err()).collect();
            // One that is hit in its padding is whole.
            assert!(damaged.len() <= 1);
            for (found, value) in found.iter().zip(&values) {
                assert!(found.as_ref().map_or(true, |found| found.as_ref() == Some(value)));
            }
            let findings = db.verify().expect("verifies").findings;
            match damaged.first() {
                Some(Error::Corrupt { file, offset, .. }) => {
                    assert!(*file == path.display().to_string() && *offset <= at, "{file} at {offset}, not {at}");
                    assert!(findings.len() == 1 && findings[0].contains(file.as_str()), "{findings:?}");
                }
                Some(other) => panic!("{other}"),
                None => assert_eq!(findings, [""; 0]),
            }
            drop(table);
            db.close().expect("closes");
            assert!(disk.flip_bit(&path, at));
        }
    }
}

on_every_structure!(
    values_of_every_length_come_back,
    short_values_become_compressed_documents_when_they_are_applied,
    copies_have_the_same_values,
    what_is_moved_stays_as_it_is_stored,
    damage_is_told_with_its_file_and_offset,
);
