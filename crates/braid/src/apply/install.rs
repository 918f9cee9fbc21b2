//! Installing: the only way in which a written view of a structure becomes current.
//!
//! 1. The written files are flushed, each once for all steps ([`flush`]).
//! 2. A flush-end is logged ([`Step::log`]). From here on recovery begins with the new root, and knows for each key
//!    range which commits the structure has.
//! 3. The view is installed ([`Step::show`]): with it change the queues that the structure now has all of, the applied
//!    seqs, the range tombstones and the counts of documents.
//!
//! A step whose flush-end finds no room in the log is given back ([`index::Index::discard`]), and so are the steps
//! behind it. Everything is as before then, and the steps may be tried again. Any other error ends all writing.
//!
//! Invariants:
//! - No log record refers to bytes that may be lost.
//! - No view is current that is not logged.
//! - All of this happens while the table is held.

use doclog::Retained;
use index::{Applied, DocPointer};
use psync::File;
use seeded::Bug;

use crate::{
    engine::Engine,
    error::{Error, Result},
    format::{FlushEnd, Restored, kind},
    tables::held::HeldTable,
    words::applied::AppliedThrough,
};

/// A written view of a table's structure.
pub(crate) struct Step<'a> {
    pub(crate) table: &'a HeldTable<'a>,
    pub(crate) applied: &'a Applied,
    /// The commits that the structure has with this view.
    pub(crate) through: AppliedThrough,
    pub(crate) documents: Documents<'a>,
}

/// The fate of documents beside those that the structure has dropped.
pub(crate) enum Documents<'a> {
    /// No change.
    Stay,
    /// These documents live from now on, in place of others. `keep` is called once the step is logged: until then their
    /// room may be given back.
    Moved { places: &'a [DocPointer], keep: &'a dyn Fn() -> Result<()> },
    /// The table changes as a whole. `retained`: bytes, by segment, that live from now on. `restored`, of a rollback:
    /// bytes, by segment, that live no more.
    Whole { retained: &'a [Retained], restored: Option<&'a Restored> },
}

impl<'a> Step<'a> {
    /// A step that brings the structure no commit.
    pub(crate) fn rewritten(table: &'a HeldTable<'a>, applied: &'a Applied, documents: Documents<'a>) -> Self {
        Self { table, applied, through: table.applied(), documents }
    }

    /// Logs the flush-end of the step.
    ///
    /// # Errors
    /// [`Error::DiskFull`] when the log has no room for the flush-end, or an error that ends all writing. A flush-end
    /// that is not in the log as a whole counts for nothing.
    ///
    /// # Panics
    /// When a written file of the step is not among the flushed ones: the log never refers to bytes that may be lost.
    pub(crate) fn log(&self, engine: &Engine, flushed: &Flushed) -> Result<()> {
        assert!(flushed.has_all_of(self.applied), "what is written is flushed before its flush-end is logged");
        let (mut retained, mut restored, mut dropped) = (Vec::new(), None, self.applied.dropped_documents.clone());
        match self.documents {
            Documents::Stay => {}
            Documents::Moved { places, .. } => {
                places.iter().for_each(|document| Retained::count(&mut retained, document));
            }
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

    /// Installs the view; `replace` puts the table's next state in place.
    ///
    /// # Errors
    /// When the counts of documents do not suffice for the dropped ones.
    pub(crate) fn show(&self, replace: impl FnOnce()) -> Result<()> {
        let (table, applied) = (self.table, self.applied);
        if let Documents::Moved { keep, .. } = self.documents {
            keep()?;
        }
        table.tree.install(applied);
        match self.documents {
            Documents::Stay => {}
            Documents::Moved { places, .. } => {
                places.iter().try_for_each(|document| table.documents.retain(document, 0))?;
            }
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

/// Flushes, logs and installs steps, in their order. `replace` gets the number of a step and puts the next state of
/// its table in place.
///
/// Returns how many steps went through. The others were given back, where the outcome is [`Error::DiskFull`].
pub(crate) fn install(engine: &Engine, steps: &[Step<'_>], mut replace: impl FnMut(usize)) -> (usize, Result<()>) {
    let applied = || steps.iter().map(|step| step.applied);
    let flushed = if seeded::on(Bug::FlushEndBeforeData) {
        Flushed::of(applied().flat_map(|applied| &applied.files))
    } else {
        match flush(engine, applied()) {
            Ok(flushed) => flushed,
            Err(error) => return (0, Err(error)),
        }
    };
    let (mut installed, mut outcome) = (0, Ok(()));
    for (number, step) in steps.iter().enumerate() {
        outcome = outcome.and_then(|()| step.log(engine, &flushed));
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
        let late = engine.flush_log().and_then(|()| flush(engine, applied()).map(drop));
        outcome = outcome.and(late);
    }
    (installed, outcome)
}

/// Files that were flushed after the writes of the steps that they are for. Who makes a step by itself, as the end of a
/// load does, has to have flushed its files by then.
pub(crate) struct Flushed(Vec<File>);

impl Flushed {
    /// These files, each once.
    fn of<'a>(files: impl Iterator<Item = &'a File>) -> Self {
        let mut flushed: Vec<File> = Vec::new();
        for file in files {
            if !flushed.contains(file) {
                flushed.push(file.clone());
            }
        }
        Self(flushed)
    }

    fn has_all_of(&self, applied: &Applied) -> bool {
        applied.files.iter().all(|file| self.0.contains(file))
    }
}

/// Flushes the written files, each once, in one psync.
pub(crate) fn flush<'a>(engine: &Engine, applied: impl Iterator<Item = &'a Applied>) -> Result<Flushed> {
    flush_files(engine, applied.flat_map(|applied| &applied.files))
}

/// Flushes these files, each once, in one psync, and the names of new ones with them. A failure ends all writing, as
/// that of any write.
pub(crate) fn flush_files<'a>(engine: &Engine, files: impl Iterator<Item = &'a File>) -> Result<Flushed> {
    let flushed = Flushed::of(files);
    engine.flush_with_names(&flushed.0)?;
    Ok(flushed)
}

/// Appends a flush-end to the log, in pieces where necessary.
fn append(engine: &Engine, record: &FlushEnd) -> Result<()> {
    let most = usize::try_from(engine.wal.record_bytes_max()).unwrap_or(usize::MAX);
    let payloads = record.encode(most);
    let count = payloads.len();
    for (number, payload) in payloads.iter().enumerate() {
        let kind = if number + 1 == count { kind::FLUSH_END } else { kind::FLUSH_END_PART };
        engine.wal.append(kind, &[payload], false, wal::Claim::Upkeep)?;
    }
    engine.threads.note_log(engine.wal.end());
    Ok(())
}
