//! What opening says to everything that is not a whole database of this version.

use std::{fs, path::Path};

use braid::{Database, ErrorKind, Options, Structure};
use psync::sim::SimDisk;

fn database(path: &Path) -> Database {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(1 << 20).segment_bytes(64 << 10).open(path).expect("opens")
}

fn filled(path: &Path, structure: Structure, keys: u32) {
    let db = database(path);
    let table = db.table("t", structure).expect("a table");
    for key in 0..keys {
        table.put_with(key.to_be_bytes(), vec![7; 100], braid::Durability::Os).expect("put");
    }
    table.put("large", vec![9; 10_000]).expect("put");
    db.close().expect("closes");
}

fn open_error(path: &Path) -> braid::Error {
    Database::options().create(false).open(path).expect_err("must not open")
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).expect("readable");
    bytes[offset] ^= 0x40;
    fs::write(path, bytes).expect("writable");
}

#[test]
fn a_missing_database_is_not_made_unless_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("none");
    assert_eq!(open_error(&path).kind(), ErrorKind::NotFound);
    assert!(!path.exists());
    let error = Options::new().read_only(true).open(&path).expect_err("read-only makes nothing");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!path.exists());
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("thesis.txt"), "years of work").expect("written");
    let error = Database::open(directory.path()).expect_err("foreign");
    assert_eq!(error.kind(), ErrorKind::ForeignFile);
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1);
}

#[test]
fn a_foreign_superblock_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    for garbage in [b"SQLite format 3\0".repeat(1000), b"x".to_vec()] {
        fs::write(directory.path().join("superblock"), &garbage).expect("written");
        let error = Database::open(directory.path()).expect_err("foreign");
        assert_eq!(error.kind(), ErrorKind::ForeignFile, "{error}");
        assert_eq!(fs::read(directory.path().join("superblock")).expect("reads"), garbage);
    }
}

#[test]
fn creation_that_was_cut_off_is_done_again() {
    let directory = tempfile::tempdir().expect("a directory");
    for left in [vec![], vec![0; 100], vec![b'x'; 4096], vec![b'x'; 8192]] {
        fs::write(directory.path().join("superblock.new"), left).expect("written");
        fs::write(directory.path().join("data"), b"of a creation that was cut off").expect("written");
        let error = Options::new().read_only(true).open(directory.path()).expect_err("no database");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        filled(directory.path(), Structure::BTree, 10);
        fs::remove_dir_all(directory.path()).expect("removed");
        fs::create_dir(directory.path()).expect("made");
    }
}

#[test]
fn a_database_whose_superblock_was_renamed_is_no_creation_that_was_cut_off() {
    let key = |number: u32| number.to_be_bytes();
    // By its log, by its data, by its documents, and by something that is no file of a database.
    for (keys, value_bytes, other) in [
        (300, 100, None),
        (3000, 1000, None),
        (1, 10_000, None),
        (1, 1, Some("notes.txt")),
        (1, 1, Some("wal/notes.txt")),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let db = database(path);
        let table = db.table("t", Structure::BTree).expect("a table");
        for number in 0..keys {
            table.put_with(key(number), vec![7; value_bytes], braid::Durability::Os).expect("put");
        }
        drop(table);
        db.close().expect("closes");
        other.iter().for_each(|name| fs::write(path.join(name), "years of work").expect("written"));
        fs::rename(path.join("superblock"), path.join("superblock.new")).expect("renamed");
        let error = Database::open(path).expect_err("it is not empty");
        assert_eq!(error.kind(), ErrorKind::ForeignFile, "{error}");
        fs::rename(path.join("superblock.new"), path.join("superblock")).expect("renamed");
        let table = database(path).open_table("t").expect("all of it is there");
        assert_eq!(table.get(key(keys - 1)).expect("reads"), Some(vec![7; value_bytes]));
        assert!(other.is_none_or(|name| path.join(name).exists()));
    }
}

/// Where nothing was written and flushed, a disk may have bytes that were somebody else's.
#[test]
fn a_creation_is_done_again_wherever_it_was_cut_off() {
    let path = Path::new("/above/db");
    let options = || Options::new().background(false).cache_bytes(1 << 20).write_buffer_bytes(1 << 20);
    for seed in 0..6 {
        for operations in 0.. {
            let disk = SimDisk::new(seed);
            // The second creation is cut off too.
            disk.crash_after(7 * seed);
            drop(options().open_on(disk.psync(), path));
            disk.restart();
            disk.crash_after(operations);
            let created = options().open_on(disk.psync(), path);
            let is_whole = created.is_ok();
            drop(created);
            disk.restart();
            let has_name = disk.read_file(path.join("superblock")).is_some();
            for file in disk.files() {
                let length = disk.read_file(&file).expect("it is there").len() as u64;
                if !has_name && seed % 2 == 1 {
                    disk.corrupt(&file, 0..length);
                }
            }
            let read_only = options().read_only(true).open_on(disk.psync(), path);
            assert_eq!(read_only.is_ok(), has_name, "seed {seed}, {operations} operations: {:?}", read_only.err());
            drop(read_only);
            let db = options().open_on(disk.psync(), path);
            let db = db.unwrap_or_else(|error| panic!("seed {seed}, {operations} operations: {error}"));
            assert!(db.tables().is_empty());
            db.table("t", Structure::BTree).expect("a table").put("key", "value").expect("put");
            db.close().expect("closes");
            if is_whole {
                break;
            }
        }
    }
}

#[test]
fn a_database_with_little_in_it_is_small() {
    let disk = SimDisk::new(1);
    let bytes = || -> usize {
        let files = disk.files();
        files.iter().filter_map(|file| disk.read_file(file)).map(|file| file.len()).sum()
    };
    let open = || Options::new().background(false).open_on(disk.psync(), Path::new("/db")).expect("opens");
    for (keys, most) in [(0_u32, 240 << 10), (1, 240 << 10), (100, 512 << 10), (1000, 2 << 20)] {
        let db = open();
        let table = db.table("t", Structure::BTree).expect("a table");
        (0..keys).for_each(|key| table.put(key.to_be_bytes(), [7; 100]).map(drop).expect("put"));
        drop(table);
        db.close().expect("closes");
        assert!(bytes() <= most, "{} bytes with {keys} keys", bytes());
        disk.restart();
    }
}

#[test]
fn a_newer_version_is_refused_and_nothing_changes() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path(), Structure::BTree, 10);
    let superblock = directory.path().join("superblock");
    let mut bytes = fs::read(&superblock).expect("reads");
    for slot in [0, 4096] {
        bytes[slot + 8] = 9;
    }
    fs::write(&superblock, &bytes).expect("written");
    let error = open_error(directory.path());
    assert_eq!(error.kind(), ErrorKind::NewerVersion);
    assert!(error.to_string().contains('9'), "{error}");
    assert_eq!(fs::read(&superblock).expect("reads"), bytes);
}

#[test]
fn one_damaged_slot_of_the_superblock_is_survived_and_two_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path(), Structure::BTree, 10);
    let superblock = directory.path().join("superblock");
    let whole = fs::read(&superblock).expect("reads");
    let newest = if whole[32..40] > whole[4096 + 32..4096 + 40] { 0 } else { 4096 };
    flip(&superblock, (4096 - newest) + 20);
    flip(&superblock, (4096 - newest) + 8);
    assert!(database(directory.path()).open_table("t").is_ok());
    for slot in [0, 4096] {
        flip(&superblock, slot + 50);
    }
    let error = open_error(directory.path());
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("superblock"), "{error}");
}

#[test]
fn the_mark_of_a_clean_close_in_an_older_slot_hides_no_commit() {
    let disk = SimDisk::new(1);
    let options = Options::new().background(false).cache_bytes(1 << 20).segment_bytes(64 << 10);
    let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
    db.table("t", Structure::BTree).expect("a table").put("before", "closed").expect("put");
    // Else the close leaves the put to the next opening, and marks nothing.
    db.checkpoint().expect("a checkpoint");
    db.close().expect("closes");
    let slots = || disk.read_file("/db/superblock").expect("it is there");
    let closed = slots();
    let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
    let opened = slots();
    db.open_table("t").expect("it is there").put("behind", "the mark").expect("put");
    disk.kill();
    drop(db);
    assert_eq!(slots(), opened, "no checkpoint since");
    // Of the two slots, the one that opening wrote.
    let newer = (0..8192).find(|&at| closed[at] != opened[at]).expect("opening wrote one") / 4096 * 4096;
    assert!(disk.flip_bit("/db/superblock", newer as u64 + 40));

    let error =
        options.clone().open_on(disk.psync(), Path::new("/db")).expect_err("the superblock is older than the log");
    assert!(error.to_string().contains("epoch"), "{error}");
    let read_only = options.read_only(true);
    let db = read_only.open_on(disk.psync(), Path::new("/db")).expect("the log has it all");
    let table = db.open_table("t").expect("it is there");
    assert_eq!(table.get("behind").expect("reads").as_deref(), Some(&b"the mark"[..]));
}

#[test]
fn a_truncated_or_missing_data_file_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path(), Structure::BTree, 1000);
    let data = directory.path().join("data");
    let file = fs::OpenOptions::new().write(true).open(&data).expect("opens");
    file.set_len(8192).expect("cut");
    let error = open_error(directory.path());
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    fs::remove_file(&data).expect("removed");
    let error = open_error(directory.path());
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("data"), "{error}");
}

fn garbage_in_what_a_table_is_in_is_named_and_the_rest_stays_readable(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    // Loaded into small leaves, so that leaf follows on leaf, and what is damaged is some leaves wherever it is.
    let db = Database::options().leaf_pages(1).open(directory.path()).expect("opens");
    let pairs = (0..20_000u32).map(|key| (key.to_be_bytes(), [7; 100]));
    db.table("t", structure).expect("a table").load(pairs).expect("loads");
    db.close().expect("closes");
    let data = match structure {
        Structure::BTree => directory.path().join("data"),
        Structure::Append => directory.path().join("node/1-1.node"),
        _ => directory.path().join("sst/1-1.sst"),
    };
    let name = data.file_name().and_then(|name| name.to_str()).expect("a name");
    let mut bytes = fs::read(&data).expect("reads");
    let length = bytes.len();
    let used = bytes.chunks(4096).rposition(|page| page.iter().any(|&byte| byte != 0)).expect("pages in use");
    assert!(used * 4096 < length);
    for page in used / 2..used / 2 + 10 {
        bytes[page * 4096 + 500..page * 4096 + 600].fill(0xee);
    }
    fs::write(&data, bytes).expect("written");
    let db = database(directory.path());
    let table = db.open_table("t").expect("a table");
    let (mut right, mut corrupt) = (0, 0);
    for key in 0..20_000u32 {
        match table.get(key.to_be_bytes()) {
            Ok(value) => {
                assert_eq!(value, Some(vec![7; 100]), "key {key}");
                right += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert!(error.to_string().contains(name) && error.to_string().contains("byte"), "{error}");
                corrupt += 1;
            }
        }
    }
    assert!(corrupt > 0 && right > corrupt, "{right} right, {corrupt} noticed");
    let found = db.verify().expect("verify runs");
    assert!(found.findings.iter().any(|finding| finding.contains(name)), "{:?}", found.findings);
}

fn a_damaged_document_is_named_and_the_rest_stays_readable(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path(), structure, 10);
    let documents: Vec<_> = fs::read_dir(directory.path().join("doc")).expect("lists").collect();
    assert_eq!(documents.len(), 1);
    let path = documents[0].as_ref().expect("an entry").path();
    let middle = fs::read(&path).expect("reads").len() / 2;
    flip(&path, middle);
    let db = database(directory.path());
    let table = db.open_table("t").expect("a table");
    let error = table.get("large").expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(".doc"), "{error}");
    assert_eq!(table.get(3u32.to_be_bytes()).expect("reads"), Some(vec![7; 100]));
    assert_eq!(db.verify().expect("runs").findings.len(), 1);
}

#[test]
fn a_second_opener_is_told_who_holds_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = database(directory.path());
    let error = open_error(directory.path());
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    let error = Options::new().read_only(true).open(directory.path()).expect_err("a writer has it");
    assert_eq!(error.kind(), ErrorKind::Locked);
    drop(db);
    let first = Options::new().read_only(true).open(directory.path()).expect("a reader");
    let second = Options::new().read_only(true).open(directory.path()).expect("another reader");
    assert_eq!(open_error(directory.path()).kind(), ErrorKind::Locked);
    drop((first, second));
    database(directory.path());
}

#[test]
fn a_table_keeps_its_handle_open_and_the_database_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = database(directory.path());
    let table = db.table("t", Structure::BTree).expect("a table");
    drop(db);
    table.put("k", "v").expect("still open");
    assert_eq!(open_error(directory.path()).kind(), ErrorKind::Locked);
    drop(table);
    assert_eq!(
        database(directory.path()).open_table("t").expect("there").get("k").expect("reads"),
        Some(b"v".to_vec())
    );
}

on_every_structure!(
    garbage_in_what_a_table_is_in_is_named_and_the_rest_stays_readable,
    a_damaged_document_is_named_and_the_rest_stays_readable,
);

#[test]
fn what_is_left_of_a_closed_database_is_told_by_kind() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let db = Database::open(&path).expect("opens");
    let table = db.table("t", Structure::BTree).expect("a table");
    let mut batch = braid::WriteBatch::new();
    batch.put(&table, "key", "value");
    let (snapshot, transaction) = (db.snapshot(), db.begin().expect("begins"));
    let (range, copy, ticket) =
        (table.iter(), db.clone(), db.submit(&batch, braid::Durability::Sync).expect("is placed"));
    db.close().expect("closes");
    let told = |parts: &[&str]| {
        let error = Database::open(&path).expect_err("it is still open");
        assert_eq!(error.kind(), ErrorKind::Locked);
        let (text, expected) = (error.to_string(), format!("has left: {};", parts.join(", ")));
        assert!(text.contains("this one") && text.contains(&expected), "{text} instead of {expected}");
    };
    let tables = |count: u8| format!("{count} tables, or ranges, cursors, lookups and loaders of them");
    told(&[&tables(2), "1 databases", "2 snapshots and transactions", "1 tickets"]);
    drop((transaction, range, ticket));
    told(&[&tables(1), "1 databases", "1 snapshots and transactions"]);
    drop((table, copy));
    told(&["1 snapshots and transactions"]);
    drop(snapshot);
    Database::open(&path).expect("nothing is left but a batch, which keeps nothing open");
}

#[test]
fn an_empty_path_is_no_directory() {
    let error = Database::open("").expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("empty"), "{error}");
}
