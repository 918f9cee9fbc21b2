//! Which values of a table are stored beside their keys, and which go through the log.
//!
//! Longer values are documents. Where a table has chosen a limit, it holds for both. Where it has not, a commit may
//! bring values of up to [`LOGGED_BYTES`] through the log that are documents for the structure in the end.

use crate::tables::catalog::TableCore;

/// Bytes of the longest value that goes through the log, unless a table has chosen another limit.
pub(crate) const LOGGED_BYTES: usize = btree::INLINE_BYTES_MAX;

impl TableCore {
    /// Bytes of the longest value that the structure stores beside its key.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.settings.inline_bytes.map_or(self.structure.facts().inline_bytes, usize::from)
    }

    /// Bytes of the longest value that goes through the log.
    pub(crate) fn logged_bytes(&self) -> usize {
        self.settings.inline_bytes.map_or(LOGGED_BYTES, usize::from)
    }
}
