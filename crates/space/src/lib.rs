//! Objects on storage: files of a database directory, pages and the free list.
//!
//! 1. A [`FileStore`] is a database directory. Files are opened through the store, so that their I/O is counted by
//!    [`StreamKind`] and their directory entries are made durable together.
//! 2. A [`PagedFile`] is one file of pages of [`PAGE`] bytes, and the allocator that records the pages in use.
//! 3. A page is free, allocated, or retired: unreachable from the newest version, while readers of an older version may
//!    still use the page. `allocate` takes free pages, `retire` and later `release` give them back.
//! 4. An [`AllocatorImage`] is the state of the allocator in a checkpoint. Recovery opens the file with the image and
//!    replays the allocations and retirements of the log.
//!
//! Invariants:
//!
//! - The three states are disjoint and cover the file.
//! - No page is handed out twice.
//! - A page beyond the known end is never believed to exist unless the file is that long.
//! - A failed operation changes nothing.
//!
//! Left to others: the content of a page, when a retired page has no reader left, and when an image is durable.

mod above;
mod allocator;
mod damage;
mod error;
mod extent;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod lazy;
mod open_files;
mod paged;
mod reserve;
mod runs;
mod stats;
mod store;
mod surplus;

pub use allocator::{Audit, Class, Survey};
pub use damage::FileDamage;
pub use error::{Error, Result};
pub use extent::{Extent, PAGE, PageId};
pub use format::{AllocatorImage, CheckedImage};
pub use paged::{GROWTH_BYTES_MAX, GROWTH_BYTES_MIN, PagedFile, Unread};
pub use reserve::{Loan, Reserve};
pub use stats::{RESERVE_PAGES_MAX, RESERVE_PAGES_MIN, Stats};
pub use store::{FileStore, StreamKind};
