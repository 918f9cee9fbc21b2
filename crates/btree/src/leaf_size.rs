//! The pages of a leaf: as many as the tree's other leaves, but more for long entries, unless one size was set for all.

use space::PAGE;

/// Entries that a leaf is to have room for. With fewer, a batch brings a leaf only one or two entries and writes a page
/// for each.
pub const ROOM_ENTRIES: usize = 32;
/// Most pages of a leaf that has more pages for its long entries.
pub const ROOM_PAGES_MAX: u32 = 16;

/// Least pages of a leaf, for entries of which `entries` take `bytes`.
pub(crate) fn least_pages(entries: usize, bytes: usize) -> u32 {
    let in_page = (PAGE * entries / bytes.max(1)).max(1);
    let pages = ROOM_ENTRIES.div_ceil(in_page).next_power_of_two();
    u32::try_from(pages).map_or(ROOM_PAGES_MAX, |pages| pages.min(ROOM_PAGES_MAX))
}

/// How leaves of a tree are sized.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeafSize {
    /// Leaves of long entries may have more pages than others.
    pub(crate) follows_entries: bool,
}

impl LeafSize {
    /// Pages of a leaf, given the `usual` ones, if `entries` of its entries take `bytes`.
    pub(crate) fn pages(self, usual: u32, entries: usize, bytes: usize) -> u32 {
        if self.follows_entries { usual.max(least_pages(entries, bytes)) } else { usual }
    }

    /// Most pages of a leaf.
    pub(crate) fn pages_max(self, usual: u32) -> u32 {
        if self.follows_entries { usual.max(ROOM_PAGES_MAX) } else { usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_have_room_for_some_entries_as_far_as_sixteen_pages_do() {
        let pages = |entry_bytes: usize| least_pages(1_000, 1_000 * entry_bytes);
        assert_eq!([1, 120, 128, 129, 300, 600, 1040, 3000].map(pages), [1, 1, 1, 2, 4, 8, 16, 16]);
        assert_eq!((least_pages(0, 0), least_pages(3, usize::MAX / 8192)), (16, 16));
        let (follows, set) = (LeafSize { follows_entries: true }, LeafSize::default());
        assert_eq!((follows.pages(4, 1, 1040), follows.pages(32, 1, 1040), set.pages(4, 1, 1040)), (16, 32, 4));
        assert_eq!((follows.pages_max(4), follows.pages_max(32), set.pages_max(4)), (16, 32, 4));
    }
}
