//! The consolidation array: threads that meet at the end of the log append together.
//!
//! Source: Johnson, Pandis, Stoica, Athanassoulis and Ailamaki, "Aether: a scalable approach to logging", PVLDB 3(1),
//! 2010.
//!
//! 1. A thread that finds the end of the log taken joins the open slot. The leader of the slot waits for the end, while
//!    others join.
//! 2. With the end locked, the leader opens another slot in place of its own, closes its own, and takes space and seqs
//!    for all members in one step.
//! 3. All members copy at once; the last one out passes the bytes of the group on.
//! 4. While all slots are in use no thread joins. A thread then waits for the end of the log alone, and opens a slot if
//!    one is free by then.
//!
//! Invariants: at most one slot is open. The open slot changes only with the end of the log locked.
//!
//! Left to others: the end of the log, and the use of a group.

use crate::format::ALIGNMENT;
use crate::record::NewRecord;
use crate::slot::{Joined, Place, SLOT_BYTES_MAX, Slot};
use crate::{Claim, Result};
use sync::{AtomicUsize, Ordering};

/// Slots of an array, and so the number of groups that can be under way at once.
const SLOTS: usize = 16;
/// A record larger than a slot divided by this goes alone, because others win little by sharing a lock with that
/// record.
const RECORD_SHARE: usize = 4;

const NONE: usize = usize::MAX;

/// The slots, of which at most one is open.
#[derive(Debug)]
pub(crate) struct Array<G> {
    slots: Box<[Slot<G>]>,
    record_bytes_max: usize,
    open: AtomicUsize,
}

/// A member's place in the array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    slot: usize,
    pub(crate) place: Place,
}

impl<G: Clone> Array<G> {
    /// An array for groups whose records take at most `group_bytes_max` bytes.
    pub(crate) fn new(group_bytes_max: usize) -> Self {
        Self::of_slots(SLOTS, group_bytes_max)
    }

    /// An array of `slots` slots, the first one open.
    pub(crate) fn of_slots(slots: usize, group_bytes_max: usize) -> Self {
        let bytes = SLOT_BYTES_MAX.min(group_bytes_max) / ALIGNMENT * ALIGNMENT;
        let slots = (0..slots).map(|_| Slot::new(bytes)).collect();
        let array = Self { slots, record_bytes_max: bytes / RECORD_SHARE, open: AtomicUsize::new(NONE) };
        array.open_one();
        array
    }

    /// Joins the open slot with a record that takes `space` bytes of the log.
    ///
    /// None if the record is large, if no slot is open, if the slot has no room, or if its members have another claim.
    pub(crate) fn join(&self, space: usize, claim: Claim) -> Option<Seat> {
        if space > self.record_bytes_max {
            return None;
        }
        // Between two attempts the slot may close and another may open. Two attempts are enough, because appending
        // alone is always possible.
        (0..2).find_map(|_| {
            let slot = self.open.load(Ordering::Acquire);
            let place = self.slots.get(slot)?.join(space, claim)?;
            Some(Seat { slot, place })
        })
    }

    /// Opens a slot if none is open and one is free. Called with the end of the log locked.
    pub(crate) fn keep_open(&self) {
        if self.open.load(Ordering::Relaxed) == NONE {
            self.open_one();
        }
    }

    fn open_one(&self) {
        let slot = self.slots.iter().position(Slot::open);
        self.open.store(slot.unwrap_or(NONE), Ordering::Release);
    }

    /// Closes the leader's slot, and opens another for later threads. Called with the end of the log locked.
    pub(crate) fn close(&self, seat: Seat) -> Joined {
        assert!(seat.place.leads(), "the leader closes a slot");
        self.open_one();
        self.slots[seat.slot].close()
    }

    /// Tells the leader's outcome to all members, the leader included.
    pub(crate) fn tell(&self, seat: Seat, outcome: Result<G>) {
        self.slots[seat.slot].tell(outcome);
    }

    /// Waits for the leader's outcome.
    pub(crate) fn outcome(&self, seat: Seat) -> Result<G> {
        self.slots[seat.slot].outcome()
    }

    /// Copies a member's record, and leaves. True for the last one out.
    pub(crate) fn copy(&self, seat: Seat, record: &NewRecord<'_>) -> bool {
        self.slots[seat.slot].copy(seat.place, record);
        self.slots[seat.slot].leave()
    }

    /// Appends the slot's records to `bytes`, and frees the slot. Called by the last one out.
    pub(crate) fn empty(&self, seat: Seat, joined: Joined, bytes: &mut Vec<u8>) {
        self.slots[seat.slot].empty(joined, bytes);
    }

    /// Leaves without a record, because the leader got no space. The last one out frees the slot.
    pub(crate) fn give_up(&self, seat: Seat) {
        if self.slots[seat.slot].leave() {
            self.slots[seat.slot].free();
        }
    }
}
