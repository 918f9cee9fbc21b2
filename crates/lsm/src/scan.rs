//! A walk through the versions of a file, in either direction.
//!
//! Blocks are read ahead: the first alone, then twice as many each time, up to [`WINDOW_MAX`]. So a short scan reads
//! what it shows, and a long one reads in large psyncs. A window ends where its partition does, and no block is read
//! that has no key within the bounds.
//!
//! Where nothing older is below a walk, it passes over blocks in which its reader sees nothing, and over partitions of
//! them, because their fences say so. So a seek over any number of deleted keys that others still see is short.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use index::{Bounds, Direction, Result, Seq, Update};
use psync::BLOCK;

use crate::blocks::{Kind, Loaded};
use crate::format::Place;
use crate::format::fences::Fences;
use crate::shared::{Reader, Shared, Want};
use crate::sst::Sst;

/// Most blocks that are read together.
const WINDOW_MAX: usize = 64;
/// Blocks of windows up to this size are read as lookups read them, because short scans begin at the same places.
const SHORT_WINDOW: usize = 4;

/// How many blocks a walk reads together next, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    next: usize,
    most: usize,
}

impl Pace {
    /// That of a walk that may be short.
    pub(crate) const SHORT: Self = Self { next: 1, most: WINDOW_MAX };
    /// That of a walk that goes on to its end.
    pub(crate) const WHOLE: Self = Self { next: WINDOW_MAX, most: WINDOW_MAX };

    /// That of one of several walks that go on to their ends together, and read ahead so many bytes in sum.
    pub(crate) fn of_many(walks: usize, bytes: usize) -> Self {
        let most = (bytes / BLOCK / walks.max(1)).clamp(1, WINDOW_MAX);
        Self { next: WINDOW_MAX, most }
    }

    fn take(&mut self) -> usize {
        let window = self.next.min(self.most);
        self.next = (2 * window).min(WINDOW_MAX);
        window
    }

    const fn reader(self) -> Reader {
        if self.next <= SHORT_WINDOW { Reader::Lookup } else { Reader::Walk }
    }

    /// At most so many blocks are read together from here on.
    pub(crate) fn keep_within(&mut self, blocks: usize) {
        self.most = blocks.clamp(1, WINDOW_MAX);
    }
}

/// A walk, before its first version.
pub(crate) struct Scan {
    shared: Arc<Shared>,
    sst: Arc<Sst>,
    bounds: Bounds,
    direction: Direction,
    /// The partition of the next blocks to be read, and the first of them; none at the end.
    next: Option<(usize, usize)>,
    fences: Option<(usize, Arc<Loaded>)>,
    ready: VecDeque<(Place, Arc<Loaded>)>,
    pace: Pace,
    /// The walk passes over what a reader at this moment does not see.
    passes: Option<Seq>,
    /// The block of the current version, its versions within the bounds, and how many of these were shown.
    block: Option<(Place, Arc<Loaded>)>,
    within: (usize, usize),
    shown: usize,
    key: Vec<u8>,
}

impl Scan {
    /// A walk through the keys within `bounds`, in this direction.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub(crate) fn new(shared: &Arc<Shared>, sst: &Arc<Sst>, bounds: &Bounds, direction: Direction) -> Result<Self> {
        Self::with_pace(shared, sst, bounds, direction, Pace::SHORT)
    }

    /// As [`Scan::new`], at this pace.
    pub(crate) fn with_pace(
        shared: &Arc<Shared>, sst: &Arc<Sst>, bounds: &Bounds, direction: Direction, pace: Pace,
    ) -> Result<Self> {
        let mut scan = Self {
            shared: Arc::clone(shared),
            sst: Arc::clone(sst),
            bounds: bounds.clone(),
            direction,
            next: None,
            fences: None,
            ready: VecDeque::new(),
            pace,
            passes: None,
            block: None,
            within: (0, 0),
            shown: 0,
            key: Vec::new(),
        };
        let partition = scan.first(sst.top(shared)?.fences());
        let fences = scan.partition(partition)?;
        scan.next = Some((partition, scan.first(fences.fences())));
        Ok(scan)
    }

    /// The same walk, which passes over what a reader at this moment does not see, if there is one.
    pub(crate) const fn passing(mut self, at: Option<Seq>) -> Self {
        self.passes = at;
        self
    }

    /// The pace that the walk has come to.
    pub(crate) const fn pace(&self) -> Pace {
        self.pace
    }

    /// Blocks that were read ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.ready.len()
    }

    /// At most so many blocks are read together from here on.
    pub(crate) fn keep_within(&mut self, blocks: usize) {
        self.pace.keep_within(blocks);
    }

    /// The block in which the walk begins.
    fn first(&self, fences: Fences<'_>) -> usize {
        let from = match self.direction {
            Direction::Forward => &self.bounds.lower,
            Direction::Backward => &self.bounds.upper,
        };
        match (self.direction, from) {
            (Direction::Forward, Bound::Unbounded) => 0,
            (Direction::Forward, Bound::Included(from) | Bound::Excluded(from)) => fences.seek(from),
            (Direction::Backward, Bound::Unbounded) => fences.len() - 1,
            (Direction::Backward, Bound::Included(from) | Bound::Excluded(from)) => fences.seek_last(from),
        }
    }

    /// Whether keys from a fence on are behind the end of the walk: forward those of the block that begins there,
    /// backward those of the block that ends there.
    fn is_behind_end(&self, fence: [&[u8]; 2]) -> bool {
        let compare = |bound: &[u8]| {
            let (head, rest) = bound.split_at(bound.len().min(fence[0].len()));
            fence[0].cmp(head).then_with(|| fence[1].cmp(rest))
        };
        match (self.direction, &self.bounds.lower, &self.bounds.upper) {
            (Direction::Forward, _, Bound::Included(upper)) => compare(upper).is_gt(),
            (Direction::Forward, _, Bound::Excluded(upper)) => compare(upper).is_ge(),
            (Direction::Backward, Bound::Included(lower) | Bound::Excluded(lower), _) => compare(lower).is_lt(),
            _ => false,
        }
    }

    /// The fences of a partition.
    fn partition(&mut self, index: usize) -> Result<Arc<Loaded>> {
        if let Some((known, fences)) = &self.fences
            && *known == index
        {
            return Ok(Arc::clone(fences));
        }
        let fences = self.sst.partition(&self.shared, index)?;
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
        let Some((_, block)) = &self.block else { return Ok(false) };
        let block = block.data();
        let begin = match &self.bounds.lower {
            Bound::Unbounded => 0,
            Bound::Included(lower) => block.seek(lower),
            Bound::Excluded(lower) => block.seek_behind(lower),
        };
        let end = match &self.bounds.upper {
            Bound::Unbounded => block.len(),
            Bound::Included(upper) => block.seek_behind(upper),
            Bound::Excluded(upper) => block.seek(upper),
        };
        self.within = (begin, end.max(begin));
        Ok(true)
    }

    /// Reads the next blocks.
    fn read(&mut self) -> Result<()> {
        let (reader, window) = (self.pace.reader(), self.pace.take());
        while let Some((partition, first)) = self.next {
            let loaded = self.partition(partition)?;
            let fences = loaded.fences();
            let mut blocks: Vec<usize> = Vec::with_capacity(window.min(fences.len()));
            let (mut next, mut ended) = (Some(first), false);
            while let Some(block) = next.filter(|_| blocks.len() < window && !ended) {
                if !self.is_passed(fences, block) {
                    blocks.push(block);
                }
                next = match self.direction {
                    Direction::Forward => (block + 1 < fences.len()).then_some(block + 1),
                    Direction::Backward => block.checked_sub(1),
                };
                let fence = match self.direction {
                    Direction::Forward => next,
                    Direction::Backward => Some(block),
                };
                ended = fence.is_some_and(|fence| self.is_behind_end(fences.key(fence)));
            }
            self.next = match next {
                _ if ended => None,
                Some(block) => Some((partition, block)),
                None => self.next_partition(partition)?,
            };
            if !blocks.is_empty() {
                return self.fetch(fences, &blocks, reader);
            }
        }
        Ok(())
    }

    /// Whether a block, or a partition of the top, has nothing for the reader. One of several with versions of the same
    /// key may hide what another one has, so it is read.
    fn is_passed(&self, fences: Fences<'_>, index: usize) -> bool {
        let Some(at) = self.passes else { return false };
        let tombstones = fences.tombstones(index);
        let is_same = |other: usize| fences.key(other) == fences.key(index);
        let is_one = || index.checked_sub(1).is_none_or(|before| !is_same(before));
        tombstones.is_bare && tombstones.newest <= at && is_one() && (index + 1 == fences.len() || !is_same(index + 1))
    }

    /// The first block of the next partition that the walk comes to, if there is one.
    fn next_partition(&mut self, partition: usize) -> Result<Option<(usize, usize)>> {
        let top = Arc::clone(self.sst.top(&self.shared)?);
        let top = top.fences();
        match self.direction {
            Direction::Forward => {
                let within = (partition + 1..top.len()).take_while(|next| !self.is_behind_end(top.key(*next)));
                let mut left = within.skip_while(|next| self.is_passed(top, *next));
                Ok(left.next().map(|next| (next, 0)))
            }
            Direction::Backward => {
                // The fence of a partition is the end of those before it.
                let within = (0..partition).rev().take_while(|next| !self.is_behind_end(top.key(*next + 1)));
                let mut left = within.skip_while(|next| self.is_passed(top, *next));
                left.next().map(|before| Ok((before, self.partition(before)?.fences().len() - 1))).transpose()
            }
        }
    }

    fn fetch(&mut self, fences: Fences<'_>, blocks: &[usize], reader: Reader) -> Result<()> {
        let places: Vec<Place> = blocks.iter().map(|block| fences.place(*block, 0)).collect();
        let want = |place: &Place| Want { sst: &self.sst, place: *place, kind: Kind::Data };
        let wants: Vec<_> = places.iter().map(want).collect();
        let blocks = self.shared.blocks_for(&wants, reader)?;
        self.ready.extend(places.into_iter().zip(blocks));
        Ok(())
    }

    /// Moves to the next version; false at the end.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        while self.block.is_none() || self.shown == self.within.1 - self.within.0 {
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
        let ((_, block), before) = (self.block.as_ref()?, self.shown.checked_sub(1)?);
        Some(match self.direction {
            Direction::Forward => (block, self.within.0 + before),
            Direction::Backward => (block, self.within.1 - 1 - before),
        })
    }

    /// Where the current block begins and ends in the file; 0 before the first.
    pub(crate) fn block(&self) -> (u32, u32) {
        self.block.as_ref().map_or((0, 0), |(place, _)| (place.offset, place.offset + u32::from(place.bytes)))
    }

    /// The key of the current version.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current version, until the walk goes on; none before the first.
    pub(crate) fn current(&self) -> Option<Update<'_>> {
        let (block, index) = self.place()?;
        let block = block.data();
        Some(Update { key: &self.key, seq: block.seq(index), operation: block.operation(index) })
    }
}
