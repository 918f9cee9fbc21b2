//! Operations that commit together.

use std::{collections::HashMap, ops::Range, sync::Arc};

use crate::{Table, catalog::TableCore};

/// What one operation of a batch does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchOperation {
    /// The key gets this value.
    Put,
    /// The key goes.
    Delete,
}

struct Entry {
    table: usize,
    operation: BatchOperation,
    key: Range<usize>,
    value: Range<usize>,
}

/// One operation of a batch, borrowed.
pub(crate) struct Item<'a> {
    pub(crate) table: &'a Arc<TableCore>,
    pub(crate) operation: BatchOperation,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Operations on any tables of one database that become durable and visible together, or not at all.
///
/// A later operation on a key replaces an earlier one of the same batch.
#[derive(Default)]
pub struct WriteBatch {
    tables: Vec<Table>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` of `table` to `value`. Limits are checked when the batch is written.
    pub fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(table, BatchOperation::Put, key.as_ref(), value.as_ref());
    }

    /// Deletes `key` of `table`; a key that is not there stays so.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) {
        self.push(table, BatchOperation::Delete, key.as_ref(), &[]);
    }

    /// How many operations it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of its keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes every operation out, keeping the memory for the next ones.
    pub fn clear(&mut self) {
        self.tables.clear();
        self.entries.clear();
        self.bytes.clear();
    }

    fn push(&mut self, table: &Table, operation: BatchOperation, key: &[u8], value: &[u8]) {
        let known = self.tables.iter().rposition(|known| Arc::ptr_eq(&known.core, &table.core));
        let table = known.unwrap_or_else(|| {
            self.tables.push(table.clone());
            self.tables.len() - 1
        });
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push(Entry { table, operation, key: start..middle, value: middle..self.bytes.len() });
    }

    /// The tables it touches.
    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn item(&self, entry: &Entry) -> Item<'_> {
        Item {
            table: &self.tables[entry.table].core,
            operation: entry.operation,
            key: &self.bytes[entry.key.clone()],
            value: &self.bytes[entry.value.clone()],
        }
    }

    /// The last operation of each key, in the order of the batch.
    pub(crate) fn last_items(&self) -> Vec<Item<'_>> {
        if let [only] = self.entries.as_slice() {
            return vec![self.item(only)];
        }
        let mut last: HashMap<(usize, &[u8]), usize> = HashMap::with_capacity(self.entries.len());
        for (position, entry) in self.entries.iter().enumerate() {
            last.insert((entry.table, &self.bytes[entry.key.clone()]), position);
        }
        let is_last =
            |(position, entry): &(usize, &Entry)| last[&(entry.table, &self.bytes[entry.key.clone()])] == *position;
        self.entries.iter().enumerate().filter(is_last).map(|(_, entry)| self.item(entry)).collect()
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WriteBatch").field("operations", &self.len()).field("bytes", &self.bytes()).finish()
    }
}
