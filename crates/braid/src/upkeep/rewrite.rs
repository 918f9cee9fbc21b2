//! A stretch of a table rewritten in key order: for compactions and sweeps.

use std::sync::Arc;

use index::{Applied, Part, RangeTombstones, Seq};

use crate::{
    apply::install::{Documents, Step, install},
    engine::Engine,
    error::{Error, Result},
    tables::held::HeldTable,
    upkeep::settled,
};

/// A stretch that was rewritten.
#[derive(Default)]
pub(crate) struct Rewritten {
    /// Where the next stretch begins; none at the end of the table.
    pub(crate) next: Option<Vec<u8>>,
    pub(super) leaves: u64,
    pub(super) bytes: u64,
}

/// Rewrites the first stretch of `part`.
pub(crate) fn rewrite(engine: &Engine, table: &HeldTable<'_>, part: Part<'_>) -> Result<Rewritten> {
    engine.flush_log()?;
    let (tree, low) = (&table.tree, part.from);
    // After a crash no commit that the structure has comes again, but for deletes that went ahead, with nothing older
    // of their keys; and nothing is added to the structure meanwhile.
    let horizon = engine.horizon(table);
    let compacted = tree.compact(part, Seq::MAX, &horizon);
    let compacted = compacted.map_err(|error| match Error::from(error) {
        // A part of the file can lack room while the disk is not full.
        full @ Error::DiskFull { .. } if part.below.is_some() => full,
        error => engine.write_error(error),
    })?;
    // Leaves that stay as they are keep versions that range deletes hide.
    let clear = |tombstones: &mut RangeTombstones, end: Option<&[u8]>| {
        if part.chosen.is_none() {
            settled::clear(tombstones, &table.state.load(), &horizon, low, end);
        }
    };
    let Some(compacted) = compacted else {
        table.change_tombstones(|tombstones| clear(tombstones, None));
        return Ok(Rewritten::default());
    };
    finish(engine, table, &compacted.applied, |tombstones| clear(tombstones, compacted.next.as_deref()))?;
    Ok(Rewritten { next: compacted.next, leaves: compacted.leaves, bytes: compacted.bytes })
}

/// Empties files of a table's structure in which little lives, of about `bytes` live bytes together. Returns whether
/// there are any.
pub(crate) fn empty(engine: &Engine, table: &HeldTable<'_>, bytes: u64) -> Result<bool> {
    engine.flush_log()?;
    let horizon = engine.horizon(table);
    let emptied = table.tree.empty(bytes, Seq::MAX, &horizon).map_err(|error| engine.write_error(error.into()))?;
    emptied.map_or(Ok(false), |applied| finish(engine, table, &applied, |_| {}).map(|()| true))
}

/// Makes the rewritten part durable and current.
pub(super) fn finish(
    engine: &Engine, table: &HeldTable<'_>, applied: &Applied, clear: impl Fn(&mut RangeTombstones),
) -> Result<()> {
    let step = Step::rewritten(table, applied, Documents::Stay);
    let (_, outcome) = install(engine, &[step], |_| {
        let state = table.state.load();
        table.replace_state_and(Arc::clone(&state.active), state.frozen.clone(), Arc::clone(&applied.view), &clear);
    });
    outcome.map_err(|error| engine.write_error(error))
}
