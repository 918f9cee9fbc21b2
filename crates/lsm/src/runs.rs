//! Sorted runs: files whose key ranges rise and do not overlap. A level is a run, and so is each sublevel of the
//! newest files.

use std::sync::Arc;

use index::{Direction, Result, Update};

use crate::scan::Scan;
use crate::shared::Shared;
use crate::sst::Sst;

/// A sorted run.
#[derive(Clone, Default)]
pub struct Run(Arc<[Arc<Sst>]>);

impl Run {
    /// The run of these files, in key order.
    #[must_use]
    pub fn new(files: Vec<Arc<Sst>>) -> Self {
        let rises = |one: &Arc<Sst>, next: &Arc<Sst>| one.written().high < next.written().low;
        debug_assert!(files.is_sorted_by(rises), "the files of a run do not overlap");
        Self(files.into())
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &[Arc<Sst>] {
        &self.0
    }

    /// The file that may have `key`.
    #[must_use]
    pub fn file_of(&self, key: &[u8]) -> Option<&Arc<Sst>> {
        let file = self.0.get(self.0.partition_point(|file| file.written().high.as_slice() < key))?;
        (file.written().low.as_slice() <= key).then_some(file)
    }

    /// Sorts files into runs. Each file goes to the run behind the newest one in which it overlaps a file, and to the
    /// oldest where there is none. `files` are in the order of their numbers, the oldest first; so are the runs.
    #[must_use]
    pub fn sublevels(files: &[Arc<Sst>]) -> Vec<Self> {
        let mut runs: Vec<Vec<Arc<Sst>>> = Vec::new();
        for file in files {
            let overlaps = |other: &Arc<Sst>| {
                let (one, other) = (file.written(), other.written());
                one.low <= other.high && other.low <= one.high
            };
            let run = runs.iter().rposition(|run| run.iter().any(overlaps)).map_or(0, |newest| newest + 1);
            match runs.get_mut(run) {
                Some(run) => run.push(Arc::clone(file)),
                None => runs.push(vec![Arc::clone(file)]),
            }
        }
        let sorted = |mut run: Vec<Arc<Sst>>| {
            run.sort_by(|one, other| one.written().low.cmp(&other.written().low));
            Self::new(run)
        };
        runs.into_iter().map(sorted).collect()
    }
}

/// A walk through the versions of a run. Files are opened as the walk comes to them.
pub(crate) struct RunScan {
    shared: Arc<Shared>,
    run: Run,
    direction: Direction,
    /// Files behind the current one, in the direction.
    left: usize,
    scan: Option<Scan>,
}

impl RunScan {
    /// As [`Scan::new`].
    pub(crate) fn new(shared: &Arc<Shared>, run: &Run, from: Option<&[u8]>, direction: Direction) -> Result<Self> {
        let files = run.files();
        let before = match (direction, from) {
            (_, None) => 0,
            (Direction::Forward, Some(from)) => files.partition_point(|file| file.written().high.as_slice() < from),
            (Direction::Backward, Some(from)) => {
                files.len() - files.partition_point(|file| file.written().low.as_slice() <= from)
            }
        };
        let (shared, run) = (Arc::clone(shared), run.clone());
        let mut scan = Self { shared, left: files.len() - before, run, direction, scan: None };
        scan.open(from)?;
        Ok(scan)
    }

    /// Goes on to the next file; without one there is no walk any more.
    fn open(&mut self, from: Option<&[u8]>) -> Result<()> {
        self.scan = None;
        let files = self.run.files();
        let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
        let file = match self.direction {
            Direction::Forward => &files[files.len() - self.left],
            Direction::Backward => &files[left],
        };
        self.scan = Some(Scan::new(&self.shared, file, from, self.direction)?);
        self.left = left;
        Ok(())
    }

    /// Moves to the next version; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        while let Some(scan) = &mut self.scan {
            if scan.advance()? {
                return Ok(true);
            }
            self.open(None)?;
        }
        Ok(false)
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
