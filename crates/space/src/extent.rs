//! Names of pages.

use std::fmt;

/// Bytes of a page.
pub const PAGE: usize = 4096;

const _: () = assert!(PAGE.is_multiple_of(psync::BLOCK), "direct I/O transfers whole blocks");

/// Number of a page in its file. Page 0 is the file's header and is never allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl PageId {
    /// Byte offset of the page in its file. Saturates, so that a page number from a damaged pointer lies past every
    /// file.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0.saturating_mul(PAGE as u64)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first.
    pub page: PageId,
    /// How many.
    pub pages: u32,
}

impl Extent {
    /// `pages` pages from `page` on.
    #[must_use]
    pub const fn new(page: PageId, pages: u32) -> Self {
        Self { page, pages }
    }

    /// The page after the last. Saturates, so that an extent from a damaged pointer ends past every file.
    #[must_use]
    pub const fn end(self) -> PageId {
        PageId(self.page.0.saturating_add(self.pages as u64))
    }

    /// Byte offset of the first page in its file.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.page.offset()
    }

    /// Bytes of all pages.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.pages as u64 * PAGE as u64
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pages {}..{}", self.page, self.end())
    }
}
