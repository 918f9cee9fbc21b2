//! The structures of tables, with the memory that they share, and the documents beside them.

pub(crate) mod documents;
pub(crate) mod tree;
