//! The append-only HB+-trie: a trie over chunks of keys whose nodes are copy-on-write B+-trees.
//!
//! After Ahn, Seo, Mayuram, Yaseen, Kim and Maeng, "ForestDB: A Fast Key-Value Storage System for Variable-Length String Keys" (IEEE Trans.
//! Comput. 65(3), 2016), as Lee, Oh and Lee describe it in "Boosting Compaction in B-Tree Based Key-Value Store by Exploiting Parallel Reads in
//! Flash SSDs" (IEEE Access 9, 2021, section II.A). It owns the tries of a database: what is in their nodes, and how they are searched, scanned,
//! changed and checked.
//!
//! 1. A key is cut into **chunks** of a fixed number of bytes. A B+-tree has the keys that share the chunks above it, by their next chunk.
//!    Chunks that all of them share are **skipped**: they stand once, in its root.
//! 2. A leaf has a **group** for each chunk: the keys with that chunk, what is behind it of each, and their versions. A group that grows
//!    beyond a quarter of a node becomes a B+-tree of its own, and one that shrinks to an eighth goes back into its leaf. So a chunk that
//!    few keys share costs no node.
//! 3. A **node** is a document of the table's node segments ([`doclog::Content::Nodes`]), up to 4 KiB, written once and never changed. A node is
//!    found by its place, and known by the checksum in the pointer to it.
//!    A pointer to a leaf has a **filter** beside it, so a key that is not there is mostly not looked for in the leaf.
//! 4. A batch makes a new **version** ([`index::Index::apply`]): values too large for a node go to the document log, in key order; every node on
//!    the way to what changed is written anew, what it refers to before it; last comes the **commit header**, which tells all of the version
//!    and where the header before it is. Everything is appended, in few large writes, and nothing is flushed.
//! 5. Many keys, a range of keys and a batch of changes go down together: what they need next is read in one psync.
//! 6. Sorted entries for an empty trie come in batches without a log ([`Load`]); one that is there is made anew stretch by stretch, in key order
//!    ([`index::Index::compact`]), and leaves in which enough has expired are found through links that say when ([`index::due`]).
//! 7. Readers of older versions go on reading. Of each segment the live bytes are counted; one without any goes when a checkpoint knows that,
//!    and nobody reads in an older state ([`index::Index::release_dead`]).
//!
//! The newest version of a key stays until a newer one comes, older ones as long as a snapshot sees them ([`index::merge`]): an entry lists
//! them, so a snapshot is a seq and no header has to be kept for it. A header that is kept can be opened again, and gone back to ([`Trie::at`],
//! [`Trie::roll_back`]).
//!
//! Left to others: when data is flushed, the log, which version is current after a restart ([`index::Index::replay`]: a flush-end names the
//! header, so nobody looks for it), what is visible, and reading documents.

mod apply;
mod cursor;
mod documents;
mod empty;
mod filter;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod history;
mod load;
mod look;
mod ordered;
mod salvage;
mod search;
mod shared;
mod stretch;
mod trie;
mod verify;
mod version;
mod walk;

pub use format::{CHUNK_BYTES_DEFAULT, INLINE_BYTES_MAX, KEY_BYTES_MAX};
pub use history::{Described, describe};
pub use load::{Load, Loaded};
pub use salvage::{newest_root, root_of_redo, tables_with_nodes};
pub use shared::Shared;
pub use trie::Trie;
