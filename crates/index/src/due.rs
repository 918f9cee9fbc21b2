//! When a leaf is worth rewriting for what has expired in it.
//!
//! 1. A leaf is *due* when a quarter of its entries have expired (`PART`): to rewrite it writes three bytes or fewer for each that it gives back, as
//!    where a leaf shrinks for its tombstones.
//! 2. The pointer to a leaf says when that is, and the pointer to a node says when it is first so below that node. So the root says when there
//!    is anything to do in a tree, and who looks for it goes down to nothing else. It costs a tree without such values a column without numbers
//!    in each node.
//! 3. It is exact when a leaf is made. Of a leaf that is appended to, it is worked out from what it was and from what is appended, without
//!    reading the leaf: so it may come somewhat early or late until the leaf is made anew.
//! 4. What has expired and yet had to stay, because a snapshot sees it, makes its leaf due again after `RETRY_MILLIS`, not before.
//!
//! Times are coarse (`UNIT_BITS`), so that they take few bytes where those of neighbours are alike.

use std::num::NonZeroU64;

use crate::{Expiry, Time};

/// The part of a leaf's entries that has expired when it is due: one of so many.
const PART: usize = 4;

/// A unit is 1024 milliseconds.
const UNIT_BITS: u32 = 10;

/// Units fit five bytes: what expires later, in 35,000 years, is never due.
pub const UNITS_LIMIT: u64 = 1 << 40;

/// Milliseconds after which it is looked again at what had to stay: about four minutes.
const RETRY_MILLIS: u64 = 1 << 18;

/// When a leaf is due, or the first leaf below a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due(NonZeroU64);

impl Due {
    /// When values with this expiry have expired; none where that is never.
    fn of(expiry: Expiry) -> Option<Self> {
        Self::from_units(expiry.millis().div_ceil(1 << UNIT_BITS))
    }

    /// None at 0, and at what is never.
    #[must_use]
    pub const fn from_units(units: u64) -> Option<Self> {
        match NonZeroU64::new(units) {
            Some(number) if units < UNITS_LIMIT => Some(Self(number)),
            _ => None,
        }
    }

    /// What stands for it in a pointer: 0 where it is never.
    #[must_use]
    pub fn to_units(due: Option<Self>) -> u64 {
        due.map_or(0, |due| due.0.get())
    }

    /// Whether it is now or was before.
    #[must_use]
    pub const fn is_past(self, now: Time) -> bool {
        self.0.get() << UNIT_BITS <= now.0
    }
}

/// The first of some; none where none is ever due.
#[must_use]
pub fn first(all: impl Iterator<Item = Option<Due>>) -> Option<Due> {
    all.flatten().min()
}

/// When a leaf of so many entries is due, of which those that expire do so at `expiries`. It is made at `now`.
#[must_use]
pub fn made(mut expiries: Vec<Expiry>, entries: usize, now: Time) -> Option<Due> {
    let due = due_with(&mut expiries, entries.div_ceil(PART))?;
    if due.is_past(now) {
        return Expiry::at(now.0.saturating_add(RETRY_MILLIS)).and_then(Due::of);
    }
    Some(due)
}

/// When a leaf is due that had `entries`, and was due then, after so many more were appended, of which those that expire do so at `expiries`.
#[must_use]
pub fn appended(was: Option<Due>, entries: usize, mut expiries: Vec<Expiry>, more: usize) -> Option<Due> {
    if was.is_none() && expiries.is_empty() {
        return None;
    }
    let wanted = (entries + more).div_ceil(PART);
    // As if a quarter of what was there expired when it was due, and nothing else before that is needed from what is new.
    let together = was.map(|was| {
        let rest = due_with(&mut expiries, wanted - entries / PART);
        rest.map_or(was, |rest| rest.max(was))
    });
    first([together, due_with(&mut expiries, wanted)].into_iter())
}

/// When so many have expired; none where that is never, or none are wanted.
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
        // Nothing that expires: as it was, or never.
        assert_eq!(units(appended(was, 40, Vec::new(), 8)), 50);
        assert_eq!(units(appended(None, 40, Vec::new(), 8)), 0);
        // Two more have to expire, and do so before, or later.
        assert_eq!(units(appended(was, 40, at([7; 8]), 8)), 50);
        assert_eq!(units(appended(was, 40, at([70; 8]), 8)), 70);
        // So many that they are enough alone.
        assert_eq!(units(appended(was, 4, at([7; 8]), 8)), 7);
        assert_eq!(units(appended(None, 8, at([7, 8, 9, 9]), 8)), 9);
        assert_eq!(units(appended(None, 8, at([7, 8, 9]), 8)), 0);
    }
}
