//! The scheme by which commits share flushes is the one that was asked for, in a database that this opening made and in
//! one that was there.

use std::{path::Path, thread};

use braid::{Database, FlushScheme, Structure};

const THREADS: u8 = 8;
const COMMITS: u8 = 20;

/// Flushes of the log while threads commit side by side, and how many commits those were.
fn flushes(path: &Path, scheme: FlushScheme) -> (u64, u64) {
    let database = Database::options().flush_scheme(scheme).leaf_pages(1).open(path).expect("it opens");
    let table = database.table("t", Structure::BTree).expect("a table");
    let flushes = || database.stats().expect("statistics").log.flushes;
    let before = flushes();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                (0..COMMITS).for_each(|key| table.put([thread, key], b"v").map(drop).expect("a commit"))
            });
        }
    });
    (flushes() - before, u64::from(THREADS) * u64::from(COMMITS))
}

#[test]
fn a_database_keeps_its_scheme_from_its_creation_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    for life in ["created", "opened"] {
        let (flushes, commits) = flushes(&path, FlushScheme::PerCommit);
        assert!(flushes >= commits, "{life}: {flushes} flushes of {commits} commits");
    }
}

#[test]
fn every_scheme_commits_everything() {
    for scheme in FlushScheme::ALL {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        let (flushes, commits) = flushes(&path, scheme);
        assert!(flushes > 0, "{scheme}: {flushes} flushes of {commits} commits");
        let database = Database::open(&path).expect("it opens");
        assert_eq!(database.open_table("t").expect("the table").iter().count() as u64, commits, "{scheme}");
    }
}
