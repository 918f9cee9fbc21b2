//! How many pages a leaf has: as many as the tree's others, but more where its entries are long, unless the size of all was set.

use space::PAGE;

/// Entries that a leaf is to have room for, or a batch brings it one or two, for each of which a page is written.
pub const ROOM_ENTRIES: usize = 32;
/// Pages that a leaf has at most for that.
pub const ROOM_PAGES_MAX: u32 = 16;

/// Least pages of leaves for entries of which so many take so many bytes.
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
    /// Pages of a leaf of `usual` pages if so many of its entries take so many bytes.
    pub(crate) fn pages(self, usual: u32, entries: usize, bytes: usize) -> u32 {
        if self.follows_entries { usual.max(least_pages(entries, bytes)) } else { usual }
    }

    /// The most that it may be.
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
