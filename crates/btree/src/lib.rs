//! The PIO B-tree: append-only leaf segments, batch update, multi-path search.
//!
//! After Roh, Park, Kim, Shin and Lee, "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based Solid
//! State Drives" (PVLDB 5(4), 2011). It owns the trees of a database: what is in their pages, and how they are searched,
//! scanned, changed and checked.
//!
//! 1. A **leaf** is an extent of several pages that holds *runs*: sorted entries, appended in one piece. A change appends to
//!    the leaf's last page and touches nothing else. A full leaf is rewritten to fresh extents: one, if dropping dead
//!    versions made room (*shrink*), else several (*split*). So is a leaf in which a document died, which takes more space,
//!    and one of which deletes leave little. What is nearly empty then is joined with a neighbour or shares with it, and so
//!    are nodes: leaves stay a quarter full at least, and a tree loses height as it gained it.
//!    The pages that it was made with are sorted: fences tell them apart, so a search reads one of them, and what was appended.
//! 2. An **internal node** is one page, written once and never changed. Its pointers say not only where a child is, but how
//!    many bytes of a leaf are published and the CRC that they end with; it has the fences of leaves too.
//! 3. A **version** is a root. A batch makes a new one: it appends to leaves beyond the published lengths, and writes every
//!    node on the way to the root anew, to fresh pages. Readers of older versions go on reading; no lock stands between them.
//! 4. Many keys, a range of keys and a batch of changes all go down the tree a level at a time, and the nodes of a level are
//!    read or written with one psync, at most PioMax requests in flight ([`psync`]).
//! 5. Sorted entries for an empty tree are packed into leaves as they come, and written in long pieces ([`Load`]); a tree
//!    that is there is rebuilt like that, stretch by stretch ([`index::Index::compact`]).
//! 6. Pages that a version no longer refers to are free when the last reader of an older version is gone.
//!
//! Invariants: bytes below a published length never change; an extent gets a new incarnation each time it is used, and no run
//! or node checks under any other; the newest version of a key stays until a newer one comes, older ones as long as a
//! snapshot sees them; all versions of a key are in one leaf, whose extent is longer than usual where they do not fit.
//!
//! Left to others: when data is flushed, the log, which version is current after a restart ([`index::Index::replay`]), what
//! is visible, and documents.

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
mod leaf;
mod leaf_size;
mod load;
mod look;
mod node;
mod salvage;
mod search;
mod shared;
mod tree;
mod verify;
mod version;
mod walk;

pub use counters::CountersSnapshot;
pub use format::{INLINE_BYTES_MAX, KEY_BYTES_MAX, LEAF_PAGES_MAX};
pub use load::{Load, Loaded};
pub use salvage::root_of_redo;
pub use shared::Shared;
pub use tree::BTree;
