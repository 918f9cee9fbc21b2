//! The consolidation array (Johnson, Pandis, Stoica, Athanassoulis and Ailamaki, "Aether: a scalable approach to logging", PVLDB 3(1),
//! 2010): threads that meet at the end of the log go on together.
//!
//! 1. Who finds the end of the log taken joins the open slot. Its leader waits for the end, while others join.
//! 2. With the end locked, the leader opens another slot in place of its own, closes its own, and takes space and seqs for all members
//!    in one step.
//! 3. All copy at once; the last one out gives the group's bytes on.
//! 4. When all slots are in use nobody joins: a thread waits for the end of the log by itself, and opens a slot when it sees a free one.
//!
//! Invariants: at most one slot is open; which one changes only with the end of the log locked.
//!
//! Left to others: the end of the log, and what happens with a group.

use crate::format::ALIGNMENT;
use crate::slot::{Joined, Place, SLOT_BYTES_MAX, Slot};
use crate::space::NewRecord;
use crate::{Claim, Result};
use sync::{AtomicUsize, Ordering};

/// Slots of an array: as many groups can be on their way at once.
const SLOTS: usize = 16;
/// Records that take more than this share of a slot go alone: what others win by sharing a lock with them is little.
const RECORD_SHARE: usize = 4;

const NONE: usize = usize::MAX;

/// The slots, of which one is open, if any.
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
    /// An array for groups whose records take at most so many bytes.
    pub(crate) fn new(group_bytes_max: usize) -> Self {
        Self::of_slots(SLOTS, group_bytes_max)
    }

    /// An array of so many slots, the first one open.
    pub(crate) fn of_slots(slots: usize, group_bytes_max: usize) -> Self {
        let bytes = SLOT_BYTES_MAX.min(group_bytes_max) / ALIGNMENT * ALIGNMENT;
        let slots = (0..slots).map(|_| Slot::new(bytes)).collect();
        let array = Self { slots, record_bytes_max: bytes / RECORD_SHARE, open: AtomicUsize::new(NONE) };
        array.open_one();
        array
    }

    /// Joins the open slot with a record of so much space. None if the record is large, if there is no open slot, or it has no room, or its
    /// members have another claim.
    pub(crate) fn join(&self, space: usize, claim: Claim) -> Option<Seat> {
        if space > self.record_bytes_max {
            return None;
        }
        // The slot may close, and another open, between two looks; two are enough, for the other way is always there.
        (0..2).find_map(|_| {
            let slot = self.open.load(Ordering::Acquire);
            let place = self.slots.get(slot)?.join(space, claim)?;
            Some(Seat { slot, place })
        })
    }

    /// Sees to it that a slot is open, if one is free. With the end of the log locked.
    pub(crate) fn keep_open(&self) {
        if self.open.load(Ordering::Relaxed) == NONE {
            self.open_one();
        }
    }

    fn open_one(&self) {
        let slot = self.slots.iter().position(Slot::open);
        self.open.store(slot.unwrap_or(NONE), Ordering::Release);
    }

    /// Closes the leader's slot, and opens another for those who come. With the end of the log locked.
    pub(crate) fn close(&self, seat: Seat) -> Joined {
        assert!(seat.place.leads(), "the leader closes a slot");
        self.open_one();
        self.slots[seat.slot].close()
    }

    /// The leader tells all members, itself included, what it got for them.
    pub(crate) fn publish(&self, seat: Seat, outcome: Result<G>) {
        self.slots[seat.slot].publish(outcome);
    }

    /// What the leader got.
    pub(crate) fn outcome(&self, seat: Seat) -> Result<G> {
        self.slots[seat.slot].outcome()
    }

    /// Copies a member's record, and leaves. True if it was the last one out.
    pub(crate) fn copy(&self, seat: Seat, record: &NewRecord<'_>) -> bool {
        self.slots[seat.slot].copy(seat.place, record);
        self.slots[seat.slot].leave()
    }

    /// Appends the slot's records to `bytes`, and frees it. By the last one out.
    pub(crate) fn empty(&self, seat: Seat, joined: Joined, bytes: &mut Vec<u8>) {
        self.slots[seat.slot].empty(joined, bytes);
    }

    /// Leaves without a record, for the leader got nothing. The last one out frees the slot.
    pub(crate) fn give_up(&self, seat: Seat) {
        if self.slots[seat.slot].leave() {
            self.slots[seat.slot].free();
        }
    }
}
