//! A window of leaves, changed together (Roh et al., PVLDB 5(4), 2011, section 3.3: bupdate on the leaf level).
//!
//! 1. The updates of each parent go to its leaves. Updates that fit behind a leaf's published bytes are appended. A
//!    leaf is rewritten instead in these cases:
//!    - The updates do not fit.
//!    - The updates delete, and then two thirds of the leaf's entries may be dead; only while no snapshot needs the
//!      replaced versions.
//!    - The leaf is longer than usual; again only while no snapshot needs the replaced versions.
//!    - So many entries have expired that the leaf is due.
//!    - The leaf has an entry as new as an update: a batch came again, documents were relocated, or the leaf lies in
//!      two sections.
//! 2. While the previous window is computed, one psync reads the pages that are not cached. An append needs the leaf's
//!    last page, if the new run begins in that page. A rewrite needs the whole leaf. Leaves with documents are read
//!    whole, because a leaf is rewritten if an update makes one of its documents dead: a document takes space until a
//!    rewrite reports it dead. In leaves without documents, dead versions wait.
//! 3. The new runs are built. A partly published page is written with the same bytes up to the published length, so a
//!    torn write can only damage the new bytes. The remains of a failed batch behind the published length are
//!    overwritten with the new runs and zeros.
//! 4. Leaves to be rewritten are merged, joined and laid out ([`super::rewrite`]); joining may take a second psync of
//!    reads.
//! 5. The cached images of the leaves are updated, and all pages are written together. A reader does not look at the
//!    new part of an image before the new pointer is published.

use std::ops::Range;
use std::sync::Arc;

use index::bloom::Hash;
use index::merge::{is_document, merge};
use index::{Operation, Result, Seq, Update};
use psync::{Buffer, Completion, Request};
use seeded::Bug;
use space::PAGE;

use super::Apply;
use super::neighbours::Group;
use super::rewrite::{NewLeaf, is_sparse};
use super::split::split;
use super::task::{How, Loaded, Parent, Task};
use crate::counters::count;
use crate::filter::{Link, Maker};
use crate::format::Pointer;
use crate::format::run::{Identity, Plan, RUN_HEADER};
use crate::leaf::{Leaf, check_tail};
use crate::node::Edges;
use index::due;

/// Leaves that are being changed.
pub(super) struct Window {
    parents: Vec<Parent>,
    tasks: Vec<Task>,
    /// The part of each task's leaf that is in memory.
    loaded: Vec<Loaded>,
}

/// An append that is being written.
struct Append {
    task: usize,
    pointer: Pointer,
    filter: Vec<u8>,
    /// Index of the append's request in the list of writes.
    write: usize,
}

impl<'a> Apply<'a> {
    /// Starts a window over the leaves of some parents: the reads of all needed pages outside the cache begin.
    pub(super) fn begin(&mut self, parents: Vec<Parent>) -> Window {
        let tasks = self.plan(&parents);
        let (loaded, reads) = self.find(&tasks);
        self.reads.start(reads);
        Window { parents, tasks, loaded }
    }

    /// Waits for the reads of a window.
    pub(super) fn read_in(&mut self, window: &mut Window) -> Result<()> {
        let completions = self.reads.finish();
        self.take_in(&window.tasks, &mut window.loaded, completions)
    }

    /// Changes the leaves of a window whose reads are complete; returns each parent's new children.
    pub(super) fn change(&mut self, window: Window) -> Result<Vec<Edges>> {
        let Window { parents, mut tasks, loaded } = window;
        self.rewrite_for_documents(&mut tasks, &loaded)?;
        let merged = self.merge_all(&tasks, &loaded)?;
        let (groups, second) = self.group(&parents, &mut tasks, &merged);
        let second_loaded = self.load(&second)?;
        let second_merged = self.merge_all(&second, &second_loaded)?;
        let laid = self.lay_out(&groups, merged, second_merged)?;
        let mut writes = self.nodes.take_writes();
        let new = self.place(&parents, &groups, &laid, &mut writes)?;
        let appends = self.append_all(&parents, &tasks, &loaded, &mut writes)?;
        self.follow(&tasks, &loaded, &appends, &writes);
        self.cache_new(&new, &writes);
        self.writes.start(writes)?;
        self.retire(&tasks, &second);
        if !self.touching {
            self.done += parents.iter().map(|parent| parent.updates.len()).sum::<usize>();
            (self.progress)(self.done);
        }
        let lists = edges_of(&parents, &tasks, &appends, &groups, &new);
        self.wait(&lists, &new);
        Ok(lists)
    }

    fn plan(&self, parents: &[Parent]) -> Vec<Task> {
        let mut tasks = Vec::new();
        for (parent, of) in parents.iter().enumerate() {
            let children = match &of.node {
                Some(node) => split(self.batch, node, of.updates.clone()),
                None => vec![(0, of.updates.clone())],
            };
            for (child, updates) in children {
                let pointer = of.pointer(child);
                let how = self.how(pointer.as_ref(), updates.clone());
                tasks.push(Task { parent, child, pointer, updates, how });
            }
        }
        tasks
    }

    fn how(&self, pointer: Option<&Pointer>, updates: Range<usize>) -> How {
        let Some(pointer) = pointer.filter(|_| !self.touching) else { return How::Rewrite };
        let Some(runs) = self.fit(pointer, updates.clone()) else { return How::Rewrite };
        let is_due = pointer.due.is_some_and(|due| due.is_past(self.rules.horizon.now));
        // A repeated or relocated version must not stand behind a newer one, because lookups end with the first version
        // found.
        let comes_late =
            pointer.is_filtered() && self.updates(updates.clone()).any(|update| update.seq <= pointer.newest);
        if is_due || comes_late || self.hides_document(updates.clone()) {
            return How::Rewrite;
        }
        let count = u32::try_from(updates.len()).expect("what fits in a leaf is fewer than 2^24 entries");
        // A replaced version stays where a snapshot sees the version, so a rewrite would be in vain each time.
        let oldest = self.rules.horizon.oldest();
        let replaces = |update: &Update<'_>| oldest.is_none_or(|oldest| oldest >= update.seq);
        let is_delete = |update: &Update<'_>| update.operation == Operation::Delete;
        let tombstones = self.updates(updates.clone()).filter(is_delete).count();
        let tombstones = u32::try_from(tombstones).expect("at most all of them");
        let keys_min = pointer.keys_min.saturating_sub(tombstones);
        let too_large =
            pointer.pages > self.leaf_pages_max() && self.updates(updates.clone()).any(|update| replaces(&update));
        let deletes = || self.updates(updates).any(|update| is_delete(&update) && replaces(&update));
        if too_large || is_sparse(keys_min, pointer.entries + count) && deletes() {
            return How::Rewrite;
        }
        How::Append { runs, keys_min }
    }

    /// Positions of the updates' runs behind the published bytes; none if the runs do not fit.
    fn fit(&self, pointer: &Pointer, updates: Range<usize>) -> Option<Vec<(usize, Plan)>> {
        let (mut runs, mut at, mut next) = (Vec::with_capacity(1), pointer.length as usize, updates.start);
        while next < updates.end {
            if at >= pointer.capacity() {
                return None;
            }
            match Plan::fit(self.updates(next..updates.end), PAGE - at % PAGE) {
                Some(plan) => {
                    runs.push((at, plan));
                    at += plan.bytes;
                    next += plan.count;
                }
                None => at = at.next_multiple_of(PAGE),
            }
        }
        Some(runs)
    }

    /// Whether one of the updates refers to a document that a newer one of them makes dead.
    fn hides_document(&self, updates: Range<usize>) -> bool {
        let next = |index: usize| (index + 1 < updates.end).then(|| self.batch.get(index + 1));
        updates.clone().any(|index| {
            let update = self.batch.get(index);
            is_document(&update)
                && next(index)
                    .is_some_and(|newer| newer.key == update.key && !self.rules.horizon.sees(update.seq, newer.seq))
        })
    }

    /// Turns an append into a rewrite where an update makes one of the leaf's documents dead.
    fn rewrite_for_documents(&self, tasks: &mut [Task], loaded: &[Loaded]) -> Result<()> {
        for (task, loaded) in tasks.iter_mut().zip(loaded) {
            if let (How::Append { .. }, Some(pointer), Loaded::Leaf(leaf, _)) = (&task.how, &task.pointer, loaded)
                && pointer.documents
                && self.drops_document(pointer, leaf, task.updates.clone())?
            {
                task.how = How::Rewrite;
            }
        }
        Ok(())
    }

    /// Whether a merge of `updates` with the leaf's versions of the same keys would drop a document.
    fn drops_document(&self, pointer: &Pointer, leaf: &Leaf, updates: Range<usize>) -> Result<bool> {
        let visible = leaf.visible(pointer).expect("a leaf is chosen or read by this pointer");
        let (mut dropped, mut start) = (Vec::new(), updates.start);
        while start < updates.end {
            let key = self.batch.get(start).key;
            let count = self.updates(start..updates.end).take_while(|update| update.key == key).count();
            let mut versions = Vec::new();
            visible.versions(key, &mut versions).map_err(|damage| self.base.shared.corrupt(pointer, damage))?;
            if versions.iter().any(is_document) {
                versions.extend(self.updates(start..start + count));
                let _ = merge(versions, self.rules, &mut dropped);
            }
            if !dropped.is_empty() {
                return Ok(true);
            }
            start += count;
        }
        Ok(false)
    }

    /// Looks up each task's pages in the cache. Returns the pages found, and read requests for the others, tagged with
    /// the tasks' indices.
    fn find(&self, tasks: &[Task]) -> (Vec<Loaded>, Vec<Request>) {
        let shared = &self.base.shared;
        let (mut loaded, mut reads) = (Vec::with_capacity(tasks.len()), Vec::new());
        for (index, task) in tasks.iter().enumerate() {
            let needed = task.pointer.filter(|pointer| task.reads_all(pointer) || shares_last_page(pointer));
            let Some(pointer) = needed else {
                loaded.push(Loaded::Nothing);
                continue;
            };
            let all = task.reads_all(&pointer);
            let cached = if all { shared.cached_leaf(&pointer, 0) } else { shared.cached_end(&pointer) };
            let cached = cached.map(|leaf| Loaded::Leaf(leaf, true));
            let cached = cached.or_else(|| {
                let tail = (!all).then(|| shared.cached_tail(&pointer)).flatten();
                tail.map(Loaded::Tail)
            });
            if cached.is_none() {
                let length = pointer.length as usize;
                let (first, bytes) = if all { (0, pointer.published_bytes()) } else { (length / PAGE, PAGE) };
                reads.push(shared.read(&pointer, first, bytes, index as u64));
            }
            loaded.push(cached.unwrap_or(Loaded::Nothing));
        }
        (loaded, reads)
    }

    /// Reads the tasks' pages that are not cached, in one psync.
    fn load(&self, tasks: &[Task]) -> Result<Vec<Loaded>> {
        let (mut loaded, reads) = self.find(tasks);
        let completions = self.base.shared.psync().run(reads);
        self.take_in(tasks, &mut loaded, completions)?;
        Ok(loaded)
    }

    /// Checks the pages read for each task.
    fn take_in(&self, tasks: &[Task], loaded: &mut [Loaded], completions: Vec<Completion>) -> Result<()> {
        for completion in completions {
            completion.result?;
            let index = usize::try_from(completion.tag).expect("the index of a task");
            let buffer = completion.buffer.expect("a read hands its buffer back");
            loaded[index] = self.parse(&tasks[index], buffer)?;
        }
        Ok(())
    }

    /// Checks the pages read for a task that has a leaf.
    fn parse(&self, task: &Task, buffer: Buffer) -> Result<Loaded> {
        let (shared, pointer) = (&self.base.shared, &task.pointer.expect("only leaves are read"));
        if task.reads_all(pointer) {
            let leaf = shared.parse_leaf(self.base.table, pointer, &buffer)?;
            return Ok(Loaded::Leaf(Arc::new(leaf), false));
        }
        count(&shared.counters.tail_reads, 1);
        check_tail(&buffer, pointer, self.base.table).map_err(|damage| shared.corrupt(pointer, damage))?;
        Ok(Loaded::Page(buffer))
    }

    fn append_all(
        &self, parents: &[Parent], tasks: &[Task], loaded: &[Loaded], writes: &mut Vec<Request>,
    ) -> Result<Vec<Append>> {
        let mut appends = Vec::with_capacity(tasks.len());
        for (index, (task, loaded)) in tasks.iter().zip(loaded).enumerate() {
            if let How::Append { runs, keys_min } = &task.how
                && let Some(old) = &task.pointer
            {
                let filter = Maker::from(old, parents[task.parent].filter(task.child));
                let (pointer, filter, request) = self.append(task, (old, filter), runs, *keys_min, loaded);
                appends.push(Append { task: index, pointer, filter, write: writes.len() });
                writes.push(request);
                count(&self.base.shared.counters.runs_appended, runs.len());
            }
        }
        Ok(appends)
    }

    /// Builds the pages that an append touches, the pointer that publishes them, and the filter beside the pointer.
    fn append(
        &self, task: &Task, (old, mut filter): (&Pointer, Maker), runs: &[(usize, Plan)], keys_min: u32,
        loaded: &Loaded,
    ) -> (Pointer, Vec<u8>, Request) {
        let shared = &self.base.shared;
        let length = old.length as usize;
        let shares = shares_last_page(old);
        let first = if shares { length / PAGE } else { length.div_ceil(PAGE) };
        let end = runs.last().map_or(length, |(at, plan)| at + plan.bytes);
        let mut pages = Buffer::zeroed(end.next_multiple_of(PAGE) - first * PAGE);
        if shares {
            let published = length % PAGE;
            let known = match loaded {
                Loaded::Nothing => &[][..],
                Loaded::Tail(tail) => &tail.bytes,
                Loaded::Page(page) => &page[..published],
                Loaded::Leaf(leaf, _) => leaf.visible(old).map_or(&[][..], |leaf| leaf.tail()),
            };
            assert!(known.len() == published || seeded::on(Bug::StaleCachedTail), "the published bytes of the page");
            pages[..known.len()].copy_from_slice(known);
        }
        let identity = Identity { incarnation: old.incarnation, table: self.base.table };
        let (mut chain, mut next) = (old.chain, task.updates.start);
        let mut last_page = old.last_page();
        for (at, plan) in runs {
            let position = u32::try_from(*at).expect("a leaf is shorter than 4 GiB");
            let page = u32::try_from(at / PAGE).expect("a leaf has fewer than 2^15 pages");
            if page != last_page {
                filter.end((last_page + 1 - old.sorted) as usize, chain);
                last_page = page;
            }
            for update in self.updates(next..next + plan.count) {
                filter.add_appended(Hash::of(update.key), page);
            }
            let out = &mut pages[at - first * PAGE..][..plan.bytes];
            chain = plan.encode(self.updates(next..task.updates.end), &identity, position, chain, out);
            next += plan.count;
        }
        let entries = u32::try_from(task.updates.len()).expect("what fits in a leaf is fewer than 2^24 entries");
        let expiries = self.updates(task.updates.clone()).filter_map(|update| update.operation.expiry()).collect();
        let pointer = Pointer {
            length: u32::try_from(end).expect("a leaf is shorter than 4 GiB"),
            chain,
            entries: old.entries + entries,
            keys_min,
            appended: true,
            documents: old.documents || self.updates(task.updates.clone()).any(|update| is_document(&update)),
            due: due::appended(old.due, old.entries as usize, expiries, task.updates.len()),
            newest: self.updates(task.updates.clone()).map(|update| update.seq).fold(old.newest, Seq::max),
            ..*old
        };
        let pointer = pointer.sound();
        let offset = old.offset() + (first * PAGE) as u64;
        count(&shared.counters.leaf_pages_written, pages.len() / PAGE);
        (pointer, filter.finish(), Request::write(shared.pages().file(), offset, pages, 0))
    }

    /// Updates the cached images of appended leaves.
    fn follow(&self, tasks: &[Task], loaded: &[Loaded], appends: &[Append], writes: &[Request]) {
        if seeded::on(Bug::StaleCachedTail) {
            return;
        }
        for append in appends {
            let Some(pages) = written(&writes[append.write]) else { continue };
            let old = tasks[append.task].pointer.map_or(0, |pointer| pointer.length as usize);
            let cached = match &loaded[append.task] {
                Loaded::Leaf(leaf, _) => Some(Arc::clone(leaf)),
                // The plan does not look up the last page of a leaf if that page is full.
                Loaded::Nothing => tasks[append.task].pointer.and_then(|old| self.base.shared.cached_end(&old)),
                Loaded::Tail(_) | Loaded::Page(_) => None,
            };
            let grown = cached.and_then(|leaf| leaf.extended(&append.pointer, self.base.table, old, pages));
            match grown {
                Some(leaf) => self.base.shared.keep_leaf(&append.pointer, &Arc::new(leaf)),
                None => self.keep_tail(&append.pointer, &pages[pages.len() - PAGE..]),
            }
        }
    }

    /// Caches the last page of a leaf, if the next append will need that page.
    fn keep_tail(&self, pointer: &Pointer, page: &[u8]) {
        if shares_last_page(pointer) {
            self.base.shared.keep_tail(pointer, page);
        }
    }

    /// Caches new leaves like their predecessors. Leaves with documents are cached whole, because their next update
    /// needs all of them.
    fn cache_new(&self, new: &[Vec<NewLeaf>], writes: &[Request]) {
        for leaf in new.iter().flatten() {
            let Some(pages) = written(&writes[leaf.write]).map(|pages| &pages[leaf.bytes.clone()]) else { continue };
            if !leaf.hot && !leaf.pointer.documents {
                self.keep_tail(&leaf.pointer, &pages[pages.len() - PAGE..]);
            } else if let Ok(image) =
                Leaf::parse(pages, &leaf.pointer, leaf.pointer.all(), Link::default(), self.base.table)
            {
                self.base.shared.keep_leaf(&leaf.pointer, &Arc::new(image));
            }
        }
    }

    /// Remembers leaves to look at again.
    fn wait(&mut self, lists: &[Edges], new: &[Vec<NewLeaf>]) {
        for leaf in new.iter().flatten() {
            if let Some(seq) = leaf.waits_for {
                self.again.add(&leaf.low, seq);
            }
        }
        // A root with one child is removed, so its leaf is alone for good.
        for list in lists.iter().filter(|_| self.root.height > 2) {
            if let [only] = list.pointers()
                && self.is_small(only.entries as usize, only.length as usize)
            {
                self.again.add(list.low(0), Seq(0));
            }
        }
    }

    /// Gives up the extents of rewritten leaves.
    fn retire(&mut self, tasks: &[Task], second: &[Task]) {
        for task in tasks.iter().chain(second) {
            if let (How::Rewrite, Some(pointer)) = (&task.how, task.pointer) {
                self.claims.retire(pointer.extent());
            }
        }
    }
}

/// The buffer of a write request.
const fn written(write: &Request) -> Option<&Buffer> {
    match &write.operation {
        psync::Operation::Write(buffer) => Some(buffer),
        _ => None,
    }
}

/// Whether an append has to write the page in which the published bytes end. That page has room for another run, so a
/// reader looks for a run there.
fn shares_last_page(pointer: &Pointer) -> bool {
    let used = pointer.length as usize % PAGE;
    used != 0 && PAGE - used >= RUN_HEADER
}

fn edges_of(
    parents: &[Parent], tasks: &[Task], appends: &[Append], groups: &[Group], new: &[Vec<NewLeaf>],
) -> Vec<Edges> {
    let mut lists: Vec<Edges> = parents.iter().map(Parent::edges).collect();
    for append in appends {
        let task = &tasks[append.task];
        lists[task.parent].set_pointer(task.child, &append.filter, append.pointer);
    }
    let mut groups = groups.iter().zip(new).peekable();
    for (index, list) in lists.iter_mut().enumerate() {
        if groups.peek().is_none_or(|(group, _)| group.parent != index) {
            continue;
        }
        let old = std::mem::take(list);
        let mut child = 0;
        while let Some((group, leaves)) = groups.next_if(|(group, _)| group.parent == index) {
            list.extend_from(&old, child..group.children.start);
            leaves.iter().for_each(|leaf| list.push_leaf(&leaf.low, &leaf.fences, &leaf.filter, leaf.pointer));
            child = group.children.end;
        }
        list.extend_from(&old, child.min(old.len())..old.len());
    }
    lists
}
