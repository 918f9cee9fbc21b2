//! Merging: the newest of every key out of the head and some levels, in key order, and the runs that come of it.
//!
//! 1. [`Newest`] hands out what the head and the levels 1 to j say, newer before older, and the fences of level j, which lead to the level
//!    below and stay true.
//! 2. [`Cascade`] writes that as the new level j. Each page that begins there becomes an *external fence* in the level above, whose pages
//!    become fences in the one above it, up to the head: levels 1 to j − 1 are left with nothing else.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Levels;
use super::page::Layout;
use super::run::{Chunks, Item, Run, RunReader, RunWriter};
use crate::Result;
use crate::trees::pending::{Operation, Snapshot};

/// Entries of several sources in key order, of every key the newest.
pub(super) struct Newest {
    head: Snapshot,
    /// Newer before older.
    runs: Vec<RunReader>,
}

/// Where the least key stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Head,
    Run(usize),
}

impl Newest {
    pub(super) const fn new(head: Snapshot, runs: Vec<RunReader>) -> Self {
        Self { head, runs }
    }

    /// Hands the next item to `visit` and goes past it, and past what is older of its key. What `visit` returns, or none at the end.
    pub(super) fn next<T>(&mut self, visit: impl FnOnce(Item<'_>) -> Result<T>) -> Result<Option<T>> {
        let Some((source, same)) = self.least()? else { return Ok(None) };
        let visited = match source {
            Source::Head => self.head.current().map(|(key, operation)| visit(Item::Entry(key, operation))),
            Source::Run(run) => self.runs[run].current()?.map(visit),
        };
        // Older entries of the same key. They are known by their place in the list, so that keys are compared once.
        for run in 0..self.runs.len() {
            if same >> run & 1 == 1 && source != Source::Run(run) {
                self.runs[run].advance()?;
            }
        }
        match source {
            Source::Head => self.head.advance(),
            Source::Run(run) => self.runs[run].advance()?,
        }
        visited.transpose()
    }

    /// The source of the next item, and as bits the runs whose entry has its key. A fence comes before the entries of its key, so that
    /// a page which begins with an entry has the fence before it.
    fn least(&self) -> Result<Option<(Source, u64)>> {
        let mut least = self.head.current().map(|(key, _)| (Source::Head, key));
        let mut same = 0;
        for (index, run) in self.runs.iter().enumerate() {
            let Some(item) = run.current()? else { continue };
            let (Item::Entry(key, _) | Item::Fence(key, _)) = item;
            let is_fence = matches!(item, Item::Fence(..));
            match least.map_or(Ordering::Less, |(_, least)| key.cmp(least)) {
                Ordering::Less => (least, same) = (Some((Source::Run(index), key)), 1 << index),
                Ordering::Equal if is_fence => (least, same) = (Some((Source::Run(index), key)), 1 << index),
                Ordering::Equal => same |= 1 << index,
                Ordering::Greater => {}
            }
        }
        Ok(least.map(|(source, _)| (source, same)))
    }
}

/// The runs of levels 1 to j in the making, and the fences of the head.
pub(super) struct Cascade {
    /// Level 1 first.
    writers: Vec<RunWriter>,
    head_fences: Vec<u8>,
    key_bytes: usize,
}

impl Cascade {
    pub(super) fn new(chunks: &Arc<Chunks>, layout: Layout, levels: usize) -> Self {
        let writers = (0..levels).map(|_| RunWriter::new(chunks, layout)).collect();
        Self { writers, head_fences: Vec::new(), key_bytes: layout.shape.key_bytes }
    }

    /// Adds an item to the lowest level.
    pub(super) fn push(&mut self, item: Item<'_>) -> Result<()> {
        let lowest = self.writers.len() - 1;
        match item {
            Item::Fence(key, pointer) => self.push_fence(lowest + 1, key, pointer),
            Item::Entry(key, operation) => match self.writers[lowest].push_entry(key, operation)? {
                // All keys below the first page's second belong to it, so its fence is below all keys.
                Some(0) => self.push_fence(lowest, &vec![0; self.key_bytes], 0),
                Some(page) => self.push_fence(lowest, key, page),
                None => Ok(()),
            },
        }
    }

    /// Adds a fence to a level; 0 is the head.
    fn push_fence(&mut self, mut level: usize, key: &[u8], mut pointer: u32) -> Result<()> {
        while level > 0 {
            match self.writers[level - 1].push_fence(key, pointer)? {
                Some(page) => pointer = page,
                None => return Ok(()),
            }
            level -= 1;
        }
        self.head_fences.extend_from_slice(key);
        Ok(())
    }

    /// The runs, level 1 first, and the keys of the head's fences: the first keys of the pages of level 1.
    pub(super) fn finish(self) -> Result<(Vec<Arc<Run>>, Vec<u8>)> {
        let runs = self.writers.into_iter().map(|writer| writer.finish().map(Arc::new)).collect::<Result<_>>()?;
        let mut fences = self.head_fences;
        fences.shrink_to_fit();
        Ok((runs, fences))
    }
}

/// Merges the head and the levels 1 to `target` into level `target`, which may be one more than there are.
pub(super) fn merge(
    chunks: &Arc<Chunks>, layout: Layout, head: Snapshot, old: &Levels, target: usize,
) -> Result<Levels> {
    let is_lowest = target >= old.runs.len();
    let merged = &old.runs[..target.min(old.runs.len())];
    let mut readers = Vec::new();
    for (index, run) in merged.iter().enumerate() {
        let is_target = index + 1 == target;
        if run.entries > 0 || is_target {
            readers.push(RunReader::whole(run, layout, is_target)?);
        }
    }
    let mut cascade = Cascade::new(chunks, layout, target);
    let mut newest = Newest::new(head, readers);
    let mut push = |item: Item<'_>| match item {
        // A filter that met all there is of its key is done.
        Item::Entry(_, Operation::Delete) if is_lowest => Ok(()),
        item => cascade.push(item),
    };
    while newest.next(&mut push)?.is_some() {}
    let (mut runs, fences) = cascade.finish()?;
    runs.extend(old.runs.iter().skip(target).cloned());
    // Levels with nothing in them or below them are none, so that filters go where there is nothing to filter.
    while runs.last().is_some_and(|run| run.pages == 0) {
        runs.pop();
    }
    Ok(Levels { runs, fences })
}
