//! Sorted runs: slices whose key ranges rise and do not overlap. A level is a run, and so is each sublevel of the
//! newest files.

use std::ops::Bound;
use std::sync::Arc;

use index::{Bounds, Direction, Result, Seq, Update};

use crate::scan::{Pace, Scan};
use crate::shared::Shared;
use crate::slices::Slice;

/// A sorted run.
#[derive(Clone, Default)]
pub(crate) struct Run(Arc<[Arc<Slice>]>);

impl Run {
    /// The run of these slices, in key order.
    pub(crate) fn new(slices: Vec<Arc<Slice>>) -> Self {
        debug_assert!(slices.is_sorted_by(|one, next| one.high() < next.low()), "the slices of a run do not overlap");
        Self(slices.into())
    }

    /// The slices.
    pub(crate) fn slices(&self) -> &[Arc<Slice>] {
        &self.0
    }

    /// The slice that may have `key`.
    pub(crate) fn slice_of(&self, key: &[u8]) -> Option<&Arc<Slice>> {
        let slice = self.0.get(self.0.partition_point(|slice| slice.high() < key))?;
        (slice.low() <= key).then_some(slice)
    }

    /// The slices with keys from `low` on and below `high`.
    pub(crate) fn within(&self, low: &[u8], high: Option<&[u8]>) -> &[Arc<Slice>] {
        let begin = self.0.partition_point(|slice| slice.high() < low);
        let end = high.map_or(self.0.len(), |high| self.0.partition_point(|slice| slice.low() < high));
        &self.0[begin..end.max(begin)]
    }

    /// Sorts slices into runs. Each slice goes to the run behind the newest one in which it overlaps another, and to
    /// the oldest where there is none. `slices` are in the order of their age, the oldest first; so are the runs.
    pub(crate) fn sublevels(slices: &[Arc<Slice>]) -> Vec<Self> {
        let mut runs: Vec<Vec<Arc<Slice>>> = Vec::new();
        for slice in slices {
            let place = |run: &[Arc<Slice>]| run.partition_point(|other| other.high() < slice.low());
            let overlaps = |run: &Vec<Arc<Slice>>| run.get(place(run)).is_some_and(|other| other.low() <= slice.high());
            let run = runs.iter().rposition(overlaps).map_or(0, |newest| newest + 1);
            match runs.get_mut(run) {
                Some(run) => run.insert(place(run), Arc::clone(slice)),
                None => runs.push(vec![Arc::clone(slice)]),
            }
        }
        runs.into_iter().map(Self::new).collect()
    }
}

/// A walk through the versions of a run. Files are opened as the walk comes to them.
pub(crate) struct RunScan {
    shared: Arc<Shared>,
    run: Run,
    bounds: Bounds,
    direction: Direction,
    pace: Pace,
    passes: Option<Seq>,
    /// Slices behind the current one, in the direction.
    left: std::ops::Range<usize>,
    scan: Option<Scan>,
    /// The number of its file.
    file: u64,
}

impl RunScan {
    /// As [`Scan::new`]; and the walk passes over what a reader at `passes` does not see, if that is given.
    pub(crate) fn new(
        shared: &Arc<Shared>, run: &Run, bounds: &Bounds, direction: Direction, pace: Pace, passes: Option<Seq>,
    ) -> Result<Self> {
        let slices = run.slices();
        let begin = match &bounds.lower {
            Bound::Unbounded => 0,
            Bound::Included(lower) | Bound::Excluded(lower) => {
                slices.partition_point(|slice| slice.high() < lower.as_slice())
            }
        };
        let end = match &bounds.upper {
            Bound::Unbounded => slices.len(),
            Bound::Included(upper) => slices.partition_point(|slice| slice.low() <= upper.as_slice()),
            Bound::Excluded(upper) => slices.partition_point(|slice| slice.low() < upper.as_slice()),
        };
        let (shared, run, bounds) = (Arc::clone(shared), run.clone(), bounds.clone());
        let left = begin..end.max(begin);
        let mut scan = Self { shared, run, bounds, direction, pace, passes, left, scan: None, file: 0 };
        scan.open()?;
        Ok(scan)
    }

    /// Goes on to the next slice; without one there is no walk any more.
    fn open(&mut self) -> Result<()> {
        self.scan = None;
        let next = match self.direction {
            Direction::Forward => self.left.next(),
            Direction::Backward => self.left.next_back(),
        };
        let Some(next) = next else { return Ok(()) };
        let slice = &self.run.slices()[next];
        let mut bounds = slice.bounds();
        if self.bounds.lower != Bound::Unbounded && !self.bounds.above_lower(slice.low()) {
            bounds.lower.clone_from(&self.bounds.lower);
        }
        if self.bounds.upper != Bound::Unbounded && !self.bounds.below_upper(slice.high()) {
            bounds.upper.clone_from(&self.bounds.upper);
        }
        let scan = Scan::with_pace(&self.shared, slice.sst(), &bounds, self.direction, self.pace)?.passing(self.passes);
        self.pace = scan.pace();
        self.scan = Some(scan);
        self.file = slice.sst().number();
        Ok(())
    }

    /// The number of the file of the current version.
    pub(crate) const fn file(&self) -> u64 {
        self.file
    }

    /// Moves to the next version; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        while let Some(scan) = &mut self.scan {
            if scan.advance()? {
                return Ok(true);
            }
            self.pace = scan.pace();
            self.open()?;
        }
        Ok(false)
    }

    /// Blocks that were read ahead.
    pub(crate) fn ahead(&self) -> usize {
        self.scan.as_ref().map_or(0, Scan::ahead)
    }

    /// At most so many blocks are read together from here on.
    pub(crate) fn keep_within(&mut self, blocks: usize) {
        self.pace.keep_within(blocks);
        self.scan.iter_mut().for_each(|scan| scan.keep_within(blocks));
    }

    /// The key of the current version; empty before the first and at the end.
    pub(crate) fn key(&self) -> &[u8] {
        self.scan.as_ref().map_or(&[], Scan::key)
    }

    /// The current version, until the walk goes on; none before the first and at the end.
    pub(crate) fn current(&self) -> Option<Update<'_>> {
        self.scan.as_ref()?.current()
    }
}
