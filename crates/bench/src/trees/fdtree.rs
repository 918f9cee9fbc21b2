//! The FD-tree of Li, He, Yang, Luo and Yi, "Tree Indexing on Solid State Drives" (PVLDB 3(1), 2010).
//!
//! 1. Level 0 is the *head tree* in memory; levels 1, 2, … are sorted runs on the device, each up to k times as large
//!    as the one above.
//! 2. Inserts, and deletes as *filter entries*, go to the head tree. A full head tree is merged down with sequential
//!    requests, into the first level that has room for all levels above.
//! 3. *Fences* join the levels: a level has one for every page of the level below. A search takes the fence before its
//!    key from the head and from each page on its way. So a search reads one page a level, and ends at the first entry
//!    or filter of the key.
//! 4. A range search reads all levels at once and takes the newest entry of every key.
//! 5. The rest of the budget, beside the head, is a buffer pool of pages.
//!
//! Invariants: runs never change, so a reader with the list of runs reads without a lock; a merge publishes head and
//! levels in one step; in a level that has fences, the first fence is below all keys.
//!
//! Deviations from the paper, in its favour unless said otherwise:
//! - Head entries and full levels are merged in one pass, where the paper merges level by level.
//! - A put replaces the value of an existing key, so a filter that meets an entry goes on down, because an older entry
//!   may be below. In the paper keys are inserted once, and filter and entry both disappear where they meet.
//! - The head tree is in memory for good; the paper counts the head as pages of the buffer.
//! - Readers go on during a merge. Writers wait for the merge, as in the paper.
//!
//! The windows of a merge or a scan (512 KiB for each level) come on top of the budget, as the windows of an apply do
//! for Braid.

mod levels;
mod merge;
mod page;
mod run;
mod tuning;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use self::levels::Levels;
use self::merge::{Cascade, Newest, merge};
use self::page::{Layout, Page};
use self::run::{Chunks, Item, RunReader};
use crate::Result;
use crate::trees::pager::Pager;
use crate::trees::pending::{Operation, Pending};
use crate::trees::{Setting, Sorted, Tree, bulk};

pub use self::tuning::{Tuning, tune};

/// An FD-tree.
pub struct FdTree {
    layout: Layout,
    tuning: Tuning,
    chunks: Arc<Chunks>,
    /// Held by the writer, from the change of the head to the end of the merge that follows.
    writer: Mutex<()>,
    state: RwLock<State>,
}

struct State {
    head: Pending,
    levels: Arc<Levels>,
}

impl FdTree {
    /// Builds a tree whose lowest level holds the given entries, in a new file of the setting's directory.
    ///
    /// # Errors
    /// When a page has no room for a few entries, or the device fails.
    pub fn build(setting: &Setting, sorted: &mut Sorted<'_>, tuning: Tuning) -> Result<Self> {
        let layout = Layout::new(setting.shape)?;
        let pool_bytes = setting.memory_bytes.saturating_sub(tuning.head_bytes);
        let pager = Pager::create(setting, "fdtree", page::PAGE_BYTES, pool_bytes)?;
        let chunks = Arc::new(Chunks::new(pager));
        let tree = Self {
            layout,
            tuning,
            writer: Mutex::new(()),
            state: RwLock::new(State {
                head: Pending::new(setting.shape),
                levels: Arc::new(Levels { runs: Vec::new(), fences: Vec::new() }),
            }),
            chunks,
        };
        tree.load(sorted)?;
        Ok(tree)
    }

    /// The file's pool and counters.
    #[must_use]
    pub fn pager(&self) -> &Pager {
        &self.chunks.pager
    }

    /// Pages of each level, level 1 first.
    #[must_use]
    pub fn level_pages(&self) -> Vec<u32> {
        self.state.read().levels.runs.iter().map(|run| run.pages).collect()
    }

    /// Writes the lowest level, then the fences above. The number of levels is known only after the lowest level.
    fn load(&self, sorted: &mut Sorted<'_>) -> Result<()> {
        let mut cascade = Cascade::new(&self.chunks, self.layout, 1);
        bulk::for_each(self.layout.shape, sorted, |key, value| {
            cascade.push(Item::Entry(key, Operation::Put(value)), false)
        })?;
        let (mut runs, mut fences) = cascade.finish()?;
        let pages = runs[0].pages;
        while !self.tuning.is_deep_enough(runs.len(), f64::from(pages)) {
            let mut above = Cascade::new(&self.chunks, self.layout, 1);
            for (page, key) in (0..).zip(fences.chunks_exact(self.layout.shape.key_bytes)) {
                above.push(Item::Fence(key, page), false)?;
            }
            let (run, above_fences) = above.finish()?;
            runs.splice(0..0, run);
            fences = above_fences;
        }
        self.state.write().levels = Arc::new(Levels { runs, fences });
        Ok(())
    }

    fn write(&self, key: &[u8], operation: Operation<'_>) -> Result<()> {
        let writer = self.writer.lock();
        let is_full = {
            let mut state = self.state.write();
            state.head.set(key, operation);
            let fences = state.levels.fences.capacity() as u64;
            // The head has a block or two of its own, however many fences there are.
            state.head.memory_bytes() + fences > self.tuning.head_bytes
                && state.head.memory_bytes() > 2 * page::PAGE_BYTES as u64
        };
        if is_full {
            self.merge_down()?;
        }
        drop(writer);
        Ok(())
    }

    /// Empties the head. The caller holds the writer's lock.
    fn merge_down(&self) -> Result<()> {
        let (head, entries, old) = {
            let state = self.state.read();
            let first = vec![0; self.layout.shape.key_bytes];
            (state.head.snapshot(&first, None), state.head.len(), Arc::clone(&state.levels))
        };
        let target = self.target(entries, &old);
        let new = merge(&self.chunks, self.layout, head, &old, target)?;
        let mut state = self.state.write();
        state.head.clear();
        state.levels = Arc::new(new);
        drop(state);
        Ok(())
    }

    /// The first level that has room for itself and all levels above, or one more than there are.
    fn target(&self, entries: usize, levels: &Levels) -> usize {
        let mut pages = entries.div_ceil(self.layout.entries_per_page()) as u64;
        for (index, run) in levels.runs.iter().enumerate() {
            pages += u64::from(run.pages);
            if pages <= self.tuning.level_pages(index + 1) {
                return index + 1;
            }
        }
        levels.runs.len() + 1
    }

    /// Looks a key up in the levels.
    fn search(&self, levels: &Levels, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut pointer = levels.first_page(self.layout, key);
        for run in &levels.runs {
            let Some(number) = pointer else { break };
            let bytes = run.read(number)?;
            let page = Page::parse(self.layout, &bytes)?;
            if let Some(operation) = page.find(key) {
                return Ok(take(operation, value));
            }
            pointer = page.child(key);
        }
        Ok(false)
    }

    /// Readers of all levels that have entries, from `first` on.
    fn readers(&self, levels: &Levels, first: &[u8]) -> Result<Vec<RunReader>> {
        let mut readers = Vec::new();
        let mut pointer = levels.first_page(self.layout, first);
        let lowest = levels.runs.iter().rposition(|run| run.entries > 0);
        for (index, run) in levels.runs.iter().enumerate() {
            let Some(number) = pointer.filter(|_| Some(index) <= lowest) else { break };
            if run.entries > 0 {
                readers.push(RunReader::from(run, self.layout, number, first)?);
            }
            pointer =
                if Some(index) < lowest { Page::parse(self.layout, &run.read(number)?)?.child(first) } else { None };
        }
        Ok(readers)
    }
}

/// Whether an operation leaves a value, which is added to `value`.
fn take(operation: Operation<'_>, value: &mut Vec<u8>) -> bool {
    match operation {
        Operation::Put(bytes) => {
            value.extend_from_slice(bytes);
            true
        }
        Operation::Delete => false,
    }
}

impl Tree for FdTree {
    fn name(&self) -> &'static str {
        "FD-tree"
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.layout.shape.check_key(key)?;
        value.clear();
        let levels = {
            let state = self.state.read();
            if let Some(operation) = state.head.find(key) {
                return Ok(take(operation, value));
            }
            Arc::clone(&state.levels)
        };
        self.search(&levels, key, value)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.layout.shape.check(key, value)?;
        self.write(key, Operation::Put(value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.layout.shape.check_key(key)?;
        self.write(key, Operation::Delete)
    }

    fn scan(&self, first: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.layout.shape.check_key(first)?;
        self.layout.shape.check_key(end)?;
        if first >= end {
            return Ok(0);
        }
        let (head, levels) = {
            let state = self.state.read();
            (state.head.snapshot(first, Some(end)), Arc::clone(&state.levels))
        };
        let mut newest = Newest::new(head, self.readers(&levels, first)?, Some(end));
        let mut count = 0;
        let mut one = |key: &[u8], operation: Operation<'_>| {
            if let Operation::Put(value) = operation {
                visit(key, value);
                count += 1;
            }
        };
        let mut several = |item: Item<'_>| {
            match item {
                Item::Entry(key, operation) => one(key, operation),
                Item::Entries(page, entries) => entries.for_each(|entry| one(page.key(entry), page.operation(entry))),
                Item::Fence(..) => {}
            }
            Ok(())
        };
        while newest.next(&mut several)?.is_some() {}
        Ok(count)
    }

    fn write_back(&self) -> Result<()> {
        let writer = self.writer.lock();
        if !self.state.read().head.is_empty() {
            self.merge_down()?;
        }
        drop(writer);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let state = self.state.read();
        let runs: u64 = state.levels.runs.iter().map(|run| run.memory_bytes()).sum();
        state.head.memory_bytes() + state.levels.fences.capacity() as u64 + runs + self.chunks.memory_bytes()
    }
}
