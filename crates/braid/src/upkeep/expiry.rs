//! Removal of expired versions: the worker looks for leaves with enough of them, and has these swept
//! ([`crate::upkeep::sweep`]).
//!
//! An expired version is invisible at once, and goes whenever its leaf is written anew for another reason. This module
//! is for leaves that nobody writes to. The trees know which leaves are due, and from when on, so a look costs next to
//! nothing where none is.

use crate::{
    engine::{Engine, sweeps::PIECES_MAX, upkeep::Upkeep},
    error::{Error, Result},
    upkeep::sweep,
};

/// Milliseconds between two looks: leaves whose turn comes meanwhile are swept together.
const PACE_MILLIS: u64 = 1_000;

/// Requests sweeps of the leaves that are due, unless other sweeps wait.
///
/// # Errors
/// When a node of a tree cannot be read, though the node is not damaged.
pub(crate) fn look(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    let mut tables = engine.catalog.live();
    tables.retain(|table| table.tree.expires() && !table.is_damaged());
    if tables.is_empty() || engine.sweeps.are_waiting() {
        return Ok(());
    }
    let now = engine.clock.now();
    if now.0 < held.expiry_looked.0.saturating_add(PACE_MILLIS) {
        return Ok(());
    }
    held.expiry_looked = now;
    for table in tables {
        let due = sweep::unless_damaged(&table, table.tree.due(now, PIECES_MAX).map_err(Error::from))?;
        for keys in due.into_iter().flatten() {
            engine.sweep(&table, &keys.low, keys.high.as_deref());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        time::{Duration, UNIX_EPOCH},
    };

    use psync::sim::SimDisk;

    use crate::{
        options::Options,
        words::{clock::ManualClock, structure::Structure},
    };

    #[test]
    fn damage_that_a_look_meets_does_not_end_writing() {
        let (disk, clock) = (SimDisk::new(1), ManualClock::new(UNIX_EPOCH + Duration::from_millis(1_000_000)));
        let options = Options::new().background(false).clock(clock.clone());
        let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
        let (table, other) = (db.table("t", Structure::Append), db.table("other", Structure::BTree));
        let (table, other) = (table.expect("a table"), other.expect("a table"));
        for key in 0..100 {
            table.put_expiring([key], "value", Duration::from_secs(1)).expect("put");
        }
        db.checkpoint().expect("a checkpoint");
        drop((table, other));
        db.close().expect("closes");
        let nodes = disk.files().into_iter().find(|file| file.starts_with("/db/node")).expect("a file");
        disk.psync().remove(&nodes).expect("removed");

        clock.advance(Duration::from_millis(3_600_000));
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        db.checkpoint().expect("a checkpoint");
        let table = db.table("t", Structure::Append).expect("a table");
        assert!(table.core.is_damaged() && table.get([1]).is_err());
        let other = db.table("other", Structure::BTree).expect("a table");
        other.put("key", "value").expect("others are written to");
        db.checkpoint().expect("and applied");
    }
}
