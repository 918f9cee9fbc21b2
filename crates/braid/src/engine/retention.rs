//! The part of the log that is kept for readers of changes ([`crate::Changes`]), beyond the part that recovery needs.
//!
//! 1. Each checkpoint chooses the start of the kept log ([`crate::engine::kept`]): [`crate::Options::retain_log_bytes`]
//!    back from the end, rounded up to a whole segment. Where recovery replays from further back, the start is there.
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
                events::warn!(from = self.seq.0, to = seq, "a part of the log that was kept for readers is damaged");
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
        let mut state = self.state.lock();
        assert!(
            kept.from >= state.kept.from && needed.from >= state.needed.from,
            "the log is trimmed at its start alone"
        );
        *state = State { kept, needed, surplus: self.keeps && kept.from < needed.from };
        self.yields.store(false, Ordering::Release);
    }

    /// The start of the log that the newest checkpoint needs.
    pub(super) fn needed(&self) -> Kept {
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
