//! A table that changes as a whole, in one logged step: the end of a load, and a rollback.
//!
//! 1. The new tree is written and flushed, and nothing refers to this tree.
//! 2. A record of its own gives the change its seq. A flush-end up to that seq is logged, and made durable.
//! 3. The table gets its new view; later its seq becomes visible.
//!
//! Invariants:
//! - Nothing else changes the table, from before its queues are empty until the change is over
//!   ([`TableCore::begin_load`](crate::tables::catalog::TableCore::begin_load)).
//! - All of this happens under the lock of upkeep, with the table held.
//! - The record alone changes nothing, so a crash leaves the old tree or the new one.
//! - In a replay no key lacks a commit below the seq.

use std::sync::Arc;

use doclog::Retained;
use index::{Applied, Seq};
use wal::Claim;

use crate::{
    apply::install::{Documents, Flushed, Step},
    engine::{
        Engine,
        publish::{Change, Pending, Safety},
    },
    error::{Error, Result},
    format::Restored,
    tables::held::HeldTable,
    words::applied::AppliedThrough,
};

/// A change of a table as a whole.
pub(crate) struct Replacement<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) table: &'a HeldTable<'a>,
    /// The files of the new tree.
    pub(crate) flushed: &'a Flushed,
    /// Documents that live with the new tree and did not before.
    pub(crate) retained: &'a [Retained],
    /// Of a rollback. After any other change no range delete has something to hide.
    pub(crate) restored: Option<Restored>,
}

impl Replacement<'_> {
    /// Logs and installs the tree that `take` makes with its seq, under a record of this kind. The seq becomes visible
    /// with the next publication.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`], or the refusal of the log: then everything is as before.
    pub(crate) fn run(&self, kind: u8, payload: &[u8], take: impl FnOnce(Seq) -> Applied) -> Result<Seq> {
        let Self { engine, table, .. } = *self;
        let commit = engine.wal.append(kind, &[payload], true, Claim::Upkeep);
        let commit = commit.map_err(|error| engine.write_error(error.into()));
        let seq = commit.as_ref().map_or(Seq(0), |position| Seq(position.seq));
        let applied = take(seq);
        let documents = Documents::Whole { retained: self.retained, restored: self.restored.as_ref() };
        let step = Step { table, applied: &applied, through: AppliedThrough::new(seq), documents };
        let log = || {
            step.log(engine, self.flushed).map_err(|error| engine.write_error(error))?;
            engine.flush_record()
        };
        let mut outcome = match &commit {
            Ok(_) => log(),
            Err(error) => Err(error.clone()),
        };
        match &outcome {
            Ok(()) => {
                // The log has the change now, and no record may be written behind the change that does not know of it.
                outcome = self.show(&step, seq).map_err(|error| {
                    engine.fail(error.cause());
                    engine.outcome_unknown()
                });
            }
            Err(Error::OutcomeUnknown { .. }) => {}
            Err(_) => table.tree.discard(&applied),
        }
        if let Ok(position) = commit {
            // The log has the record even if a later step failed, and later records wait for its turn.
            let change = Change::Commit(Arc::default());
            let pending = Pending { lsn: position.lsn, end: position.end, safety: Safety::Written, change };
            engine.publisher.enqueue(seq, pending);
        }
        outcome.map(|()| seq)
    }

    /// Puts the view in place. Its seq is not visible yet.
    fn show(&self, step: &Step<'_>, seq: Seq) -> Result<()> {
        let table = self.table;
        if self.restored.is_some() {
            table.keep_last(seq);
        }
        step.show(|| {
            table.note_load(seq);
            if table.tree.expires() {
                self.engine.note_expiring(table);
            }
            let active = Arc::clone(&table.state.load().active);
            let tombstones = self.restored.as_ref().map(|restored| restored.tombstones.clone()).unwrap_or_default();
            table.replace_whole(active, Arc::clone(&step.applied.view), tombstones);
        })
    }
}
