//! The remains of a damaged database: its tables, the newest root of each, and its log.
//!
//! 1. The image gives tables, roots, and the commits in the roots ([`super::image`]).
//! 2. The log, as far as it checks, brings them forward as in recovery: tables are created and dropped, a flush-end
//!    gives its table a newer root.
//! 3. A hole in the log hides commits. Commits `≤ min(applied of every tree, visible of the image)` are not lost.
//! 4. A load or a rollback replaces the whole table. No earlier commit is written to the table again, and no earlier
//!    range delete hides anything. Their flush-end proves that they took effect, even if the image has this flush-end
//!    already.
//! 5. A table without any root, but with nodes in files of its own, gets the root of its newest commit header.
//!
//! A table known only from commits, flush-ends or nodes has lost its name. If the image does not check, its applied
//! seqs do not count. The commits left in the log are then written again; only a flush-end in the log can raise the
//! applied seq of its table. Repeating commits in their order leads to the same contents.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use doclog::{DocImage, DocLog};
use index::{Horizon, RangeTombstones, Seq, TableId};
use space::{FileStore, PagedFile};
use wal::{Group, Hints, Hole, Left, Lsn, Verdict};

use super::{
    image::Beginning,
    report::{LostCommits, Salvage},
};
use crate::{
    commit::schema::DOCUMENT_SEGMENT_BYTES,
    error::{Error, Result},
    format::{
        self, CreateTable, FlushEnd, FlushEndPiece, Logged, Operations, RollBack, SetHistory, TableSettings, kind,
        pieces::Pieces,
    },
    root::DATA,
    structures::kinds::{DamagedKinds, root_of_redo},
    words::{applied::AppliedThrough, structure::Structure},
};

/// A table of the damaged database.
pub(crate) struct SourceTable {
    pub(super) id: TableId,
    /// None when the name is lost.
    pub(super) name: Option<String>,
    pub(super) structure: Structure,
    /// Defaults when the creating record is lost and no image has the table.
    pub(super) settings: TableSettings,
    /// The newest root record; none when no tree was ever written.
    pub(super) root: Option<Vec<u8>>,
    pub(super) applied: AppliedThrough,
    /// Range deletes from the image or a rollback's flush-end.
    tombstones: RangeTombstones,
    /// All range deletes left in the log, also those that the tree no longer needs, because the log still has commits
    /// before them.
    logged: RangeTombstones,
    /// Seq of the last load or rollback that took effect; 0 without one.
    replaced: Seq,
}

impl SourceTable {
    /// Whether the commit `seq` came before the last load or rollback.
    pub(super) fn is_forgotten(&self, seq: Seq) -> bool {
        seq <= self.replaced
    }

    /// Whether a range delete hides the version of `key` of the commit `seq`. A hidden version is not copied.
    pub(super) fn hides(&self, key: &[u8], seq: Seq) -> bool {
        self.tombstones.hides(key, seq, Seq::MAX) || self.logged.hides(key, seq, Seq::MAX)
    }
}

/// A load or a rollback whose record is in the log.
struct Replaced {
    table: TableId,
    seq: Seq,
    is_rollback: bool,
}

/// The remains of the database.
pub(super) struct Source {
    store: FileStore,
    pub(super) kinds: DamagedKinds,
    log: Option<wal::Salvage>,
    tables: BTreeMap<TableId, SourceTable>,
    /// Tables whose log is complete from their creation on.
    whole: BTreeSet<TableId>,
    /// Ids of dropped tables. Unknown ids below `next_table` belong to dropped tables too.
    dropped: BTreeSet<TableId>,
    next_table: u32,
    /// Seq of the image. Records that create or drop tables up to this commit are ignored, because the image has their
    /// effect.
    visible: Seq,
    flush_ends_below: Lsn,
    /// End of the log.
    end: Lsn,
    /// Loads and rollbacks in the log.
    replacements: Vec<Replaced>,
    lost: Vec<LostCommits>,
    torn: Option<String>,
    findings: Vec<String>,
    documents: RefCell<BTreeMap<TableId, Arc<DocLog>>>,
}

impl Source {
    pub(super) fn find(store: &FileStore, cache_bytes: u64) -> Result<Self> {
        let Beginning { superblock, image, findings } = Beginning::find(store)?;
        let checked = image.as_ref().filter(|(_, checked)| *checked).map(|(image, _)| image);
        let hints = Hints {
            identity: superblock.map(|slot| (slot.database, slot.segment_bytes)),
            start: checked.map(|image| image.log_start),
            durable: checked.map_or(Lsn(0), |image| image.log_durable),
            epoch: superblock.map_or(0, |slot| slot.epoch),
        };
        let log = wal::Salvage::open(store, &hints)?;
        let pages = if store.exists(DATA)? { Some(Arc::new(PagedFile::open_damaged(store, DATA)?)) } else { None };
        let kinds = DamagedKinds::new(store, pages.as_ref(), cache_bytes);
        let mut source = Self {
            store: store.clone(),
            kinds,
            log,
            tables: BTreeMap::new(),
            whole: BTreeSet::new(),
            dropped: BTreeSet::new(),
            next_table: 0,
            visible: Seq(0),
            flush_ends_below: Lsn(0),
            end: Lsn(0),
            replacements: Vec::new(),
            lost: Vec::new(),
            torn: None,
            findings,
            documents: RefCell::default(),
        };
        let (is_checked, has_image) = (checked.is_some(), image.is_some());
        if let Some((image, _)) = image {
            source.take_image(image, is_checked);
        }
        source.read_log(is_checked)?;
        if !is_checked || !source.lost.is_empty() {
            source.find_roots()?;
        }
        if !has_image && source.log.is_none() && source.tables.is_empty() {
            return Err(Error::Corrupt {
                file: store.directory().display().to_string(),
                offset: 0,
                what: "everything that leads to its tables".into(),
                expected: "a checkpoint image, a log, or nodes of an `append` table".into(),
                found: "none of them".into(),
            });
        }
        Ok(source)
    }

    fn take_image(&mut self, image: format::Image, is_checked: bool) {
        self.visible = image.visible;
        for table in image.tables {
            // The applied seqs of an image that does not check may be too high.
            let applied = if is_checked { table.applied } else { AppliedThrough::new(Seq(0)) };
            let (id, root) = (table.id, Some(table.root));
            let (name, structure, settings) = (Some(table.name), table.structure, table.settings);
            let (tombstones, logged) = (table.tombstones, RangeTombstones::default());
            let replaced = Seq(0);
            let table = SourceTable { id, name, structure, settings, root, applied, tombstones, logged, replaced };
            self.tables.insert(id, table);
        }
        self.dropped.extend(image.dropped.iter().map(|table| table.id));
        (self.next_table, self.flush_ends_below) = (image.next_table, image.flush_ends_below);
    }

    /// The tables to be copied.
    pub(super) fn tables(&self) -> impl Iterator<Item = (&TableId, &SourceTable)> {
        self.tables.iter()
    }

    pub(super) fn table(&self, id: TableId) -> Option<&SourceTable> {
        self.tables.get(&id)
    }

    /// The documents of a table, from all files that exist.
    pub(super) fn documents(&self, table: TableId) -> Result<Arc<DocLog>> {
        if let Some(documents) = self.documents.borrow().get(&table) {
            return Ok(Arc::clone(documents));
        }
        let documents = DocLog::open(&self.store, table.0, &DocImage::default(), DOCUMENT_SEGMENT_BYTES)?;
        let documents = Arc::new(documents);
        self.documents.borrow_mut().insert(table, Arc::clone(&documents));
        Ok(documents)
    }

    /// Begins the report with everything known before the copy.
    pub(super) fn begin_report(&mut self) -> Salvage {
        Salvage {
            lost_commits: std::mem::take(&mut self.lost),
            findings: std::mem::take(&mut self.findings),
            torn: self.torn.take(),
            ..Salvage::default()
        }
    }

    /// Visits the remaining commits in their order, with seq and payload.
    pub(super) fn commits(&self, visit: &mut dyn FnMut(Seq, &[u8]) -> Result<()>) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        log.read(&mut |left| {
            let Left::Group(group) = left else { return Ok(Verdict::Accept) };
            if group.end > self.end {
                return Ok(Verdict::Tail);
            }
            for record in group.records().filter(|record| record.kind == kind::COMMIT) {
                visit(Seq(record.seq), record.payload)?;
            }
            Ok(Verdict::Accept)
        })
    }

    fn read_log(&mut self, is_checked: bool) -> Result<()> {
        let Some(log) = self.log.take() else {
            self.lost.push(LostCommits {
                first: Seq(self.visible.0 + 1),
                last: None,
                why: format!("{}: there is no log", self.store.directory().join("wal").display()),
            });
            return Ok(());
        };
        let (mut pieces, mut holes, mut begun) = (Pieces::default(), Vec::new(), is_checked);
        log.read(&mut |left| {
            match left {
                Left::Group(group) => {
                    if group.durable == Some(false) && !self.has_documents(&group)? {
                        self.torn = Some(format!(
                            "the commit of log position {} names a document that is not whole",
                            group.lsn
                        ));
                        return Ok(Verdict::Tail);
                    }
                    // Without a start position, the log begins with the first commit found.
                    let first = group.records().map(|record| record.seq).find(|seq| *seq > 0);
                    if let (false, Some(first)) = (begun, first) {
                        begun = true;
                        holes.push(self.before(first));
                    }
                    self.group(&group, &mut pieces);
                    self.end = group.end;
                }
                Left::Hole(hole) => {
                    // Pieces behind the hole may belong to another flush-end.
                    pieces = Pieces::default();
                    self.whole.clear();
                    holes.push(hole);
                }
                Left::Torn(hole) => self.torn = Some(text(&hole)),
            }
            Ok::<_, Error>(Verdict::Accept)
        })?;
        self.log = Some(log);
        self.judge(holes);
        Ok(())
    }

    /// The hole before the first seq of a log found without a checkpoint.
    fn before(&self, first: u64) -> Hole {
        Hole {
            file: self.store.directory().join("wal"),
            offset: 0,
            why: "where the log begins is not known, since the checkpoint image is damaged".into(),
            first_seq: self.visible.0 + 1,
            next_seq: Some(first),
        }
    }

    /// Whether every document named in the group is whole.
    fn has_documents(&self, group: &Group<'_>) -> Result<bool> {
        let mut named = format::documents_of(group);
        named.retain(|table, _| !self.is_dropped(*table));
        for (table, documents) in named {
            let found = self.documents(table)?.read_each(&documents);
            // A document of which this build lacks the codec is whole.
            let is_missing = |error: &doclog::Error| !matches!(error, doclog::Error::NotBuilt { .. });
            if found.iter().any(|found| found.as_ref().is_err_and(is_missing)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn is_dropped(&self, table: TableId) -> bool {
        let is_older = table.0 < self.next_table && !self.tables.contains_key(&table);
        is_older || self.dropped.contains(&table)
    }

    fn group(&mut self, group: &Group<'_>, pieces: &mut Pieces) {
        for record in group.records() {
            let (seq, payload) = (Seq(record.seq), record.payload);
            match record.kind {
                kind::COMMIT => {
                    for (table, logged) in Operations::new(payload, seq).flatten() {
                        self.note(table);
                        if let Logged::DeleteRange { low, high } = logged {
                            self.delete_range(table, low, high, seq);
                        }
                    }
                }
                kind::FLUSH_END_PART | kind::FLUSH_END => {
                    self.flush_end(record.kind, payload, record.lsn >= self.flush_ends_below, pieces);
                }
                kind::CREATE_TABLE if seq > self.visible => self.create(payload),
                kind::DROP_TABLE if seq > self.visible => {
                    if let Some(id) = format::decode_table(payload) {
                        self.tables.remove(&id);
                        self.dropped.insert(id);
                    }
                }
                kind::SET_HISTORY if record.lsn >= self.flush_ends_below => {
                    if let Some(SetHistory { table, keep }) = SetHistory::decode(payload)
                        && let Some(table) = self.tables.get_mut(&table)
                    {
                        table.settings.history = keep;
                    }
                }
                kind::LOAD => {
                    let table = format::decode_table(payload);
                    self.replacements.extend(table.map(|table| Replaced { table, seq, is_rollback: false }));
                }
                kind::ROLL_BACK => {
                    let record = RollBack::decode(payload);
                    self.replacements.extend(record.map(|RollBack { table, .. }| Replaced {
                        table,
                        seq,
                        is_rollback: true,
                    }));
                }
                _ => {}
            }
        }
    }

    /// Notes the range delete of a commit.
    fn delete_range(&mut self, table: TableId, low: &[u8], high: Option<&[u8]>, seq: Seq) {
        if let Some(table) = self.tables.get_mut(&table) {
            let horizon = Horizon { visible: seq, ..Horizon::default() };
            table.logged.add(low, high, seq, &horizon);
        }
    }

    /// Adds a table when a record names an unknown one.
    fn note(&mut self, id: TableId) {
        if !self.is_dropped(id) && !self.tables.contains_key(&id) {
            let applied = AppliedThrough::new(Seq(0));
            let (structure, settings) = (Structure::BTree, TableSettings::default());
            let (tombstones, logged) = Default::default();
            let (name, root, replaced) = (None, None, Seq(0));
            let table = SourceTable { id, name, structure, settings, root, applied, tombstones, logged, replaced };
            self.tables.insert(id, table);
        }
    }

    fn create(&mut self, payload: &[u8]) {
        let Some(record) = CreateTable::decode(payload) else { return };
        if self.dropped.contains(&record.id) {
            return;
        }
        self.note(record.id);
        self.whole.insert(record.id);
        if let Some(table) = self.tables.get_mut(&record.id) {
            (table.name, table.structure, table.settings) = (Some(record.name), record.structure, record.settings);
        }
    }

    /// Takes a flush-end record or one of its parts. `is_new` is false when the image has its contents.
    fn flush_end(&mut self, kind: u8, payload: &[u8], is_new: bool, pieces: &mut Pieces) {
        let Some(piece) = FlushEndPiece::decode(payload) else { return };
        // Its first pieces are in a hole, or before the start of reading.
        if pieces.take(&piece).is_err() || kind == kind::FLUSH_END_PART {
            return;
        }
        let Some(record) = FlushEnd::decode(piece.table, &pieces.end(piece.table)) else { return };
        self.note(record.table);
        let Some(table) = self.tables.get_mut(&record.table) else { return };
        let ends = |one: &&Replaced| one.table == table.id && record.applied == AppliedThrough::new(one.seq);
        let replaced = match &record.restored {
            Some(_) => Some(record.applied.at(&[])),
            // A flush-end that only moves nodes keeps the applied seq, so a later one still proves a load. A later
            // flush-end proves no rollback, because the range deletes after the rollback are missing there.
            None => self.replacements.iter().find(ends).filter(|one| !one.is_rollback).map(|one| one.seq),
        };
        if let Some(seq) = replaced.filter(|seq| *seq > table.replaced) {
            table.replaced = seq;
            table.logged.clear(&[], None, seq);
        }
        if !is_new {
            return;
        }
        let is_first = self.whole.contains(&record.table);
        let before = table.root.as_deref().or_else(|| is_first.then_some(&[][..]));
        match root_of_redo(table.structure, &record.redo, record.table, before) {
            Ok((structure, root)) => {
                (table.structure, table.root, table.applied) = (structure, Some(root), record.applied);
                if let Some(restored) = record.restored {
                    table.tombstones = restored.tombstones;
                }
            }
            Err(error) => self.findings.push(error.to_string()),
        }
    }

    /// Finds roots for tables without one, from the files of their structures.
    fn find_roots(&mut self) -> Result<()> {
        for (structure, id) in self.kinds.tables_left()? {
            let has_root = self.tables.get(&id).is_some_and(|table| table.root.is_some());
            // If the log is complete since the creation of the table, nodes without a root belong to a load or batch
            // that never ended.
            if has_root || self.is_dropped(id) || self.whole.contains(&id) {
                continue;
            }
            let Some(found) = self.kinds.newest_root(structure, id)? else { continue };
            self.note(id);
            if let Some(table) = self.tables.get_mut(&id) {
                (table.structure, table.root) = (structure, Some(found.root));
            }
            self.findings.push(format!("table {}: nothing names its newest version but {}", id.0, found.place));
        }
        Ok(())
    }

    /// Reports the commits hidden by the holes.
    fn judge(&mut self, holes: Vec<Hole>) {
        let steps = self.tables.values().flat_map(|table| table.applied.steps());
        let everywhere = steps.map(|(_, seq)| *seq).min().unwrap_or(self.visible).min(self.visible);
        for hole in &holes {
            let first = Seq(hole.first_seq.max(everywhere.0 + 1));
            let last = hole.next_seq.map(|next| Seq(next.saturating_sub(1)));
            if last.is_none_or(|last| last >= first) {
                self.lost.push(LostCommits { first, last, why: text(hole) });
            }
        }
        let Some(hole) = holes.first() else { return };
        for Replaced { table, seq, is_rollback } in std::mem::take(&mut self.replacements) {
            let is_lost = |table: &SourceTable| {
                // Range deletes undone by a rollback would hide the contents restored by the rollback.
                table.applied.at(&[]) < seq || is_rollback && table.replaced < seq
            };
            if self.tables.get(&table).is_some_and(is_lost) {
                let what =
                    if is_rollback { "that a table went back to an earlier state" } else { "what a load brought" };
                let why = format!("{what} is not there; {}", text(hole));
                self.lost.push(LostCommits { first: seq, last: Some(seq), why });
            }
        }
    }
}

/// A hole as text, with its place.
fn text(hole: &Hole) -> String {
    format!("{} at byte {}: {}", hole.file.display(), hole.offset, hole.why)
}
