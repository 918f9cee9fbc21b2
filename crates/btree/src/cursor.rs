//! Scans: parallel range search (Roh et al., PVLDB 5(4), 2011, section 3.1.2).
//!
//! 1. A [`path`] names the leaves of the range, from the internal nodes above them.
//! 2. [`ahead`] reads the leaves, or their parts in the range, before the scan gets there, ever more of them as the
//!    scan goes on.
//! 3. [`live`] lists the pairs of the scan's current piece. The pairs are shown where they lie; nothing is copied.

mod ahead;
mod live;
mod path;
mod piece;

use std::ops::ControlFlow;
use std::sync::Arc;

use ahead::{Ahead, Image};
use index::{Bounds, Cursor, Direction, Moment, PairRef, Result, Show};
use live::Live;
use path::Path;
pub(crate) use piece::Piece;

use crate::filter::Link;
use crate::leaf::{Span, Visible};
use crate::version::Version;

/// Walks a version in key order.
pub(crate) struct TreeCursor {
    ahead: Ahead,
    at: Moment,
    /// The current piece.
    piece: Option<Piece>,
    spans: Vec<Span>,
    /// The piece's pairs, in key order for either direction, and how many of them were shown.
    live: Live,
    shown: usize,
    ended: bool,
}

impl TreeCursor {
    pub(crate) fn new(version: Arc<Version>, bounds: &Bounds, at: Moment, direction: Direction) -> Self {
        let path = Path::new(&version.root, bounds.clone(), direction);
        let ahead = Ahead::new(version, path);
        Self { ahead, at, piece: None, spans: Vec::new(), live: Live::default(), shown: 0, ended: false }
    }

    /// The index of the pair that is shown after `shown` others.
    fn index(&self, shown: usize) -> usize {
        match self.ahead.path().direction() {
            Direction::Forward => shown,
            Direction::Backward => self.live.len() - 1 - shown,
        }
    }

    /// The bytes of the current piece.
    fn bytes(&self) -> Option<&[u8]> {
        Some(match self.ahead.image(self.piece.as_ref()?) {
            Image::Cached(leaf) => leaf.bytes(),
            Image::Read(pages) => pages,
        })
    }

    /// Shows the remaining pairs of the piece. Returns how many of its pairs have been shown by then.
    fn run_in_piece(&self, until: Option<&[u8]>, show: &mut Show<'_>) -> (usize, ControlFlow<()>) {
        let Some(bytes) = self.bytes() else { return (self.shown, ControlFlow::Continue(())) };
        let (len, from) = (self.live.len(), self.shown);
        let direction = self.ahead.path().direction();
        let count = until.map_or(len - from, |until| self.live.before(until, from, direction, bytes));
        let pairs = match direction {
            Direction::Forward => from..from + count,
            Direction::Backward => len - from - count..len - from,
        };
        match show(self.live.pairs(pairs, direction, bytes)) {
            ControlFlow::Continue(()) => (from + count, ControlFlow::Continue(())),
            ControlFlow::Break(shown) => (from + shown, ControlFlow::Break(())),
        }
    }

    /// Goes to the next piece; false at the end.
    fn next_piece(&mut self) -> Result<bool> {
        self.live.clear();
        self.piece = self.ahead.next(std::mem::take(&mut self.shown))?;
        let Some(piece) = self.piece else { return Ok(false) };
        let (version, pointer) = (self.ahead.version(), &piece.pointer);
        let filled = match self.ahead.image(&piece) {
            Image::Cached(leaf) => Ok(piece.seen(leaf).expect("an image is chosen by this pointer")),
            Image::Read(pages) => {
                Visible::check(pages, pointer, piece.of(), Link::default(), version.table, &mut self.spans)
            }
        }
        .and_then(|leaf| self.live.fill(&leaf, self.ahead.path().bounds(), self.at));
        filled.map_err(|damage| version.shared.corrupt(pointer, damage))?;
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
            self.ended = !self.next_piece()?;
        }
        Ok(false)
    }

    fn expect_all(&mut self) {
        self.ahead.expect_all();
    }

    fn run(&mut self, until: Option<&[u8]>, show: &mut Show<'_>) -> Result<ControlFlow<()>> {
        while !self.ended {
            let (shown, flow) = self.run_in_piece(until, show);
            self.shown = shown;
            if flow.is_break() || shown < self.live.len() {
                return Ok(flow);
            }
            self.ended = true;
            self.ended = !self.next_piece()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn current(&self) -> Option<PairRef<'_>> {
        let before = self.shown.checked_sub(1)?;
        Some(self.live.pair(self.index(before), self.bytes()?))
    }
}
