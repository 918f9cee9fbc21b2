//! The append-only HB+-trie: a trie over chunks of keys whose nodes are copy-on-write B+-trees.
//!
//! After Ahn, Seo, Mayuram, Yaseen, Kim and Maeng, "ForestDB: A Fast Key-Value Storage System for Variable-Length
//! String Keys" (IEEE Trans. Comput. 65(3), 2016), as Lee, Oh and Lee describe the structure in "Boosting Compaction in
//! B-Tree Based Key-Value Store by Exploiting Parallel Reads in Flash SSDs" (IEEE Access 9, 2021, section II.A). This
//! crate owns the tries of a database: the content of their nodes, and their search, scan, change and check.
//!
//! 1. A key is cut into **chunks** of a fixed number of bytes. A B+-tree holds the keys that share the chunks above the
//!    tree, ordered by their next chunk. Chunks that all of its keys share are **skipped**: the root of the B+-tree
//!    stores them once.
//! 2. A leaf has a **group** for each chunk: the keys with that chunk, each stored as its bytes behind the chunk and
//!    its versions. A group that grows beyond a quarter of a node becomes a B+-tree of its own. One that shrinks to an
//!    eighth goes back into its leaf. So a chunk that few keys share costs no node.
//! 3. A **node** is a document of the table's node segments ([`doclog::Content::Nodes`]), up to 4 KiB, written once and
//!    never changed. A node is found by its place, and known by the checksum in the pointer to the node. A pointer to a
//!    leaf has a **filter** beside it, so most lookups of absent keys do not read the leaf.
//! 4. A batch makes a new **version** ([`index::Index::apply`]) in three steps. First, values too large for a node go
//!    to the document log, in key order. Then every node on the way to a change is written anew, after the nodes and
//!    documents that the node refers to. Last comes the **commit header**, which describes the whole version and points
//!    to the header before it. Everything is appended, in few large writes, and nothing is flushed.
//! 5. Many keys, a range of keys and a batch of changes go down together: the nodes that they need next are read in one
//!    psync.
//! 6. Sorted entries for an empty trie come without a log ([`index::Load`]). An existing trie is rewritten stretch
//!    by stretch, in key order ([`index::Upkeep::compact`]). Leaves in which enough has expired are found through links
//!    that hold the due time ([`index::due`]).
//! 7. Readers of older versions go on reading. The live bytes of each segment are counted. A segment without live bytes
//!    is released once a checkpoint knows that and no reader holds an older state ([`index::Upkeep::release_dead`]).
//!
//! The newest version of a key stays until a newer one comes, older ones as long as a snapshot sees them
//! ([`index::merge`]). An entry lists all of these versions, so a snapshot is a seq and needs no header of its own. A
//! header that is kept can be opened again, and the trie can be rolled back to it ([`index::History`]).
//!
//! Left to others: the time of a flush, the log, the choice of the current version after a restart
//! ([`index::Index::replay`]: a flush-end names the header, so no search is needed), visibility, and reading documents.

mod apply;
mod cursor;
mod documents;
mod empty;
mod filter;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod garbage;
mod history;
mod kind;
mod load;
mod look;
mod ordered;
mod salvage;
mod search;
mod shared;
mod stretch;
mod trie;
mod upkeep;
mod verify;
mod version;
mod view;
mod walk;

pub use format::{CHUNK_BYTES_DEFAULT, INLINE_BYTES_MAX, KEY_BYTES_MAX};
pub use kind::FACTS;
pub use shared::Shared;
pub use trie::Trie;
