//! Checks a whole database while it is open. Every page, run, document and log record is checked. Each page must be
//! either used once or free, and the counts of live documents must match their uses.
//!
//! 1. With the worker held still for a moment, between two publications, these are captured together: the view of every
//!    table, the free list, the documents that waiting operations name, and the counts of live documents.
//! 2. Each view is walked: checksums, order, fences. Documents that the view or a waiting operation refers to are
//!    checked in batches, and counted.
//! 3. The visited pages are compared with the free list, the documents with the counts.
//! 4. Each retained state of a table is walked likewise, and its documents are compared with the counts in its header.
//! 5. The superblock, the checkpoint image and the log, which no view reaches, are checked by `verify_storage`.
//!
//! Writers go on meanwhile; their later changes are not part of the check. A database that was opened read-only is
//! checked as on storage, because opening it replayed the log in memory and wrote nothing.

mod report;
pub(crate) mod storage;

use std::{collections::BTreeMap, sync::Arc};

use doclog::SegmentId;
use index::{DocPointer, RangeTombstones, Seq, Visit};
use space::{Extent, PageId, Survey};

use crate::{
    engine::Engine,
    error::Result,
    tables::{
        catalog::{TableCore, TableState},
        held,
        retained::Opened,
    },
};

pub use report::{Verification, VerifyProgress};

/// Documents per psync.
const DOCUMENTS_PER_BATCH: usize = 256;
/// Findings of one kind that are reported one by one.
const FINDINGS_MAX: usize = 100;

/// Bytes of documents by segment, with headers and padding.
type Documents = BTreeMap<SegmentId, u64>;

struct Moment {
    tables: Vec<Table>,
    pages: Survey,
    image: Option<Extent>,
}

struct Table {
    core: Arc<TableCore>,
    state: Arc<TableState>,
    /// The counts of live documents.
    live: Documents,
    /// The documents of operations that the structure lacks.
    waiting: Vec<DocPointer>,
    retained: Vec<Opened>,
}

pub(crate) fn run(engine: &Engine, progress: &mut dyn FnMut(VerifyProgress)) -> Result<Verification> {
    let moment = capture(engine)?;
    let mut visitor = Visitor {
        result: Verification::default(),
        extents: Vec::new(),
        documents: Vec::new(),
        used: Documents::new(),
        table: None,
        tombstones: Arc::default(),
        progress,
    };
    visitor.extents.extend(moment.image);
    for table in &moment.tables {
        visitor.table = Some(Arc::clone(&table.core));
        visitor.tombstones = Arc::clone(&table.state.tombstones);
        visitor.used.clear();
        let before = visitor.result.findings.len();
        visitor.result.findings.extend(table.core.documents.damage().iter().map(ToString::to_string));
        table.waiting.iter().for_each(|document| visitor.document(document));
        table.state.view.verify(&mut visitor)?;
        visitor.check_documents();
        // A damaged leaf hides documents, which are no leak then. A dropped table has given up its waiting operations,
        // and goes as a whole.
        if visitor.result.findings.len() == before && table.core.dropped() == Seq(0) {
            compare_documents(&table.core, &table.live, &visitor.used, &mut visitor.result);
        }
        visitor.result.tables += 1;
        for opened in &table.retained {
            visitor.check_retained(table, opened)?;
        }
    }
    let Visitor { mut result, extents, .. } = visitor;
    audit(engine, moment.pages, &extents, &mut result);
    storage::run(engine, &mut result)?;
    Ok(result)
}

/// Reports each segment whose count of live documents differs from the uses by versions and waiting operations. A
/// higher count is space that never comes back; with a lower count the segment may be unlinked while needed.
fn compare_documents(table: &TableCore, live: &Documents, used: &Documents, result: &mut Verification) {
    let segments = live.keys().chain(used.keys()).collect::<std::collections::BTreeSet<_>>();
    for &segment in segments {
        let of = |documents: &Documents| documents.get(&segment).copied().unwrap_or(0);
        let (live, used) = (of(live), of(used));
        if live != used {
            let file = table.documents.path_of(segment);
            result.findings.push(format!(
                "{} at byte 0: {live} bytes of its documents are counted as live, and {used} are in use",
                file.display()
            ));
        }
    }
}

fn capture(engine: &Engine) -> Result<Moment> {
    let _upkeep = engine.upkeep.lock();
    let _alone = engine.stretches.alone();
    let tables = engine.catalog.all();
    let all = tables.clone();
    let _held = held::hold_all(&all);
    let with_state = |core: Arc<TableCore>| {
        let state = core.state.load_full();
        let (live, waiting) = (core.documents.live(), core.waiting_documents());
        let retained = if core.dropped() == Seq(0) { core.open_states()? } else { Vec::new() };
        Ok(Table { core, state, live, waiting, retained })
    };
    Ok(Moment {
        tables: engine.publisher.between(|_, _| tables.into_iter().map(with_state).collect::<Result<_>>())?,
        pages: engine.pages.survey(),
        image: engine.superblock.lock().current().image.map(|image| image.extent),
    })
}

fn audit(engine: &Engine, pages: Survey, used: &[Extent], result: &mut Verification) {
    let audit = pages.audit(used);
    let file = engine.pages.file().path().display().to_string();
    // A damaged node hides the pages below, which are no leak then.
    let leaked = if result.findings.is_empty() { audit.leaked } else { Vec::new() };
    let kinds = [
        (&leaked, "is neither used nor free"),
        (&audit.used_while_free, "is used and free at once"),
        (&audit.used_while_retired, "is used and given up at once"),
        (&audit.used_twice, "is used twice"),
        (&audit.outside, "is used and outside of the file"),
    ];
    for (extents, problem) in kinds {
        for extent in extents.iter().take(FINDINGS_MAX) {
            let offset = extent.page.0.saturating_mul(space::PAGE as u64);
            result.findings.push(format!("{file} at byte {offset}: a run of {} pages {problem}", extent.pages));
        }
        if let Some(more) = extents.len().checked_sub(FINDINGS_MAX).filter(|&more| more > 0) {
            result.findings.push(format!("{file}: {more} more runs of pages like that ({problem})"));
        }
    }
}

struct Visitor<'a> {
    result: Verification,
    extents: Vec<Extent>,
    documents: Vec<DocPointer>,
    /// The documents of the current table met so far.
    used: Documents,
    table: Option<Arc<TableCore>>,
    /// The range tombstones of the current table.
    tombstones: Arc<RangeTombstones>,
    progress: &'a mut dyn FnMut(VerifyProgress),
}

impl Visitor<'_> {
    /// Checks a retained state of a table. Its keys are not counted.
    fn check_retained(&mut self, table: &Table, opened: &Opened) -> Result<()> {
        let (before, keys) = (self.result.findings.len(), self.result.keys);
        self.tombstones = Arc::clone(&opened.state.tombstones);
        self.used.clear();
        opened.state.view.verify(self)?;
        self.check_documents();
        self.result.keys = keys;
        if self.result.findings.len() == before {
            let noted = opened.header.documents.iter().map(|retained| (retained.segment, retained.bytes)).collect();
            compare_documents(&table.core, &noted, &self.used, &mut self.result);
        }
        Ok(())
    }

    fn check_documents(&mut self) {
        let documents = std::mem::take(&mut self.documents);
        if let (Some(table), false) = (&self.table, documents.is_empty()) {
            let result = &mut self.result;
            let mut found = Vec::new();
            table.documents.verify(&documents, &mut |error| found.push(error.to_string()), &mut |count, bytes| {
                result.documents += count;
                result.bytes += bytes;
            });
            for finding in found.into_iter().filter(|finding| !result.findings.contains(finding)).collect::<Vec<_>>() {
                result.findings.push(finding);
            }
        }
    }
}

impl Visit for Visitor<'_> {
    fn finding(&mut self, finding: String) {
        self.result.findings.push(finding);
    }

    fn extent(&mut self, page: u64, pages: u32) {
        self.extents.push(Extent { page: PageId(page), pages });
        self.result.bytes += u64::from(pages) * space::PAGE as u64;
    }

    fn document(&mut self, document: &DocPointer) {
        self.documents.push(*document);
        self.result.document_bytes = self.result.document_bytes.saturating_add(document.length.original());
        let stored = document.length.stored();
        self.result.document_stored_bytes = self.result.document_stored_bytes.saturating_add(stored);
        *self.used.entry(document.segment).or_default() += document.stored_bytes();
        if self.documents.len() >= DOCUMENTS_PER_BATCH {
            self.check_documents();
        }
    }

    fn is_hidden(&self, key: &[u8], seq: Seq) -> bool {
        self.tombstones.hides(key, seq, Seq::MAX)
    }

    fn keys(&mut self, count: u64) {
        self.result.keys += count;
        let table = self.table.as_ref().map(|table| table.name.clone()).unwrap_or_default();
        (self.progress)(VerifyProgress { table, keys: self.result.keys, bytes: self.result.bytes });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;
    use space::Class;

    use crate::{handles::database::Database, options::Options, words::structure::Structure};

    fn open(disk: &SimDisk) -> Database {
        let options = Options::new().background(false).cache_bytes(1 << 20).segment_bytes(64 << 10).leaf_pages(1);
        options.open_on(disk.psync(), Path::new("/db")).expect("opens")
    }

    fn findings(db: &Database) -> Vec<String> {
        db.verify().expect("verifies").findings
    }

    #[track_caller]
    fn one(findings: &[String], parts: &[&str]) {
        assert!(findings.len() == 1 && parts.iter().all(|part| findings[0].contains(part)), "{findings:?}");
    }

    #[test]
    fn pages_and_documents_are_counted_as_they_are_used() {
        let disk = SimDisk::new(1);
        let db = open(&disk);
        let table = db.table("t", Structure::BTree).expect("a table");
        for round in 0..3_u8 {
            (0..200_u8).for_each(|key| table.put([key], vec![round; 30 * usize::from(key)]).map(drop).expect("put"));
            assert_eq!(findings(&db), [""; 0], "round {round}, operations wait");
            db.drain().expect("drains");
            (0..200_u8).step_by(3).for_each(|key| table.delete([key]).map(drop).expect("delete"));
            assert_eq!(findings(&db), [""; 0], "round {round}");
        }
        let engine = table.engine();
        let documents = || db.verify().expect("verifies").documents;
        let before = documents();
        table.put([255], [1; 5000]).expect("put");
        assert_eq!(documents(), before + 1, "the operation waits, its document is there");
        let waiting = table.core.waiting_documents()[0];
        let file = table.core.documents.path_of(waiting.segment);
        assert!(disk.flip_bit(&file, waiting.offset + 100));
        one(&findings(&db), &[&file.display().to_string(), "checksum of the document"]);
        assert!(disk.flip_bit(&file, waiting.offset + 100));

        let leak = engine.pages.allocate(3, Class::Normal).expect("space");
        let place = format!("at byte {}: a run of 3 pages is neither used nor free", leak.offset());
        one(&findings(&db), &["/db/data", &place]);
        engine.pages.discard(&[leak]).expect("it was allocated");
        assert_eq!(findings(&db), [""; 0]);

        let pointer = table.core.documents.append(&[&[1; 5000]]).expect("appends")[0];
        table.core.documents.retain(&pointer, 1).expect("retains");
        let file = table.core.documents.path_of(pointer.segment).display().to_string();
        one(&findings(&db), &[&file, "are counted as live"]);
        table.core.documents.drop_document(&pointer).expect("drops");
        assert_eq!(findings(&db), [""; 0]);
    }
}
