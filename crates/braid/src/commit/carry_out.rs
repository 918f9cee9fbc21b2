//! Carries out due changes: operations enter the queues of their tables, tables are created and dropped.
//!
//! [`crate::engine::publish::Publisher`] hands over one change at a time, in seq order. The bytes in queues are counted
//! here, and the worker is woken when there are enough for a round.

use std::sync::{Arc, atomic::Ordering};

use index::{Horizon, Operation, Seq};
use parking_lot::RwLockWriteGuard;
use wal::Lsn;

use crate::{
    commit::pacing,
    engine::{
        Engine,
        pressure::Taken,
        publish::{Change, LogState, Pending},
    },
    format::{self, Logged},
    opq::{Opq, Sections},
    tables::catalog::TableCore,
};

/// A queue is locked for at most so many operations of a commit, so that its readers do not wait for all of a large
/// one.
const HELD_OPERATIONS: usize = 64;

/// A queue that operations of a commit enter, locked.
struct Entering<'a> {
    section: usize,
    queue: RwLockWriteGuard<'a, Opq>,
    /// Bytes of the queue before.
    before: u64,
    is_delete: bool,
    /// Position of the commit.
    lsn: Lsn,
    /// How many more operations the queue may take.
    left: usize,
}

impl<'a> Entering<'a> {
    fn begin(sections: &'a Sections, key: &[u8], is_delete: bool, lsn: Lsn) -> Self {
        let section = sections.of_key(key);
        let queue = sections.queue(section).write();
        let before = queue.bytes() as u64;
        Self { section, queue, before, is_delete, lsn, left: HELD_OPERATIONS }
    }

    /// Whether an operation on `key` enters the same queue under this lock.
    fn takes(&self, sections: &Sections, key: &[u8], is_delete: bool) -> bool {
        self.left > 0 && self.is_delete == is_delete && sections.has_key(self.section, key)
    }

    /// Unlocks the queue, and notes its growth.
    fn leave(self, engine: &Engine, table: &TableCore) {
        let after = self.queue.bytes() as u64;
        drop(self.queue);
        engine.note_growth(table, self.before, after, self.is_delete, self.lsn);
    }
}

impl Engine {
    /// Carries out every change whose record is safe enough.
    pub(crate) fn publish(&self) {
        let log = || LogState { durable: self.wal.durable(), written: self.wal.written() };
        self.publisher.publish(log, |seq, pending| self.carry_out(seq, pending));
        if let Some(cause) = self.health.cause() {
            self.fail(cause);
        }
    }

    fn carry_out(&self, seq: Seq, pending: Pending) {
        match pending.change {
            Change::Commit(payload) => self.enter_queues(seq, &payload, pending.lsn),
            Change::Create(table) => self.catalog.insert(table),
            Change::Drop(id) => {
                if let Some(table) = self.catalog.read().by_id(id) {
                    table.keep_last(seq);
                }
                if let Some(table) = self.catalog.drop_table(id, seq) {
                    self.counters.looked_up(table.traffic.lookups());
                }
            }
        }
    }

    fn enter_queues(&self, seq: Seq, payload: &[u8], lsn: Lsn) {
        let catalog = self.catalog.read();
        let mut operations = format::Operations::new(payload, seq)
            .map(|item| item.expect("this payload was encoded by its commit"))
            .peekable();
        while let Some(&(id, _)) = operations.peek() {
            let own = std::iter::from_fn(|| operations.next_if(|(next, _)| *next == id).map(|(_, logged)| logged));
            match catalog.by_id(id) {
                Some(table) => self.enter_table(table, seq, own, lsn),
                None => own.for_each(drop),
            }
        }
    }

    /// Enters adjacent operations of a commit on the same table.
    fn enter_table<'a>(&self, table: &TableCore, seq: Seq, operations: impl Iterator<Item = Logged<'a>>, lsn: Lsn) {
        let state = table.state.load();
        let (mut open, mut count): (Option<Entering<'_>>, u64) = (None, 0);
        for logged in operations {
            count += 1;
            let update = match logged {
                Logged::Update(update) => update,
                Logged::DeleteRange { low, high } => {
                    open.take().into_iter().for_each(|open| open.leave(self, table));
                    self.enter_tombstone(table, low, high, seq);
                    continue;
                }
            };
            if update.operation.expiry().is_some() {
                self.note_expiring(table);
            }
            if let Some(document) = update.operation.document() {
                // No other wait happens under the lock of a queue.
                open.take().into_iter().for_each(|open| open.leave(self, table));
                if let Err(error) = table.documents.retain(&document, seq.0) {
                    self.health.fail(error);
                }
                self.note_document(table, document.stored_bytes());
            }
            let is_delete = matches!(update.operation, Operation::Delete);
            let mut entering = match open.take() {
                Some(entering) if entering.takes(&state.active, update.key, is_delete) => entering,
                done => {
                    done.into_iter().for_each(|done| done.leave(self, table));
                    Entering::begin(&state.active, update.key, is_delete, lsn)
                }
            };
            entering.queue.append(&update, lsn);
            entering.left -= 1;
            open = Some(entering);
        }
        open.into_iter().for_each(|open| open.leave(self, table));
        table.traffic.changed(count);
        table.history.note_change(seq);
    }

    /// Notes that a value with an expiry is about to become visible in `table`.
    pub(crate) fn note_expiring(&self, table: &TableCore) {
        table.note_expiring();
        self.clock.note_expiring();
    }

    /// Adds a range tombstone: versions in the range below `seq` are deleted. The seq is not visible yet.
    fn enter_tombstone(&self, table: &TableCore, low: &[u8], high: Option<&[u8]>, seq: Seq) {
        let visible = self.publisher.visible();
        let horizon = Horizon { visible, ..self.snapshots.seqs().into_iter().collect() };
        table.change_tombstones(|tombstones| tombstones.add(low, high, seq, &horizon));
        self.signal.kick();
    }

    /// Notes that a queue of `table` got a document. Wakes the worker to look at segments after each further segment of
    /// document bytes.
    fn note_document(&self, table: &TableCore, bytes: u64) {
        let before = table.queued_documents.fetch_add(bytes, Ordering::Relaxed);
        let step = self.options.segment_bytes;
        if before / step != (before + bytes) / step {
            pacing::pace(self, table);
            self.signal.kick();
        }
    }

    /// Notes that a queue of `table` grew to `after` bytes by operations up to `lsn`, and wakes the worker when a round
    /// is due.
    pub(crate) fn note_growth(&self, table: &TableCore, before: u64, after: u64, is_delete: bool, lsn: Lsn) {
        let growth = after - before;
        if growth == 0 {
            return;
        }
        table.active_bytes.fetch_add(growth, Ordering::Relaxed);
        let Taken { used, log_is_due } = self.pressure.take(growth, is_delete, lsn);
        self.loans.call_in(used, &self.structures);
        let active = self.active_bytes.fetch_add(growth, Ordering::Relaxed) + growth;
        let (due, due_queue) = (self.pressure.due_bytes(), self.pressure.due_queue_bytes());
        if log_is_due || (active >= due && active - growth < due) || (after >= due_queue && before < due_queue) {
            self.signal.kick();
        }
    }

    /// Whether all queues together, or the fullest one, hold enough for a round.
    pub(crate) fn is_round_due(&self, fullest: u64) -> bool {
        let active = self.active_bytes.load(Ordering::Relaxed);
        active >= self.pressure.due_bytes() || fullest >= self.pressure.due_queue_bytes()
    }

    /// Notes that queues of `table` with so many bytes were frozen.
    pub(crate) fn note_frozen(&self, table: &TableCore, bytes: u64) {
        let before = table.active_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "queues are frozen once");
        let queued = table.queued_documents.load(Ordering::Relaxed);
        let taken = u128::from(queued) * u128::from(bytes) / u128::from(before.max(1));
        table.queued_documents.fetch_sub(u64::try_from(taken).unwrap_or(queued).min(queued), Ordering::Relaxed);
        let of_all = self.active_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(of_all >= bytes, "the bytes of all tables are those of each");
    }

    /// Lends the free part of the write buffer.
    pub(crate) fn lend(&self) {
        self.loans.offer(|| self.pressure.used(), &self.structures);
    }

    /// Gives back the memory of a dropped table's operations, which will never be applied.
    pub(crate) fn abandon_queues(&self, table: &TableCore) {
        let table = table.hold();
        let state = table.state.load();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        let active = table.active_bytes.load(Ordering::Relaxed);
        if frozen + active > 0 {
            self.note_frozen(&table, active);
            let none = Arc::new(Sections::new(self.options.sorting));
            table.replace_state(none, None, Arc::clone(&state.view));
            self.pressure.forget(frozen + active);
            self.lend();
        }
    }
}
