//! Scans: parallel range search (Roh et al., PVLDB 5(4), 2011, section 3.1.2).
//!
//! 1. A [`path`] names the leaves of the range, from the internal nodes above them.
//! 2. [`ahead`] reads them before the scan gets there, ever more of them as the scan goes on.
//! 3. [`live`] lists the pairs of the leaf that the scan is in. They are shown where they lie; nothing is copied.

mod ahead;
mod live;
mod path;

use std::sync::Arc;

use ahead::{Ahead, Image};
use index::{Bounds, Cursor, Direction, PairRef, Result, Seq};
use live::Live;
use path::Path;

use crate::format::Pointer;
use crate::leaf::{Span, Visible};
use crate::version::Version;

/// Walks a version in key order.
pub(crate) struct TreeCursor {
    ahead: Ahead,
    at: Seq,
    /// The leaf that it is in.
    leaf: Option<Pointer>,
    spans: Vec<Span>,
    /// The leaf's pairs, in key order whatever the direction, and how many of them were shown.
    live: Live,
    shown: usize,
    ended: bool,
}

impl TreeCursor {
    pub(crate) fn new(version: Arc<Version>, bounds: &Bounds, at: Seq, direction: Direction) -> Self {
        let path = Path::new(&version.root, bounds.clone(), direction);
        let ahead = Ahead::new(version, path);
        Self { ahead, at, leaf: None, spans: Vec::new(), live: Live::default(), shown: 0, ended: false }
    }

    /// Goes to the next leaf; false at the end.
    fn next_leaf(&mut self) -> Result<bool> {
        self.live.clear();
        self.shown = 0;
        self.leaf = self.ahead.next()?;
        let Some(pointer) = self.leaf else { return Ok(false) };
        let version = self.ahead.version();
        let filled = match self.ahead.image(&pointer) {
            Image::Cached(leaf) => Ok(leaf.visible(&pointer).expect("a leaf is chosen by this pointer")),
            Image::Read(pages) => Visible::check(pages, &pointer, version.table, &mut self.spans),
        }
        .and_then(|leaf| self.live.fill(&leaf, self.ahead.path().bounds(), self.at));
        filled.map_err(|damage| version.shared.corrupt(&pointer, damage))?;
        Ok(true)
    }
}

impl Cursor for TreeCursor {
    fn advance(&mut self) -> Result<bool> {
        while !self.ended {
            if self.shown < self.live.len() {
                self.shown += 1;
                return Ok(true);
            }
            self.ended = true;
            self.ended = !self.next_leaf()?;
        }
        Ok(false)
    }

    fn current(&self) -> Option<PairRef<'_>> {
        let index = match self.ahead.path().direction() {
            Direction::Forward => self.shown.checked_sub(1)?,
            Direction::Backward if self.shown == 0 => return None,
            Direction::Backward => self.live.len() - self.shown,
        };
        let bytes = match self.ahead.image(self.leaf.as_ref()?) {
            Image::Cached(leaf) => leaf.bytes(),
            Image::Read(pages) => pages,
        };
        Some(self.live.get(index, bytes))
    }
}
