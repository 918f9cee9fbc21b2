//! The reserve: room on the disk for work that gives space back, sized by the bytes of all tables.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use doclog::{DocLog, DocPointer, PackedDocuments};
use space::{Loan, Reserve};

use super::{footprint::Footprint, kinds::Kinds};
use crate::error::Result;

/// The reserve holds this part (as a divisor) of all document bytes, at most one segment.
const DOCUMENT_PART: u64 = 8;
/// The reserve for documents grows in steps of a segment divided by this number, so few commits have to enlarge it.
const STEPS: u64 = 64;

/// A loan leaves this part (as a divisor) of the nodes' share, for the nodes that lead to moved documents. With half of
/// it, nodes of deletes could take so much that no segment of documents was emptied any more, however little lived
/// there.
const NODES_LEFT_PART: u64 = 4;

pub(super) struct Room {
    reserve: Arc<Reserve>,
    /// The nodes' share of the reserve.
    node_bytes: AtomicU64,
    /// The bytes of all documents, including those appended since tables were last looked at.
    document_bytes: AtomicU64,
    segment_bytes: u64,
}

impl Room {
    pub(super) const fn new(reserve: Arc<Reserve>, segment_bytes: u64) -> Self {
        Self { reserve, node_bytes: AtomicU64::new(0), document_bytes: AtomicU64::new(0), segment_bytes }
    }

    /// Adapts the size to these tables.
    pub(super) fn adapt(&self, kinds: &Kinds, tables: &[Footprint]) {
        let of_kind = |(structure, kind): (_, &dyn index::Kind)| {
            Footprint::node_bytes_of(tables, structure).map_or(0, |bytes| kind.room_bytes(bytes))
        };
        let documents: u64 = tables.iter().map(|table| table.document_bytes).sum();
        self.node_bytes.store(kinds.iter().map(of_kind).sum(), Ordering::Relaxed);
        self.document_bytes.store(documents, Ordering::Relaxed);
        self.want(documents);
        if let Err(error) = self.reserve.trim() {
            events::warn!(%error, "room on the disk that is not needed could not be given back");
        }
    }

    fn want(&self, document_bytes: u64) {
        let step = self.segment_bytes.div_ceil(STEPS);
        let documents = (document_bytes / DOCUMENT_PART).next_multiple_of(step).min(self.segment_bytes);
        self.reserve.want(self.node_bytes.load(Ordering::Relaxed) + documents);
    }

    pub(super) fn append_documents(&self, documents: &DocLog, packed: &PackedDocuments<'_>) -> Result<Vec<DocPointer>> {
        let bytes = packed.stored_bytes();
        self.want(self.document_bytes.load(Ordering::Relaxed) + bytes);
        self.reserve.fill()?;
        let written = documents.append_packed(packed)?;
        self.document_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(written)
    }

    pub(super) fn lend(&self, bytes: u64) -> Result<Option<Loan>> {
        Ok(self.reserve.lend(bytes, self.node_bytes.load(Ordering::Relaxed) / NODES_LEFT_PART)?)
    }

    pub(super) fn can_spare(&self, bytes: u64) -> bool {
        self.reserve.can_spare(bytes)
    }

    pub(super) fn is_lent(&self) -> bool {
        self.reserve.is_lent()
    }
}
