//! Fences: the separators between the sorted pages of a leaf that is being made.
//!
//! 1. [`Fences::add_page`] is called for each page, in order, with the key before that page and its first key. A fence
//!    is the shortest separator between the two keys. Where the versions of one key go on from page to page there is no
//!    fence: that page and all behind it count as appended, not as sorted.
//! 2. [`Fences::finish`] makes parts of one page, or of two, four, … until the bounds are short enough for a node to
//!    hold several such leaves.

use crate::format::{BOUND_BYTES_MAX, BOUND_FIXED};
use crate::node::{Keys, separator};

/// The fences of the pages that were added.
#[derive(Default)]
pub(crate) struct Fences {
    keys: Keys,
    pages: u32,
    ended: bool,
}

/// How the sorted pages of a leaf are cut into parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) sorted: u32,
    pub(crate) part_log: u8,
    pub(crate) fences: Keys,
}

impl Fences {
    /// Adds a page that begins with `first`, after the key `before`. Returns whether the page is a sorted page.
    pub(crate) fn add_page(&mut self, before: Option<&[u8]>, first: &[u8]) -> bool {
        self.ended |= before.is_some_and(|before| before == first);
        if self.ended {
            return false;
        }
        if let Some(before) = before {
            self.keys.push(separator(before, first));
        }
        self.pages += 1;
        true
    }

    /// The parts of a leaf whose lower bound is `low`. The pages are forgotten.
    pub(crate) fn finish(&mut self, low: &[u8]) -> Parts {
        let (keys, sorted) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.pages));
        self.ended = false;
        // Fence i stands before page i + 1.
        let of = |part_log: u8| {
            let step = 1 << part_log;
            (0..keys.len()).skip(step - 1).step_by(step).map(|fence| keys.get(fence))
        };
        let bytes = |part_log| of(part_log).map(|fence| fence.len() + BOUND_FIXED).sum::<usize>();
        let room = BOUND_BYTES_MAX.saturating_sub(low.len() + BOUND_FIXED);
        let part_log = (0..16).find(|part_log| bytes(*part_log) <= room).expect("a leaf has fewer pages than 2^15");
        let mut fences = Keys::default();
        of(part_log).for_each(|fence| fences.push(fence));
        Parts { sorted, part_log, fences }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fences(keys: &[&[u8]], low: &[u8]) -> Parts {
        let mut fences = Fences::default();
        let mut before = None;
        for key in keys {
            fences.add_page(before, key);
            before = Some(*key);
        }
        fences.finish(low)
    }

    #[test]
    fn short_fences_stand_before_every_page() {
        let parts = fences(&[b"a", b"bx", b"cy"], b"");
        assert_eq!((parts.sorted, parts.part_log), (3, 0));
        assert_eq!(parts.fences.iter().collect::<Vec<_>>(), [b"b", b"c"]);
    }

    #[test]
    fn long_ones_only_before_some() {
        let keys: Vec<Vec<u8>> = (0..7).map(|page| [vec![7; 100], vec![page]].concat()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let parts = fences(&keys, b"");
        assert_eq!((parts.sorted, parts.part_log), (7, 1));
        assert_eq!(parts.fences.iter().collect::<Vec<_>>(), [keys[2], keys[4], keys[6]]);
        let parts = fences(&keys, &[7; 400]);
        assert_eq!((parts.sorted, parts.part_log, parts.fences.len()), (7, 3, 0));
    }

    #[test]
    fn versions_of_one_key_end_the_sorted_pages() {
        let parts = fences(&[b"a", b"b", b"b", b"c"], b"");
        assert_eq!((parts.sorted, parts.fences.len()), (2, 1));
    }
}
