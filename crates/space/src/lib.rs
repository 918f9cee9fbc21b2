//! Objects on storage: files of a database directory, pages and the free list.
//!
//! 1. A [`FileStore`] is a database directory. Files are opened through it, so that their I/O is counted by [`StreamKind`] and
//!    their directory entries are made durable together.
//! 2. A [`PagedFile`] is one file of pages of [`PAGE`] bytes, and the allocator that says which of them are in use.
//! 3. A page is free, allocated, or retired: unreachable from the newest version, while readers of an older one may still be
//!    in it. `allocate` takes free pages, `retire` and later `release` give them back.
//! 4. An [`AllocatorImage`] is what a checkpoint keeps of the allocator; recovery opens the file with it and replays the
//!    allocations and retirements that the log tells of.
//!
//! Invariants: the three states are disjoint and cover the file; no page is handed out twice; a page beyond the known end is never
//! believed to exist unless the file is that long; an operation that fails changes nothing.
//!
//! Left to others: what is in a page, when no reader is left in a retired one, and when an image is durable.

mod above;
mod allocator;
mod error;
mod extent;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod open_files;
mod paged;
mod reserve;
mod runs;
mod store;
mod surplus;

pub use allocator::{Audit, Class, RESERVE_PAGES_MAX, RESERVE_PAGES_MIN, Stats, Survey};
pub use error::{Error, Result};
pub use extent::{Extent, PAGE, PageId};
pub use format::AllocatorImage;
pub use paged::{GROWTH_BYTES_MAX, GROWTH_BYTES_MIN, PagedFile};
pub use reserve::{Loan, Reserve};
pub use store::{FileStore, StreamKind};
