//! Removal of what has expired: the worker looks for leaves in which there is enough of it, and has them swept ([`crate::sweep`]).
//!
//! What has expired is invisible at once, and goes whenever what it is in is written anew for another reason. This is for what nobody
//! writes to. The trees know which leaves are due, and from when on, so a look costs next to nothing where none is.

use index::Time;

use crate::{Result, engine::Engine};

/// Milliseconds between two looks: leaves whose turn comes meanwhile are swept together.
const PACE_MILLIS: u64 = 1_000;

/// Most pieces of a table that are asked for at a time. A look comes again as soon as they are swept.
pub(crate) const PIECES_MAX: usize = 256;

/// Remembers when it was last looked.
#[derive(Default)]
pub(crate) struct Look {
    last: Time,
}

impl Look {
    /// Asks for sweeps of what is due, unless others wait.
    ///
    /// # Errors
    /// When a node of a tree cannot be read.
    pub(crate) fn turn(&mut self, engine: &Engine) -> Result<()> {
        let mut tables = engine.catalog.live();
        tables.retain(|table| table.tree.expires());
        if tables.is_empty() || engine.sweeps.are_waiting() {
            return Ok(());
        }
        let now = engine.clock.now();
        if now.0 < self.last.0.saturating_add(PACE_MILLIS) {
            return Ok(());
        }
        self.last = now;
        for table in tables {
            for keys in table.tree.due(now, PIECES_MAX)? {
                engine.sweep(&table, &keys.low, keys.high.as_deref());
            }
        }
        Ok(())
    }
}
