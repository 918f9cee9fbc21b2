//! A walk through the versions of a file, in either direction.
//!
//! Blocks are read ahead: the first alone, then twice as many each time, up to [`WINDOW_MAX`]. So a short scan reads
//! what it shows, and a long one reads in large psyncs. A window ends where its partition does.

use std::collections::VecDeque;
use std::sync::Arc;

use index::{Direction, Result, Update};

use crate::blocks::{Kind, Loaded};
use crate::format::fences::Fences;
use crate::shared::{Shared, Want};
use crate::sst::Sst;

/// Most blocks that are read together.
const WINDOW_MAX: usize = 64;

/// A walk, before its first version.
pub struct Scan {
    shared: Arc<Shared>,
    sst: Arc<Sst>,
    direction: Direction,
    /// The partition of the next blocks to be read, and the first of them; none at the end.
    next: Option<(usize, usize)>,
    fences: Option<(usize, Arc<Loaded>)>,
    ready: VecDeque<Arc<Loaded>>,
    window: usize,
    /// The block of the current version, and the versions of the block that were shown.
    block: Option<Arc<Loaded>>,
    shown: usize,
    key: Vec<u8>,
}

impl Scan {
    /// A walk from `from` on, in its direction; through the whole file without it. Backward, a walk begins with the
    /// versions of the last key that is not above `from`.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub fn new(shared: &Arc<Shared>, sst: &Arc<Sst>, from: Option<&[u8]>, direction: Direction) -> Result<Self> {
        let mut scan = Self {
            shared: Arc::clone(shared),
            sst: Arc::clone(sst),
            direction,
            next: None,
            fences: None,
            ready: VecDeque::new(),
            window: 1,
            block: None,
            shown: 0,
            key: Vec::new(),
        };
        scan.seek(from)?;
        Ok(scan)
    }

    fn seek(&mut self, from: Option<&[u8]>) -> Result<()> {
        let top = self.sst.top(&self.shared)?;
        let partition = first(top.fences(), from, self.direction);
        let fences = self.partition(partition)?;
        self.next = Some((partition, first(fences.fences(), from, self.direction)));
        let Some(from) = from else { return Ok(()) };
        // Versions before the beginning, in the first block or, if all of it is before, in the first two.
        while self.load()? {
            let block = self.block.as_ref().expect("it was loaded").data();
            let before = match self.direction {
                Direction::Forward => block.seek(from),
                Direction::Backward => block.len() - block.seek_behind(from),
            };
            self.shown = before;
            if before < block.len() {
                break;
            }
        }
        Ok(())
    }

    /// The fences of a partition.
    fn partition(&mut self, index: usize) -> Result<Arc<Loaded>> {
        if let Some((known, fences)) = &self.fences
            && *known == index
        {
            return Ok(Arc::clone(fences));
        }
        let place = self.sst.top(&self.shared)?.fences().place(index, 0);
        let want = Want { sst: &self.sst, place, kind: Kind::Partition };
        let fences = self.shared.block(want)?;
        self.fences = Some((index, Arc::clone(&fences)));
        Ok(fences)
    }

    /// Makes the next block the current one; false at the end.
    fn load(&mut self) -> Result<bool> {
        if self.ready.is_empty() {
            self.read()?;
        }
        self.block = self.ready.pop_front();
        self.shown = 0;
        Ok(self.block.is_some())
    }

    /// Reads the next blocks.
    fn read(&mut self) -> Result<()> {
        let Some((partition, first)) = self.next else { return Ok(()) };
        let fences = self.partition(partition)?;
        let fences = fences.fences();
        let blocks: Vec<usize> = match self.direction {
            Direction::Forward => (first..fences.len()).take(self.window).collect(),
            Direction::Backward => (0..=first).rev().take(self.window).collect(),
        };
        let want = |block: &usize| Want { sst: &self.sst, place: fences.place(*block, 0), kind: Kind::Data };
        let wants: Vec<_> = blocks.iter().map(want).collect();
        self.ready.extend(self.shared.blocks(&wants)?);
        self.window = (2 * self.window).min(WINDOW_MAX);
        let last = *blocks.last().expect("a window has a block");
        self.next = match self.direction {
            Direction::Forward if last + 1 < fences.len() => Some((partition, last + 1)),
            Direction::Forward => {
                let partitions = self.sst.top(&self.shared)?.fences().len();
                (partition + 1 < partitions).then_some((partition + 1, 0))
            }
            Direction::Backward if last > 0 => Some((partition, last - 1)),
            Direction::Backward => match partition.checked_sub(1) {
                Some(before) => Some((before, self.partition(before)?.fences().len() - 1)),
                None => None,
            },
        };
        Ok(())
    }

    /// Moves to the next version; false at the end.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub fn advance(&mut self) -> Result<bool> {
        while self.block.as_ref().is_none_or(|block| self.shown == block.data().len()) {
            if !self.load()? {
                return Ok(false);
            }
        }
        self.shown += 1;
        let mut key = std::mem::take(&mut self.key);
        if let Some((block, index)) = self.place() {
            let block = block.data();
            key.clear();
            key.extend_from_slice(block.shared());
            key.extend_from_slice(block.rest(index));
        }
        self.key = key;
        Ok(true)
    }

    /// The block of the current version, and its index.
    fn place(&self) -> Option<(&Arc<Loaded>, usize)> {
        let (block, before) = (self.block.as_ref()?, self.shown.checked_sub(1)?);
        Some(match self.direction {
            Direction::Forward => (block, before),
            Direction::Backward => (block, block.data().len() - 1 - before),
        })
    }

    /// The key of the current version.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current version, until the walk goes on; none before the first.
    #[must_use]
    pub fn current(&self) -> Option<Update<'_>> {
        let (block, index) = self.place()?;
        let block = block.data();
        Some(Update { key: &self.key, seq: block.seq(index), operation: block.operation(index) })
    }
}

/// The block in which a walk from `from` on begins.
fn first(fences: Fences<'_>, from: Option<&[u8]>, direction: Direction) -> usize {
    match (direction, from) {
        (Direction::Forward, None) => 0,
        (Direction::Forward, Some(from)) => fences.seek(from),
        (Direction::Backward, None) => fences.len() - 1,
        (Direction::Backward, Some(from)) => fences.seek_last(from),
    }
}
