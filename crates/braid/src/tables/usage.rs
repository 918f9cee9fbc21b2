//! Bytes of segments of tables.

use std::sync::Arc;

use doclog::Compression;

use crate::{
    structures::footprint::Footprint,
    tables::catalog::{Catalog, TableCore},
};

/// Bytes of segments, of all tables.
pub(crate) fn segment_bytes(catalog: &Catalog) -> u64 {
    bytes_of(&catalog.live())
}

/// Bytes of segments of these tables.
pub(crate) fn bytes_of(tables: &[Arc<TableCore>]) -> u64 {
    tables.iter().map(|table| table.tree.space().bytes + table.documents.stats().bytes).sum()
}

/// Bytes of segments that a checkpoint may release, of all tables.
pub(crate) fn dead_bytes(catalog: &Catalog) -> u64 {
    let of_table = |table: &Arc<TableCore>| {
        let documents: u64 = table.documents.dead().into_iter().map(|(_, bytes)| bytes).sum();
        table.tree.space().dead_bytes + documents
    };
    catalog.live().iter().map(of_table).sum()
}

/// Segments of documents, and structures with files, that a checkpoint may release something of, of all tables.
pub(crate) fn dead_files(catalog: &Catalog) -> usize {
    let of_table = |table: &Arc<TableCore>| {
        let documents = table.documents.dead().len() + table.documents.spares();
        documents + usize::from(table.tree.space().dead_bytes > 0)
    };
    catalog.live().iter().map(of_table).sum()
}

/// The space that each of these tables takes.
pub(crate) fn footprints(tables: &[Arc<TableCore>]) -> Vec<Footprint> {
    let of_table = |table: &Arc<TableCore>| {
        let documents = table.documents.stats();
        Footprint {
            structure: table.structure,
            node_bytes: table.tree.space().live_bytes,
            document_bytes: documents.bytes,
            live_document_bytes: documents.live_bytes,
            is_compressed: table.settings().compression != Compression::None,
        }
    };
    tables.iter().map(of_table).collect()
}
