//! The path of a commit.
//!
//! 1. [`Engine::commit`] checks the batch, waits its turn ([`crate::pressure`]), writes large values to the document logs, and takes log space
//!    together with its seq.
//! 2. It makes its record as safe as asked, flushing for everybody who waits with it.
//! 3. [`crate::publish::Publisher`] carries the changes out in seq order ([`crate::carry_out`]).
//!
//! Invariants: a record names only documents that are written, and the log's flush flushes those with it; nothing enters a
//! queue before its record is as safe as its durability says.

use std::{sync::Arc, time::Duration};

use btree::{INLINE_BYTES_MAX, KEY_BYTES_MAX};
use doclog::DocPointer;
use index::{Operation, Payload, Seq};
use parking_lot::Mutex;
use psync::File;

use crate::{
    Durability, Error, Result, WriteBatch,
    batch::{BatchOperation, Item},
    catalog::TableCore,
    engine::Engine,
    format::{self, kind},
    pressure::Refusal,
    publish::{Change, Pending, Safety},
};

/// Longest key of a table with structure `btree`, in bytes.
pub const KEY_BYTES_MAX_BTREE: usize = KEY_BYTES_MAX;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;
/// Unwritten log bytes at which a lazy commit hands them to the operating system.
const LAZY_BYTES_MAX: u64 = 256 << 10;

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

impl Engine {
    /// Writes a batch.
    pub(crate) fn commit(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let _writing = self.writing.read();
        self.check_writable()?;
        self.check_tables(batch)?;
        let items = batch.last_items();
        if items.is_empty() {
            return Ok(());
        }
        self.check_limits(&items)?;
        let reclaims = items.iter().all(|item| item.operation == BatchOperation::Delete);
        self.admit(batch.bytes() as u64, reclaims)?;
        let documents = self.write_documents(&items)?;
        let payload = encode(&items, &documents);
        let position = self.append(kind::COMMIT, &payload, reclaims);
        let position = position.inspect_err(|_| abandon(&items, &documents))?;
        self.counters.committed(items.len(), batch.bytes());
        self.finish(position, Change::Commit(payload), durability)
    }

    fn check_tables(&self, batch: &WriteBatch) -> Result<()> {
        for table in batch.tables() {
            if !std::ptr::eq(table.engine(), self) {
                return Err(Error::ForeignTable { name: table.name().to_owned() });
            }
            self.check_live(&table.core)?;
            table.core.check_not_loading()?;
        }
        Ok(())
    }

    fn check_limits(&self, items: &[Item<'_>]) -> Result<()> {
        let mut bytes = 0;
        for item in items {
            check_pair(item.table, item.key, item.value)?;
            bytes += record_bytes(item) as u64;
        }
        let limit = self.wal.record_bytes_max();
        if bytes > limit {
            return Err(Error::BatchTooLarge { bytes, limit, inline: INLINE_BYTES_MAX });
        }
        Ok(())
    }

    pub(crate) fn admit(&self, bytes: u64, reclaims: bool) -> Result<()> {
        self.work_inline();
        match self.pressure.admit(bytes, reclaims) {
            Ok(()) => Ok(()),
            Err(Refusal::FullDisk(problem)) => {
                self.signal.kick();
                Err(Error::DiskFull { path: self.path.clone(), problem })
            }
            Err(Refusal::Closed) => {
                self.health.check()?;
                Err(Error::Closed)
            }
        }
    }

    /// Writes the values that are too long for the log: all those of a table in one psync.
    fn write_documents(&self, items: &[Item<'_>]) -> Result<Vec<Option<DocPointer>>> {
        let mut pointers = vec![None; items.len()];
        let is_document = |item: &Item<'_>| item.value.len() > INLINE_BYTES_MAX;
        if items.iter().any(is_document) {
            self.reserve_log()?;
        }
        let mut done = 0;
        while let Some(first) = (done..items.len()).find(|&i| is_document(&items[i]) && pointers[i].is_none()) {
            let table = items[first].table;
            let members: Vec<usize> = (first..items.len())
                .filter(|&i| is_document(&items[i]) && Arc::ptr_eq(items[i].table, table))
                .collect();
            let values: Vec<&[u8]> = members.iter().map(|&i| items[i].value).collect();
            match table.documents.append(&values) {
                Ok(written) => members.iter().zip(written).for_each(|(&i, pointer)| pointers[i] = Some(pointer)),
                Err(error) => {
                    abandon(items, &pointers);
                    return Err(self.write_error(error.into()));
                }
            }
            self.unflushed.note(table);
            done = first + 1;
        }
        Ok(pointers)
    }

    pub(crate) fn append(&self, kind: u8, payload: &[u8], reclaims: bool) -> Result<wal::Position> {
        let claim = if reclaims { wal::Claim::Delete } else { wal::Claim::Put };
        let append = || self.wal.append(kind, &[payload], true, claim);
        let position = append().or_else(|error| {
            if !matches!(error, wal::Error::Full { .. }) {
                return Err(error);
            }
            // A checkpoint trims the log: what it makes room for need not be refused.
            let ticket = self.signal.post(true);
            self.work_inline();
            self.signal.answer(ticket).map_err(|_| error)?;
            append()
        });
        position.map_err(|error| self.write_error(self.log_error(error)))
    }

    /// Makes a record as safe as asked, publishes what is due, and waits until it is itself visible.
    pub(crate) fn finish(&self, position: wal::Position, change: Change, durability: Durability) -> Result<()> {
        let safety = match durability {
            Durability::Sync => Safety::Durable,
            Durability::Os => Safety::Written,
            Durability::Lazy(_) => Safety::Appended,
        };
        let pending = Pending { lsn: position.lsn, end: position.end, safety, change };
        self.publisher.enqueue(Seq(position.seq), pending);
        let safe = match durability {
            // Who flushes publishes for all that it flushed.
            Durability::Sync => self.wal.commit(&position, &|| self.publish()),
            Durability::Os => self.wal.write_through(position.end),
            Durability::Lazy(interval) => self.lazily(position.end, interval),
        };
        if let Err(error) = safe {
            let cause = self.log_error(error).cause();
            self.fail(&cause);
            return Err(Error::OutcomeUnknown { cause });
        }
        if self.publisher.visible() < Seq(position.seq) {
            self.publish();
        }
        self.publisher.wait(Seq(position.seq)).map_err(|()| {
            let cause = self.health.cause().unwrap_or("publishing ended").to_owned();
            Error::OutcomeUnknown { cause }
        })?;
        self.work_inline();
        Ok(())
    }

    fn lazily(&self, end: wal::Lsn, interval: Duration) -> std::result::Result<(), wal::Error> {
        self.keeper.flush_within(end, interval);
        if end.0.saturating_sub(self.wal.written().0) > LAZY_BYTES_MAX {
            self.wal.write_through(end)?;
        }
        Ok(())
    }
}

/// Fails when a key or a value is outside the limits.
#[inline]
pub(crate) fn check_pair(table: &TableCore, key: &[u8], value: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyLength { table: table.name.clone(), length: key.len(), limit: KEY_BYTES_MAX });
    }
    if value.len() as u64 > VALUE_BYTES_MAX {
        let length = value.len() as u64;
        return Err(Error::ValueLength { table: table.name.clone(), length, limit: VALUE_BYTES_MAX });
    }
    Ok(())
}

/// Most bytes that an operation takes in a log record.
fn record_bytes(item: &Item<'_>) -> usize {
    let value = if item.value.len() > INLINE_BYTES_MAX { DocPointer::BYTES } else { 4 + item.value.len() };
    7 + item.key.len() + value
}

fn encode(items: &[Item<'_>], documents: &[Option<DocPointer>]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(items.iter().map(record_bytes).sum());
    for (item, document) in items.iter().zip(documents) {
        let operation = match (item.operation, document) {
            (BatchOperation::Delete, _) => Operation::Delete,
            (BatchOperation::Put, Some(document)) => Operation::Put(Payload::Document(*document)),
            (BatchOperation::Put, None) => Operation::Put(Payload::Inline(item.value)),
        };
        format::put_operation(&mut payload, item.table.id, item.key, operation);
    }
    payload
}

/// Gives the documents of a commit back that does not happen.
fn abandon(items: &[Item<'_>], documents: &[Option<DocPointer>]) {
    for (item, document) in items.iter().zip(documents) {
        if let Some(document) = document {
            item.table.documents.abandon(document);
        }
    }
}
