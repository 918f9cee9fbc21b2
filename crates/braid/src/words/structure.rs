//! The structures that tables can have, and the facts that follow from the structure alone.

use std::fmt;

/// The index structure of a table, chosen at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// The PIO B-tree: updated in place, for reads and updates in any order.
    BTree,
    /// The HB+-trie: written by appending alone, with values longer than 256 bytes stored apart from the keys. For long
    /// keys with common beginnings, and for large values.
    Append,
}

impl Structure {
    /// Every structure that tables can have.
    pub const ALL: [Self; 2] = [Self::BTree, Self::Append];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BTree => "btree",
            Self::Append => "append",
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Longest key, in bytes, of any structure.
pub(crate) const KEY_BYTES_MAX: usize =
    if append::KEY_BYTES_MAX > btree::KEY_BYTES_MAX { append::KEY_BYTES_MAX } else { btree::KEY_BYTES_MAX };

/// Longest key of a table, in bytes.
pub(crate) const fn key_bytes_max(structure: Structure) -> usize {
    match structure {
        Structure::BTree => btree::KEY_BYTES_MAX,
        Structure::Append => append::KEY_BYTES_MAX,
    }
}

/// Longest value that a structure stores itself, in bytes. Longer values are documents.
pub(crate) const fn inline_bytes_max(structure: Structure) -> usize {
    match structure {
        Structure::BTree => btree::INLINE_BYTES_MAX,
        Structure::Append => append::INLINE_BYTES_MAX,
    }
}

/// Whether the number of pages of a leaf is chosen.
pub(crate) const fn has_leaf_sizes(structure: Structure) -> bool {
    matches!(structure, Structure::BTree)
}

/// Whether applying operations always makes files longer.
pub(crate) const fn only_appends(structure: Structure) -> bool {
    matches!(structure, Structure::Append)
}

/// Whether older states of a table can be retained.
pub(crate) const fn has_history(structure: Structure) -> bool {
    matches!(structure, Structure::Append)
}
