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

impl Footprint {
    /// Bytes of nodes of the tables with a structure; none where no table has it.
    pub(super) fn node_bytes_of(tables: &[Self], structure: Structure) -> Option<u64> {
        let of_kind = tables.iter().filter(|table| table.structure == structure);
        of_kind.map(|table| table.node_bytes).reduce(|one, other| one + other)
    }
}
