//! What a table holds, and that its database is whole.

use std::collections::BTreeMap;

use braid::{Database, Table};

pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn content(table: &Table) -> Content {
    table.iter().collect::<Result<_, _>>().expect("scans")
}

pub(crate) fn check_whole(db: &Database) {
    let verified = db.verify(&mut |_| {}).expect("verifies");
    assert_eq!(verified.findings, Vec::<String>::new());
}
