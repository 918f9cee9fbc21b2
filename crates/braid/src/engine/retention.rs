//! What is kept of the log for those who follow its changes ([`crate::Changes`]), beyond what recovery needs.
//!
//! 1. Each checkpoint chooses from where on the log is kept ([`choose`]): [`crate::Options::retain_log_bytes`] back from its end, rounded up to a
//!    whole segment, or from where recovery replays if that is further back.
//! 2. What is kept of the log names documents, and tables. A document segment without anything live stays until the last commit that names a
//!    document in it is no longer kept, and of a dropped table its name and documents stay. These documents count like the log itself: where they
//!    are too many, less of the log is kept.
//! 3. On a full disk nothing is kept that recovery does not need, from the next checkpoint on, which then comes at once.
//!
//! Invariants: what is kept only ever loses its beginning; for every seq from [`Kept::seq`] on the log has the record, and every
//! document and table that it names is there; nothing goes before a checkpoint that says so is durable.

use std::sync::atomic::{AtomicBool, Ordering};

use index::Seq;
use parking_lot::Mutex;
use wal::{Lsn, Wal};

use crate::engine::Engine;

/// From where on the log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its position.
    pub(crate) from: Lsn,
    /// The first seq from there on.
    pub(crate) seq: Seq,
}

impl Kept {
    /// All there ever was.
    pub(crate) const ALL: Self = Self { from: Lsn(0), seq: Seq(1) };

    /// What there is of it in a log that was just opened: a segment that is damaged, and not needed else, ends it.
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

/// What a checkpoint keeps, and from where on recovery from it needs the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) kept: Kept,
    pub(crate) needed: Kept,
}

struct State {
    kept: Kept,
    /// From where on the newest checkpoint needs the log: what was not needed once is not needed later, even if it comes up again.
    needed: Kept,
    /// More is kept than recovery needs.
    surplus: bool,
}

/// What is kept, as the newest checkpoint says.
pub(crate) struct Retention {
    /// Whether anything is to be kept at all.
    keeps: bool,
    state: Mutex<State>,
    /// Space is short: the next checkpoint keeps nothing but what recovery needs.
    yields: AtomicBool,
}

impl Retention {
    pub(crate) fn new(bytes: u64, kept: Kept, wal: &Wal) -> Self {
        let keeps = bytes > 0;
        let surplus = keeps && wal.bytes_kept() > wal.bytes_retained();
        let state = State { kept, needed: Kept::ALL, surplus };
        Self { keeps, state: Mutex::new(state), yields: AtomicBool::new(false) }
    }

    /// What is kept.
    pub(crate) fn kept(&self) -> Kept {
        self.state.lock().kept
    }

    /// A checkpoint is durable that keeps so much.
    pub(crate) fn set(&self, choice: Choice) {
        let Choice { kept, needed } = choice;
        *self.state.lock() = State { kept, needed, surplus: self.keeps && kept.from < needed.from };
        self.yields.store(false, Ordering::Release);
    }

    fn needed(&self) -> Kept {
        self.state.lock().needed
    }

    /// Space is short. Whether there is something to give up.
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

/// From where on a checkpoint that is written now keeps the log. Called by the worker, with no apply under way.
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

/// From where on recovery needs the log.
fn needed(engine: &Engine) -> Kept {
    engine.between_publications(|visible, frontier| {
        let tables = engine.catalog.live();
        let oldest = tables.iter().filter_map(|table| Some((table.oldest_unapplied()?, table.oldest_unapplied_seq()?)));
        let (from, seq) = oldest.min().unwrap_or((frontier, Seq(visible.0 + 1)));
        let before = engine.retention.needed();
        Kept { from: from.max(before.from), seq: seq.max(before.seq) }
    })
}

/// Last commit and bytes of each document segment that only what is kept of the log refers to. What readers of older states hold would stay without it.
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
