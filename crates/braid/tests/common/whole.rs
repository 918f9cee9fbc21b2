//! What a table holds, and that its database is whole.

use std::collections::BTreeMap;

use braid::{Database, Structure, Table, TableStats};

pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn content(table: &Table) -> Content {
    table.iter().collect::<Result<_, _>>().expect("scans")
}

pub(crate) fn check_whole(db: &Database) {
    let verified = db.verify().expect("verifies");
    assert_eq!(verified.findings, Vec::<String>::new());
}

/// What the structure of a table says under this name.
#[track_caller]
pub(crate) fn figure(stats: &TableStats, name: &str) -> u64 {
    stats.figure(name).unwrap_or_else(|| panic!("no {name} in {stats:?}"))
}

/// What the structure of a table is made of: leaves, or of an LSM tree slices of files.
#[track_caller]
pub(crate) fn leaves(stats: &TableStats) -> u64 {
    figure(stats, if stats.structure == "lsm" { "slices" } else { "leaves" })
}

/// The directory of the files that the structure has of its own, where it has some.
pub(crate) const fn directory_of(structure: Structure) -> &'static str {
    if matches!(structure, Structure::Lsm) { "sst" } else { "node" }
}
