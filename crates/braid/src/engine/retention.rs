//! The part of the log that is kept for readers of changes ([`crate::Changes`]), beyond the part that recovery needs.
//!
//! 1. Each checkpoint chooses the start of the kept log ([`choose`]): [`crate::Options::retain_log_bytes`] back from
//!    the end, rounded up to a whole segment. Where recovery replays from further back, the start is there.
//! 2. The kept log names documents and tables, which stay as well. A document segment without live documents stays
//!    until the last commit that names one of its documents is no longer kept. A dropped table keeps its name and
//!    documents. These documents count like the log itself: with too many of them, less of the log is kept.
//! 3. On a full disk only the log that recovery needs is kept, from the next checkpoint on. That checkpoint then comes
//!    at once.
//!
//! Invariants:
//! - The kept log only ever loses its beginning.
//! - For every seq ≥ [`Kept::seq`] the log has the record, and every document and table that the record names is there.
//! - No part goes before a checkpoint that says so is durable.

use std::sync::atomic::{AtomicBool, Ordering};

use index::Seq;
use parking_lot::Mutex;
use wal::{Lsn, Wal};

use crate::engine::Engine;

/// The start of the kept log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Position of the start.
    pub(crate) from: Lsn,
    /// The first seq from there on.
    pub(crate) seq: Seq,
}

impl Kept {
    /// The whole log, from its very first record.
    pub(crate) const ALL: Self = Self { from: Lsn(0), seq: Seq(1) };

    /// The kept part that a log just opened really has. A damaged segment that recovery does not need ends the kept
    /// part.
    pub(crate) fn within(self, wal: &Wal) -> Self {
        match wal.segment_starts().first() {
            Some(&(from, seq)) if Seq(seq) > self.seq => {
                tracing::warn!(from = self.seq.0, to = seq, "a part of the log that was kept for readers is damaged");
                Self { from, seq: Seq(seq) }
            }
            _ => self,
        }
    }
}

/// The kept part of a checkpoint, and the start of the log that recovery from the checkpoint needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) kept: Kept,
    pub(crate) needed: Kept,
}

struct State {
    kept: Kept,
    /// The start of the log that the newest checkpoint needs. A part that was not needed once is not needed later, even
    /// if a later computation names that part again.
    needed: Kept,
    /// More is kept than recovery needs.
    surplus: bool,
}

/// The kept log, as the newest checkpoint says.
pub(crate) struct Retention {
    /// Whether the options ask for a kept log at all.
    keeps: bool,
    state: Mutex<State>,
    /// Space is short: the next checkpoint keeps only the log that recovery needs.
    yields: AtomicBool,
}

impl Retention {
    pub(crate) fn new(bytes: u64, kept: Kept, wal: &Wal) -> Self {
        let keeps = bytes > 0;
        let surplus = keeps && wal.bytes_kept() > wal.bytes_retained();
        let state = State { kept, needed: Kept::ALL, surplus };
        Self { keeps, state: Mutex::new(state), yields: AtomicBool::new(false) }
    }

    /// The start of the kept log.
    pub(crate) fn kept(&self) -> Kept {
        self.state.lock().kept
    }

    /// Notes that a checkpoint with this choice is durable.
    pub(crate) fn set(&self, choice: Choice) {
        let Choice { kept, needed } = choice;
        *self.state.lock() = State { kept, needed, surplus: self.keeps && kept.from < needed.from };
        self.yields.store(false, Ordering::Release);
    }

    fn needed(&self) -> Kept {
        self.state.lock().needed
    }

    /// Notes that space is short. Returns whether there is a surplus to give up.
    pub(crate) fn yield_space(&self) -> bool {
        let surplus = self.state.lock().surplus;
        self.yields.store(surplus, Ordering::Release);
        surplus
    }

    /// Whether the next checkpoint is wanted because space is short.
    pub(crate) fn yields(&self) -> bool {
        self.yields.load(Ordering::Acquire)
    }
}

/// The start of the kept log for a checkpoint that is written now. Called by the worker, with no apply under way.
pub(crate) fn choose(engine: &Engine) -> Choice {
    let needed = needed(engine);
    let most = engine.options.retain_log_bytes;
    if most == 0 || engine.retention.yields() || engine.pressure.full_disk().is_some() {
        return Choice { kept: needed, needed };
    }
    let most = most.saturating_add(engine.options.segment_bytes);
    let (end, dead) = (engine.wal.end(), dead_documents(engine));
    let cost = |kept: &Kept| {
        let documents = dead.iter().filter(|(last, _)| *last >= kept.seq).map(|(_, bytes)| bytes);
        documents.fold(end.0.saturating_sub(kept.from.0), |sum, bytes| sum.saturating_add(*bytes))
    };
    let now = engine.retention.kept();
    let starts = engine.wal.segment_starts().into_iter().map(|(from, seq)| Kept { from, seq: Seq(seq) });
    let later = starts.filter(|start| start.from > now.from && start.seq >= now.seq);
    let mut choices = std::iter::once(now).chain(later).take_while(|choice| choice.from < needed.from);
    Choice { kept: choices.find(|choice| cost(choice) <= most).unwrap_or(needed), needed }
}

/// The start of the log that recovery needs.
fn needed(engine: &Engine) -> Kept {
    engine.between_publications(|visible, frontier| {
        let tables = engine.catalog.live();
        let oldest = tables.iter().filter_map(|table| Some((table.oldest_unapplied()?, table.oldest_unapplied_seq()?)));
        let (from, seq) = oldest.min().unwrap_or((frontier, Seq(visible.0 + 1)));
        let before = engine.retention.needed();
        Kept { from: from.max(before.from), seq: seq.max(before.seq) }
    })
}

/// Last commit and bytes of each document segment that only the kept log refers to. Segments that readers of older
/// states hold are left out, because they would stay anyway.
fn dead_documents(engine: &Engine) -> Vec<(Seq, u64)> {
    let mut tables = engine.catalog.live();
    tables.extend(engine.catalog.dropped());
    tables.retain(|table| table.is_read_as_it_is());
    tables.iter().flat_map(|table| table.documents.dead()).map(|(last, bytes)| (Seq(last), bytes)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::{options::Options, words::structure::Structure};

    #[test]
    fn what_the_log_has_behind_the_last_commit_is_not_needed() {
        let options = Options::new().background(false);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("table", Structure::BTree).expect("created");
        (0..1000_u32).for_each(|number| table.put(number.to_be_bytes(), [1; 100]).expect("put"));
        let (engine, behind_puts) = (table.engine(), table.engine().wal.end());
        assert!(super::needed(engine).from < behind_puts);
        database.checkpoint().expect("a checkpoint");
        assert!(engine.wal.end() > behind_puts, "what was applied is logged");
        assert_eq!(super::needed(engine).from, engine.wal.end());
        table.put("key", "value").expect("put");
        assert!(super::needed(engine).from < engine.wal.end());
    }

    #[test]
    fn what_a_reader_holds_in_any_case_costs_no_log() {
        let options = Options::new().background(false).segment_bytes(64 << 10).retain_log_bytes(1 << 20);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        let overwrite = |round: u8| {
            (0..50_u8).for_each(|number| table.put([number], vec![round; 10_000]).expect("put"));
            db.checkpoint().expect("a checkpoint");
        };
        let kept = || table.engine().retention.kept().seq.0;
        overwrite(0);
        let mut reader = table.iter();
        assert!(reader.next().is_some());
        (1..8).for_each(overwrite);
        let dead: u64 = table.core.documents.dead().into_iter().map(|(_, bytes)| bytes).sum();
        assert!(dead > 2 << 20, "{dead} bytes are dead");
        assert!(kept() <= 1, "{} although nothing would be gained by it", kept());
        drop(reader);
        db.checkpoint().expect("a checkpoint");
        table.put([0], [0]).expect("put");
        db.checkpoint().expect("a checkpoint");
        assert!(kept() > 100, "now it would");
    }
}
