//! Opening: from a directory to an engine.
//!
//! 1. The superblock names the newest checkpoint image and gets a new epoch, durable before anything else is written.
//! 2. The image gives tables, roots and the free list.
//! 3. The log is replayed from where the image says, in its order: a flush-end moves a table to its new root and says which keys
//!    have which commits there; an operation that its table lacks enters a queue. Those that a later flush-end covers are
//!    taken out now and then, and at the end, when the queues are cut into sections.
//! 4. What the replayed flush-ends retired is free, since the log that names them is on stable storage by then.
//!
//! Invariants: nothing but the superblock's epoch changes before the whole log was read; a group that may not have been
//! durable counts only when every document it names is whole; every step can be repeated after a crash within it.
//!
//! A directory whose superblock has no image was never completely created: nothing in it was acknowledged, and it
//! is created anew.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

use doclog::{DocImage, DocLog, DocPointer};
use index::{Index, Operation, Payload, Seq};
use psync::{Buffer, Lock, Psync, Request};
use rand::RngCore;
use space::{AllocatorImage, FileStore, PAGE, PagedFile, StreamKind};
use wal::{Group, Lsn, Verdict, Wal};

use crate::{
    Error, Options, Result,
    catalog::{Catalog, TableCore, TableIdentity},
    checkpoint,
    commit::UnflushedDocuments,
    convert::log_error,
    engine::{Engine, Parts},
    format::{self, CreateTable, FlushEnd, FlushEndPiece, Image, Operations, TableImage, VERSION, kind},
    opq::Sections,
    schema::{DOCUMENT_SEGMENT_BYTES, new_table},
    stats::Recovery,
    superblock::{self, SuperblockFile},
    tuning::{self, Tuning},
};

const DATA: &str = "data";
const LOCK: &str = "LOCK";
/// Fewer operations than this are not worth taking the applied ones out while replay goes on.
const SWEEP_MIN: usize = 10_000;
/// What a directory can hold before its superblock is there.
const OURS: [&str; 5] = [LOCK, superblock::NAME, "wal", "doc", "device.json"];

/// Opens or creates the database at `path`.
pub(crate) fn open(psync: Psync, path: &Path, options: &Options) -> Result<Engine> {
    let existed = psync.exists(path)?;
    if !existed && (options.read_only || !options.create) {
        return Err(Error::NoDatabase { path: path.to_owned() });
    }
    let names = if existed { psync.list(path)? } else { Vec::new() };
    if !names.iter().any(|name| name == superblock::NAME) {
        if names.is_empty() && existed && (options.read_only || !options.create) {
            return Err(Error::NoDatabase { path: path.to_owned() });
        }
        check_ours(&psync, path, &names)?;
    }
    let store = FileStore::open(psync, path, options.read_only)?;
    let lock = lock(&store, path, options.read_only)?;
    let superblock = superblock(&store, options)?;
    if superblock.current().image.is_some() {
        return recover(path, options, store, superblock, lock);
    }
    if options.read_only {
        return Err(Error::NoDatabase { path: path.to_owned() });
    }
    create(path, options, store, superblock, lock)
}

/// A directory without a superblock is taken only when nothing in it belongs to somebody else.
fn check_ours(psync: &Psync, path: &Path, names: &[String]) -> Result<()> {
    let mut foreign = names.iter().find(|name| !OURS.contains(&name.as_str())).cloned();
    for directory in ["wal", "doc"] {
        if psync.exists(&path.join(directory))? {
            let inside = psync.list(&path.join(directory))?.into_iter().next();
            foreign = foreign.or(inside.map(|name| format!("{directory}/{name}")));
        }
    }
    foreign.map_or(Ok(()), |name| {
        let reason = format!("it holds {name:?} and no superblock");
        Err(Error::ForeignFile { path: path.to_owned(), reason })
    })
}

fn lock(store: &FileStore, path: &Path, read_only: bool) -> Result<Option<Lock>> {
    let file = path.join(LOCK);
    match store.psync().lock(&file, read_only) {
        Ok(lock) => Ok(Some(lock)),
        Err(psync::Error::Locked { holder, .. }) => {
            let holder = holder.map_or_else(|| "that did not leave its id".to_owned(), |pid| pid.to_string());
            Err(Error::Locked { path: path.to_owned(), holder })
        }
        // A reader of a directory that it may not write to has no lock file to lock, and neither has a writer.
        Err(error) if read_only && crate::convert::io_kind(&error) != crate::ErrorKind::Io => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The superblock, made anew where creation was cut off before it was whole.
fn superblock(store: &FileStore, options: &Options) -> Result<SuperblockFile> {
    let make = |store: &FileStore| {
        let mut database = [0; 16];
        rand::rng().fill_bytes(&mut database);
        let file = SuperblockFile::create(store, database, options.segment_bytes)?;
        store.sync_directories()?;
        Ok(file)
    };
    if !store.exists(superblock::NAME)? {
        return make(store);
    }
    match SuperblockFile::open(store) {
        Err(Error::ForeignFile { .. } | Error::Corrupt { .. })
            if !options.read_only && !store.exists(DATA)? && SuperblockFile::is_unfinished(store)? =>
        {
            store.release(superblock::NAME)?;
            make(store)
        }
        result => result,
    }
}

fn create(
    path: &Path, options: &Options, store: FileStore, mut superblock: SuperblockFile, lock: Option<Lock>,
) -> Result<Engine> {
    if store.exists(DATA)? {
        store.release(DATA)?;
    }
    for name in store.list("wal")? {
        store.release(&format!("wal/{name}"))?;
    }
    let epoch = superblock.begin_epoch()?;
    let profile = if options.leaf_pages.is_none() { tuning::measured } else { tuning::known };
    let tuning = Tuning::new(options, profile(store.psync(), path), 0);
    let store = store.with_pio_max(tuning.pio_max());
    let pages = Arc::new(PagedFile::create(&store, DATA)?);
    let trees = btree::Shared::new(Arc::clone(&pages), tuning.cache_bytes, tree_epoch(epoch, path)?)
        .with_gap(tuning.gap_pages());
    let unflushed = Arc::new(UnflushedDocuments::default());
    let log_options = log_options(options, &superblock, epoch, Lsn(0), Lsn(0), 1);
    let companions = Arc::clone(&unflushed) as Arc<dyn wal::Companions>;
    let replay = &mut |_: &Group<'_>| Ok::<_, wal::Error>(Verdict::Tail);
    let (wal, _) = Wal::open(&store, &log_options, companions, replay).map_err(|error| log_error(error, path))?;
    let catalog = Catalog::new(1);
    let options = Options { segment_bytes: superblock.current().segment_bytes, ..options.clone() };
    let parts = Parts {
        path: path.to_owned(),
        options,
        tuning,
        store,
        pages,
        trees: Arc::new(trees),
        wal,
        catalog,
        superblock,
        unflushed,
        lock,
        replayed: Recovery::default(),
    };
    let engine = Engine::new(parts);
    engine.store.sync_directories()?;
    checkpoint::write(&engine)?;
    // Both slots have an image from here on: a slot that rots is never mistaken for a creation that was cut off.
    checkpoint::write(&engine)?;
    Ok(engine)
}

/// The epoch that incarnations begin with.
fn tree_epoch(epoch: u64, path: &Path) -> Result<u32> {
    u32::try_from(epoch).map_err(|_| Error::Corrupt {
        file: path.join(superblock::NAME).display().to_string(),
        offset: 0,
        what: "the open-epoch".into(),
        expected: "fewer than 2^32 opens".into(),
        found: epoch.to_string(),
    })
}

fn log_options(
    options: &Options, superblock: &SuperblockFile, epoch: u64, start: Lsn, durable_floor: Lsn, next_seq: u64,
) -> wal::Options {
    let current = superblock.current();
    wal::Options {
        segment_bytes: current.segment_bytes,
        epoch,
        database: current.database,
        start,
        durable_floor,
        next_seq,
        read_only: options.read_only,
        flush_scheme: options.flush_scheme,
    }
}

fn recover(
    path: &Path, options: &Options, store: FileStore, mut superblock: SuperblockFile, lock: Option<Lock>,
) -> Result<Engine> {
    let started = Instant::now();
    let image = read_image(&store, &superblock)?;
    let allocator = AllocatorImage::decode(&image.allocator)?;
    let free: u64 = allocator.free.iter().map(|extent| u64::from(extent.pages)).sum();
    let data_bytes = allocator.total_pages.saturating_sub(free).saturating_mul(PAGE as u64);
    let tuning = Tuning::new(options, tuning::known(store.psync(), path), data_bytes);
    let store = store.with_pio_max(tuning.pio_max());
    let pages = Arc::new(PagedFile::open(&store, DATA, &allocator)?);
    let epoch = if options.read_only { superblock.current().epoch } else { superblock.begin_epoch()? };
    let trees = btree::Shared::new(Arc::clone(&pages), tuning.cache_bytes, tree_epoch(epoch, path)?);
    let trees = Arc::new(trees.with_gap(tuning.gap_pages()));
    let catalog = Catalog::new(image.next_table);
    for table in &image.tables {
        catalog.insert(Arc::new(open_table(&store, &trees, table, options.speriod)?));
    }
    for table in &image.dropped {
        catalog.insert_dropped(Arc::new(open_table(&store, &trees, table, options.speriod)?));
    }
    let log_options = log_options(options, &superblock, epoch, image.log_start, image.log_durable, image.visible.0 + 1);
    let unflushed = Arc::new(UnflushedDocuments::default());
    let companions = Arc::clone(&unflushed) as Arc<dyn wal::Companions>;
    let (pieces, kept) = Default::default();
    let replay = Replay {
        path,
        options,
        store: &store,
        trees: &trees,
        catalog: &catalog,
        image: &image,
        unflushed: &unflushed,
        pieces,
        kept,
    };
    let (wal, replayed) = Wal::open(&store, &log_options, companions, &mut |group| replay.group(group))
        .map_err(|failure: ReplayError| failure.into_error(path))?;
    pages.release_all_retired();
    if !options.read_only {
        remove_stray_documents(&store, &catalog)?;
        sync_directories(&store)?;
    }
    let replayed = Recovery {
        records: replayed.records,
        bytes: replayed.bytes,
        groups: replayed.groups,
        tail: replayed.tail,
        seconds: started.elapsed().as_secs_f64(),
    };
    let options = Options { segment_bytes: superblock.current().segment_bytes, ..options.clone() };
    let path = path.to_owned();
    Ok(Engine::new(Parts {
        path,
        options,
        tuning,
        store,
        pages,
        trees,
        wal,
        catalog,
        superblock,
        unflushed,
        lock,
        replayed,
    }))
}

/// Makes every directory entry durable: the process that made one may have died before it could.
fn sync_directories(store: &FileStore) -> Result<()> {
    store.sync_directories()?;
    let directory = store.directory();
    for path in [directory.to_owned(), directory.join("wal"), directory.join("doc")] {
        if store.psync().exists(&path)? {
            store.psync().sync_directory(&path)?;
        }
    }
    Ok(())
}

/// Unlinks document files of tables that are gone: a crash came between dropping them and unlinking.
fn remove_stray_documents(store: &FileStore, catalog: &Catalog) -> Result<()> {
    let table_of = |name: &String| name.split('-').next()?.parse().ok();
    let tables: BTreeSet<u32> = store.list("doc")?.iter().filter_map(table_of).collect();
    for table in tables.into_iter().filter(|&table| catalog.any_by_id(index::TableId(table)).is_none()) {
        DocLog::remove_table(store, table)?;
    }
    Ok(())
}

fn read_image(store: &FileStore, superblock: &SuperblockFile) -> Result<Image> {
    let place = superblock.current().image.expect("the caller saw an image");
    let offset = place.extent.page.0.saturating_mul(PAGE as u64);
    let corrupt = |what: &str, expected: String, found: String| Error::Corrupt {
        file: store.directory().join(DATA).display().to_string(),
        offset,
        what: what.into(),
        expected,
        found,
    };
    if !store.exists(DATA)? {
        return Err(corrupt("the data file", "the file with the checkpoint image".into(), "no such file".into()));
    }
    let file = store.open_existing(StreamKind::Node, DATA, true)?;
    let end = offset.saturating_add(u64::from(place.extent.pages) * PAGE as u64);
    let length = file.len()?;
    if length < end {
        return Err(corrupt("length of the file", format!("at least {end} bytes"), format!("{length} bytes")));
    }
    let buffer = Buffer::zeroed((place.length as usize).next_multiple_of(PAGE));
    let mut buffers = store.psync().run_all(vec![Request::read(&file, offset, buffer, 0)])?;
    let buffer = buffers.pop().flatten().unwrap_or_else(|| Buffer::zeroed(0));
    let bytes = buffer.get(..place.length as usize).unwrap_or_default();
    let crc = checksum::crc32c(bytes);
    if crc != place.crc {
        let (expected, found) = (format!("CRC-32C {:#010x}", place.crc), format!("{crc:#010x}"));
        return Err(corrupt("the checkpoint image", expected, found));
    }
    let version = || format!("an image of format version {VERSION}");
    Image::decode(bytes).ok_or_else(|| corrupt("the checkpoint image", version(), "fields that make no sense".into()))
}

fn open_table(
    store: &FileStore, trees: &Arc<btree::Shared>, image: &TableImage, sort_period: usize,
) -> Result<TableCore> {
    let documents = DocImage::decode(&image.documents)?;
    let documents = DocLog::open(store, image.id.0, &documents, DOCUMENT_SEGMENT_BYTES)?;
    let tree = btree::BTree::open(Arc::clone(trees), image.id, &image.root)?;
    let identity = TableIdentity { id: image.id, name: image.name.clone(), structure: image.structure };
    Ok(TableCore::new(identity, tree, documents, image.applied.clone(), Sections::new(sort_period)))
}

/// Keeps of the operations of a table those that its structure lacks, in sections cut at `fences`.
pub(crate) fn settle(table: &TableCore, fences: &[Vec<u8>], most: usize) {
    let (state, applied) = (table.state.load_full(), table.applied());
    let all: Vec<usize> = (0..state.active.len()).collect();
    let sections = state.active.recut(&all, fences, most);
    for queue in state.active.queues() {
        let queue = queue.read();
        for (update, lsn) in queue.updates().filter(|(update, _)| update.seq > applied.at(update.key)) {
            sections.queue(sections.of_key(update.key)).write().append(&update, lsn);
        }
    }
    table.replace_state(Arc::new(sections), None, table.tree.view());
}

/// Why replay ended early.
enum ReplayError {
    Log(wal::Error),
    Database(Error),
}

impl From<wal::Error> for ReplayError {
    fn from(error: wal::Error) -> Self {
        Self::Log(error)
    }
}

impl<E: Into<Error>> From<Wrapped<E>> for ReplayError {
    fn from(error: Wrapped<E>) -> Self {
        Self::Database(error.0.into())
    }
}

struct Wrapped<E>(E);

impl ReplayError {
    fn into_error(self, path: &Path) -> Error {
        match self {
            Self::Log(error) => log_error(error, path),
            Self::Database(error) => error,
        }
    }
}

/// Brings the tables of an image forward, group by group.
struct Replay<'a> {
    path: &'a Path,
    options: &'a Options,
    store: &'a FileStore,
    trees: &'a Arc<btree::Shared>,
    catalog: &'a Catalog,
    image: &'a Image,
    unflushed: &'a UnflushedDocuments,
    /// Pieces of flush-ends that are not whole yet: how many, and their bytes.
    pieces: RefCell<BTreeMap<index::TableId, (u32, Vec<u8>)>>,
    /// Operations in the queues of tables when those that are applied were last taken out.
    kept: RefCell<BTreeMap<index::TableId, usize>>,
}

impl Replay<'_> {
    fn group(&self, group: &Group<'_>) -> std::result::Result<Verdict, ReplayError> {
        if !group.durable && !self.take_documents(group).map_err(Wrapped)? {
            return Ok(Verdict::Tail);
        }
        for record in group.records() {
            let (seq, payload) = (Seq(record.seq), record.payload);
            let done = match record.kind {
                kind::COMMIT => self.commit(seq, record.lsn, payload),
                kind::FLUSH_END_PART => self.flush_end_piece(record.lsn, payload).map(drop),
                kind::FLUSH_END => self.flush_end(record.lsn, payload),
                kind::CREATE_TABLE => self.create_table(seq, record.lsn, payload),
                kind::DROP_TABLE => self.drop_table(seq, record.lsn, payload),
                other => Err(self.malformed(record.lsn, format!("a record of kind {other}"))),
            };
            done.map_err(Wrapped)?;
        }
        Ok(Verdict::Accept)
    }

    /// Whether every document that the group names is whole. They are written again then: the log makes the group durable once
    /// replay is done, and a flush that failed in an earlier life may have left pages that look clean and are not stored.
    fn take_documents(&self, group: &Group<'_>) -> Result<bool> {
        let mut by_table: BTreeMap<index::TableId, Vec<DocPointer>> = BTreeMap::new();
        for record in group.records().filter(|record| record.kind == kind::COMMIT) {
            for (table, update) in Operations::new(record.payload, Seq(record.seq)).flatten() {
                if let Operation::Put(Payload::Document(document)) = update.operation {
                    by_table.entry(table).or_default().push(document);
                }
            }
        }
        let named: Vec<_> = by_table
            .into_iter()
            .filter_map(|(table, documents)| Some((self.catalog.any_by_id(table)?, documents)))
            .collect();
        for (table, documents) in &named {
            if !table.documents.check_many(documents)?.into_iter().all(|whole| whole) {
                return Ok(false);
            }
        }
        if !self.store.is_read_only() {
            for (table, documents) in &named {
                table.documents.rewrite(documents)?;
                self.unflushed.note(table);
            }
        }
        Ok(true)
    }

    fn commit(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let catalog = self.catalog.read();
        for operation in Operations::new(payload, seq) {
            let (id, update) = operation.ok_or_else(|| self.malformed(lsn, "a commit that does not decode".into()))?;
            let Some(table) = catalog.by_id(id) else { continue };
            if let (Operation::Put(Payload::Document(document)), true) = (update.operation, seq > self.image.visible) {
                table.documents.retain(&document)?;
            }
            if table.lacks(update.key, seq) {
                let state = table.state.load();
                state.active.queue(state.active.of_key(update.key)).write().append(&update, lsn);
            }
        }
        Ok(())
    }

    fn flush_end(&self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if lsn < self.image.flush_ends_below {
            return Ok(());
        }
        let id = self.flush_end_piece(lsn, payload)?;
        let body = self.pieces.borrow_mut().remove(&id).map(|(_, body)| body).unwrap_or_default();
        let malformed = || self.malformed(lsn, "a flush-end that does not decode".into());
        let record = FlushEnd::decode(id, &body).ok_or_else(malformed)?;
        let table = self.catalog.any_by_id(record.table);
        let table =
            table.ok_or_else(|| self.malformed(lsn, format!("a flush-end of unknown table {}", record.table.0)))?;
        table.tree.replay(&record.redo)?;
        table.set_applied(record.applied);
        for document in &record.dropped {
            table.documents.drop_document(document)?;
        }
        for retained in &record.retained {
            table.documents.retain_in(retained)?;
        }
        let state = table.state.load_full();
        table.replace_state(Arc::clone(&state.active), None, table.tree.view());
        // What is applied goes before the queue is twice what it has to be, so that each operation is moved about once.
        let waiting = state.active.operations();
        let mut kept = self.kept.borrow_mut();
        let kept = kept.entry(record.table).or_default();
        if waiting > 2 * *kept + SWEEP_MIN {
            settle(&table, &[], 1);
            *kept = table.state.load().active.operations();
        }
        Ok(())
    }

    /// Takes a piece of a flush-end; returns whose it is.
    fn flush_end_piece(&self, lsn: Lsn, payload: &[u8]) -> Result<index::TableId> {
        let malformed = || self.malformed(lsn, "a piece of a flush-end that does not decode".into());
        let piece = FlushEndPiece::decode(payload).ok_or_else(malformed)?;
        let mut pieces = self.pieces.borrow_mut();
        let (next, body) = pieces.entry(piece.table).or_default();
        if piece.number == 0 {
            (*next, *body) = (0, Vec::new());
        }
        // A piece whose first ones lie before the part of the log that is replayed belongs to the image already.
        if piece.number == *next {
            *next += 1;
            body.extend_from_slice(piece.bytes);
        } else if lsn >= self.image.flush_ends_below {
            return Err(self.malformed(lsn, format!("piece {} of a flush-end where {next} is due", piece.number)));
        }
        Ok(piece.table)
    }

    fn create_table(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if seq <= self.image.visible {
            return Ok(());
        }
        let malformed = || self.malformed(lsn, "a table's begin that does not decode".into());
        let record = CreateTable::decode(payload).ok_or_else(malformed)?;
        self.catalog.insert(Arc::new(new_table(self.store, self.trees, &record, self.options.speriod)?));
        Ok(())
    }

    fn drop_table(&self, seq: Seq, lsn: Lsn, payload: &[u8]) -> Result<()> {
        if seq <= self.image.visible {
            return Ok(());
        }
        let id = format::decode_drop_table(payload)
            .ok_or_else(|| self.malformed(lsn, "a table's end that does not decode".into()))?;
        self.catalog.drop_table(id);
        Ok(())
    }

    fn malformed(&self, lsn: Lsn, found: String) -> Error {
        Error::Corrupt {
            file: self.path.join("wal").display().to_string(),
            offset: lsn.0,
            what: "a log record (the offset is its position in the log)".into(),
            expected: format!("a record of format version {VERSION}"),
            found,
        }
    }
}
