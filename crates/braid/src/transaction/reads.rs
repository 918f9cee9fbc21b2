//! What a serializable transaction has read: keys, and ranges as far as they were walked.
//!
//! A key that was looked for and not found was read, and so was everything between the keys that a range showed.

use std::{collections::HashSet, sync::Arc};

use index::{Bounds, TableId};

use crate::{Table, catalog::TableCore};

/// Memory of a key that was read, besides its bytes, about.
const READ_BYTES: usize = 48;

struct TableReads {
    table: Table,
    keys: HashSet<Vec<u8>>,
    ranges: Vec<Bounds>,
}

/// The reads of a transaction.
#[derive(Default)]
pub(super) struct Reads {
    tables: Vec<TableReads>,
}

/// Memory that the read of a key takes.
pub(super) const fn key_cost(key: &[u8]) -> u64 {
    (READ_BYTES + key.len()) as u64
}

/// Memory that the read of a range takes.
pub(super) fn range_cost(bounds: &Bounds) -> u64 {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let length = |bound: &std::ops::Bound<Vec<u8>>| match bound {
        Included(key) | Excluded(key) => key.len(),
        Unbounded => 0,
    };
    (READ_BYTES + length(&bounds.lower) + length(&bounds.upper)) as u64
}

impl Reads {
    fn of(&mut self, table: &Table) -> &mut TableReads {
        let known = self.tables.iter().position(|known| Arc::ptr_eq(&known.table.core, &table.core));
        let known = known.unwrap_or_else(|| {
            self.tables.push(TableReads { table: table.clone(), keys: HashSet::new(), ranges: Vec::new() });
            self.tables.len() - 1
        });
        &mut self.tables[known]
    }

    /// `key` was read. Whether it was not before.
    pub(super) fn add_key(&mut self, table: &Table, key: &[u8]) -> bool {
        let keys = &mut self.of(table).keys;
        !keys.contains(key) && keys.insert(key.to_vec())
    }

    /// Everything within bounds was read.
    pub(super) fn add_range(&mut self, table: &Table, bounds: Bounds) {
        self.of(table).ranges.push(bounds);
    }

    /// The tables that were read.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<TableCore>> {
        self.tables.iter().map(|reads| &reads.table.core)
    }

    /// The keys that were read.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&TableCore, &[u8])> {
        self.tables.iter().flat_map(|reads| reads.keys.iter().map(|key| (&*reads.table.core, key.as_slice())))
    }

    /// The ranges that were read.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&Table, &Bounds)> {
        self.tables.iter().flat_map(|reads| reads.ranges.iter().map(|bounds| (&reads.table, bounds)))
    }

    /// Whether a range that was read covers `key`.
    pub(super) fn covers(&self, table: TableId, key: &[u8]) -> bool {
        let reads = self.tables.iter().find(|reads| reads.table.core.id == table);
        reads.is_some_and(|reads| reads.ranges.iter().any(|bounds| bounds.contains(key)))
    }
}
