//! The size of a table, for the memory and the room that tables share.

use crate::words::structure::Structure;

/// The size of a table, as far as the shared parts of structures depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) structure: Structure,
    /// Live bytes in files that belong to the table's structure alone.
    pub(crate) node_bytes: u64,
    pub(crate) document_bytes: u64,
    pub(crate) live_document_bytes: u64,
    pub(crate) is_compressed: bool,
}
