//! The handle that keeps a database open, and closes the database.

use std::sync::Arc;

use crate::{
    engine::{Engine, learned},
    error::Result,
};

/// Keeps a database open: the engine and its background threads. The last handle to go closes the database.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
}

impl Handle {
    /// Closes the database; only the first call does anything.
    ///
    /// 1. Applies waiting operations and writes a checkpoint, unless the next opening replays them in no time.
    /// 2. Ends the threads.
    /// 3. Makes the log durable.
    pub(crate) fn close(&self) -> Result<()> {
        if self.engine.options.read_only || !self.engine.close_doors() {
            return Ok(());
        }
        let ticket = (!self.engine.is_quick_to_replay()).then(|| self.engine.signal.post_rest(false));
        self.engine.signal.stop();
        self.engine.work_inline();
        self.engine.keeper.stop();
        self.engine.lookups.end();
        for thread in self.engine.threads.close() {
            if thread.join().is_err() {
                self.engine.fail("a background thread panicked");
            }
        }
        learned::keep(&self.engine);
        // Waiters for changes need not wait any longer.
        self.engine.publisher.fail();
        let ended = || self.engine.health.check();
        match ticket {
            Some(ticket) => self.engine.signal.answer(ticket).or_else(|error| error.map_or_else(ended, Err))?,
            None => ended()?,
        }
        self.engine.mark_clean()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the database was not closed cleanly; the next open recovers it");
        }
    }
}
