//! Checks a whole database while it is open: every page, run and document, and that each page is used once or free.
//!
//! 1. With the worker held still for a moment, the view of every table and the free list are taken together.
//! 2. Each view is walked: checksums, order, fences. Documents it refers to are checked in batches.
//! 3. The pages that were met are compared with the free list.
//!
//! Writers go on meanwhile; what they add later is not part of the check.

use std::sync::Arc;

use index::{DocPointer, Visit};
use space::{Extent, PageId, Survey};

use crate::{
    Result,
    catalog::{TableCore, TableState},
    engine::Engine,
};

/// Documents checked in one psync.
const DOCUMENTS_PER_BATCH: usize = 256;
/// Findings of one kind that are told one by one.
const FINDINGS_MAX: usize = 100;

/// How far a verification is.
#[derive(Clone, Debug)]
pub struct VerifyProgress {
    /// The table being checked.
    pub table: String,
    /// Live keys checked so far, over all tables.
    pub keys: u64,
    /// Bytes of pages and documents checked so far.
    pub bytes: u64,
}

/// What a verification found.
#[derive(Clone, Debug, Default)]
pub struct Verification {
    /// Everything that is wrong, with file and offset. Empty: the database is whole.
    pub findings: Vec<String>,
    /// Tables checked.
    pub tables: u64,
    /// Live keys checked.
    pub keys: u64,
    /// Documents checked.
    pub documents: u64,
    /// Bytes of pages and documents checked.
    pub bytes: u64,
}

struct Moment {
    tables: Vec<(Arc<TableCore>, Arc<TableState>)>,
    pages: Survey,
    image: Option<Extent>,
}

pub(crate) fn run(engine: &Engine, progress: &mut dyn FnMut(VerifyProgress)) -> Result<Verification> {
    let moment = capture(engine);
    let mut visitor =
        Visitor { result: Verification::default(), extents: Vec::new(), documents: Vec::new(), table: None, progress };
    visitor.extents.extend(moment.image);
    for (table, state) in &moment.tables {
        visitor.table = Some(Arc::clone(table));
        visitor.result.findings.extend(table.documents.damage().iter().map(ToString::to_string));
        state.view.verify(&mut visitor)?;
        visitor.check_documents();
        visitor.result.tables += 1;
    }
    let Visitor { mut result, extents, .. } = visitor;
    // A damaged node hides what is below it, which is then no leak.
    if result.findings.is_empty() {
        audit(engine, moment.pages, &extents, &mut result);
    }
    Ok(result)
}

fn capture(engine: &Engine) -> Moment {
    let _still = engine.maintenance.lock();
    let mut tables = engine.catalog.live();
    tables.extend(engine.catalog.dropped());
    let with_state = |table: Arc<TableCore>| {
        let state = table.state.load_full();
        (table, state)
    };
    Moment {
        tables: tables.into_iter().map(with_state).collect(),
        pages: engine.pages.survey(),
        image: engine.superblock.lock().current().image.map(|image| image.extent),
    }
}

fn audit(engine: &Engine, pages: Survey, used: &[Extent], result: &mut Verification) {
    let audit = pages.audit(used);
    let file = engine.pages.file().path().display().to_string();
    let kinds = [
        (&audit.leaked, "is neither used nor free"),
        (&audit.used_while_free, "is used and free at once"),
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
    table: Option<Arc<TableCore>>,
    progress: &'a mut dyn FnMut(VerifyProgress),
}

impl Visitor<'_> {
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
        if self.documents.len() >= DOCUMENTS_PER_BATCH {
            self.check_documents();
        }
    }

    fn keys(&mut self, count: u64) {
        self.result.keys += count;
        let table = self.table.as_ref().map(|table| table.name.clone()).unwrap_or_default();
        (self.progress)(VerifyProgress { table, keys: self.result.keys, bytes: self.result.bytes });
    }
}
