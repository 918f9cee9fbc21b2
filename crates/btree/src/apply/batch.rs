//! A batch on its way into a tree: what all steps of the update work on.

use std::ops::Range;

use doclog::DocPointer;
use index::merge::Rules;
use index::{Again, Batch, Horizon, Operation, Payload, Update, class_of};

use super::claims::Claims;
use super::node_writer::NodeWriter;
use super::under_way::{Reads, Writes};
use crate::format::root::Root;
use crate::format::{INLINE_BYTES_MAX, KEY_BYTES_MAX};
use crate::version::Version;

/// A batch on its way into a tree.
pub(crate) struct Apply<'a> {
    pub(super) base: &'a Version,
    /// The tree as earlier passes have left it.
    pub(super) root: Root,
    pub(super) batch: &'a dyn Batch,
    /// The rules that decide which versions stay in a leaf.
    pub(super) rules: Rules<'a>,
    pub(super) progress: &'a dyn Fn(usize),
    /// True if the batch has no updates and only names the leaves to rewrite.
    pub(super) touching: bool,
    /// Leaves that another pass or another batch has to look at.
    pub(super) again: Again,
    pub(super) reads: Reads,
    /// Dropped before the claims, so that no extent is given back while it is being written.
    pub(super) writes: Writes,
    pub(super) claims: Claims,
    pub(super) nodes: NodeWriter,
    pub(super) dropped_documents: Vec<DocPointer>,
    /// True if leaves were packed at an end at which the tree grew.
    pub(super) packed: bool,
    /// Updates that have reached their leaves.
    pub(super) done: usize,
}

/// Checks the limits, which the caller has to keep, and returns whether any entry of the batch expires.
fn check(batch: &dyn Batch) -> bool {
    let mut expires = false;
    for index in 0..batch.len() {
        let update = batch.get(index);
        assert!(update.key.len() <= KEY_BYTES_MAX, "a key of {} bytes", update.key.len());
        expires |= update.operation.expiry().is_some();
        if let Operation::Put(Payload::Inline(value), _) = update.operation {
            assert!(value.len() <= INLINE_BYTES_MAX, "a value of {} bytes that is not a document", value.len());
        }
    }
    expires
}

impl<'a> Apply<'a> {
    pub(crate) fn new(
        base: &'a Version, batch: &'a dyn Batch, horizon: &'a Horizon, again: Again, progress: &'a dyn Fn(usize),
    ) -> Self {
        let expires = check(batch);
        Self {
            base,
            root: Root { expires: base.root.expires || expires, ..base.root },
            batch,
            rules: Rules { horizon, through: batch.through(), is_all: true },
            progress,
            touching: false,
            again,
            reads: Reads::new(base.shared.psync()),
            writes: Writes::new(base.shared.psync()),
            claims: Claims::new(base.shared.pages(), class_of(batch, horizon)),
            nodes: NodeWriter::default(),
            dropped_documents: Vec::new(),
            packed: false,
            done: 0,
        }
    }

    /// Pages of a leaf for entries of this count and these bytes.
    pub(super) fn leaf_pages(&self, entries: usize, bytes: usize) -> u32 {
        self.base.shared.leaf_size().pages(self.root.leaf_pages, entries, bytes)
    }

    /// The most pages of a leaf. Only a leaf with more versions of one key is longer.
    pub(super) fn leaf_pages_max(&self) -> u32 {
        self.base.shared.leaf_size().pages_max(self.root.leaf_pages)
    }

    /// Updates of the batch. A batch that only touches leaves has none.
    pub(super) fn updates(&self, range: Range<usize>) -> impl Iterator<Item = Update<'a>> + use<'a> {
        let batch = self.batch;
        let range = if self.touching { 0..0 } else { range };
        range.map(move |index| batch.get(index))
    }
}
