//! One operation of a commit.

use std::sync::Arc;

use crate::{tables::catalog::TableCore, words::clock::Expires};

/// What one operation of a batch does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchOperation {
    /// The key gets this value.
    Put,
    /// The key goes.
    Delete,
    /// All keys from this one on go, to below the one in the place of a value: where that is empty, to the end.
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
    /// Whether it is about a single key.
    pub(crate) fn is_point(&self) -> bool {
        self.operation != BatchOperation::DeleteRange
    }

    /// Where the range ends that it deletes, if it does.
    pub(crate) fn high(&self) -> Option<&[u8]> {
        Some(self.value).filter(|high| !high.is_empty())
    }
}
