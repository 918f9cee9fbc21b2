//! The structures that tables can have: the registry of kinds.

use std::fmt;

use index::Facts;

/// Declares the structures, each with the facts of its kind.
macro_rules! structures {
    ($($(#[doc = $line:literal])* $(#[cfg($condition:meta)])? $name:ident = $facts:expr,)*) => {
        /// The index structure of a table, chosen at its creation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Structure {
            $($(#[doc = $line])* $(#[cfg($condition)])? $name,)*
        }

        impl Structure {
            /// Every structure that tables can have.
            pub const ALL: &[Self] = &[$($(#[cfg($condition)])? Self::$name),*];

            pub(crate) const fn facts(self) -> &'static Facts {
                match self {
                    $($(#[cfg($condition)])? Self::$name => &$facts,)*
                }
            }
        }
    };
}

structures! {
    /// The PIO B-tree: updated in place, for reads and updates in any order.
    BTree = btree::FACTS,
    /// The HB+-trie: written by appending alone, with values longer than 256 bytes stored apart from the keys. For long
    /// keys with common beginnings, and for large values.
    Append = append::FACTS,
    /// The LSM tree: written by sorting and merging, with next to no reads. For more writes than reads, in any order.
    Lsm = lsm::FACTS,
    /// A sorted array in memory, for tests.
    #[cfg(feature = "testing")]
    Sorted = index::testing::sorted::FACTS,
}

impl Structure {
    /// Longest key of a table with this structure, in bytes. Longest values are the same for all
    /// ([`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX)).
    ///
    /// ```
    /// use braid::Structure;
    ///
    /// assert!(Structure::ALL.iter().all(|structure| structure.key_bytes_max() >= 1024));
    /// ```
    #[must_use]
    pub const fn key_bytes_max(self) -> usize {
        self.facts().key_bytes_max
    }

    /// Longest value that is stored beside its key, in bytes, unless a table wants another limit
    /// ([`TableOptions::inline_bytes`](crate::TableOptions::inline_bytes)). Longer ones are documents in files of their
    /// own.
    #[must_use]
    pub const fn inline_bytes(self) -> usize {
        self.facts().inline_bytes
    }

    /// The highest limit that a table with this structure can have, in bytes.
    #[must_use]
    pub const fn inline_bytes_max(self) -> usize {
        self.facts().inline_bytes_max
    }

    /// The directories of files that structures have of their own.
    pub(crate) fn directories() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().filter_map(|structure| structure.facts().directory)
    }

    /// The structure with this number in records and backups.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|structure| structure.facts().code == code)
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.facts().name)
    }
}

/// Longest key and longest value beside a key, in bytes, of any structure.
pub(crate) const KEY_BYTES_MAX: usize = longest().0;
pub(crate) const INLINE_BYTES_MAX: usize = longest().1;

const fn longest() -> (usize, usize) {
    let (mut key, mut value, mut number) = (0, 0, 0);
    while number < Structure::ALL.len() {
        let facts = Structure::ALL[number].facts();
        key = if facts.key_bytes_max > key { facts.key_bytes_max } else { key };
        value = if facts.inline_bytes_max > value { facts.inline_bytes_max } else { value };
        number += 1;
    }
    (key, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_structures_have_a_name_or_a_number_in_common() {
        for (number, one) in Structure::ALL.iter().enumerate() {
            assert_eq!(Structure::of_code(one.facts().code), Some(*one));
            assert_eq!(one.to_string().parse::<Structure>().expect("its name"), *one);
            let others = &Structure::ALL[number + 1..];
            assert!(others.iter().all(|other| other.facts().code != one.facts().code));
        }
        let codes = [Structure::BTree, Structure::Append, Structure::Lsm].map(|structure| structure.facts().code);
        assert_eq!(codes, [1, 2, 3], "as in docs/format.md");
    }
}
