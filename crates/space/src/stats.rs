//! Pages by state, and the size of the reserve.

/// Minimum size of the reserve, in pages.
pub const RESERVE_PAGES_MIN: u64 = 24;
/// Maximum size of the reserve, in pages.
pub const RESERVE_PAGES_MAX: u64 = 4096;
/// The reserve is the file divided by this, within its limits.
const RESERVE_PART: u64 = 128;
/// The reserve has at least this many pages, or half of a short file: writing all used pages anew takes no more.
pub(crate) const RESERVE_PAGES_FULL: u64 = 256;

/// Target size of the reserve, in pages, for a file of `total_pages`.
pub(crate) fn reserve_for(total_pages: u64) -> u64 {
    let least = (total_pages / 2).clamp(RESERVE_PAGES_MIN, RESERVE_PAGES_FULL);
    (total_pages / RESERVE_PART).clamp(least, RESERVE_PAGES_MAX)
}

/// Pages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pages of the file, the header page included.
    pub total_pages: u64,
    /// Pages that can be allocated.
    pub free_pages: u64,
    /// Free pages whose room the disk has taken back.
    pub hole_pages: u64,
    /// Pages that wait for readers of older versions, or for the flush of the change that gave them up.
    pub retired_pages: u64,
    /// Pages in use that no log record names yet.
    pub ahead_pages: u64,
    /// Target size of the reserve: free pages that [`crate::Class::Normal`] leaves alone, and of which
    /// [`crate::Class::Urgent`] may use half.
    pub reserve_pages: u64,
    /// Number of runs of free pages, those of the reserve counted separately. A low number means little fragmentation.
    pub free_runs: u64,
}

impl Stats {
    /// Pages that are not free.
    #[must_use]
    pub const fn used_pages(&self) -> u64 {
        self.total_pages - self.free_pages - self.hole_pages
    }
}
