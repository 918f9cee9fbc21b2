//! The queues of a table, one for each section of its keys.
//!
//! 1. Keys are cut into sections at fences of the structure, so that each section covers about the same number of
//!    leaves. Each section has a queue of its own. A round can take one queue while the others continue to fill.
//! 2. A lookup finds the section of a key by binary search, and then its queue.
//! 3. When queues are taken, the sections that are then empty are cut anew ([`Sections::recut`]). So sections follow
//!    the growth of the structure, and no operation ever moves from one queue to another.
//!
//! Invariants: the first section begins at the empty key, below every other; sections do not change, their queues fill.

use std::sync::Arc;

use index::{Bounds, Direction, Found, Moment, Operation, Payload, Seq, head};
use parking_lot::RwLock;
use wal::Lsn;

use super::{
    filter::Filter,
    queue::{Opq, Pass, Sorting, Step},
};

/// A section with fewer leaves than this is not worth a round of its own.
const LEAVES_MIN: usize = 8;

/// Queues of one table, in key order.
pub(crate) struct Sections {
    lows: Vec<Vec<u8>>,
    /// The first bytes of each low key, as numbers.
    heads: Vec<u64>,
    queues: Vec<Arc<RwLock<Opq>>>,
    /// The keys of each queue.
    filters: Vec<Arc<Filter>>,
    sorting: Sorting,
}

impl Sections {
    /// One section with an empty queue.
    pub(crate) fn new(sorting: Sorting) -> Self {
        Self::made(vec![Vec::new()], vec![Arc::new(Opq::new(sorting).into())], sorting)
    }

    /// The sections that begin at these keys, with these queues.
    pub(crate) fn of(queues: Vec<(Vec<u8>, Opq)>, sorting: Sorting) -> Self {
        let (lows, queues) = queues.into_iter().map(|(low, queue)| (low, Arc::new(queue.into()))).unzip();
        Self::made(lows, queues, sorting)
    }

    fn made(lows: Vec<Vec<u8>>, queues: Vec<Arc<RwLock<Opq>>>, sorting: Sorting) -> Self {
        let heads = lows.iter().map(|low| head(low)).collect();
        let filters = queues.iter().map(|queue| Arc::clone(queue.read().filter())).collect();
        Self { lows, heads, queues, filters, sorting }
    }

    /// The number of keys to request from a structure in order to cut it into `most` sections.
    pub(crate) const fn fences_for(most: usize) -> usize {
        most * LEAVES_MIN
    }

    /// The number of sections.
    pub(crate) const fn len(&self) -> usize {
        self.queues.len()
    }

    /// The section of `key`.
    pub(crate) fn of_key(&self, key: &[u8]) -> usize {
        index::part_of(&self.heads, |section| &self.lows[section], key)
    }

    /// Whether `key` is in section `index`.
    pub(crate) fn has_key(&self, index: usize, key: &[u8]) -> bool {
        self.low(index) <= key && index::is_below(key, self.high(index))
    }

    /// The queue of section `index`.
    pub(crate) fn queue(&self, index: usize) -> &Arc<RwLock<Opq>> {
        &self.queues[index]
    }

    /// Every queue, in key order.
    pub(crate) fn queues(&self) -> &[Arc<RwLock<Opq>>] {
        &self.queues
    }

    /// Where section `index` begins.
    pub(crate) fn low(&self, index: usize) -> &[u8] {
        &self.lows[index]
    }

    /// Where the section after `index` begins.
    pub(crate) fn high(&self, index: usize) -> Option<&[u8]> {
        self.lows.get(index + 1).map(Vec::as_slice)
    }

    /// The sections that have operations.
    pub(crate) fn filled(&self) -> Vec<usize> {
        (0..self.len()).filter(|&index| self.queues[index].read().len() > 0).collect()
    }

    /// Operations in all queues.
    pub(crate) fn operations(&self) -> usize {
        self.queues.iter().map(|queue| queue.read().len()).sum()
    }

    /// Memory of all queues, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.queues.iter().map(|queue| queue.read().bytes() as u64).sum()
    }

    /// Bytes of keys and values that wait to be put within bounds, without those of documents.
    pub(crate) fn put_bytes(&self, bounds: &Bounds) -> u64 {
        let mut bytes = 0;
        for index in 0..self.len() {
            if bounds.below_upper(self.low(index)) && bounds.begins_below(self.high(index)) {
                let queue = self.queues[index].read();
                let within = queue.updates().filter(|(update, _)| bounds.contains(update.key));
                let inline = within.filter_map(|(update, _)| match update.operation {
                    Operation::Put(Payload::Inline(value), _) => Some(update.key.len() + value.len()),
                    _ => None,
                });
                bytes += inline.sum::<usize>() as u64;
            }
        }
        bytes
    }

    /// Log position of the first operation of any queue.
    pub(crate) fn first_lsn(&self) -> Option<Lsn> {
        self.queues.iter().filter_map(|queue| queue.read().first_lsn()).min()
    }

    /// The seq of the first operation of any queue.
    pub(crate) fn first_seq(&self) -> Option<Seq> {
        self.queues.iter().filter_map(|queue| queue.read().first_seq()).min()
    }

    /// The newest version of `key` at or below the seq of `at`, which is visible. A queue without the key is rarely
    /// locked.
    pub(crate) fn get(&self, key: &[u8], at: Moment) -> Option<Found> {
        let section = self.of_key(key);
        if !self.filters[section].may_have(key) {
            return None;
        }
        self.queues[section].read().get(key, at)
    }

    /// Looks up those of `keys` that have no answer yet.
    pub(crate) fn get_many(&self, keys: &[&[u8]], at: Moment, found: &mut [Option<Found>]) {
        let mut held = None;
        for (key, slot) in keys.iter().zip(found).filter(|(_, slot)| slot.is_none()) {
            let section = self.of_key(key);
            if held.as_ref().is_none_or(|(other, _)| *other != section) {
                // One lock at a time.
                drop(held.take());
            }
            let (_, queue) = held.get_or_insert_with(|| (section, self.queues[section].read()));
            *slot = queue.get(key, at);
        }
    }

    /// The same sections, with their queues for those that are `chosen` and an empty queue for the others.
    pub(crate) fn only(&self, chosen: &[usize]) -> Self {
        let none = Arc::new(RwLock::new(Opq::new(self.sorting)));
        let mut queues = vec![none; self.len()];
        chosen.iter().for_each(|&index| queues[index] = Arc::clone(&self.queues[index]));
        Self::made(self.lows.clone(), queues, self.sorting)
    }

    /// The same sections with other queues, one for each.
    pub(crate) fn with_queues(&self, queues: Vec<Opq>) -> Self {
        let queues = queues.into_iter().map(|queue| Arc::new(queue.into())).collect();
        Self::made(self.lows.clone(), queues, self.sorting)
    }

    /// The sections without the queues of those that are `taken`. Adjacent empty sections are cut anew at some of
    /// `fences`, which are keys that cut the structure into about equal parts. The result has about `most` sections in
    /// all.
    pub(crate) fn recut(&self, taken: &[usize], fences: &[Vec<u8>], most: usize) -> Self {
        let most = most.min((fences.len() + 1) / LEAVES_MIN).max(1);
        let is_empty = |index: usize| taken.contains(&index) || self.queues[index].read().len() == 0;
        let (mut lows, mut queues) = (Vec::new(), Vec::new());
        let push_empty = |lows: &mut Vec<Vec<u8>>, queues: &mut Vec<Arc<RwLock<Opq>>>, low: &[u8]| {
            lows.push(low.to_vec());
            queues.push(Arc::new(Opq::new(self.sorting).into()));
        };
        let mut index = 0;
        while index < self.len() {
            if !is_empty(index) {
                lows.push(self.lows[index].clone());
                queues.push(Arc::clone(&self.queues[index]));
                index += 1;
                continue;
            }
            let low = self.low(index);
            while index + 1 < self.len() && is_empty(index + 1) {
                index += 1;
            }
            let within = between(fences, low, self.high(index));
            let parts = (within.len() + 1) * most;
            let parts = (parts + fences.len() / 2) / (fences.len() + 1);
            push_empty(&mut lows, &mut queues, low);
            cuts(within, parts).for_each(|cut| push_empty(&mut lows, &mut queues, cut));
            index += 1;
        }
        Self::made(lows, queues, self.sorting)
    }
}

/// Cuts keys into so many parts at some of the fences among them, and returns where each part but the first begins.
/// There are fewer parts if there are too few fences.
fn cuts(fences: &[Vec<u8>], parts: usize) -> impl Iterator<Item = &[u8]> {
    let parts = parts.min(fences.len() + 1);
    (1..parts).map(move |part| fences[part * (fences.len() + 1) / parts - 1].as_slice())
}

/// The fences above `low` and below `high`.
fn between<'a>(fences: &'a [Vec<u8>], low: &[u8], high: Option<&[u8]>) -> &'a [Vec<u8>] {
    let first = fences.partition_point(|fence| fence.as_slice() <= low);
    let end = high.map_or(fences.len(), |high| fences.partition_point(|fence| fence.as_slice() < high));
    &fences[first..end.max(first)]
}

/// A walk over the queues of all sections within bounds.
pub(crate) struct SectionsWalk {
    sections: Arc<Sections>,
    /// The current section; none at the end.
    section: Option<usize>,
    /// The last key that was handed out of the section.
    last: Option<Vec<u8>>,
}

impl SectionsWalk {
    /// Begins at the end of `bounds` at which `direction` starts.
    pub(crate) fn new(sections: Arc<Sections>, bounds: &Bounds, direction: Direction) -> Self {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let section = match (direction, &bounds.lower, &bounds.upper) {
            (Direction::Forward, Included(key) | Excluded(key), _)
            | (Direction::Backward, _, Included(key) | Excluded(key)) => sections.of_key(key),
            (Direction::Forward, Unbounded, _) => 0,
            (Direction::Backward, _, Unbounded) => sections.len() - 1,
        };
        Self { sections, section: Some(section), last: None }
    }

    /// The next keys, at most `limit`, from a single section, without those that `pass` names. Empty at the end.
    pub(crate) fn next(
        &mut self, bounds: &Bounds, direction: Direction, limit: usize, at: Moment, pass: &Pass<'_>,
    ) -> Vec<Step> {
        while let Some(section) = self.section {
            let queue = self.sections.queue(section).read();
            let steps = queue.steps(bounds, direction, self.last.as_deref(), limit, at, pass);
            let is_through = steps.len() < limit;
            if is_through {
                self.section = match direction {
                    Direction::Forward => Some(section + 1)
                        .filter(|&next| next < self.sections.len() && bounds.below_upper(self.sections.low(next))),
                    Direction::Backward => {
                        section.checked_sub(1).filter(|_| is_above(self.sections.low(section), bounds))
                    }
                };
            }
            if let Some(last) = steps.last() {
                self.last = (!is_through).then(|| last.key.clone());
                return steps;
            }
        }
        Vec::new()
    }
}

/// Whether there can be keys below `key` within bounds.
fn is_above(key: &[u8], bounds: &Bounds) -> bool {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    match &bounds.lower {
        Included(lower) | Excluded(lower) => lower.as_slice() < key,
        Unbounded => true,
    }
}

#[cfg(test)]
mod tests {
    use index::{Operation, Payload, Update};
    use proptest::prelude::*;

    use super::*;

    fn fences(count: u8) -> Vec<Vec<u8>> {
        (1..=count).map(|fence| vec![fence]).collect()
    }

    fn append(sections: &Sections, key: &[u8], seq: u64) {
        let operation = Operation::Put(Payload::Inline(b"v"), None);
        let queue = sections.queue(sections.of_key(key));
        queue.write().append(&Update { key, seq: Seq(seq), operation }, Lsn(seq));
    }

    #[test]
    fn sections_have_equal_shares_of_the_fences() {
        let sections = Sections::new(Sorting::Always).recut(&[], &fences(127), 16);
        assert_eq!(sections.len(), 16);
        let lows: Vec<_> = (1..16).map(|index| sections.low(index)[0]).collect();
        assert_eq!(lows, (1..16).map(|index| index * 8).collect::<Vec<_>>());
        assert_eq!(Sections::new(Sorting::Always).recut(&[], &fences(20), 16).len(), 2);
        assert_eq!(Sections::new(Sorting::Always).recut(&[], &[], 16).len(), 1);
    }

    #[test]
    fn what_is_not_empty_stays_as_it_is() {
        let sections = Sections::new(Sorting::Always).recut(&[], &fences(31), 4);
        append(&sections, &[9], 1);
        append(&sections, &[30], 2);
        let taken = sections.recut(&[3], &fences(63), 8);
        assert_eq!(taken.queue(taken.of_key(&[9])).read().len(), 1);
        assert_eq!(taken.queue(taken.of_key(&[30])).read().len(), 0);
        assert_eq!((0..taken.len()).map(|index| taken.low(index).to_vec()).collect::<Vec<_>>().len(), 8);
        assert_eq!(sections.only(&[3]).operations(), 1);
    }

    proptest! {
        #[test]
        fn walks_meet_every_key_within_bounds(
            keys in prop::collection::btree_set(0u8..100, 0..60), low in 0u8..100, high in 0u8..100, backward: bool,
            limit in 1usize..8, most in 1usize..9, inclusive: bool,
        ) {
            let sections = Arc::new(Sections::new(Sorting::Always).recut(&[], &fences(98), most));
            keys.iter().for_each(|&key| append(&sections, &[key], u64::from(key) + 1));
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            use std::ops::Bound::{Excluded, Included};
            let bounds = Bounds {
                lower: if inclusive { Included(vec![low]) } else { Excluded(vec![low]) },
                upper: if inclusive { Included(vec![high]) } else { Excluded(vec![high]) },
            };
            let mut expected: Vec<u8> = keys.iter().copied().filter(|&key| bounds.contains(&[key])).collect();
            if backward {
                expected.reverse();
            }
            let mut walk = SectionsWalk::new(sections, &bounds, direction);
            let mut seen = Vec::new();
            loop {
                let steps = walk.next(&bounds, direction, limit, Seq::MAX.into(), &|_| None);
                if steps.is_empty() {
                    break;
                }
                seen.extend(steps.into_iter().map(|step| step.key[0]));
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
