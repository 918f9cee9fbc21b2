//! Scans: a walk through all runs at once, of which a reader sees the newest versions at its moment.
//!
//! Pairs lie in memory of the scan, some at a time: at first one, then ever more.

use std::ops::ControlFlow;
use std::sync::Arc;

use index::{Bounds, Cursor, Direction, Moment, PairAt, PairRef, Pairs, Result, Share, Show, Update};

use crate::merged::Merged;
use crate::runs::Run;
use crate::scan::Pace;
use crate::version::Version;

/// Pairs that are taken together at first, and at most; and the bytes from which on no more are taken.
const FIRST_PAIRS: usize = 8;
const PAIRS_MAX: usize = 512;
const BYTES_MAX: usize = 64 << 10;

/// Walks a version in key order.
pub(crate) struct TreeCursor {
    version: Arc<Version>,
    bounds: Bounds,
    at: Moment,
    direction: Direction,
    pace: Pace,
    merged: Option<Merged>,
    /// Pairs that were taken, in the order of the walk, and how many of them were shown.
    bytes: Vec<u8>,
    places: Vec<PairAt>,
    shown: usize,
    /// Pairs that are taken next.
    most: usize,
    ended: bool,
    share: Share,
}

impl TreeCursor {
    pub(crate) fn new(version: Arc<Version>, bounds: &Bounds, at: Moment, direction: Direction) -> Self {
        let share = version.shared.read_ahead().share();
        Self {
            version,
            bounds: bounds.clone(),
            at,
            direction,
            pace: Pace::SHORT,
            merged: None,
            bytes: Vec::new(),
            places: Vec::new(),
            shown: 0,
            most: FIRST_PAIRS,
            ended: bounds.is_empty(),
            share,
        }
    }

    /// Takes the next pairs; false at the end. A failure ends the walk behind the pairs before it.
    fn take(&mut self) -> Result<bool> {
        self.shown = 0;
        self.bytes.clear();
        self.places.clear();
        let mut merged = match self.merged.take() {
            Some(merged) => merged,
            None => {
                let runs: Vec<Run> = self.version.runs().cloned().collect();
                let (shared, passes) = (&self.version.shared, Some(self.at.seq));
                Merged::with_pace(shared, &runs, &self.bounds, self.direction, self.pace, passes)?
            }
        };
        while self.places.len() < self.most && self.bytes.len() < BYTES_MAX {
            match merged.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.merged = Some(merged);
                    return Ok(!self.places.is_empty());
                }
                // The walk is begun again behind these pairs, and fails there.
                Err(_) if !self.places.is_empty() => {
                    self.begin_behind();
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
            if let Some(update) = merged.newest(self.at.seq) {
                self.add(&update);
            }
        }
        self.most = (2 * self.most).min(PAIRS_MAX);
        self.share.hold(merged.held_bytes());
        merged.keep_within(self.share.bytes_max());
        self.merged = Some(merged);
        Ok(true)
    }

    /// The rest of the walk, behind the last pair that was taken.
    fn begin_behind(&mut self) {
        let Some(last) = self.places.last().map(|place| place.key(&self.bytes).to_vec()) else { return };
        match self.direction {
            Direction::Forward => self.bounds.lower = std::ops::Bound::Excluded(last),
            Direction::Backward => self.bounds.upper = std::ops::Bound::Excluded(last),
        }
    }

    /// Takes a version, if it has a value at the moment of the walk.
    fn add(&mut self, update: &Update<'_>) {
        let Some(value) = update.operation.shown(self.at.now) else { return };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(update.key);
        let expiry = update.operation.expiry();
        self.places.push(PairAt::put(&mut self.bytes, start, update.seq, value, expiry));
    }

    /// The number of pairs not yet shown that come before `until`.
    fn before(&self, until: &[u8]) -> usize {
        let is_before = |place: &PairAt| self.direction.order(place.key(&self.bytes), until).is_lt();
        self.places[self.shown..].partition_point(is_before)
    }
}

impl Cursor for TreeCursor {
    fn advance(&mut self) -> Result<bool> {
        while !self.ended {
            if self.shown < self.places.len() {
                self.shown += 1;
                return Ok(true);
            }
            self.ended = true;
            self.ended = !self.take()?;
        }
        Ok(false)
    }

    fn current(&self) -> Option<PairRef<'_>> {
        Some(self.places[self.shown.checked_sub(1)?].pair(&self.bytes))
    }

    fn expect_all(&mut self) {
        (self.pace, self.most) = (Pace::WHOLE, PAIRS_MAX);
    }

    fn run(&mut self, until: Option<&[u8]>, show: &mut Show<'_>) -> Result<ControlFlow<()>> {
        while !self.ended {
            let (len, from) = (self.places.len(), self.shown);
            let count = until.map_or(len - from, |until| self.before(until));
            // They are in the order of the walk already.
            let pairs = Pairs::new(&self.places[from..from + count], &self.bytes, Direction::Forward);
            if let ControlFlow::Break(shown) = show(pairs) {
                self.shown = from + shown;
                return Ok(ControlFlow::Break(()));
            }
            self.shown = from + count;
            if self.shown < len {
                return Ok(ControlFlow::Continue(()));
            }
            self.ended = true;
            self.ended = !self.take()?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
