//! One operation of a commit.

use std::sync::Arc;

use doclog::DocPointer;

use crate::{tables::catalog::TableCore, words::clock::Expires};

/// The kind of an operation of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchOperation {
    /// Sets the value of the key.
    Put,
    /// Gives the value of the key another expiry. The value is a document, whose pointer is in the place of the value.
    /// Whoever commits this holds a state in which the key has the document, until the commit is visible.
    Renew,
    /// Deletes the key.
    Delete,
    /// Deletes all keys from this one on, to below the key in the place of a value; to the end if that is empty.
    DeleteRange,
}

/// One operation of a batch, borrowed.
pub(crate) struct Item<'a> {
    pub(crate) table: &'a Arc<TableCore>,
    pub(crate) operation: BatchOperation,
    pub(crate) expires: Option<Expires>,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Item<'_> {
    /// Whether the operation is on a single key.
    pub(crate) fn is_point(&self) -> bool {
        self.operation != BatchOperation::DeleteRange
    }

    /// Whether the operation only deletes.
    pub(crate) const fn deletes(&self) -> bool {
        matches!(self.operation, BatchOperation::Delete | BatchOperation::DeleteRange)
    }

    /// The document that the key has already, where the operation keeps it.
    pub(crate) fn kept_document(&self) -> Option<DocPointer> {
        (self.operation == BatchOperation::Renew).then(|| self.value.first_chunk().map(DocPointer::decode)).flatten()
    }

    /// The upper end of a deleted range, if the range has one.
    pub(crate) fn high(&self) -> Option<&[u8]> {
        Some(self.value).filter(|high| !high.is_empty())
    }
}
