//! Space that structures leave behind in files of their own: the worker has tables swept in which there is too much of it.
//!
//! A structure that only appends leaves a little alive in each of its segments, and a segment goes as a whole. When what is dead in segments that are in use is more
//! than what is alive, and more than [`LEAST_BYTES`], the table is made anew in key order, stretch by stretch ([`crate::sweep`]), and what was there before dies. So it never takes
//! much more than three times what is alive: that, as much garbage, and what the sweep has written before the next checkpoint lets go of the rest.

use crate::engine::Engine;

/// Less is not worth it: about what two segments hold.
const LEAST_BYTES: u64 = 32 << 20;

/// Asks for sweeps of tables with too much garbage, unless others wait.
pub(crate) fn look(engine: &Engine) {
    if engine.sweeps.are_waiting() {
        return;
    }
    for table in engine.catalog.live() {
        let dead = table.tree.garbage_bytes();
        if dead > LEAST_BYTES.max(table.tree.room().live_bytes) {
            engine.sweep(&table, &[], None);
        }
    }
}
