//! The second pass of an opening: records are shown to the caller.
//!
//! 1. A group is shown while the rest of the chain is checked, out of the memory in which the group was checked. Should
//!    damage be found behind the group, the opening fails, and nothing was written.
//! 2. If the caller must know whether a group was durable, and that is not known yet, the group and those behind it
//!    wait until all statements about durability are read. When the waiting groups exceed the bytes of [`WAITING_MAX`]
//!    windows, they are not kept, but read again.
//! 3. The caller may end the log at a group that is not known durable and refers to something that the crash took.

use std::collections::VecDeque;

use space::FileStore;

use crate::check::Checked;
use crate::format::{Flaw, WholeGroup};
use crate::geometry::Geometry;
use crate::parts::Parts;
use crate::scan::{ChainEnd, Scanner, damage, window_bytes};
use crate::{Error, Group, Lsn, Replayed, Verdict};

/// Windows that are kept until the durable position is known.
const WAITING_MAX: usize = 16;

/// The caller's function that is shown each group.
pub(crate) type Replayer<'r, E> = &'r mut dyn FnMut(&Group<'_>) -> Result<Verdict, E>;

/// Shows the records from `start` on.
pub(crate) struct Shower<'r, E> {
    geometry: Geometry,
    start: Lsn,
    /// The log is known to have been durable up to here.
    durable: Lsn,
    /// Whether the durable position is final.
    knows_all: bool,
    replayer: Replayer<'r, E>,
    waiting: VecDeque<Checked>,
    /// Whether some windows were not kept.
    reads_again: bool,
    /// The parts of a record up to there.
    parts: Parts,
    /// Behind the last group that was accepted.
    end: ChainEnd,
    /// Whether the group at `end`, if the caller refused that group, is known durable.
    refused: Option<bool>,
    groups: u64,
    records: u64,
    bytes: u64,
}

impl<'r, E: From<Error>> Shower<'r, E> {
    /// A shower that begins with the group at `begin`, of a log that is known durable up to `durable`.
    pub(crate) fn new(geometry: Geometry, begin: Lsn, start: Lsn, durable: Lsn, replayer: Replayer<'r, E>) -> Self {
        let end = ChainEnd::before(begin);
        Self {
            geometry,
            start,
            durable,
            knows_all: false,
            replayer,
            waiting: VecDeque::new(),
            reads_again: false,
            parts: Parts::default(),
            end,
            refused: None,
            groups: 0,
            records: 0,
            bytes: 0,
        }
    }

    /// Shows the groups that can be shown by now.
    pub(crate) fn take(&mut self, checked: Checked) -> Result<(), E> {
        self.durable = self.durable.max(checked.durable);
        if !self.reads_again {
            let waits = !self.waiting.is_empty() && self.durable <= self.end.lsn;
            self.waiting.push_back(checked);
            if !waits {
                self.show_waiting()?;
            }
            let bytes: usize = self.waiting.iter().map(Checked::bytes).sum();
            if bytes > WAITING_MAX * window_bytes(self.geometry) {
                self.reads_again = true;
                self.waiting.clear();
            }
        }
        Ok(())
    }

    fn show_waiting(&mut self) -> Result<(), E> {
        while let Some(mut checked) = self.waiting.pop_front() {
            while let Some(group) = checked.next() {
                if !self.show(&group)? {
                    self.waiting.push_front(checked);
                    return Ok(());
                }
                checked.take();
            }
        }
        Ok(())
    }

    /// Shows a group, and moves the end behind the group if the caller accepts.
    fn show(&mut self, whole: &WholeGroup<'_>) -> Result<bool, E> {
        let lsn = whole.header.lsn;
        let end = Lsn(lsn.0 + u64::from(whole.header.length));
        let is_all = lsn >= self.start && !whole.header.kind.is_part();
        let mut records = self.parts.take(whole);
        records.skip_before(self.start);
        // A group is written whole before a flush that counts for any part of the group begins.
        let durable = (lsn < self.durable || self.knows_all).then_some(lsn < self.durable);
        let group = Group { lsn, end, epoch: whole.header.epoch, durable, records };
        if !group.records.is_empty() {
            match (self.replayer)(&group)? {
                Verdict::Accept => {}
                Verdict::Wait if !self.knows_all => return Ok(false),
                Verdict::Wait | Verdict::Tail => {
                    self.refused = durable;
                    return Ok(false);
                }
            }
            self.groups += 1;
            let [mut shown, mut bytes] = [whole.header.records, whole.payload_bytes].map(u64::from);
            if !is_all {
                shown = group.records().count() as u64;
                bytes = group.records().map(|record| record.payload.len() as u64).sum();
            }
            self.records += shown;
            self.bytes += bytes;
        }
        self.parts.forget_shown(whole.header.kind);
        self.end.pass(self.geometry, &whole.header, whole.next_seq);
        Ok(true)
    }

    /// Shows the rest of a chain that ends at `chain`, and is known durable up to `durable`. Returns the accepted log,
    /// and the seq behind its last one.
    pub(crate) fn finish(
        mut self, store: &FileStore, scanner: &mut Scanner<'_>, chain: &ChainEnd, durable: Lsn,
    ) -> Result<(Replayed, u64), E> {
        (self.durable, self.knows_all) = (durable, true);
        self.show_waiting()?;
        let flaw = if self.reads_again && self.refused.is_none() {
            scanner.follow(self.end.clone(), &mut |group| self.show(group))?.flaw
        } else {
            chain.flaw.clone()
        };
        let lsn = self.end.lsn;
        let tail = match (self.refused, flaw) {
            (Some(false), _) => "what the next group refers to is missing".to_owned(),
            (Some(true), _) => {
                let flaw = Flaw::new("what a durable group refers to", "all of it", "not all of it");
                return Err(damage(store, scanner, lsn, flaw).into());
            }
            (None, Some(flaw)) if lsn == chain.lsn => flaw.to_string(),
            (None, flaw) => {
                let flaw = flaw.unwrap_or_else(|| Flaw::new("group", "what was read before", "something else"));
                return Err(damage(store, scanner, lsn, flaw).into());
            }
        };
        let Self { groups, records, bytes, .. } = self;
        let next_seq = self.end.next_seq;
        let last_seq = next_seq.saturating_sub(1);
        Ok((Replayed { end: lsn, durable, groups, records, bytes, last_seq, tail, closed: false }, next_seq))
    }
}
