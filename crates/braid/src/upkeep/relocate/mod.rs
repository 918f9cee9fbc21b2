//! Moving documents, so that their old segments die: used by cleaning, and by compaction for its documents. The reads
//! are the parallel fetch of Lee, Oh and Lee, "Boosting Compaction in B-Tree Based Key-Value Store by Exploiting
//! Parallel Reads in Flash SSDs", IEEE Access 9, 2021 (section IV).
//!
//! The walk through a table is in key order, in stretches. Each stretch is bounded by its bytes of documents and keys,
//! and by the keys that it looks at; one document always goes. So the memory of its submission batches is bounded too,
//! however many documents they have:
//!
//! 1. *Tree search* ([`search`]): finds the versions whose documents are in the segments to clean, with those that
//!    only snapshots see. Documents that nobody sees any more are not read.
//! 2. The documents are read in submission batches, sorted by place where wanted, and appended to new segments in key
//!    order ([`fetch`]).
//! 3. The structure gets the same versions, of the same seq and expiry, as a batch with the new pointers. The
//!    structure reports the old documents dropped.
//! 4. That is made durable as a round is: log flushed before the structure is written, then documents and data
//!    flushed, flush-end logged, view installed.
//!
//! Invariants:
//! - All of a stretch happens while the table is held. So the structure has every version that is written again, and a
//!   newer one can only come behind.
//! - No queue has a version that is written again, or readers would find the old place there.
//! - A document is dropped in the same flush-end that brings its copy, so a crash leaves exactly one of the two.
//! - Bytes that a failed stretch has appended are not referred to, and their room is given out again.
//!
//! Left to others: the choice of segments to clean, and the release of their files ([`crate::upkeep::checkpoint`]).

mod fetch;
mod moves;
mod search;
mod times;

use std::{cell::Cell, sync::Arc};

use doclog::{Appender, DocPointer};
use index::Seq;

use crate::{
    apply::{
        install::{Documents, Step, install},
        round,
    },
    engine::{
        Engine,
        cleaning::{Plan, Position},
    },
    error::{Error, Result},
    tables::held::HeldTable,
};

use moves::{Fate, Moves};
pub use times::CompactionTimes;
pub(crate) use times::Watch;

/// Counts of one stretch, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) documents: u64,
    /// Bytes of these documents, with headers and padding.
    pub(crate) bytes: u64,
    /// Damaged documents. They stay where they are.
    pub(crate) damaged: u64,
}

/// Moves the documents of the stretch that begins at `from`. Returns where the next one begins, if there is one.
///
/// # Errors
/// - [`Error::DiskFull`] when there is no room for the documents to move; then nothing was moved.
/// - Errors that end all writing.
/// - Errors of reading.
pub(crate) fn stretch(
    engine: &Engine, table: &HeldTable<'_>, from: &Position, plan: &Plan, done: &mut Moved, times: &mut CompactionTimes,
) -> Result<Option<Position>> {
    let mut watch = Watch::start();
    let horizon = engine.horizon(table);
    // Operations that the structure lacks come later than `through`. No operation in the structure comes again, and
    // none up to `through` does.
    let oldest = table.oldest_unapplied_seq().map_or(Seq::MAX, |seq| Seq(seq.0 - 1));
    let through = oldest.min(horizon.visible);
    let view = Arc::clone(&table.state.load().view);
    let (mut moves, next) = search::search(&*view, from, plan, &horizon, through)?;
    watch.lap(&mut times.search);
    if moves.versions.is_empty() {
        return Ok(next);
    }
    let fetched = fetch::fetch(&table.documents, &mut moves, &plan.how, times, &mut watch);
    let copies = fetched.map_err(|error| refused(engine, error.into()))?;
    let (before, moved) = (moves.versions.len(), moves.moved());
    moves.versions.retain(|version| version.fate != Fate::Stays);
    let damaged = (before - moves.versions.len()) as u64;
    if !moves.versions.is_empty() {
        place(engine, table, &moves, &moved, copies, &horizon, times, &mut watch)?;
    }
    done.documents += moved.len() as u64;
    done.bytes += moved.iter().map(DocPointer::stored_bytes).sum::<u64>();
    done.damaged += damaged;
    Ok(next)
}

/// The error of a refused write: either no space, which may be had later, or an error that ends all writing.
fn refused(engine: &Engine, error: Error) -> Error {
    match engine.write_error(error) {
        error if error.is_no_space() => Error::DiskFull { path: engine.path.clone(), problem: error.cause() },
        error => error,
    }
}

/// Makes the structure refer to the new places.
#[expect(clippy::too_many_arguments, reason = "what one stretch has come to, and what it is measured by")]
fn place(
    engine: &Engine, table: &HeldTable<'_>, moves: &Moves, moved: &[DocPointer], copies: Appender<'_>,
    horizon: &index::Horizon, times: &mut CompactionTimes, watch: &mut Watch,
) -> Result<()> {
    round::forget_applied(engine, table);
    engine.flush_log()?;
    watch.lap(&mut times.flush);
    let applied = table.tree.relocate(moves, horizon);
    let mut applied = applied.map_err(|error| refused(engine, error.into()))?;
    watch.lap(&mut times.write);
    if !seeded::on(seeded::Bug::MovedUnflushed) {
        applied.files.extend(copies.files());
    }
    let copies = Cell::new(Some(copies));
    let keep = || {
        if let Some(copies) = copies.take() {
            copies.finish()?;
        }
        Ok(())
    };
    let step = Step::rewritten(table, &applied, Documents::Moved { places: moved, keep: &keep });
    let (_, installed) = install(engine, &[step], |_| {
        let state = table.state.load();
        table.replace_state(Arc::clone(&state.active), state.frozen.clone(), Arc::clone(&applied.view));
    });
    let installed = installed.map_err(|error| engine.write_error(error));
    if !matches!(installed, Err(Error::DiskFull { .. })) {
        // After another error the flush-end may be in the log all the same, and then the next opening finds the copies.
        keep()?;
    }
    watch.lap(&mut times.flush);
    installed
}
