//! The PIO B-tree: append-only leaf segments, batch update, multi-path search.
//!
//! After Roh, Park, Kim, Shin and Lee, "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based
//! Solid State Drives" (PVLDB 5(4), 2011). The crate owns the trees of a database: the content of their pages, and how
//! they are searched, scanned, changed and checked.
//!
//! 1. A **leaf** is an extent of several pages that holds *runs*: sorted entries, appended in one piece.
//!    - A change appends to the leaf's last page and touches nothing else.
//!    - A leaf is rewritten to fresh extents when it is full: to one extent, if dropping dead versions made room
//!      (*shrink*), else to several (*split*). So is a leaf in which a document died, because a dead document keeps its
//!      space until a rewrite reports it. So is a leaf of which deletes leave little.
//!    - A nearly empty leaf is then joined with a neighbour or shares entries with the neighbour, and so are nodes. So
//!      leaves stay a quarter full at least, and a tree loses height in the way that it grew.
//!    - The pages that a leaf was made with are sorted. Fences tell them apart, so a search reads one of them, and the
//!      appended runs.
//! 2. An **internal node** is one page, written once and never changed. Each pointer holds the address of a child, the
//!    number of published bytes of a leaf, and the CRC at their end. A node also holds the fences of leaves.
//! 3. A **version** is a root. A batch makes a new version: it appends to leaves beyond the published lengths, and
//!    writes every node on the way to the root anew, to fresh pages. Readers of older versions go on reading, without a
//!    lock.
//! 4. Many keys, a range of keys and a batch of changes all go down the tree a level at a time. The nodes of a level
//!    are read or written with one psync, at most PioMax requests in flight ([`psync`]).
//! 5. Sorted entries for an empty tree are packed into leaves as they come, in long pieces ([`index::Load`]). An
//!    existing tree is rebuilt in the same way, stretch by stretch ([`index::Upkeep::compact`]).
//! 6. Pages that a version no longer refers to are free when the last reader of an older version is gone.
//!
//! Invariants:
//!
//! - Bytes below a published length never change.
//! - An extent gets a new incarnation each time it is used, and no run or node checks under any other.
//! - The newest version of a key stays until a newer one comes, older ones as long as a snapshot sees them.
//! - All versions of a key are in one leaf, whose extent is longer than usual where they do not fit.
//!
//! Left to others: when data is flushed, the log, the choice of the current version after a restart
//! ([`index::Index::replay`]), visibility, and documents.

mod apply;
pub mod cost;
mod counters;
mod cursor;
mod descend;
mod documents;
mod fences;
mod filter;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod kind;
mod leaf;
mod leaf_size;
mod load;
mod look;
mod node;
mod partition;
mod salvage;
mod search;
mod settings;
mod shared;
mod tree;
mod upkeep;
mod verify;
mod version;
mod view;
mod walk;
mod way;

pub use counters::CountersSnapshot;
pub use format::{INLINE_BYTES_MAX, KEY_BYTES_MAX, LEAF_PAGES_MAX};
pub use kind::FACTS;
pub use shared::Shared;
pub use tree::BTree;
pub use walk::Shape;
