//! Appending a record: alone, or with others in a slot.
//!
//! 1. A thread that finds the end of the log free takes space there and copies its record, under the lock. A record
//!    also goes alone, once its thread has the lock, if the record takes no others along or finds no slot to join.
//! 2. Otherwise the thread joins the open slot of the array. The leader takes space for all members, in one step with
//!    their seqs, and tells them the position or the error.
//! 3. Members copy. The last one out seals the group and notifies the writer, which may wait for the group.
//! 4. A thread that finds too many pending bytes writes them first. A thread that finds no segment to go on in makes
//!    one.
//!
//! Invariants:
//!
//! - A record is appended whole or not at all, and the caller knows which.
//! - Every record that the writer can take was announced.
//! - The members of a slot get an outcome even if their leader fails or panics.

use std::sync::Arc;

use seeded::Bug;
use sync::MutexGuard;

use crate::array::Seat;
use crate::format::{GROUP_HEADER, record_space};
use crate::position::Reserved;
use crate::record::NewRecord;
use crate::slot::Joined;
use crate::space::Space;
use crate::stats::add;
use crate::wal::{Announce, Log};
use crate::{Claim, Position, Result};

/// Most appended bytes that wait for a writer; a thread that finds more writes them first. The bound limits memory when
/// no thread flushes.
const PENDING_BYTES_MAX: usize = 4 << 20;

impl Log {
    /// Appends a record: alone if the end of the log is free, else with others.
    pub(crate) fn append(&self, record: &NewRecord<'_>, claim: Claim, announce: Announce<'_>) -> Result<Position> {
        let space = record_space(record.payload_len as usize);
        // A slot is a detour while the end of the log is free, and for a record that takes no others along.
        if let Some(end) = self.space.try_lock() {
            return self.append_alone(end, record, claim, announce);
        }
        if record.sequenced && claim != Claim::Upkeep {
            self.failure.check()?;
            if let Some(seat) = self.array.join(space, claim) {
                return self.append_in_slot(seat, record, claim, announce);
            }
        }
        self.append_alone(self.space.lock(), record, claim, announce)
    }

    /// Appends with the end of the log locked.
    fn append_alone<'a>(
        &'a self, mut space: MutexGuard<'a, Space>, record: &NewRecord<'_>, claim: Claim, announce: Announce<'_>,
    ) -> Result<Position> {
        // A turn that does not place the record writes the pending bytes or makes a segment. A further turn is needed
        // only if other threads filled a whole segment meanwhile.
        loop {
            self.failure.check()?;
            if space.pending() > PENDING_BYTES_MAX {
                let end = space.end();
                drop(space);
                self.write_through(end)?;
                space = self.space.lock();
                continue;
            }
            self.array.keep_open();
            let placed = space.append(record, claim, &self.pool);
            self.note_end(&space);
            // Announced before the lock is given back, because the writer may take the record from then on.
            let announced = placed.as_ref().map_or(Ok(()), |position| self.announce(position, announce));
            drop(space);
            announced?;
            match placed {
                Ok(position) => {
                    self.count(1, u64::from(record.payload_len));
                    add(&self.counters.direct_records, 1);
                    return Ok(position);
                }
                Err(wanted) => self.pool.provide(&wanted)?,
            }
            space = self.space.lock();
        }
    }

    /// Appends together with others.
    fn append_in_slot(
        &self, seat: Seat, record: &NewRecord<'_>, claim: Claim, announce: Announce<'_>,
    ) -> Result<Position> {
        if seat.place.leads() {
            self.lead(seat, claim);
        }
        self.copy_in_slot(seat, record, announce)
    }

    /// Copies a record to its place in a slot, once its leader has space. The last one out hands the group to the
    /// writer.
    pub(crate) fn copy_in_slot(&self, seat: Seat, record: &NewRecord<'_>, announce: Announce<'_>) -> Result<Position> {
        let reserved = match self.array.outcome(seat) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.array.give_up(seat);
                return Err(error);
            }
        };
        self.count(1, u64::from(record.payload_len));
        add(&self.counters.consolidated_records, 1);
        let position = reserved.position(seat.place, record_space(record.payload_len as usize));
        let mut tell = || self.announce(&position, announce);
        // Announced before the member leaves, because the last one out gives all records to the writer.
        let told = (!seeded::on(Bug::AnnouncedLate)).then(&mut tell);
        if self.array.copy(seat, record) {
            let mut bytes = Vec::with_capacity(GROUP_HEADER + reserved.joined.bytes);
            bytes.resize(GROUP_HEADER, 0);
            self.array.empty(seat, reserved.joined, &mut bytes);
            reserved.fill(bytes, &self.database, self.epoch, self.flusher.durable());
            self.writer.filled();
        }
        told.unwrap_or_else(tell)?;
        Ok(position)
    }

    fn announce(&self, position: &Position, announce: Announce<'_>) -> Result<()> {
        self.failure.guard("announcement", || {
            announce(position);
            Ok(())
        })
    }

    /// Takes space for all members of a slot and tells them the outcome, also after an error or a panic.
    pub(crate) fn lead(&self, seat: Seat, claim: Claim) {
        let mut joined = None;
        let outcome = self.failure.guard("append", || self.reserve(seat, claim, &mut joined));
        if joined.is_none() {
            let _space = self.space.lock();
            self.array.close(seat);
        }
        add(&self.counters.slots, 1);
        self.array.tell(seat, outcome);
    }

    /// As [`Log::append_alone`], for the members of a slot, which is closed on the way.
    fn reserve(&self, seat: Seat, claim: Claim, joined: &mut Option<Joined>) -> Result<Arc<Reserved>> {
        loop {
            self.failure.check()?;
            let mut space = self.space.lock();
            if space.pending() > PENDING_BYTES_MAX {
                let end = space.end();
                drop(space);
                self.write_through(end)?;
                continue;
            }
            let members = *joined.get_or_insert_with(|| self.array.close(seat));
            let reserved = space.reserve(members, claim, &self.pool);
            self.note_end(&space);
            drop(space);
            match reserved {
                Ok(reserved) => return Ok(reserved),
                Err(wanted) => self.pool.provide(&wanted)?,
            }
        }
    }

    fn count(&self, records: u64, bytes: u64) {
        add(&self.counters.records, records);
        add(&self.counters.record_bytes, bytes);
    }
}
