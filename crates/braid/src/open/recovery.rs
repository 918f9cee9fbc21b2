//! Recovery: from a superblock and its checkpoint image to an engine.
//!
//! 1. The superblock names the newest checkpoint image, which gives tables, roots and the free list.
//! 2. The superblock gets a new epoch, which is durable before any other write.
//! 3. The log is replayed from the position in the image, in log order. A flush-end moves a table to its new root and
//!    says which keys have which commits there. An operation that its table lacks enters a queue, and leaves the queue
//!    when a later flush-end covers it ([`crate::open::backlog`]). Nothing is replayed if the superblock says that the
//!    database was closed and not written since.
//! 4. Pages that the replayed flush-ends retired are free, because the log that names them is on stable storage by
//!    then.
//!
//! Invariants:
//!
//! - Nothing but the superblock's epoch changes before the whole log was read.
//! - A group that may not have been durable counts only if every document named in the group is whole.
//! - Every step can be repeated after a crash within the step.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    thread::Builder,
    time::Instant,
};

use doclog::{Content, DocImage, DocLog, DocPointer};
use index::{Horizon, RangeTombstones, Seq, TableId, Time};
use psync::Lock;
use space::{CheckedImage, FileStore, PAGE, PagedFile};
use wal::{Group, Lsn, Verdict};

use crate::{
    commit::schema::{new_table, open_documents},
    engine::{
        Engine,
        counters::Recovery,
        parts::{Contents, Files},
        retention::Kept,
    },
    error::{Error, Result, convert::malformed_record},
    format::{
        self, CreateTable, FlushEnd, FlushEndPiece, Image, Logged, Operations, SetHistory, TableImage, VERSION, kind,
        pieces::Pieces,
    },
    open::{assembly::log_options, backlog::Backlog},
    opq::{Sections, Sorting},
    options::Options,
    root::{DATA, image::read_image, superblock::SuperblockFile},
    tables::{
        catalog::{Catalog, TableCore, TableIdentity},
        retained, usage,
    },
    upkeep::worker,
    words::structure::Structure,
};

/// A free list with fewer runs is in order before a thread is started for it.
const WORTH_A_THREAD: u64 = 4096;
/// A log of more bytes is long.
const LONG_BYTES: u64 = 256 << 10;

/// The engine of a database whose superblock names an image.
pub(crate) fn recover(
    path: &Path, options: &Options, store: FileStore, mut superblock: SuperblockFile, lock: Option<Lock>,
) -> Result<Engine> {
    let started = Instant::now();
    let mut image = read_image(&store, &superblock)?;
    let allocator = CheckedImage::new(std::mem::take(&mut image.allocator))?;
    let stats = allocator.stats();
    let (data_bytes, free_runs) = (stats.used_pages().saturating_mul(PAGE as u64), stats.free_runs);
    let clean_end = superblock.current().clean_end;
    if !options.read_only {
        superblock.begin_epoch()?;
    }
    let open_pages = |store: &FileStore| PagedFile::open(store, DATA, allocator);
    let files = Files::new(path, options, store, superblock, lock, data_bytes, open_pages)?;
    let catalog = Catalog::new(image.next_table);
    for table in &image.tables {
        catalog.insert(Arc::new(open_table(&files, table)?));
    }
    for table in &image.dropped {
        catalog.insert_dropped(Arc::new(open_table(&files, table)?));
    }
    let Image { log_start, log_durable, visible, .. } = image;
    let log_options = wal::Options {
        keep: Some(image.kept_from),
        clean_end,
        ..log_options(options, &files.superblock, log_start, log_durable, visible.0 + 1)
    };
    let replay = Replay {
        path,
        files: &files,
        catalog: &catalog,
        image: &image,
        time: Cell::new(image.time),
        pieces: RefCell::default(),
        backlogs: RefCell::default(),
        filling: RefCell::default(),
    };
    let mut waits = free_runs > WORTH_A_THREAD;
    let prepare = || files.pages.prepare();
    let opened = std::thread::scope(|scope| {
        files.open_log(&log_options, &mut |group| {
            // A long log has flush-ends, which need the free list in order.
            if waits && group.lsn.0 > image.log_start.0 + LONG_BYTES {
                waits = false;
                // Without a thread, the first use does the same.
                let _ = Builder::new().name("braid-pages".to_owned()).spawn_scoped(scope, prepare);
            }
            replay.group(group)
        })
    });
    let (wal, replayed) = opened?;
    replay.put_back(replay.filling.take());
    let (time, backlogs) = (replay.time.get(), replay.backlogs.into_inner());
    files.pages.release_all_retired();
    let kept = Kept { from: image.kept_from, seq: image.kept_seq }.within(&wal);
    if !options.read_only {
        tidy_names(&files, &catalog, replayed.closed)?;
    }
    let replayed = Recovery {
        records: replayed.records,
        bytes: replayed.bytes,
        groups: replayed.groups,
        tail: replayed.tail,
        seconds: started.elapsed().as_secs_f64(),
    };
    let engine = Engine::new(files, Contents { wal, catalog, replayed, kept, time }, worker::WORK);
    fill_queues(&engine, backlogs);
    Ok(engine)
}

/// Unlinks stray files, and makes all names durable. Closing a database syncs all names in it, but the database may
/// have been moved since. The log has synced its own names.
fn tidy_names(files: &Files, catalog: &Catalog, was_closed: bool) -> Result<()> {
    let store = &files.store;
    remove_stray_files(files, catalog)?;
    if !was_closed {
        let mut directories = [Content::Documents.directory(), ""].into_iter().chain(Structure::directories());
        directories.try_for_each(|directory| store.note_found(directory))?;
    }
    Ok(store.sync_directories()?)
}

/// Fills the queues of all tables with what was replayed.
fn fill_queues(engine: &Engine, mut backlogs: BTreeMap<TableId, Backlog>) {
    engine.structures.adapt(&usage::footprints(&engine.catalog.live()));
    for table in engine.catalog.live() {
        if table.is_expiring() {
            engine.clock.note_expiring();
        }
        table.documents.set_segment_bytes(engine.options.segment_bytes);
        backlogs.remove(&table.id).unwrap_or_else(|| Backlog::new(table.applied())).fill_queues(engine, &table);
    }
}

/// Unlinks files of dropped tables: a crash came between the drop and the unlink.
fn remove_stray_files(files: &Files, catalog: &Catalog) -> Result<()> {
    let is_known = |table| catalog.any_by_id(table).is_some();
    for table in doclog::tables_with(&files.store, Content::Documents)? {
        if !is_known(TableId(table)) {
            DocLog::remove_table(Content::Documents, &files.store, table)?;
        }
    }
    files.structures.remove_strays(is_known)
}

fn open_table(files: &Files, image: &TableImage) -> Result<TableCore> {
    let documents = DocImage::decode(&image.documents)?;
    let TableImage { id, structure, settings, .. } = *image;
    let documents = open_documents(&files.store, id, &documents, &settings)?;
    let tree = files.structures.open(structure, id, &image.root, &documents)?;
    let identity = TableIdentity { id, name: image.name.clone(), structure, settings };
    let table = TableCore::new(identity, tree, documents, image.applied.clone(), Sections::new(Sorting::Always));
    table.set_dropped(image.dropped);
    table.change_tombstones(|tombstones| tombstones.clone_from(&image.tombstones));
    // The newest change of the table is one of these.
    let seqs = image.tombstones.fragments().iter().map(|fragment| fragment.newest());
    seqs.chain(image.applied.steps().iter().map(|(_, seq)| *seq)).for_each(|seq| table.history.note_change(seq));
    retained::restore(&table, &image.headers)?;
    Ok(table)
}

/// Brings the tables of an image forward, group by group.
struct Replay<'a> {
    path: &'a Path,
    files: &'a Files,
    catalog: &'a Catalog,
    image: &'a Image,
    /// The latest time in the image and the replayed log.
    time: Cell<Time>,
    pieces: RefCell<Pieces>,
    /// The operations that the structures of the tables lack.
    backlogs: RefCell<BTreeMap<TableId, Backlog>>,
    /// The backlog of the table of the newest commit, which is not among the others. So adjacent commits of one table
    /// need no lookup.
    filling: RefCell<Option<Filling>>,
}

/// A backlog that is being filled, and the facts needed for that.
struct Filling {
    table: Arc<TableCore>,
    has_tombstones: bool,
    backlog: Backlog,
}

impl Replay<'_> {
    fn group(&self, group: &Group<'_>) -> Result<Verdict> {
        if group.durable != Some(true) {
            let documents = self.documents(group);
            match group.durable {
                None if !documents.is_empty() => return Ok(Verdict::Wait),
                Some(false) if !self.take_documents(&documents)? => return Ok(Verdict::Tail),
                _ => {}
            }
        }
        for record in group.records() {
            let (seq, payload) = (Seq(record.seq), record.payload);
            if ![kind::COMMIT, kind::FLUSH_END_PART].contains(&record.kind) {
                self.put_back(self.filling.take());
            }
            match record.kind {
                kind::COMMIT => self.commit(seq, record.lsn, payload),
                kind::FLUSH_END_PART => self.flush_end_piece(record.lsn, payload).map(drop),
                kind::FLUSH_END => self.flush_end(record.lsn, payload),
                kind::CREATE_TABLE => self.create_table(seq, record.lsn, payload),
                kind::DROP_TABLE => self.drop_table(seq, record.lsn, payload),
                // The loaded pairs are in the flush-end behind this record, if that was durable.
                kind::LOAD => self.load(seq, record.lsn, payload),
                // The restored state is in the flush-end behind this record, if that was durable.
                kind::ROLL_BACK => Ok(()),
                kind::SET_HISTORY => self.set_history(record.lsn, payload),
                other => Err(self.malformed(record.lsn, format!("a record of kind {other}"))),
            }?;
        }
        Ok(Verdict::Accept)
    }

    /// The documents that a group names.
    fn documents(&self, group: &Group<'_>) -> Vec<(Arc<TableCore>, Vec<DocPointer>)> {
        let named = format::documents_of(group).into_iter();
        named.filter_map(|(table, documents)| Some((self.catalog.any_by_id(table)?, documents))).collect()
    }

    /// Whether every one of these documents is whole. If so, the documents are written again, because the log makes
    /// their group durable once replay is done. A flush that failed in an earlier life may have left pages that look
    /// clean and are not stored.
    fn take_documents(&self, named: &[(Arc<TableCore>, Vec<DocPointer>)]) -> Result<bool> {
        for (table, documents) in named {
            if !table.documents.check_many(documents)?.into_iter().all(|whole| whole) {
                return Ok(false);
            }
        }
        if !self.files.store.is_read_only() {
            for (table, documents) in named {
                table.documents.rewrite(documents)?;
                self.files.unflushed.note(table);
            }
        }
        Ok(true)
    }

    fn commit(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let mut filling = self.filling.borrow_mut();
        let operations = Operations::new(payload, seq);
        self.note_time(operations.time);
        for operation in operations {
            let (id, logged) = operation.ok_or_else(|| self.malformed(lsn, "a commit that does not decode".into()))?;
            if filling.as_ref().is_none_or(|filling| filling.table.id != id) {
                self.put_back(filling.take());
                *filling = self.catalog.read().by_id(id).map(|table| self.fill(table));
            }
            let Some(Filling { table, has_tombstones, backlog }) = &mut *filling else { continue };
            table.history.note_change(seq);
            let update = match logged {
                Logged::Update(update) => update,
                Logged::DeleteRange { low, high } => {
                    if seq > self.image.visible {
                        let horizon = Horizon { visible: seq, ..Horizon::default() };
                        table.change_tombstones(|tombstones| tombstones.add(low, high, seq, &horizon));
                        *has_tombstones = true;
                    }
                    continue;
                }
            };
            if *has_tombstones {
                table.outgrow_tombstone(update.key, seq);
            }
            if let (Some(document), true) = (update.operation.document(), seq > self.image.visible) {
                table.documents.retain(&document, seq.0)?;
            }
            if update.operation.expiry().is_some() {
                table.note_expiring();
            }
            backlog.append(&update, lsn);
        }
        Ok(())
    }

    /// Begins to fill the backlog of a table.
    fn fill(&self, table: &Arc<TableCore>) -> Filling {
        let backlog = self.backlogs.borrow_mut().remove(&table.id);
        Filling {
            table: Arc::clone(table),
            backlog: backlog.unwrap_or_else(|| Backlog::new(table.applied())),
            has_tombstones: !table.state.load().tombstones.is_empty(),
        }
    }

    /// Puts the backlog back, because another table follows, or a record other than a commit.
    fn put_back(&self, filling: Option<Filling>) {
        if let Some(Filling { table, backlog, .. }) = filling {
            self.backlogs.borrow_mut().insert(table.id, backlog);
        }
    }

    fn flush_end(&self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if lsn < self.image.flush_ends_below {
            return Ok(());
        }
        let id = self.flush_end_piece(lsn, payload)?;
        let body = self.pieces.borrow_mut().end(id);
        let malformed = || self.malformed(lsn, "a flush-end that does not decode".into());
        let record = FlushEnd::decode(id, &body).ok_or_else(malformed)?;
        self.note_time(record.time);
        let table = self.catalog.any_by_id(record.table);
        let table =
            table.ok_or_else(|| self.malformed(lsn, format!("a flush-end of unknown table {}", record.table.0)))?;
        table.tree.replay(&record.redo)?;
        if table.tree.expires() {
            table.note_expiring();
        }
        table.set_applied(record.applied);
        // Retained first, because a moved document may be dropped at once.
        for retained in &record.retained {
            table.documents.retain_in(retained)?;
        }
        for document in &record.dropped {
            table.documents.drop_document(document)?;
        }
        if let Some(restored) = record.restored {
            for (segment, bytes) in &restored.dropped {
                table.documents.drop_in(*segment, *bytes)?;
            }
            table.history.note_change(table.applied().at(&[]));
            table.change_tombstones(|tombstones| *tombstones = restored.tombstones);
        }
        let state = table.state.load_full();
        table.hold().replace_state(Arc::clone(&state.active), None, table.tree.view());
        if let Some(backlog) = self.backlogs.borrow_mut().get_mut(&record.table) {
            backlog.sweep(table.applied());
        }
        Ok(())
    }

    /// Notes a time at which the log was written.
    fn note_time(&self, time: Time) {
        self.time.set(self.time.get().max(time));
    }

    /// Takes a piece of a flush-end; returns its table.
    fn flush_end_piece(&self, lsn: Lsn, payload: &[u8]) -> Result<TableId> {
        let malformed = || self.malformed(lsn, "a piece of a flush-end that does not decode".into());
        let piece = FlushEndPiece::decode(payload).ok_or_else(malformed)?;
        let taken = self.pieces.borrow_mut().take(&piece);
        // A piece may follow others before the replayed part of the log. Then it belongs to the image already.
        if let Err(due) = taken
            && lsn >= self.image.flush_ends_below
        {
            return Err(self.malformed(lsn, format!("piece {} of a flush-end where {due} is due", piece.number)));
        }
        Ok(piece.table)
    }

    fn create_table(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if seq <= self.image.visible {
            return Ok(());
        }
        let malformed = || self.malformed(lsn, "a table's begin that does not decode".into());
        let record = CreateTable::decode(payload).ok_or_else(malformed)?;
        self.catalog.insert(Arc::new(new_table(&self.files.store, &self.files.structures, &record, Sorting::Always)?));
        Ok(())
    }

    fn drop_table(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if seq <= self.image.visible {
            return Ok(());
        }
        let id = format::decode_table(payload)
            .ok_or_else(|| self.malformed(lsn, "a table's end that does not decode".into()))?;
        self.catalog.drop_table(id, seq);
        Ok(())
    }

    /// Removes the range tombstones of the loaded table. The table was empty, so older range deletes have nothing to
    /// hide.
    fn load(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if seq <= self.image.visible {
            return Ok(());
        }
        let malformed = || self.malformed(lsn, "a load that does not decode".into());
        let id = format::decode_table(payload).ok_or_else(malformed)?;
        if let Some(table) = self.catalog.read().by_id(id) {
            table.change_tombstones(|tombstones| *tombstones = RangeTombstones::default());
        }
        Ok(())
    }

    fn set_history(&self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if lsn < self.image.flush_ends_below {
            return Ok(());
        }
        let malformed = || self.malformed(lsn, "a number of retained states that does not decode".into());
        let SetHistory { table, keep } = SetHistory::decode(payload).ok_or_else(malformed)?;
        if let Some(table) = self.catalog.any_by_id(table) {
            table.history.set_keep(keep);
        }
        Ok(())
    }

    fn malformed(&self, lsn: Lsn, found: String) -> Error {
        malformed_record(self.path, lsn, format!("a record of format version {VERSION}"), found)
    }
}
