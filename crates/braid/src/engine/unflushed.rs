//! Documents that must become durable together with the next flush of the log.

use std::sync::Arc;

use parking_lot::Mutex;
use psync::File;

use crate::tables::catalog::TableCore;

/// Tables whose document logs have writes that the next flush of the log must cover.
#[derive(Default)]
pub(crate) struct UnflushedDocuments {
    tables: Mutex<Vec<Arc<TableCore>>>,
}

impl UnflushedDocuments {
    /// `table` has such writes.
    pub(crate) fn note(&self, table: &Arc<TableCore>) {
        let mut tables = self.tables.lock();
        if !tables.iter().any(|known| Arc::ptr_eq(known, table)) {
            tables.push(Arc::clone(table));
        }
    }
}

impl wal::Companions for UnflushedDocuments {
    fn take_unflushed(&self) -> Vec<File> {
        let tables = std::mem::take(&mut *self.tables.lock());
        tables.iter().flat_map(|table| table.documents.take_unflushed()).collect()
    }
}
