//! The root of everything else: the superblock, and the checkpoint image that the superblock names.

pub(crate) mod image;
pub(crate) mod superblock;

/// The file of all pages.
pub(crate) const DATA: &str = "data";
