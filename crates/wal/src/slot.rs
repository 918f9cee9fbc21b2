//! One slot of the consolidation array: records of several threads that take log space in one step and are copied in
//! parallel.
//!
//! A life of a slot:
//!
//! 1. *Free*, until a thread that holds the lock on the log's end opens the slot.
//! 2. *Open*: threads join by compare-and-swap of the state word. The swap gives each thread its place: an index, and
//!    an offset in words. The first member is the leader.
//! 3. *Closed* by the leader, whose swap of the state word returns the members. The leader takes log space for all, and
//!    tells all members the position.
//! 4. Members copy their records to their offsets, without a lock, and leave. The last member to leave empties and
//!    frees the slot, and then seals the group.
//!
//! Invariants:
//!
//! - Places do not overlap, and fill the slot from its beginning without a gap.
//! - No thread joins a slot that is not open, because the state word holds the slot's generation and a stale word never
//!   compares equal.
//! - A slot is free again only when every member has left, so an outcome told in one life is not seen in the next.
//! - All members have the same claim.
//!
//! The buffer is a row of atomic words, because members write different words of the slot at the same time; records
//! begin at multiples of 8. Each member's stores come before its leaving (`remaining`, release), and the last member
//! reads after that (acquire).

use crate::format::{ALIGNMENT, RECORD_HEADER, record_header, record_space};
use crate::record::NewRecord;
use crate::{Claim, Result};
use sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, spin_loop};

/// Most bytes of a slot's records.
pub(crate) const SLOT_BYTES_MAX: usize = 64 << 10;
/// Most members of a slot.
const MEMBERS_MAX: u64 = (1 << MEMBER_BITS) - 1;
/// Looks for the outcome before a member goes to sleep. They are few, because on a machine with fewer cores
/// than members the leader may be waiting for a core. In a model each look is a turn.
const SPINS: u32 = if cfg!(feature = "shuttle") { 1 } else { 64 };

const STATUS_BITS: u32 = 2;
const CLAIM_BITS: u32 = 2;
const MEMBER_BITS: u32 = 12;
const WORD_BITS: u32 = 16;

const FREE: u64 = 0;
const OPEN: u64 = 1;
const CLOSED: u64 = 2;

const _: () = assert!(SLOT_BYTES_MAX / ALIGNMENT < 1 << WORD_BITS, "the words of a slot fit the state word");
const _: () = assert!(STATUS_BITS + CLAIM_BITS + MEMBER_BITS + WORD_BITS == 32, "the generation has the upper half");

/// The state word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    status: u64,
    /// Meaningless without members.
    claim: u64,
    members: u64,
    words: u64,
    generation: u64,
}

impl State {
    fn unpack(word: u64) -> Self {
        let field = |shift: u32, bits: u32| (word >> shift) & ((1 << bits) - 1);
        Self {
            status: field(0, STATUS_BITS),
            claim: field(STATUS_BITS, CLAIM_BITS),
            members: field(STATUS_BITS + CLAIM_BITS, MEMBER_BITS),
            words: field(STATUS_BITS + CLAIM_BITS + MEMBER_BITS, WORD_BITS),
            generation: field(32, 32),
        }
    }

    fn pack(self) -> u64 {
        self.status
            | self.claim << STATUS_BITS
            | self.members << (STATUS_BITS + CLAIM_BITS)
            | self.words << (STATUS_BITS + CLAIM_BITS + MEMBER_BITS)
            | (self.generation & 0xFFFF_FFFF) << 32
    }
}

/// A member's place in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Members before this one: the member's seq less the group's first.
    pub(crate) index: u32,
    /// Words of records before this member's.
    pub(crate) word: usize,
}

impl Place {
    /// Whether this member is the leader, which takes log space for all.
    pub(crate) fn leads(self) -> bool {
        self.index == 0
    }

    /// Bytes of records before this member's.
    pub(crate) fn offset(self) -> usize {
        self.word * ALIGNMENT
    }
}

/// The members of a slot when it was closed, and the bytes of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) members: u32,
    pub(crate) bytes: usize,
}

/// One slot. Its leader tells the members a `G`: the position of the group.
#[derive(Debug)]
pub(crate) struct Slot<G> {
    state: AtomicU64,
    words: Box<[AtomicU64]>,
    /// Members of the closed slot that have not left.
    remaining: AtomicU32,
    /// 1 once an outcome is told, so that members can look before they sleep.
    told: AtomicU32,
    outcome: Mutex<Option<Result<G>>>,
    known: Condvar,
}

impl<G: Clone> Slot<G> {
    /// A free slot for records of so many bytes, at most [`SLOT_BYTES_MAX`].
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes <= SLOT_BYTES_MAX, "the state word counts the words");
        Self {
            state: AtomicU64::new(0),
            words: (0..bytes / ALIGNMENT).map(|_| AtomicU64::new(0)).collect(),
            remaining: AtomicU32::new(0),
            told: AtomicU32::new(0),
            outcome: Mutex::new(None),
            known: Condvar::default(),
        }
    }

    /// Opens the slot if it is free. The caller holds the lock on the log's end.
    pub(crate) fn open(&self) -> bool {
        let word = self.state.load(Ordering::Acquire);
        let state = State::unpack(word);
        let opened = State { status: OPEN, claim: 0, members: 0, words: 0, generation: state.generation + 1 };
        state.status == FREE
            && self.state.compare_exchange(word, opened.pack(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Joins the slot with a record of so much space. None if the slot is not open, has no room, or has members of
    /// another claim.
    pub(crate) fn join(&self, space: usize, claim: Claim) -> Option<Place> {
        let mut word = self.state.load(Ordering::Acquire);
        // In each turn but the last another thread has joined or closed the slot, so turns are at most as many as
        // members fit.
        loop {
            let state = State::unpack(word);
            let words = state.words + (space / ALIGNMENT) as u64;
            let fits = words <= self.words.len() as u64 && state.members < MEMBERS_MAX;
            let alike = state.members == 0 || state.claim == claim as u64;
            if state.status != OPEN || !fits || !alike {
                return None;
            }
            let joined = State { claim: claim as u64, members: state.members + 1, words, ..state };
            match self.state.compare_exchange_weak(word, joined.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let index = u32::try_from(state.members).expect("12 bits");
                    return Some(Place { index, word: usize::try_from(state.words).expect("16 bits") });
                }
                Err(found) => word = found,
            }
        }
    }

    /// Closes the slot to further members, and returns the members. Called by the leader.
    pub(crate) fn close(&self) -> Joined {
        // Joins race with the closing, so the members are those of the last successful exchange.
        let mut word = self.state.load(Ordering::Acquire);
        loop {
            let state = State::unpack(word);
            assert_eq!(state.status, OPEN, "the leader closes its slot once");
            let closed = State { status: CLOSED, ..state };
            match self.state.compare_exchange_weak(word, closed.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let members = u32::try_from(state.members).expect("12 bits");
                    // No member leaves before the outcome is told, which comes after this store.
                    self.remaining.store(members, Ordering::Release);
                    let bytes = usize::try_from(state.words).expect("16 bits") * ALIGNMENT;
                    return Joined { members, bytes };
                }
                Err(found) => word = found,
            }
        }
    }

    /// Tells the members where their group is, or why there is none. Called by the leader.
    pub(crate) fn tell(&self, outcome: Result<G>) {
        let mut told = self.outcome.lock();
        *told = Some(outcome);
        self.told.store(1, Ordering::Release);
        drop(told);
        if seeded::on(seeded::Bug::SlotWakeDropped) {
            self.known.notify_one();
        } else {
            self.known.notify_all();
        }
    }

    /// Waits for the outcome that the leader tells.
    pub(crate) fn outcome(&self) -> Result<G> {
        for _ in 0..SPINS {
            if self.told.load(Ordering::Acquire) == 1 {
                break;
            }
            spin_loop();
        }
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            outcome = self.known.wait(outcome);
        }
    }

    /// Copies a member's record to its place.
    pub(crate) fn copy(&self, place: Place, record: &NewRecord<'_>) {
        let space = record_space(record.payload_len as usize);
        let words = &self.words[place.word..place.word + space / ALIGNMENT];
        let header = record_header(record.kind, Some(place.index), record.payload_len);
        let mut out = Words { words: words.iter(), partial: 0, bits: 0 };
        out.put(&header);
        for part in record.payload {
            out.put(part);
        }
        out.finish();
    }

    /// A member leaves. True for the last one, which has to [`Slot::empty`] the slot.
    pub(crate) fn leave(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Appends the records to `bytes`, and frees the slot for its next life. Called by the last member to leave.
    pub(crate) fn empty(&self, joined: Joined, bytes: &mut Vec<u8>) {
        for word in &self.words[..joined.bytes / ALIGNMENT] {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        self.free();
    }

    /// Frees the slot for its next life. Called by the last member to leave.
    pub(crate) fn free(&self) {
        *self.outcome.lock() = None;
        self.told.store(0, Ordering::Relaxed);
        let state = State::unpack(self.state.load(Ordering::Relaxed));
        self.state.store(State { status: FREE, members: 0, words: 0, ..state }.pack(), Ordering::Release);
    }
}

/// Bytes on their way into words.
struct Words<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
    /// Bytes that do not fill a word yet, the first one lowest.
    partial: u64,
    bits: u32,
}

impl Words<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        for chunk in whole {
            let value = u64::from_le_bytes(*chunk);
            self.store(self.partial | value << self.bits);
            // Two shifts, because a shift by all 64 bits would overflow.
            self.partial = value >> (63 - self.bits) >> 1;
        }
        for byte in rest {
            self.partial |= u64::from(*byte) << self.bits;
            self.bits += 8;
            if self.bits == 64 {
                self.store(self.partial);
                (self.partial, self.bits) = (0, 0);
            }
        }
    }

    /// Fills the last word up with zeros.
    fn finish(mut self) {
        if self.bits > 0 {
            self.store(self.partial);
        }
        assert!(self.words.next().is_none(), "a record fills the space that was counted");
    }

    fn store(&mut self, word: u64) {
        let next = self.words.next().expect("a record fits the space that was counted");
        next.store(word, Ordering::Relaxed);
    }
}

const _: () = assert!(RECORD_HEADER < 2 * ALIGNMENT, "a record has at least one whole word of its own");
