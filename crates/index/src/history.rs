//! Older states of a structure, as root records describe them.

use std::sync::Arc;

use crate::{Applied, Result, View};

/// A structure whose older states can be opened again, and gone back to.
pub trait History {
    /// The view that a root record describes. Its files are protected ([`History::protect`]), or the structure is still
    /// in that state.
    ///
    /// # Errors
    /// When `root` is no root record of this structure.
    fn at(&self, root: &[u8]) -> Result<Arc<dyn View>>;

    /// Protects the files of the views that these root records describe, and of no others.
    ///
    /// # Errors
    /// When one is no root record of this structure; nothing changes then.
    fn protect(&self, roots: &mut dyn Iterator<Item = &[u8]>) -> Result<()>;

    /// Goes back to the view that a root record describes. The result is that of [`crate::Index::apply`]: written, to
    /// be flushed, and to be installed or discarded.
    ///
    /// # Errors
    /// When `root` is no root record of this structure, or a file of that view is missing; when storage fails or is
    /// full.
    fn roll_back(&self, root: &[u8]) -> Result<Applied>;

    /// Describes the state of a root record.
    ///
    /// # Errors
    /// When `root` is no root record of this structure.
    fn describe(&self, root: &[u8]) -> Result<Described>;
}

/// A state of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Rises from state to state.
    pub number: u64,
    /// Keys whose newest version is no tombstone.
    pub keys: u64,
    /// Bytes of the structure, as they are stored.
    pub live_bytes: u64,
}
