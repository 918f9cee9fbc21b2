//! The unit of a scan.

use std::ops::Range;

use crate::format::Pointer;
use crate::leaf::{Leaf, Visible};

/// The unit of a scan: one part of a leaf, or all from a part on.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) pointer: Pointer,
    /// The leaf's part that the piece is, or begins with.
    pub(crate) part: usize,
    /// Whether the piece goes on to the published end.
    pub(crate) to_end: bool,
}

impl Piece {
    /// Its bytes in the leaf.
    pub(crate) fn of(&self) -> Range<usize> {
        let part = self.pointer.block(self.part);
        if self.to_end { part.start..self.pointer.all().end } else { part }
    }

    /// Its bytes in the file.
    pub(super) fn place(&self) -> Range<u64> {
        let Range { start, end } = self.of();
        self.pointer.offset() + start as u64..self.pointer.offset() + end as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.of().len()
    }

    /// The runs in an image of the piece that its pointer publishes.
    pub(super) fn seen<'a>(&self, leaf: &'a Leaf) -> Option<Visible<'a>> {
        if self.to_end { leaf.visible(&self.pointer) } else { leaf.seen(&self.pointer, self.part, None) }
    }
}
