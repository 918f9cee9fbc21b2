//! The writes of a transaction, in key order, and how parts of them are undone.
//!
//! 1. Each key has its newest write; a later write replaces an earlier one. The delete of a range removes the earlier
//!    writes in the range, and is kept as a range tombstone. Range tombstones come before all writes of keys.
//! 2. From the first savepoint on, replaced writes are kept. A rollback undoes the writes from the newest back to the
//!    savepoint's.

use std::collections::{BTreeMap, btree_map};
use std::iter::Filter;
use std::ops::Bound;
use std::slice;
use std::sync::Arc;

use index::{Bounds, Horizon, RangeTombstones, Seq, Stored, TableId};

use crate::{
    commit::item::{BatchOperation, Item},
    handles::table::Table,
    words::{clock::Expires, key_range::KeyRange},
};

/// Memory of a write besides its bytes, approximately.
const WRITE_BYTES: u64 = 96;

/// A value and its expiry.
pub(super) struct Put {
    pub(super) value: Vec<u8>,
    pub(super) expires: Option<Expires>,
    /// The key keeps its value, whatever that is when the transaction commits ([`super::renewal`]).
    keeps: bool,
}

/// The value of a renewed key, or the pointer to its document.
pub(super) struct Renewed {
    operation: BatchOperation,
    bytes: Vec<u8>,
}

impl Renewed {
    pub(super) fn of(stored: Stored) -> Self {
        match stored {
            Stored::Inline(bytes) => Self { operation: BatchOperation::Put, bytes },
            Stored::Document(document) => Self { operation: BatchOperation::Renew, bytes: document.encode().to_vec() },
        }
    }

    /// The operation of a commit, and the bytes in the place of its value.
    pub(super) const fn operation(&self) -> (BatchOperation, &[u8]) {
        (self.operation, self.bytes.as_slice())
    }
}

/// The write of a key: a value, or a delete.
pub(super) type Written = Option<Put>;
/// The writes of a table within bounds that change a value.
pub(super) type WrittenRange<'a> = Filter<btree_map::Range<'a, Vec<u8>, Written>, fn(&(&Vec<u8>, &Written)) -> bool>;

struct TableWrites {
    table: Table,
    keys: BTreeMap<Vec<u8>, Written>,
    /// The deleted ranges, all with the same seq.
    deleted: RangeTombstones,
}

impl TableWrites {
    fn kept(&self) -> Vec<&[u8]> {
        let kept = self.keys.iter().filter(|(_, written)| !changes_value(written));
        kept.map(|(key, _)| key.as_slice()).collect()
    }

    /// The operations; `renewed` has the values of those keys that keep theirs.
    fn items<'a>(&'a self, renewed: &mut slice::Iter<'a, Renewed>) -> impl Iterator<Item = Item<'a>> {
        let ranges = self.deleted.fragments().iter().map(|fragment| Item {
            table: &self.table.core,
            operation: BatchOperation::DeleteRange,
            expires: None,
            key: &fragment.low,
            value: fragment.high.as_deref().unwrap_or_default(),
        });
        ranges.chain(self.keys.iter().map(|(key, written)| {
            let (operation, value) = match written {
                Some(Put { keeps: true, .. }) => renewed.next().expect("a value for each renewal").operation(),
                Some(put) => (BatchOperation::Put, put.value.as_slice()),
                None => (BatchOperation::Delete, &[][..]),
            };
            let expires = written.as_ref().and_then(|put| put.expires);
            Item { table: &self.table.core, operation, expires, key, value }
        }))
    }
}

/// Whether the write changes the value of its key, and not its expiry alone.
const fn changes_value(written: &Written) -> bool {
    !matches!(written, Some(Put { keeps: true, .. }))
}

/// The value that the write gives the key.
pub(super) fn value_of(written: &Written) -> Option<&[u8]> {
    written.as_ref().map(|put| put.value.as_slice())
}

/// The state before a write, with the table.
enum Undo {
    Key {
        table: usize,
        key: Vec<u8>,
        /// None where the key had no write before.
        before: Option<Written>,
    },
    /// All ranges that were deleted before.
    Ranges { table: usize, before: RangeTombstones },
}

/// A point in a transaction to roll back to; see [`Transaction::savepoint`](super::Transaction::savepoint).
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
    /// The number of each savepoint, and the length of the undo list at that time.
    savepoints: Vec<(u64, usize)>,
    next_savepoint: u64,
    identity: Arc<()>,
    bytes: u64,
}

/// Memory that a write takes.
pub(super) fn cost(key: &[u8], value: Option<&[u8]>) -> u64 {
    WRITE_BYTES + (key.len() + value.map_or(0, <[u8]>::len)) as u64
}

/// Memory that ranges take.
fn cost_of_ranges(deleted: &RangeTombstones) -> u64 {
    deleted.fragments().iter().map(|fragment| cost(&fragment.low, fragment.high.as_deref())).sum()
}

impl Writes {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.keys.is_empty() && table.deleted.is_empty())
    }

    /// Memory of all writes, those kept for a rollback included.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets `key` to `value`, with its expiry; no value is a delete.
    pub(super) fn set(&mut self, table: &Table, key: &[u8], value: Option<&[u8]>, expires: Option<Expires>) {
        self.write(table, key, value.map(|value| Put { value: value.to_vec(), expires, keeps: false }));
    }

    /// Sets the expiry of `key`, which keeps its value.
    pub(super) fn renew(&mut self, table: &Table, key: &[u8], expires: Expires) {
        self.write(table, key, Some(Put { value: Vec::new(), expires: Some(expires), keeps: true }));
    }

    fn write(&mut self, table: &Table, key: &[u8], written: Written) {
        let table = self.place_of(table);
        self.bytes += cost(key, value_of(&written));
        let before = self.tables[table].keys.insert(key.to_vec(), written);
        if self.savepoints.is_empty() {
            self.bytes -= before.map_or(0, |before| cost(key, value_of(&before)));
        } else {
            self.bytes += cost(key, None);
            self.undo.push(Undo::Key { table, key: key.to_vec(), before });
        }
    }

    fn place_of(&mut self, table: &Table) -> usize {
        let known = self.tables.iter().position(|known| Arc::ptr_eq(&known.table.core, &table.core));
        known.unwrap_or_else(|| {
            let deleted = RangeTombstones::default();
            self.tables.push(TableWrites { table: table.clone(), keys: BTreeMap::new(), deleted });
            self.tables.len() - 1
        })
    }

    /// Most memory that the delete of a range takes.
    pub(super) fn cost_of_delete(&self, table: TableId, range: &KeyRange) -> u64 {
        let deleted = self.tables.iter().find(|known| known.table.core.id == table).map(|known| &known.deleted);
        let undone = self.within(table, &range.to_bounds()).into_iter().flatten();
        let keys: u64 = undone.map(|(key, _)| cost(key, None)).sum();
        2 * cost(&range.low, range.high.as_deref()) + 2 * deleted.map_or(0, cost_of_ranges) + keys
    }

    /// Deletes the keys of a range.
    pub(super) fn delete_range(&mut self, table: &Table, range: &KeyRange) {
        let id = table.core.id;
        let table = self.place_of(table);
        let keys: Vec<_> =
            self.within(id, &range.to_bounds()).into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let writes = &mut self.tables[table];
        let before = writes.deleted.clone();
        let horizon = Horizon { visible: Seq::MAX, ..Horizon::default() };
        writes.deleted.add(&range.low, range.high.as_deref(), Seq(1), &horizon);
        self.bytes += cost_of_ranges(&writes.deleted);
        let undoes = !self.savepoints.is_empty();
        for key in keys {
            let Some(written) = writes.keys.remove(&key) else { continue };
            if undoes {
                self.bytes += cost(&key, None);
                self.undo.push(Undo::Key { table, key, before: Some(written) });
            } else {
                self.bytes -= cost(&key, value_of(&written));
            }
        }
        if undoes {
            self.undo.push(Undo::Ranges { table, before });
        } else {
            self.bytes -= cost_of_ranges(&before);
        }
    }

    /// The deleted ranges of a table, if there are any.
    pub(super) fn deleted(&self, table: TableId) -> Option<&RangeTombstones> {
        let known = self.tables.iter().find(|known| known.table.core.id == table);
        known.map(|known| &known.deleted).filter(|deleted| !deleted.is_empty())
    }

    /// The write of `key`, if there is one that changes the value.
    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Option<&Written> {
        let is_deleted = || self.deleted(table).is_some_and(|deleted| deleted.of_key(key).is_some());
        let written = self.of(table)?.get(key);
        let written = if written.is_some() { written } else { is_deleted().then_some(&None) };
        written.filter(|written| changes_value(written))
    }

    /// The new expiry of `key`, whose value stays as it is.
    pub(super) fn renewed(&self, table: TableId, key: &[u8]) -> Option<Expires> {
        self.of(table)?.get(key).filter(|written| !changes_value(written))?.as_ref()?.expires
    }

    /// The keys that keep their values, table by table, in key order.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&Table, Vec<&[u8]>)> {
        self.tables.iter().map(|table| (&table.table, table.kept())).filter(|(_, keys)| !keys.is_empty())
    }

    /// The writes within bounds that change a value.
    pub(super) fn range(&self, table: TableId, bounds: &Bounds) -> Option<WrittenRange<'_>> {
        let changes: fn(&(&Vec<u8>, &Written)) -> bool = |(_, written)| changes_value(written);
        Some(self.within(table, bounds)?.filter(changes))
    }

    fn within(&self, table: TableId, bounds: &Bounds) -> Option<btree_map::Range<'_, Vec<u8>, Written>> {
        let keys = self.of(table)?;
        let (lower, upper) = (bounds.lower.as_ref().map(Vec::as_slice), bounds.upper.as_ref().map(Vec::as_slice));
        (!bounds.is_empty()).then(|| keys.range::<[u8], (Bound<&[u8]>, Bound<&[u8]>)>((lower, upper)))
    }

    fn of(&self, table: TableId) -> Option<&BTreeMap<Vec<u8>, Written>> {
        self.tables.iter().find(|known| known.table.core.id == table).map(|known| &known.keys)
    }

    /// All writes, table by table, in key order. `renewed` has the values of [`Writes::kept`].
    pub(super) fn items<'a>(&'a self, renewed: &'a [Renewed]) -> Vec<Item<'a>> {
        let mut renewed = renewed.iter();
        let mut items = Vec::new();
        self.tables.iter().for_each(|table| items.extend(table.items(&mut renewed)));
        items
    }

    /// A point to roll back to.
    pub(super) fn savepoint(&mut self) -> Savepoint {
        let number = self.next_savepoint;
        self.next_savepoint += 1;
        self.savepoints.push((number, self.undo.len()));
        Savepoint { transaction: Arc::clone(&self.identity), number }
    }

    /// Undoes the writes since `savepoint`, which stays; later savepoints are removed. False where the savepoint is not
    /// one of these writes.
    pub(super) fn roll_back_to(&mut self, savepoint: &Savepoint) -> bool {
        let own = Arc::ptr_eq(&savepoint.transaction, &self.identity);
        let place = self.savepoints.iter().position(|(number, _)| own && *number == savepoint.number);
        let Some(place) = place else { return false };
        self.savepoints.truncate(place + 1);
        let (_, undo) = self.savepoints[place];
        for undo in self.undo.drain(undo..).rev() {
            let (table, key, before) = match undo {
                Undo::Key { table, key, before } => (table, key, before),
                Undo::Ranges { table, before } => {
                    let after = std::mem::replace(&mut self.tables[table].deleted, before);
                    self.bytes -= cost_of_ranges(&after);
                    continue;
                }
            };
            let keys = &mut self.tables[table].keys;
            let written = match before {
                Some(before) => keys.insert(key.clone(), before),
                None => keys.remove(&key),
            };
            self.bytes -= cost(&key, None) + written.map_or(0, |written| cost(&key, value_of(&written)));
        }
        true
    }
}
