//! The LSM tree: sorted files in levels, merged in the background.
//!
//! After O'Neil, Cheng, Gawlick and O'Neil, "The log-structured merge-tree" (Acta Informatica 33(4), 1996), in the
//! leveled form of LevelDB and RocksDB. This crate owns the files of a tree, and their search, scan, change and check.
//!
//! 1. A **file** (`Sst`) is written once, in key order (`Writer`), and never changed: data blocks, fences by which
//!    a block is found, and filters of the keys that are in it (`format`).
//! 2. Many keys are looked up together (`get_many`): the partitions and filters of all of them come in one
//!    psync, and their blocks in the next.
//! 3. Files that do not overlap are a **run** (`Run`). A scan walks through all runs at once (`Merged`).
//! 4. A **version** of a tree (`Version`) has its files by level, and never changes. A change is a record of files
//!    that come and go, and makes the next version.
//! 5. Runs are merged into new files (`rewrite`), by the rules that all structures share.

mod blocks;
mod compaction;
mod cursor;
mod files;
mod flush;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod kind;
mod load;
mod look;
mod merged;
mod picks;
mod relocate;
mod rewrite;
mod runs;
mod salvage;
mod scan;
mod search;
mod shared;
mod sizes;
mod slices;
mod sst;
mod tree;
mod upkeep;
mod verify;
mod version;
mod view;
mod walk;
mod writer;

pub use format::{INLINE_BYTES_MAX, KEY_BYTES_MAX};
pub use kind::FACTS;
pub use shared::Shared;
pub use tree::Tree;

#[cfg(test)]
mod tests;
