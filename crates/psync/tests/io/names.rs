//! Files, directories and locks by name: the same on the file system and on a simulated disk.

use std::path::Path;

use psync::sim::SimDisk;
use psync::{BackendKind, Buffer, Error, OpenOptions, Psync, Request};

fn on_both(check: impl Fn(&Psync, &Path)) {
    let directory = tempfile::tempdir().expect("directory");
    let psync = Psync::new(Some(BackendKind::Sync)).expect("backend");
    check(&psync, directory.path());
    let disk = SimDisk::new(1);
    let psync = disk.psync();
    assert!(psync.is_simulated());
    check(&psync, Path::new("/"));
}

fn writable() -> OpenOptions {
    OpenOptions { write: true, ..OpenOptions::default() }
}

#[test]
fn files_are_created_opened_listed_and_removed() {
    on_both(|psync, root| {
        let directory = root.join("a").join("b");
        psync.create_directory(&directory).expect("create");
        psync.create_directory(&directory).expect("exists already");
        assert!(psync.exists(&directory).expect("look"));
        let path = directory.join("two");
        assert!(psync.open(&path, &writable()).expect_err("missing").is_not_found());
        let new = OpenOptions { create_new: true, ..writable() };
        let file = psync.open(&path, &new).expect("create");
        assert!(psync.open(&path, &new).expect_err("there").is_already_exists());
        let create = OpenOptions { create: true, ..writable() };
        assert_ne!(psync.open(&path, &create).expect("open"), file);
        psync.open(&directory.join("one"), &create).expect("create");
        psync.create_directory(&directory.join("below")).expect("create");
        assert_eq!(psync.list(&directory).expect("list"), ["one", "two"]);
        psync.sync_directory(&directory).expect("flush");
        assert!(psync.open(&directory, &OpenOptions::default()).is_err());
        assert!(psync.remove(&directory).is_err());

        psync.remove(&path).expect("remove");
        assert!(psync.remove(&path).expect_err("gone").is_not_found());
        assert!(!psync.exists(&path).expect("look"));
        // The open file lives on.
        psync.run_all(vec![Request::write(&file, 3, Buffer::from_slice(b"x"), 0)]).expect("write");
        assert_eq!(file.len().expect("length"), 4);
        assert!(psync.list(&root.join("nowhere")).expect_err("missing").is_not_found());
        assert!(psync.open(&root.join("nowhere/file"), &create).expect_err("missing").is_not_found());
    });
}

#[test]
fn a_file_opened_for_reading_refuses_writes() {
    on_both(|psync, root| {
        let path = root.join("file");
        let create = OpenOptions { create: true, ..writable() };
        let file = psync.open(&path, &create).expect("create");
        file.set_len(100).expect("grow");
        let reader = psync.open(&path, &OpenOptions::default()).expect("open");
        assert!(reader.set_len(0).is_err());
        let write = Request::write(&reader, 0, Buffer::zeroed(1), 0);
        assert!(psync.run_all(vec![write]).is_err());
        assert_eq!(file.len().expect("length"), 100);
        let impossible = OpenOptions { create: true, ..OpenOptions::default() };
        assert!(psync.open(&root.join("other"), &impossible).is_err());
    });
}

#[test]
fn locks_exclude_one_another_and_name_the_holder() {
    on_both(|psync, root| {
        let path = root.join("LOCK");
        let held = psync.lock(&path, false).expect("lock");
        for shared in [false, true] {
            let error = psync.lock(&path, shared).expect_err("held");
            let Error::Locked { holder, .. } = error else {
                panic!("{error} is no lock error");
            };
            assert_eq!(holder, Some(std::process::id()));
        }
        drop(held);
        let first = psync.lock(&path, true).expect("shared");
        let second = psync.lock(&path, true).expect("shared");
        assert!(matches!(psync.lock(&path, false), Err(Error::Locked { .. })));
        drop(first);
        assert!(matches!(psync.lock(&path, false), Err(Error::Locked { .. })));
        drop(second);
        drop(psync.lock(&path, false).expect("free again"));
    });
}

#[test]
fn the_number_of_a_dead_process_is_not_named() {
    let directory = tempfile::tempdir().expect("directory");
    let psync = Psync::new(Some(BackendKind::Sync)).expect("backend");
    let path = directory.path().join("LOCK");
    // More than any process id can be.
    std::fs::write(&path, "4194999\n").expect("write");
    let _shared = psync.lock(&path, true).expect("shared");
    let error = psync.lock(&path, false).expect_err("held");
    assert!(matches!(error, Error::Locked { holder: None, .. }), "{error}");
}

#[test]
fn direct_io_falls_back_where_the_file_system_has_none() {
    // procfs refuses O_DIRECT.
    let psync = Psync::new(None).expect("backend");
    let options = OpenOptions { direct: true, ..OpenOptions::default() };
    let file = psync.open(Path::new("/proc/version"), &options).expect("open");
    assert!(!file.is_direct());
    let buffers = psync.run_all(vec![Request::read(&file, 1, Buffer::zeroed(4), 0)]).expect("read");
    assert_eq!(&**buffers[0].as_ref().expect("buffer"), b"inux");
}
