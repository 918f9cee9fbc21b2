//! Compaction: a table's structure rebuilt in key order, while everybody reads and writes.
//!
//! 1. What waits is applied first, so that it is packed too.
//! 2. The structure rewrites itself stretch by stretch ([`btree::BTree::compact`]), [`STRETCH_BYTES_MAX`] at a time, in the caller's thread. Each
//!    stretch is made durable as a round is: log flushed, data written and flushed, flush-end logged, view published. Which commits
//!    the table has stays as it is.
//! 3. Between two stretches the worker has its turn, and the caller is told how far it is and can stop.
//! 4. At the end a checkpoint lets go of what is not needed any more.
//!
//! Invariants: as a round's; a table is whole after each stretch, so a crash, an error or the caller can end a compaction anywhere;
//! beside what fragmentation costs it needs the space of one stretch, as long as nobody reads an older state.

use std::{ops::ControlFlow, sync::Arc};

use btree::Part;
use index::{Index, RangeTombstones, Seq};
use parking_lot::MutexGuard;

use crate::{
    Database, Error, Result, Table,
    catalog::TableCore,
    engine::Engine,
    format::FlushEnd,
    round::{self, append_flush_end},
    sweep,
};

/// Runs that are rewritten together are at most so many bytes, or this part of the write buffer: a compaction needs a few times
/// that of memory.
const STRETCH_BYTES_MAX: u64 = 8 << 20;
const STRETCH_PART: u64 = 8;

/// How far a compaction is.
#[derive(Clone, Debug)]
pub struct CompactProgress {
    /// The table being compacted.
    pub table: String,
    /// Bytes of runs rewritten so far, over all tables.
    pub bytes: u64,
    /// Bytes of runs that there were in all tables to be compacted when this began.
    pub total_bytes: u64,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Leaves that were rewritten.
    pub leaves: u64,
    /// Bytes of runs that were in them.
    pub bytes: u64,
    /// The caller stopped it before it was through.
    pub stopped: bool,
}

/// Told after each stretch; [`ControlFlow::Break`] stops the compaction there.
pub type CompactReport<'a> = &'a mut dyn FnMut(CompactProgress) -> ControlFlow<()>;

impl Table {
    /// Rebuilds the table in key order: packed leaves that lie next to each other, of the size that suits what the table was asked
    /// for since it was opened, and nothing in them that no reader can see. Reads and writes
    /// go on meanwhile. Whatever ends it, the table is whole: what was compacted by then stays so.
    ///
    /// # Errors
    /// [`Error::DiskFull`], or what keeps the database from writing, or when storage fails or what it holds is damaged.
    pub fn compact(&self, report: CompactReport<'_>) -> Result<Compaction> {
        self.engine().check_live(&self.core)?;
        run(self.engine(), &[Arc::clone(&self.core)], report)
    }
}

impl Database {
    /// Compacts every table there is, as [`Table::compact`] does one.
    ///
    /// # Errors
    /// As [`Table::compact`]; [`Error::Loading`] where one is being loaded.
    pub fn compact(&self, report: CompactReport<'_>) -> Result<Compaction> {
        let tables = self.engine().catalog.live();
        run(self.engine(), &tables, report)
    }
}

fn run(engine: &Engine, tables: &[Arc<TableCore>], report: CompactReport<'_>) -> Result<Compaction> {
    engine.ask(false)?;
    let mut total_bytes = 0;
    for table in tables {
        total_bytes += table.state.load_full().view.stats()?.run_bytes;
    }
    let mut done = Compaction::default();
    for table in tables {
        let leaf_pages = engine.leaf_pages_for(table)?;
        let mut from = Some(Vec::new());
        while let Some(low) = from.filter(|_| !done.stopped) {
            from = stretch(engine, table, &low, leaf_pages, &mut done)?;
            // Without background threads this is the worker's turn.
            engine.work_inline();
            let progress = CompactProgress { table: table.name.clone(), bytes: done.bytes, total_bytes };
            done.stopped = report(progress).is_break() && from.is_some();
        }
    }
    engine.ask(true)?;
    Ok(done)
}

/// Compacts the stretch that begins at `low`; where the next one begins.
fn stretch(
    engine: &Engine, table: &TableCore, low: &[u8], leaf_pages: u32, done: &mut Compaction,
) -> Result<Option<Vec<u8>>> {
    let _makes_way = psync::Background::enter();
    let still = engine.maintenance.lock();
    engine.check_writable()?;
    if engine.check_live(table).is_err() {
        return Ok(None);
    }
    table.check_not_loading()?;
    let rewritten = rewrite(engine, table, low, None, leaf_pages)?;
    // The worker may have waited for this stretch.
    MutexGuard::unlock_fair(still);
    done.leaves += rewritten.leaves;
    done.bytes += rewritten.bytes;
    Ok(rewritten.next)
}

/// A stretch that was rewritten.
#[derive(Default)]
pub(crate) struct Rewritten {
    /// Where the next one begins; none at the end of the table.
    pub(crate) next: Option<Vec<u8>>,
    leaves: u64,
    bytes: u64,
}

/// Rewrites the stretch that begins at `low`, and ends where `high` is at the latest, into leaves of `leaf_pages` pages, by whoever holds
/// [`Engine::maintenance`].
pub(crate) fn rewrite(
    engine: &Engine, table: &TableCore, low: &[u8], high: Option<&[u8]>, leaf_pages: u32,
) -> Result<Rewritten> {
    engine.flush_log()?;
    let tree = &table.tree;
    let bytes = (engine.pressure.budget() / STRETCH_PART).min(STRETCH_BYTES_MAX);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
    let part = Part { from: low, until: high, bytes };
    // Nothing that the structure has comes again after a crash, and nothing is added to it meanwhile.
    let horizon = engine.horizon(table);
    let compacted = tree.compact(part, leaf_pages, Seq::MAX, &horizon);
    let compacted = compacted.map_err(|error| engine.write_error(error.into()))?;
    let Some(compacted) = compacted else {
        table.change_tombstones(|tombstones| sweep::clear(tombstones, &table.state.load(), &horizon, low, None));
        return Ok(Rewritten::default());
    };
    let applied = compacted.applied;
    round::flush(engine, std::iter::once(&applied)).map_err(|error| engine.write_error(error))?;
    let record = FlushEnd {
        table: table.id,
        applied: table.applied(),
        redo: applied.redo.clone(),
        dropped: applied.dropped_documents.clone(),
        retained: Vec::new(),
    };
    if let Err(error) = append_flush_end(engine, &record) {
        let error = engine.write_error(error);
        if matches!(error, Error::DiskFull { .. }) {
            tree.discard(&applied);
        }
        return Err(error);
    }
    tree.publish(&applied);
    for document in &applied.dropped_documents {
        table.documents.drop_document(document)?;
    }
    let state = table.state.load();
    let end = compacted.next.as_deref();
    let clear = |tombstones: &mut RangeTombstones| sweep::clear(tombstones, &state, &horizon, low, end);
    table.replace_state_and(Arc::clone(&state.active), state.frozen.clone(), Arc::clone(&applied.view), clear);
    engine.counters.changed();
    Ok(Rewritten { next: compacted.next, leaves: compacted.leaves, bytes: compacted.bytes })
}
