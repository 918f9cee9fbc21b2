//! Merging: the newest entry of every key out of the head and some levels, in key order, and the resulting runs.
//!
//! 1. [`Newest`] returns the entries of the head and of levels 1 to j, newer before older, and the fences of level j,
//!    which lead to the level below and stay true.
//! 2. [`Cascade`] writes these items as the new level j. Each new page of level j becomes an *external fence* in the
//!    level above, whose pages become fences in the next level above, up to the head: levels 1 to j − 1 are left with
//!    nothing else.

use std::cmp::Ordering;
use std::sync::Arc;

use super::levels::Levels;
use super::page::Layout;
use super::run::{Chunks, Item, Run, RunReader, RunWriter};
use crate::Result;
use crate::trees::pending::{Operation, Snapshot};

/// Entries of several sources in key order, the newest of every key.
pub(super) struct Newest<'e> {
    head: Snapshot,
    /// Newer before older.
    runs: Vec<RunReader>,
    /// The end of the key range, exclusive.
    end: Option<&'e [u8]>,
}

#[derive(Clone, Copy)]
enum Source {
    Head,
    Run(usize),
}

/// The position of the least key.
struct Least<'a> {
    source: Source,
    key: &'a [u8],
    is_fence: bool,
    /// As bits, the runs that are at an older entry of the key.
    older: u64,
    /// The least key of the other sources.
    limit: Option<&'a [u8]>,
}

impl<'e> Newest<'e> {
    pub(super) const fn new(head: Snapshot, runs: Vec<RunReader>, end: Option<&'e [u8]>) -> Self {
        Self { head, runs, end }
    }

    /// Passes the next item to `visit` and advances past the item, and past older entries of its key. Returns the
    /// result of `visit`, or none at the end.
    pub(super) fn next<T>(&mut self, visit: impl FnOnce(Item<'_>) -> Result<T>) -> Result<Option<T>> {
        let Some(least) = self.least().filter(|least| self.end.is_none_or(|end| least.key < end)) else {
            return Ok(None);
        };
        let (older, source) = (least.older, least.source);
        let (visited, count) = match source {
            Source::Head => (self.head.current().map(|(key, operation)| visit(Item::Entry(key, operation))), 1),
            // An entry with an older entry in another run goes alone.
            Source::Run(run) => {
                let limit =
                    if older == 0 { [least.limit, self.end].into_iter().flatten().min() } else { Some(least.key) };
                self.runs[run].current(limit).map_or((None, 0), |(item, count)| (Some(visit(item)), count))
            }
        };
        for run in 0..self.runs.len() {
            if older >> run & 1 == 1 {
                self.runs[run].advance(1)?;
            }
        }
        match source {
            Source::Head => self.head.advance(),
            Source::Run(run) => self.runs[run].advance(count)?,
        }
        visited.transpose()
    }

    /// The source of the next item. A fence comes before the entries of its key, so that a page that begins with an
    /// entry has the fence before it.
    fn least(&self) -> Option<Least<'_>> {
        let head = self.head.current();
        let mut least =
            head.map(|(key, _)| Least { source: Source::Head, key, is_fence: false, older: 0, limit: None });
        for (index, run) in self.runs.iter().enumerate() {
            let Some((key, is_fence)) = run.key() else { continue };
            let this = |limit| Least { source: Source::Run(index), key, is_fence, older: 0, limit };
            match &mut least {
                None => least = Some(this(None)),
                Some(found) => match key.cmp(found.key) {
                    Ordering::Less => least = Some(this(Some(found.key))),
                    Ordering::Equal if is_fence => least = Some(this(Some(found.key))),
                    Ordering::Equal if !found.is_fence => found.older |= 1 << index,
                    Ordering::Equal | Ordering::Greater => {
                        found.limit = Some(found.limit.map_or(key, |limit| limit.min(key)));
                    }
                },
            }
        }
        least
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

    /// Adds an item to the lowest level, without filters if `drops_filters`.
    pub(super) fn push(&mut self, item: Item<'_>, drops_filters: bool) -> Result<()> {
        match item {
            Item::Fence(key, pointer) => self.push_fence(self.writers.len(), key, pointer),
            // A filter is done once all entries of its key have been merged.
            Item::Entry(_, Operation::Delete) if drops_filters => Ok(()),
            Item::Entry(key, operation) => self.push_entry(key, operation),
            Item::Entries(page, entries) if page.has_filters() => entries
                .into_iter()
                .try_for_each(|entry| self.push(Item::Entry(page.key(entry), page.operation(entry)), drops_filters)),
            Item::Entries(page, mut entries) => {
                // An entry that begins a page needs fences in the levels above.
                while let Some(first) = entries.next() {
                    self.push_entry(page.key(first), page.operation(first))?;
                    let lowest = self.writers.len() - 1;
                    entries.start += self.writers[lowest].push_entries(&page, entries.clone());
                }
                Ok(())
            }
        }
    }

    fn push_entry(&mut self, key: &[u8], operation: Operation<'_>) -> Result<()> {
        let lowest = self.writers.len() - 1;
        match self.writers[lowest].push_entry(key, operation)? {
            // All keys below the second page's first key belong to the first page, so its fence is below all keys.
            Some(0) => self.push_fence(lowest, &vec![0; self.key_bytes], 0),
            Some(page) => self.push_fence(lowest, key, page),
            None => Ok(()),
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
    let mut newest = Newest::new(head, readers, None);
    while newest.next(|item| cascade.push(item, is_lowest))?.is_some() {}
    let (mut runs, fences) = cascade.finish()?;
    runs.extend(old.runs.iter().skip(target).cloned());
    // Empty levels at the bottom are removed, so that filters are dropped where there is nothing to filter.
    while runs.last().is_some_and(|run| run.pages == 0) {
        runs.pop();
    }
    Ok(Levels { runs, fences })
}
