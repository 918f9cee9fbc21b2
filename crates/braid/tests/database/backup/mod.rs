//! What a backup holds is what its database held at its seq, whatever goes on meanwhile; and one that is not whole is
//! never taken for whole.

mod chains;
mod damage;
mod directories;
mod hot;
mod large;

use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use braid::{Backup, BackupProgress, Database, Options, RestoreSummary, Result, Structure, Table};
use psync::sim::SimDisk;

use crate::whole::{Content, check_whole, content};

/// Tables by name.
type Tables = BTreeMap<String, Content>;

fn on(_: BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn options() -> Options {
    Options::new().cache_bytes(1 << 20).segment_bytes(1 << 20).leaf_pages(1)
}

/// A database in memory that keeps all of its log.
fn database(disk: &SimDisk) -> Database {
    options().retain_log_bytes(1 << 30).open_on(disk.psync(), Path::new("/db")).expect("opens")
}

fn table(db: &Database, structure: Structure, name: &str) -> Table {
    db.table(name, structure).expect("a table")
}

/// A stream of everything.
fn full(backup: &Backup) -> Vec<u8> {
    let mut bytes = Vec::new();
    let summary = backup.stream(&mut bytes, &mut on).expect("backs up");
    assert_eq!((summary.bytes, summary.incremental), (bytes.len() as u64, false));
    bytes
}

/// What is restored from a stream.
fn restored(stream: &[u8]) -> Result<(Database, RestoreSummary)> {
    let disk = SimDisk::new(1);
    let summary = options().restore_on(disk.psync(), stream, Path::new("/again"))?;
    assert_eq!(summary.bytes, stream.len() as u64);
    Ok((options().open_on(disk.psync(), Path::new("/again"))?, summary))
}

fn tables(db: &Database) -> Tables {
    let content = |name: String| (name.clone(), content(&db.open_table(&name).expect("it is there")));
    db.tables().into_iter().map(|table| content(table.name)).collect()
}

/// Restores a stream and compares it, table by table and key by key.
#[track_caller]
fn assert_holds(stream: &[u8], expected: &Tables) {
    let (again, _) = restored(stream).expect("restores");
    check_whole(&again);
    let found = tables(&again);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, expected) in expected {
        let found = &found[name];
        assert!(found == expected, "{name}: {} pairs, and not the {} that there were", found.len(), expected.len());
    }
}
