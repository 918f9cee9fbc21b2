//! How what was written of a structure becomes current: the only way.
//!
//! 1. The files that it was written to are flushed, each once for all steps ([`flush`]).
//! 2. A flush-end is logged ([`Step::log`]): from here on recovery begins with the new root, and knows which keys it has which commits of.
//! 3. The view, the queues that it has all of, the applied seqs, the range tombstones and the counts of documents change ([`Step::show`]).
//!
//! A step whose flush-end the log has no room for is given back ([`index::Index::discard`]), and so are those behind it: all is as before, and it may be tried
//! again. Any other error ends all writing.
//!
//! Invariants: nothing that is logged refers to bytes that may be lost; nothing is current that is not logged; all of it happens under
//! [`Engine::maintenance`].

use doclog::Retained;
use index::{Applied, DocPointer};
use psync::{File, Request};
use seeded::Bug;

use crate::{
    engine::Engine,
    error::{Error, Result},
    format::{FlushEnd, Restored, kind},
    tables::catalog::TableCore,
    words::applied::AppliedThrough,
};

/// What was written of a table's structure.
pub(crate) struct Step<'a> {
    pub(crate) table: &'a TableCore,
    pub(crate) applied: &'a Applied,
    /// Which commits the structure has with it.
    pub(crate) through: AppliedThrough,
    pub(crate) documents: Documents<'a>,
}

/// What becomes of documents beside those that the structure has dropped.
pub(crate) enum Documents<'a> {
    /// Nothing.
    Stay,
    /// These live from now on, in place of others.
    Moved(&'a [DocPointer]),
    /// The table changes as a whole: so much of some segments lives from now on, and of a rollback so much does not.
    Whole { retained: &'a [Retained], restored: Option<&'a Restored> },
}

impl<'a> Step<'a> {
    /// A step that brings the structure no commit.
    pub(crate) fn rewritten(table: &'a TableCore, applied: &'a Applied, documents: Documents<'a>) -> Self {
        Self { table, applied, through: table.applied(), documents }
    }

    /// Logs its flush-end.
    ///
    /// # Errors
    /// [`Error::DiskFull`] when the log has no room for it, or what ends all writing. Where it is not there as a whole it counts for nothing.
    pub(crate) fn log(&self, engine: &Engine) -> Result<()> {
        let (mut retained, mut restored, mut dropped) = (Vec::new(), None, self.applied.dropped_documents.clone());
        match self.documents {
            Documents::Stay => {}
            Documents::Moved(moved) => moved.iter().for_each(|document| Retained::count(&mut retained, document)),
            Documents::Whole { retained: all, restored: back } => {
                (retained, restored, dropped) = (all.to_vec(), back.cloned(), Vec::new());
            }
        }
        let record = FlushEnd {
            table: self.table.id,
            time: engine.clock.now(),
            applied: self.through.clone(),
            redo: self.applied.redo.clone(),
            dropped,
            retained,
            restored,
        };
        append(engine, &record)
    }

    /// Makes it current; `replace` puts the table's next state in place.
    ///
    /// # Errors
    /// When the counts of documents do not suffice for what is dropped.
    pub(crate) fn show(&self, replace: impl FnOnce()) -> Result<()> {
        let (table, applied) = (self.table, self.applied);
        table.tree.publish(applied);
        match self.documents {
            Documents::Stay => {}
            Documents::Moved(moved) => moved.iter().try_for_each(|document| table.documents.retain(document, 0))?,
            Documents::Whole { retained, restored } => {
                retained.iter().try_for_each(|retained| table.documents.retain_in(retained))?;
                let mut dropped = restored.iter().flat_map(|restored| &restored.dropped);
                dropped.try_for_each(|(segment, bytes)| table.documents.drop_in(*segment, *bytes))?;
            }
        }
        if !matches!(self.documents, Documents::Whole { .. }) {
            applied.dropped_documents.iter().try_for_each(|document| table.documents.drop_document(document))?;
        }
        table.set_applied(self.through.clone());
        replace();
        Ok(())
    }
}

/// Flushes, logs and shows steps, in their order; `replace` puts the next state of a table in place, of the step with that number. How many went through: the
/// others were given back, where the outcome is [`Error::DiskFull`].
pub(crate) fn install(engine: &Engine, steps: &[Step<'_>], mut replace: impl FnMut(usize)) -> (usize, Result<()>) {
    let applied = || steps.iter().map(|step| step.applied);
    if !seeded::on(Bug::FlushEndBeforeData)
        && let Err(error) = flush(engine, applied())
    {
        return (0, Err(error));
    }
    let (mut installed, mut outcome) = (0, Ok(()));
    for (number, step) in steps.iter().enumerate() {
        outcome = outcome.and_then(|()| step.log(engine));
        match &outcome {
            Ok(()) => match step.show(|| replace(number)) {
                Ok(()) => installed += 1,
                Err(error) => return (installed, Err(error)),
            },
            Err(Error::DiskFull { .. }) => step.table.tree.discard(step.applied),
            Err(_) => break,
        }
    }
    if seeded::on(Bug::FlushEndBeforeData) {
        let flushed = engine.flush_log().and_then(|()| flush(engine, applied()));
        outcome = outcome.and(flushed);
    }
    (installed, outcome)
}

/// Flushes what was written, each file once, in one psync.
pub(crate) fn flush<'a>(engine: &Engine, applied: impl Iterator<Item = &'a Applied>) -> Result<()> {
    let mut files: Vec<&File> = Vec::new();
    for file in applied.flat_map(|applied| &applied.files) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    engine.store.psync().run_all(files.into_iter().map(|file| Request::flush(file, 0)).collect())?;
    Ok(())
}

/// Appends a flush-end to the log, in pieces where it has to.
fn append(engine: &Engine, record: &FlushEnd) -> Result<()> {
    let most = usize::try_from(engine.wal.record_bytes_max()).unwrap_or(usize::MAX);
    let payloads = record.encode(most);
    let count = payloads.len();
    for (number, payload) in payloads.iter().enumerate() {
        let kind = if number + 1 == count { kind::FLUSH_END } else { kind::FLUSH_END_PART };
        engine.wal.append(kind, &[payload], false, wal::Claim::Upkeep).map_err(|error| engine.log_error(error))?;
    }
    engine.threads.note_log(engine.wal.end());
    Ok(())
}
