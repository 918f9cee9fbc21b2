//! What users of a database directory rely on.

use std::path::Path;

use psync::sim::{Fault, SimDisk};
use psync::{Buffer, Psync, Request};
use space::{Error, FileStore, StreamKind};

fn open(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/above/db"), false).expect("opens")
}

#[test]
fn files_are_created_opened_listed_and_released() {
    let store = open(&SimDisk::new(1));
    assert_eq!(store.list("wal").expect("lists"), Vec::<String>::new());
    store.create(StreamKind::Wal, "wal/2.log", false).expect("creates");
    store.create(StreamKind::Wal, "wal/1.log", false).expect("creates");
    store.create(StreamKind::Meta, "superblock", false).expect("creates");
    assert_eq!(store.list("wal").expect("lists"), ["1.log", "2.log"]);
    assert_eq!(store.list("").expect("lists"), ["superblock"]);
    let error = store.create(StreamKind::Wal, "wal/1.log", false).expect_err("exists");
    assert!(matches!(&error, Error::Io(cause) if cause.is_already_exists()), "{error}");

    let file = store.open_existing(StreamKind::Wal, "wal/1.log", false).expect("opens");
    store.psync().run_all(vec![Request::write(&file, 0, Buffer::from_slice(b"braid"), 0)]).expect("writes");
    assert_eq!(store.counters(StreamKind::Wal).snapshot().written_bytes, 5);
    assert_eq!(store.counters(StreamKind::Doc).snapshot().written_bytes, 0);

    store.release("wal/1.log").expect("releases");
    store.release("wal/1.log").expect("is gone already");
    assert!(!store.exists("wal/1.log").expect("known"));
    store.open_existing(StreamKind::Wal, "wal/1.log", false).expect_err("gone");
}

#[test]
fn names_stay_inside_the_directory() {
    let store = open(&SimDisk::new(1));
    for name in ["", "/etc/passwd", "../other", "wal/../../x", ".", "wal/."] {
        let error = store.create(StreamKind::Meta, name, false).expect_err("refused");
        assert!(matches!(error, Error::Name { .. }), "{name}: {error}");
    }
}

#[test]
fn synced_entries_survive_a_crash_however_deep_they_are() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        let file = store.create(StreamKind::Wal, "wal/1.log", false).expect("creates");
        store.create(StreamKind::Meta, "superblock", false).expect("creates");
        store.psync().run_all(vec![Request::flush(&file, 0)]).expect("flushes");
        store.sync_directories().expect("syncs");
        store.release("superblock").expect("releases");
        store.sync_directories().expect("syncs");
        disk.restart();
        let store = open(&disk);
        assert!(store.exists("wal/1.log").expect("known"), "seed {seed}");
        assert!(!store.exists("superblock").expect("known"), "seed {seed}");
    }
}

#[test]
fn a_directory_that_an_earlier_life_made_is_as_safe_as_one_of_this_life() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        // Ends before it syncs anything.
        drop(open(&disk));
        let store = open(&disk);
        store.create(StreamKind::Meta, "superblock", false).expect("creates");
        store.sync_directories().expect("syncs");
        disk.restart();
        assert!(open(&disk).exists("superblock").expect("known"), "seed {seed}");
    }
}

#[test]
fn entries_that_an_earlier_life_made_are_durable_once_their_directory_was_noted() {
    let is_kept = |seed: u64, is_noted: bool| {
        let disk = SimDisk::new(seed);
        open(&disk).create(StreamKind::Wal, "wal/1.log", false).expect("creates");
        disk.kill();
        let store = open(&disk);
        store.note_found("doc").expect("a directory that is not there");
        if is_noted {
            store.note_found("").expect("noted");
            store.note_found("wal").expect("noted");
        }
        store.sync_directories().expect("syncs");
        disk.restart();
        open(&disk).exists("wal/1.log").expect("known")
    };
    assert!((0..50).all(|seed| is_kept(seed, true)));
    assert!(!(0..50).all(|seed| is_kept(seed, false)), "nobody else does");
}

#[test]
fn a_directory_above_that_may_not_be_read_is_no_obstacle() {
    let disk = SimDisk::new(1);
    drop(open(&disk));
    let sync = |errno| {
        let store = open(&disk);
        disk.fail_operation(Fault::Name, 1, errno);
        store.sync_directories()
    };
    sync(13).expect("it is left to others");
    sync(5).expect_err("the device failed");
}

#[test]
fn a_directory_that_could_not_be_synced_is_believed_by_no_later_call() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        store.create(StreamKind::Wal, "wal/1.log", false).expect("creates");
        disk.fail_operation(Fault::Name, 1, 5);
        assert!(store.sync_directories().expect_err("fails").is_flush_failure());
        store.create(StreamKind::Wal, "wal/2.log", false).expect_err("its entry would never be durable");
        store.sync_directories().expect_err("nobody knows what is there of the first");
        open(&disk).sync_directories().expect("another opening begins anew");
    }
}

#[test]
fn files_that_are_flushed_with_names_are_there_with_both() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        let [first, second] = ["data", "wal/1.log"].map(|name| {
            let file = store.create(StreamKind::Meta, name, false).expect("creates");
            let write = Request::write(&file, 0, Buffer::from_slice(&[7; 512]), 0);
            store.psync().run_all(vec![write]).expect("writes");
            file
        });
        store.flush_with_names(&[&first, &second]).expect("flushes");
        disk.restart();
        let store = open(&disk);
        for name in ["data", "wal/1.log"] {
            let file = store.open_existing(StreamKind::Meta, name, false).expect("its name is durable");
            let read = Request::read(&file, 0, Buffer::zeroed(512), 0);
            let bytes = store.psync().run_all(vec![read]).expect("its bytes are").pop().flatten().expect("a buffer");
            assert_eq!(&bytes[..], [7; 512], "seed {seed}, {name}");
        }
    }
}

#[test]
fn whatever_fails_of_files_and_names_is_told_and_does_not_keep_the_others_from_being_durable() {
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    let (flush, name) = (|at, errno| (Fault::Flush, at, errno), |at| (Fault::Name, at, EIO));
    // What fails, and the number of the error that is told.
    let cases: [(&[_], i32); 6] = [
        (&[flush(0, EIO)], EIO),
        (&[flush(1, EIO)], EIO),
        (&[name(0)], EIO),
        (&[name(2)], EIO),
        (&[flush(0, ENOSPC), flush(0, EIO)], EIO),
        (&[flush(0, ENOSPC), name(0)], EIO),
    ];
    for (seed, (faults, told)) in (0..60).zip(cases.iter().cycle()) {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        let [first, second] =
            ["data", "wal/1.log"].map(|name| store.create(StreamKind::Meta, name, false).expect("creates"));
        faults.iter().for_each(|(fault, at, errno)| disk.fail_operation(*fault, *at, *errno));
        let error = store.flush_with_names(&[&first, &second]).expect_err("fails");
        assert!(error.is_flush_failure(), "{error}");
        assert!(error.to_string().ends_with(&format!("(os error {told})")), "{error}");
        assert_eq!(disk.faults_left(), 0);
        let is_of_a_name = faults.iter().any(|(fault, ..)| matches!(fault, Fault::Name));
        if is_of_a_name {
            store.sync_directories().expect_err("nobody knows which names are there");
        } else {
            disk.restart();
            assert!(open(&disk).exists("data").expect("known") && open(&disk).exists("wal/1.log").expect("known"));
        }
    }
}

#[test]
fn a_read_only_store_needs_its_directory() {
    let disk = SimDisk::new(1);
    FileStore::open(disk.psync(), Path::new("/above/db"), true).expect_err("missing");
    assert_eq!(disk.operations(), 0);
    open(&disk);
    FileStore::open(disk.psync(), Path::new("/above/db"), true).expect("opens");
}

#[test]
fn a_directory_that_could_only_not_be_opened_is_synced_by_the_next_call() {
    let above = tempfile::tempdir().expect("a directory");
    let store = FileStore::open(Psync::new(None).expect("a backend"), above.path(), false).expect("opens");
    store.create(StreamKind::Wal, "wal/1.log", false).expect("creates");
    std::fs::rename(above.path().join("wal"), above.path().join("elsewhere")).expect("renamed");
    let error = store.sync_directories().expect_err("it is not there");
    assert!(!error.is_flush_failure(), "{error}");
    std::fs::rename(above.path().join("elsewhere"), above.path().join("wal")).expect("renamed");
    store.sync_directories().expect("syncs");
    store.create(StreamKind::Wal, "wal/2.log", false).expect("creates");
}
