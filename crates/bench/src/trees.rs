//! Index structures as the laboratory measures them: one trait over the PIO B-tree and the trees that it replaces.
//!
//! All of them keep entries of one [`Shape`] in files of one directory and do their I/O through psync. They hold no
//! more memory than their budget allows: buffers, mapping tables and queues together. Only Braid writes a log; a crash
//! loses the other trees.

pub mod bftl;
pub mod blink;
pub mod bplus;
pub mod bulk;
pub mod fdtree;
mod node;
pub mod pager;
mod pending;
pub mod pio;

use std::path::PathBuf;

use psync::Psync;

use crate::{Error, Result};

/// Lengths of keys and values, the same for all entries of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Shape {
    /// Bytes of one entry.
    #[must_use]
    pub const fn entry_bytes(self) -> usize {
        self.key_bytes + self.value_bytes
    }

    /// Refuses entries of another shape.
    fn check(self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_key(key)?;
        if value.len() != self.value_bytes {
            return Err(Error::Invalid(format!("values have {} bytes here, not {}", self.value_bytes, value.len())));
        }
        Ok(())
    }

    /// Refuses keys of another length.
    fn check_key(self, key: &[u8]) -> Result<()> {
        if key.len() != self.key_bytes {
            return Err(Error::Invalid(format!("keys have {} bytes here, not {}", self.key_bytes, key.len())));
        }
        Ok(())
    }
}

/// The parameters that all trees are made with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The I/O of the tree.
    pub psync: Psync,
    /// An empty directory for the files.
    pub directory: PathBuf,
    /// Lengths of the keys and values of all entries.
    pub shape: Shape,
    /// Memory for buffers, mapping tables and queues together, in bytes.
    pub memory_bytes: u64,
}

/// Entries in key order to build a tree from: each call gives the next key and value, until there are none.
pub type Sorted<'a> = dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool + 'a;

/// An index that can be measured. Any number of threads may call it, unless its documentation says otherwise.
pub trait Tree: Send + Sync {
    /// Its name in tables and figures.
    fn name(&self) -> &'static str;

    /// Looks a key up; returns whether the key is there. `value` is replaced by the value of the key.
    ///
    /// # Errors
    /// When the device fails or something read makes no sense.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Looks many keys up; returns how many are there. One after the other unless the structure can do better.
    ///
    /// # Errors
    /// As [`Tree::get`].
    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        let (mut value, mut found) = (Vec::new(), 0);
        for key in keys {
            found += usize::from(self.get(key, &mut value)?);
        }
        Ok(found)
    }

    /// Inserts a key, or replaces its value.
    ///
    /// # Errors
    /// As [`Tree::get`], and when the device is full.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key; a missing key is no error.
    ///
    /// # Errors
    /// As [`Tree::put`].
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Visits the entries from `first` on, up to but without `end`, in key order; returns how many they were.
    ///
    /// # Errors
    /// As [`Tree::get`].
    fn scan(&self, first: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Writes all operations that wait in memory to the files, so that a measurement pays for its whole work.
    ///
    /// # Errors
    /// As [`Tree::put`].
    fn write_back(&self) -> Result<()>;

    /// Bytes of the budget that the tree holds in memory now.
    fn memory_bytes(&self) -> u64;
}
