//! From where everything else is found: the superblock, and the checkpoint image that it names.

pub(crate) mod image;
pub(crate) mod superblock;

/// The file of all pages.
pub(crate) const DATA: &str = "data";
