//! What all handles of one open database share, and the path of a commit through it.
//!
//! 1. [`Engine::commit`] checks the batch, waits its turn ([`Pressure`]), writes large values to the document logs, and takes log space
//!    together with its seq.
//! 2. It makes its record as safe as asked, flushing for everybody who waits with it.
//! 3. [`Publisher`] carries the changes out in seq order: operations enter the queues of their tables.
//!
//! Invariants: a record names only documents that are written, and the log's flush flushes those with it; nothing enters a
//! queue before its record is as safe as its durability says; after a failed write or flush nothing is written any more.
//!
//! Left to others: applying queues ([`crate::worker`]), checkpoints, recovery, reading.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use btree::{INLINE_BYTES_MAX, KEY_BYTES_MAX};
use doclog::{DocImage, DocPointer};
use index::{Index, Operation, Payload, Seq};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use psync::{File, Lock};
use space::{FileStore, PagedFile};
use wal::Wal;

use crate::{
    Durability, Error, ErrorKind, Options, Result, Structure, TableOptions, WriteBatch,
    applied::AppliedThrough,
    batch::{BatchOperation, Item},
    catalog::{Catalog, TableCore, TableIdentity},
    format::{self, kind},
    health::Health,
    keeper::{self, Keeper},
    opq::Sections,
    pressure::{Pressure, Refusal},
    publish::{Change, LogState, Pending, Publisher, Safety},
    recovery, round,
    signal::Signal,
    superblock::SuperblockFile,
    tuning::Tuning,
    worker::Worker,
};

/// Longest key of a table with structure `btree`, in bytes.
pub const KEY_BYTES_MAX_BTREE: usize = KEY_BYTES_MAX;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;
/// Longest table name, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;
/// Nominal bytes of a document segment; a longer document has a segment of its own.
pub(crate) const DOCUMENT_SEGMENT_BYTES: u64 = 64 << 20;
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

/// What all handles of one open database share.
pub(crate) struct Engine {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) trees: Arc<btree::Shared>,
    pub(crate) wal: Wal,
    pub(crate) catalog: Catalog,
    pub(crate) publisher: Publisher,
    pub(crate) pressure: Pressure,
    pub(crate) health: Health,
    pub(crate) signal: Signal,
    pub(crate) keeper: Keeper,
    pub(crate) superblock: Mutex<SuperblockFile>,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    /// Bytes of all queues that take operations.
    pub(crate) active_bytes: AtomicU64,
    /// Held by whoever changes structures, and by whoever needs them still.
    pub(crate) maintenance: Mutex<()>,
    pub(crate) counters: crate::stats::EngineCounters,
    /// One creation or drop of a table at a time.
    schema: Mutex<()>,
    /// Held for reading by every write from its admission until it is visible.
    writing: RwLock<()>,
    closed: AtomicBool,
    /// The log has its segments for deletes and upkeep.
    log_reserved: AtomicBool,
    _lock: Option<Lock>,
}

/// The parts that opening puts together.
pub(crate) struct Parts {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) trees: Arc<btree::Shared>,
    pub(crate) wal: Wal,
    pub(crate) catalog: Catalog,
    pub(crate) superblock: SuperblockFile,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    pub(crate) lock: Option<Lock>,
    pub(crate) replayed: crate::stats::Recovery,
}

impl Engine {
    /// Puts an engine together after recovery.
    pub(crate) fn new(parts: Parts) -> Self {
        let (visible, end) = (Seq(parts.wal.last_seq()), parts.wal.end());
        let pressure = Pressure::new(parts.tuning.write_buffer_bytes, parts.options.background);
        let engine = Self {
            pressure,
            path: parts.path,
            options: parts.options,
            tuning: parts.tuning,
            store: parts.store,
            pages: parts.pages,
            trees: parts.trees,
            wal: parts.wal,
            catalog: parts.catalog,
            publisher: Publisher::new(visible, end),
            health: Health::default(),
            signal: Signal::default(),
            keeper: Keeper::default(),
            superblock: Mutex::new(parts.superblock),
            unflushed: parts.unflushed,
            active_bytes: AtomicU64::new(0),
            maintenance: Mutex::new(()),
            counters: crate::stats::EngineCounters::new(parts.replayed),
            schema: Mutex::new(()),
            writing: RwLock::new(()),
            closed: AtomicBool::new(false),
            log_reserved: AtomicBool::new(false),
            _lock: parts.lock,
        };
        for table in engine.catalog.live() {
            let fences = round::fences(&engine, &*table.tree.view());
            recovery::settle(&table, &fences, engine.pressure.sections());
            for queue in table.state.load().active.queues() {
                let bytes = queue.read().bytes() as u64;
                engine.note_growth(&table, 0, bytes);
            }
        }
        engine
    }

    /// Fails when nothing may be written.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.health.check()
    }

    /// Lets no more writes in and waits for those under way.
    pub(crate) fn close_doors(&self) {
        self.closed.store(true, Ordering::Release);
        self.pressure.close();
        self.let_writes_end();
    }

    /// Keeps others from closing the doors while a change that is no commit ends.
    pub(crate) fn keep_open(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.read()
    }

    /// Waits for the writes that are under way; what was set before this is seen by all later ones.
    pub(crate) fn let_writes_end(&self) {
        drop(self.writing.write());
    }

    /// Has everything that is visible now applied, and a checkpoint written where wanted.
    pub(crate) fn ask(&self, checkpoint: bool) -> Result<()> {
        self.check_writable()?;
        let ticket = self.signal.post(checkpoint);
        self.work_inline();
        self.signal.answer(ticket).map_err(|error| {
            let closed = || Error::Failed { cause: "the background worker has ended".into() };
            error.or_else(|| self.health.check().err()).unwrap_or_else(closed)
        })
    }

    /// Ends all writing because of `cause`.
    pub(crate) fn fail(&self, cause: impl ToString) {
        self.health.fail(cause);
        self.publisher.fail();
        self.pressure.close();
        self.signal.fail();
    }

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

    /// Fails when the table was dropped.
    pub(crate) fn check_live(&self, table: &TableCore) -> Result<()> {
        if self.catalog.read().by_id(table.id).is_none() {
            return Err(Error::NoSuchTable { name: table.name.clone() });
        }
        Ok(())
    }

    fn admit(&self, bytes: u64, reclaims: bool) -> Result<()> {
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

    /// Gives the log its segments for deletes and upkeep: what is not logged can fill the disk while the log is still small.
    pub(crate) fn reserve_log(&self) -> Result<()> {
        if !self.log_reserved.load(Ordering::Relaxed) {
            self.wal.reserve().map_err(|error| self.log_error(error))?;
            self.log_reserved.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sorts the error of a write: a failed write or flush ends all writing, unless there was only no space for the write.
    pub(crate) fn write_error(&self, error: Error) -> Error {
        let no_space = error.kind() == ErrorKind::DiskFull && !error.is_flush_failure();
        if error.is_write_failure() && !no_space {
            self.fail(error.cause());
        }
        error
    }

    /// Makes the whole log durable.
    pub(crate) fn flush_log(&self) -> Result<()> {
        self.wal.flush_through(self.wal.end()).map_err(|error| self.log_error(error))
    }

    fn append(&self, kind: u8, payload: &[u8], reclaims: bool) -> Result<wal::Position> {
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

    /// A log error as the database tells it.
    pub(crate) fn log_error(&self, error: wal::Error) -> Error {
        crate::convert::log_error(error, &self.path)
    }

    /// Makes a record as safe as asked, publishes what is due, and waits until it is itself visible.
    fn finish(&self, position: wal::Position, change: Change, durability: Durability) -> Result<()> {
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

    /// Without background threads, does what they would do, until there is nothing more to do or it fails.
    pub(crate) fn work_inline(&self) {
        let mut worker = Worker::default();
        while !self.options.background && self.signal.has_work() {
            keeper::prepare(self);
            // After a read that failed, a caller that waits for the work would wait for good.
            if worker.turn(self, Duration::ZERO).is_break() || self.pressure.full_disk().is_some() {
                break;
            }
        }
    }

    fn lazily(&self, end: wal::Lsn, interval: Duration) -> std::result::Result<(), wal::Error> {
        self.keeper.flush_within(end, interval);
        if end.0.saturating_sub(self.wal.written().0) > LAZY_BYTES_MAX {
            self.wal.write_through(end)?;
        }
        Ok(())
    }

    /// Carries out every change whose record is safe enough.
    pub(crate) fn publish(&self) {
        let log = || LogState { durable: self.wal.durable(), written: self.wal.written() };
        self.publisher.publish(log, |seq, pending| self.carry_out(seq, pending));
        if let Some(cause) = self.health.cause() {
            self.fail(cause);
        }
    }

    fn carry_out(&self, seq: Seq, pending: Pending) {
        match pending.change {
            Change::Commit(payload) => self.enter_queues(seq, &payload, pending.lsn),
            Change::Create(table) => {
                self.catalog.insert(table);
                self.counters.changed();
            }
            Change::Drop(id) => {
                if let Some(table) = self.catalog.drop_table(id) {
                    self.counters.looked_up(table.traffic.lookups());
                }
                self.counters.changed();
            }
        }
    }

    fn enter_queues(&self, seq: Seq, payload: &[u8], lsn: wal::Lsn) {
        let catalog = self.catalog.read();
        let mut operations = format::Operations::new(payload, seq)
            .map(|item| item.expect("this payload was encoded by its commit"))
            .peekable();
        while let Some((id, update)) = operations.next() {
            let table = catalog.by_id(id);
            let state = table.map(|table| table.state.load());
            let enter = |update: index::Update<'_>| {
                let (Some(table), Some(state)) = (table, &state) else { return };
                if let Operation::Put(Payload::Document(document)) = update.operation
                    && let Err(error) = table.documents.retain(&document)
                {
                    self.health.fail(error);
                }
                let mut queue = state.active.queue(state.active.of_key(update.key)).write();
                let before = queue.bytes() as u64;
                queue.append(&update, lsn);
                let after = queue.bytes() as u64;
                drop(queue);
                self.note_growth(table, before, after);
            };
            enter(update);
            let mut count = 1;
            while let Some((_, update)) = operations.next_if(|(next, _)| *next == id) {
                enter(update);
                count += 1;
            }
            if let Some(table) = table {
                table.traffic.changed(count);
            }
        }
    }

    /// Notes that a queue of `table` grew to `after` bytes, and wakes the worker when there is enough to apply.
    fn note_growth(&self, table: &TableCore, before: u64, after: u64) {
        let growth = after - before;
        if growth == 0 {
            return;
        }
        table.active_bytes.fetch_add(growth, Ordering::Relaxed);
        self.pressure.take(growth);
        let active = self.active_bytes.fetch_add(growth, Ordering::Relaxed) + growth;
        let (due, due_queue) = (self.pressure.due_bytes(), self.pressure.due_queue_bytes());
        if (active >= due && active - growth < due) || (after >= due_queue && before < due_queue) {
            self.signal.kick();
        }
    }

    /// Whether there is enough in all queues, or in the fullest one, for a round.
    pub(crate) fn is_round_due(&self, fullest: u64) -> bool {
        let active = self.active_bytes.load(Ordering::Relaxed);
        active >= self.pressure.due_bytes() || fullest >= self.pressure.due_queue_bytes()
    }

    /// Queues of `table` of so many bytes take no more operations.
    pub(crate) fn note_frozen(&self, table: &TableCore, bytes: u64) {
        table.active_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.active_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Gives the memory back that operations of a dropped table hold: nobody will apply them.
    pub(crate) fn abandon_queues(&self, table: &TableCore) {
        let state = table.state.load();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        let active = table.active_bytes.load(Ordering::Relaxed);
        if frozen + active > 0 {
            self.note_frozen(table, active);
            let none = Arc::new(Sections::new(self.options.speriod));
            table.replace_state(none, None, Arc::clone(&state.view));
            self.pressure.forget(frozen + active);
        }
    }

    /// Opens a table, creating it where it is missing.
    pub(crate) fn table(&self, name: &str, structure: Structure, expected: &TableOptions) -> Result<Arc<TableCore>> {
        check_name(name)?;
        expected.check()?;
        if let Some(table) = self.catalog.by_name(name) {
            return check_structure(table, structure);
        }
        self.check_writable()?;
        self.know_device();
        let _schema = self.schema.lock();
        let _writing = self.writing.read();
        self.check_writable()?;
        if let Some(table) = self.catalog.by_name(name) {
            return check_structure(table, structure);
        }
        self.admit(0, false)?;
        let record = format::CreateTable {
            id: self.catalog.take_id(),
            structure,
            leaf_pages: self.tuning.leaf_pages(expected),
            name: name.to_owned(),
        };
        let table = Arc::new(new_table(&self.store, &self.trees, &record, self.options.speriod)?);
        let position = self.append(kind::CREATE_TABLE, &record.encode(), false)?;
        self.finish(position, Change::Create(Arc::clone(&table)), Durability::Sync)?;
        Ok(table)
    }

    /// Drops a table.
    pub(crate) fn drop_table(&self, name: &str) -> Result<()> {
        let _schema = self.schema.lock();
        let _writing = self.writing.read();
        self.check_writable()?;
        let no_such_table = || Error::NoSuchTable { name: name.to_owned() };
        let table = self.catalog.by_name(name).ok_or_else(no_such_table)?;
        table.check_not_loading()?;
        let position = self.append(kind::DROP_TABLE, &format::encode_drop_table(table.id), true)?;
        self.finish(position, Change::Drop(table.id), Durability::Sync)?;
        self.signal.kick();
        Ok(())
    }
}

/// A table that a log record begins.
pub(crate) fn new_table(
    store: &FileStore, trees: &Arc<btree::Shared>, record: &format::CreateTable, sort_period: usize,
) -> Result<TableCore> {
    let documents = doclog::DocLog::open(store, record.id.0, &DocImage::default(), DOCUMENT_SEGMENT_BYTES)?;
    let tree = btree::BTree::create(Arc::clone(trees), record.id, record.leaf_pages);
    let identity = TableIdentity { id: record.id, name: record.name.clone(), structure: record.structure };
    let applied = AppliedThrough::new(Seq(0));
    Ok(TableCore::new(identity, tree, documents, applied, Sections::new(sort_period)))
}

fn check_structure(table: Arc<TableCore>, wanted: Structure) -> Result<Arc<TableCore>> {
    if table.structure == wanted {
        return Ok(table);
    }
    Err(Error::WrongStructure { name: table.name.clone(), found: table.structure, wanted })
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

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
        let shown = name.chars().take(40).collect();
        return Err(Error::TableName { name: shown, limit: TABLE_NAME_BYTES_MAX });
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
