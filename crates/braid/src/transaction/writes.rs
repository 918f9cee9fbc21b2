//! What a transaction is going to write, in key order, and how to take parts of it back.
//!
//! 1. Of each key there is what it will be; a later write replaces an earlier one.
//! 2. From the first savepoint on, what a write replaced is remembered. Rolling back undoes writes from the newest to the savepoint's.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use index::{Bounds, TableId};

use crate::{
    Table,
    batch::{BatchOperation, Item},
};

/// Memory of a write besides its bytes, about.
const WRITE_BYTES: u64 = 96;

/// What a key will be: a value, or deleted.
pub(super) type Written = Option<Vec<u8>>;
/// The writes of a table within bounds.
pub(super) type WrittenRange<'a> = btree_map::Range<'a, Vec<u8>, Written>;

struct TableWrites {
    table: Table,
    keys: BTreeMap<Vec<u8>, Written>,
}

impl TableWrites {
    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.keys.iter().map(|(key, written)| Item {
            table: &self.table.core,
            operation: if written.is_some() { BatchOperation::Put } else { BatchOperation::Delete },
            key,
            value: written.as_deref().unwrap_or_default(),
        })
    }
}

struct Undo {
    table: usize,
    key: Vec<u8>,
    /// None where the key was not written before.
    before: Option<Written>,
}

/// A place in a transaction to roll back to; see [`Transaction::savepoint`](super::Transaction::savepoint).
#[derive(Clone, Debug)]
pub struct Savepoint {
    transaction: Arc<()>,
    number: u64,
}

/// The writes of a transaction.
#[derive(Default)]
pub(super) struct Writes {
    tables: Vec<TableWrites>,
    undo: Vec<Undo>,
    /// Number of each savepoint, and how much there was to undo.
    savepoints: Vec<(u64, usize)>,
    next_savepoint: u64,
    identity: Arc<()>,
    bytes: u64,
}

/// Memory that a write takes.
pub(super) fn cost(key: &[u8], value: Option<&[u8]>) -> u64 {
    WRITE_BYTES + (key.len() + value.map_or(0, <[u8]>::len)) as u64
}

impl Writes {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.keys.is_empty())
    }

    /// Memory that they take, those that can come back by a rollback included.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `key` will be `value`.
    pub(super) fn set(&mut self, table: &Table, key: &[u8], value: Option<&[u8]>) {
        let known = self.tables.iter().position(|known| Arc::ptr_eq(&known.table.core, &table.core));
        let table = known.unwrap_or_else(|| {
            self.tables.push(TableWrites { table: table.clone(), keys: BTreeMap::new() });
            self.tables.len() - 1
        });
        self.bytes += cost(key, value);
        let before = self.tables[table].keys.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        if self.savepoints.is_empty() {
            self.bytes -= before.map_or(0, |before| cost(key, before.as_deref()));
        } else {
            self.bytes += cost(key, None);
            self.undo.push(Undo { table, key: key.to_vec(), before });
        }
    }

    /// What `key` will be, if it was written.
    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Option<&Written> {
        self.of(table)?.get(key)
    }

    /// What was written within bounds.
    pub(super) fn range(&self, table: TableId, bounds: &Bounds) -> Option<WrittenRange<'_>> {
        let keys = self.of(table)?;
        let (lower, upper) = (bounds.lower.as_ref().map(Vec::as_slice), bounds.upper.as_ref().map(Vec::as_slice));
        (!bounds.is_empty()).then(|| keys.range::<[u8], (Bound<&[u8]>, Bound<&[u8]>)>((lower, upper)))
    }

    fn of(&self, table: TableId) -> Option<&BTreeMap<Vec<u8>, Written>> {
        self.tables.iter().find(|known| known.table.core.id == table).map(|known| &known.keys)
    }

    /// All of them, table by table in key order.
    pub(super) fn items(&self) -> Vec<Item<'_>> {
        self.tables.iter().flat_map(TableWrites::items).collect()
    }

    /// A place to roll back to.
    pub(super) fn savepoint(&mut self) -> Savepoint {
        let number = self.next_savepoint;
        self.next_savepoint += 1;
        self.savepoints.push((number, self.undo.len()));
        Savepoint { transaction: Arc::clone(&self.identity), number }
    }

    /// Undoes what was written since `savepoint`, which stays; those after it go. False where it is not one of these writes'.
    pub(super) fn roll_back_to(&mut self, savepoint: &Savepoint) -> bool {
        let own = Arc::ptr_eq(&savepoint.transaction, &self.identity);
        let place = self.savepoints.iter().position(|(number, _)| own && *number == savepoint.number);
        let Some(place) = place else { return false };
        self.savepoints.truncate(place + 1);
        let (_, undo) = self.savepoints[place];
        for Undo { table, key, before } in self.undo.drain(undo..).rev() {
            let keys = &mut self.tables[table].keys;
            let written = match before {
                Some(before) => keys.insert(key.clone(), before),
                None => keys.remove(&key),
            };
            self.bytes -= cost(&key, None) + written.map_or(0, |written| cost(&key, written.as_deref()));
        }
        true
    }
}
