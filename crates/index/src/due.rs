//! Computes when a leaf is worth rewriting for its expired values.
//!
//! 1. A leaf is *due* when a quarter of its entries have expired (`PART`). Its rewrite then writes at most three bytes
//!    for each byte that it gives back, as where a leaf shrinks for its tombstones.
//! 2. The pointer to a leaf has the leaf's due time, and the pointer to a node has the first due time below that node.
//!    So the root tells when a tree has any due leaf, and a search goes down to due leaves only. A tree without
//!    expiring values pays for a column without numbers in each node.
//! 3. The due time is exact when a leaf is made. For a leaf that is appended to, the new due time follows from the old
//!    one and from the appended entries, without reading the leaf. So it may be somewhat early or late until the leaf
//!    is made anew.
//! 4. An expired value that has to stay, because a snapshot sees it, makes its leaf due again after `RETRY_MILLIS`, not
//!    before.
//!
//! Times are coarse (`UNIT_BITS`), so that they take few bytes where those of neighbours are alike.

use std::num::NonZeroU64;

use crate::{Expiry, Time};

/// The part of a leaf's entries that has expired when the leaf is due: one in `PART`.
const PART: usize = 4;

/// A unit is 1024 milliseconds.
const UNIT_BITS: u32 = 10;

/// Units fit five bytes. A value that expires later, in 35,000 years, is never due.
pub const UNITS_LIMIT: u64 = 1 << 40;

/// Milliseconds after which a leaf with expired values that had to stay is due again: about four minutes.
const RETRY_MILLIS: u64 = 1 << 18;

/// The due time of a leaf, or of the first leaf below a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due(NonZeroU64);

impl Due {
    /// The time when values with this expiry have expired; none where that is never.
    fn of(expiry: Expiry) -> Option<Self> {
        Self::from_units(expiry.millis().div_ceil(1 << UNIT_BITS))
    }

    /// The due time of `units`; none at 0 and from `UNITS_LIMIT` on, which mean never.
    #[must_use]
    pub const fn from_units(units: u64) -> Option<Self> {
        match NonZeroU64::new(units) {
            Some(number) if units < UNITS_LIMIT => Some(Self(number)),
            _ => None,
        }
    }

    /// The units that a pointer stores; 0 stands for never.
    #[must_use]
    pub fn to_units(due: Option<Self>) -> u64 {
        due.map_or(0, |due| due.0.get())
    }

    /// Whether the due time is `now` or earlier.
    #[must_use]
    pub const fn is_past(self, now: Time) -> bool {
        self.0.get() << UNIT_BITS <= now.0
    }
}

/// The first of some due times; none where none is ever due.
#[must_use]
pub fn first(all: impl Iterator<Item = Option<Due>>) -> Option<Due> {
    all.flatten().min()
}

/// The due time of a leaf with `entries` entries that is made at `now`. `expiries` are those of the entries that
/// expire.
#[must_use]
pub fn made(mut expiries: Vec<Expiry>, entries: usize, now: Time) -> Option<Due> {
    let due = due_with(&mut expiries, entries.div_ceil(PART))?;
    if due.is_past(now) {
        return Expiry::at(now.0.saturating_add(RETRY_MILLIS)).and_then(Due::of);
    }
    Some(due)
}

/// The due time of a leaf after an append. The leaf had `entries` entries and was due at `was`; `more` entries were
/// appended, and `expiries` are those of the appended entries that expire.
#[must_use]
pub fn appended(was: Option<Due>, entries: usize, mut expiries: Vec<Expiry>, more: usize) -> Option<Due> {
    if was.is_none() && expiries.is_empty() {
        return None;
    }
    let wanted = (entries + more).div_ceil(PART);
    // Assumes that a quarter of the old entries has expired at `was`, and that the rest of `wanted` has to come from
    // the appended entries.
    let together = was.map(|was| {
        let rest = due_with(&mut expiries, wanted - entries / PART);
        rest.map_or(was, |rest| rest.max(was))
    });
    first([together, due_with(&mut expiries, wanted)].into_iter())
}

/// The time when `wanted` of them have expired; none where that is never, or where `wanted` is 0.
fn due_with(expiries: &mut [Expiry], wanted: usize) -> Option<Due> {
    if wanted == 0 || wanted > expiries.len() {
        return None;
    }
    let (_, last, _) = expiries.select_nth_unstable(wanted - 1);
    Due::of(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(units: impl IntoIterator<Item = u64>) -> Vec<Expiry> {
        units.into_iter().map(|units| Expiry::at(units << UNIT_BITS).expect("not 0")).collect()
    }

    fn units(due: Option<Due>) -> u64 {
        Due::to_units(due)
    }

    #[test]
    fn a_leaf_is_due_when_a_quarter_of_it_has_expired() {
        let now = Time(0);
        assert_eq!(units(made(at([9, 3, 5, 7]), 4, now)), 3);
        assert_eq!(units(made(at([9, 3, 5, 7]), 5, now)), 5);
        assert_eq!(units(made(at([9, 3, 5, 7]), 16, now)), 9);
        assert_eq!(units(made(at([9, 3, 5, 7]), 17, now)), 0);
        assert_eq!(units(made(Vec::new(), 3, now)), 0);
        assert_eq!(units(made(vec![Expiry::at(u64::MAX).expect("not 0")], 1, now)), 0);
        // A unit that has not ended has not expired.
        let due = made(vec![Expiry::at(1025).expect("not 0")], 1, now).expect("due");
        assert!(!due.is_past(Time(2047)) && due.is_past(Time(2048)));
    }

    #[test]
    fn what_had_to_stay_is_due_later() {
        let now = Time(5 << UNIT_BITS);
        assert_eq!(units(made(at([5, 9]), 2, now)), 5 + (RETRY_MILLIS >> UNIT_BITS));
        assert_eq!(units(made(at([6, 9]), 2, now)), 6);
    }

    #[test]
    fn appends_move_it_by_what_they_bring() {
        let was = Due::from_units(50);
        // Nothing that expires is appended: as before, or never.
        assert_eq!(units(appended(was, 40, Vec::new(), 8)), 50);
        assert_eq!(units(appended(None, 40, Vec::new(), 8)), 0);
        // Two more have to expire: they do so before the old due time, or later.
        assert_eq!(units(appended(was, 40, at([7; 8]), 8)), 50);
        assert_eq!(units(appended(was, 40, at([70; 8]), 8)), 70);
        // So many appended entries that they suffice alone.
        assert_eq!(units(appended(was, 4, at([7; 8]), 8)), 7);
        assert_eq!(units(appended(None, 8, at([7, 8, 9, 9]), 8)), 9);
        assert_eq!(units(appended(None, 8, at([7, 8, 9]), 8)), 0);
    }
}
