//! MPSearch (Roh et al., PVLDB 5(4), 2011, section 3.1.1, algorithm 1): many keys go down the tree together.
//!
//! 1. Keys are sorted. At each level, the nodes that hold any of them are read with one psync, each once.
//! 2. A leaf of several parts is searched in one of them, which its fences name, and in the last, if anything was appended: so a search reads
//!    a page or two of a large leaf. Only of a leaf that is the root nobody knows the fences: it is searched in all.
//! 3. Parts that the cache has are looked into while the others are on their way; parts of a leaf that lie close together come in one request.
//!    As each request completes its keys are looked up, while the others are in flight, at most PioMax at a time.
//!
//! Memory: one request per part of a leaf and at most [`KEYS_MAX`] keys go down together, so the lists of a level are bounded. A single key
//! goes the same way without the lists.

use std::ops::Range;
use std::sync::Arc;

use index::{Found, Operation, Payload, Result, Seq, Stored, Update};
use psync::{Buffer, Completion, Request, Spares};

use crate::format::{Damage, Pointer};
use crate::leaf::{Leaf, Visible};
use crate::node::{Node, head};
use crate::version::Version;

/// Keys that go down together.
const KEYS_MAX: usize = 4096;

/// Requests that are not worth a stream: what one key needs.
const FEW: usize = 2;

/// Most bytes of buffers that are kept for later requests of the same search.
const SPARE_BYTES: usize = 1 << 20;

pub(crate) fn get_many(version: &Version, keys: &[&[u8]], at: Seq, out: &mut [Option<Found>]) -> Result<()> {
    let Some(root) = &version.root.pointer else { return Ok(()) };
    if let [key] = keys {
        return get(version, root, key, at, out);
    }
    let mut order: Vec<_> = (0..keys.len()).map(|index| (head(keys[index]), index)).collect();
    order.sort_unstable_by(|one, other| (one.0, keys[one.1]).cmp(&(other.0, keys[other.1])));
    for group in order.chunks(KEYS_MAX) {
        Search { version, keys, at, order: group, out }.run(root)?;
    }
    Ok(())
}

fn get(version: &Version, root: &Pointer, key: &[u8], at: Seq, out: &mut [Option<Found>]) -> Result<()> {
    let order = [(0, 0)];
    let mut search = Search { version, keys: &[key], at, order: &order, out };
    let Some(top) = version.top()? else { return search.root_leaf(root) };
    let mut place = top.find(key);
    let mut pointer = top.pointer(place.child);
    for level in (1..version.root.height.saturating_sub(1)).rev() {
        let node = version.shared.node(version.table, &pointer, level)?;
        place = node.find(key);
        pointer = node.pointer(place.child);
    }
    let tasks =
        [Task { part: place.part, pointer, keys: 0..1 }, Task { part: pointer.parts() - 1, pointer, keys: 0..1 }];
    let tasks = if pointer.appended && tasks[0].part != tasks[1].part { &tasks[..] } else { &tasks[..1] };
    let cached = [0, 1].map(|task| tasks.get(task).and_then(|task| search.cached(task)));
    search.leaves(tasks, &cached[..tasks.len()])
}

/// What a version holds, or none where it is a tombstone.
pub(crate) fn stored(update: &Update<'_>) -> Option<Stored> {
    match update.operation {
        Operation::Put(Payload::Inline(value)) => Some(Stored::Inline(value.to_vec())),
        Operation::Put(Payload::Document(document)) => Some(Stored::Document(document)),
        Operation::Delete => None,
    }
}

/// A part of a leaf, and the keys that are looked up in it.
struct Task {
    pointer: Pointer,
    part: usize,
    keys: Range<usize>,
}

/// A request for bytes of a leaf.
struct Fetch {
    /// Tasks that they are for; those of them that were cached have been looked into.
    tasks: Range<usize>,
    bytes: Range<usize>,
}

/// A group of keys on its way down.
struct Search<'a, 'k> {
    version: &'a Version,
    keys: &'a [&'k [u8]],
    at: Seq,
    /// Indexes of the group's keys, in key order.
    order: &'a [(u64, usize)],
    out: &'a mut [Option<Found>],
}

impl Search<'_, '_> {
    fn key(&self, position: usize) -> &[u8] {
        self.keys[self.order[position].1]
    }

    fn run(&mut self, root: &Pointer) -> Result<()> {
        let Some(top) = self.version.top()? else { return self.root_leaf(root) };
        let mut level = vec![(Arc::clone(top), 0..self.order.len())];
        for below in (1..top.level()).rev() {
            let (mut pointers, mut ranges) = (Vec::new(), Vec::with_capacity(self.order.len().min(level.len() * 8)));
            for (node, range) in level {
                self.descend(&node, range, &mut pointers, &mut ranges);
            }
            let nodes = self.version.shared.nodes(self.version.table, &pointers, below)?;
            level = nodes.into_iter().zip(ranges).collect();
        }
        let mut tasks = Vec::with_capacity(self.order.len());
        for (node, range) in level {
            self.descend_to_leaves(&node, range, &mut tasks);
        }
        self.search_all(&tasks)
    }

    fn search_all(&mut self, tasks: &[Task]) -> Result<()> {
        let cached: Vec<_> = tasks.iter().map(|task| self.cached(task)).collect();
        self.leaves(tasks, &cached)
    }

    /// Gives the keys of a node to its children, which are nodes.
    fn descend(&self, node: &Node, range: Range<usize>, pointers: &mut Vec<Pointer>, below: &mut Vec<Range<usize>>) {
        let mut start = range.start;
        while start < range.end {
            let child = node.search(self.key(start));
            let mut end = start + 1;
            while end < range.end && node.below_end(child, self.key(end)) {
                end += 1;
            }
            pointers.push(node.pointer(child));
            below.push(start..end);
            start = end;
        }
    }

    /// Gives the keys of a node to parts of its leaves.
    fn descend_to_leaves(&self, node: &Node, range: Range<usize>, tasks: &mut Vec<Task>) {
        let mut start = range.start;
        while start < range.end {
            let first = start;
            let child = node.search(self.key(start));
            let pointer = node.pointer(child);
            let last = pointer.parts() - 1;
            while start < range.end && (start == first || node.below_end(child, self.key(start))) {
                let place = node.find(self.key(start));
                let mut end = start + 1;
                while end < range.end && node.below_part_end(place, self.key(end)) {
                    end += 1;
                }
                if !(pointer.appended && place.part == last) {
                    tasks.push(Task { pointer, part: place.part, keys: start..end });
                }
                start = end;
            }
            if pointer.appended {
                tasks.push(Task { pointer, part: last, keys: first..start });
            }
        }
    }

    /// Looks all keys up in the only leaf of the tree.
    fn root_leaf(&mut self, root: &Pointer) -> Result<()> {
        let keys = 0..self.order.len();
        let tasks: Vec<_> = (0..root.parts()).map(|part| Task { pointer: *root, part, keys: keys.clone() }).collect();
        self.search_all(&tasks)
    }

    fn cached(&self, task: &Task) -> Option<Arc<Leaf>> {
        self.version.shared.cached_part(&task.pointer, task.part)
    }

    /// Looks into all parts: those that are not cached are read.
    fn leaves(&mut self, tasks: &[Task], cached: &[Option<Arc<Leaf>>]) -> Result<()> {
        let fetches = self.plan(tasks, cached);
        if fetches.len() <= FEW {
            self.look_into_cached(tasks, cached)?;
            if fetches.is_empty() {
                return Ok(());
            }
            let request = |fetch: &Fetch| self.request(tasks, fetch, 0, Buffer::zeroed(fetch.bytes.len()));
            let requests = fetches.iter().map(request).collect();
            let buffers = self.version.shared.psync().run_all(requests)?;
            return fetches
                .iter()
                .zip(buffers.into_iter().flatten())
                .try_for_each(|(fetch, buffer)| self.arrived(tasks, cached, fetch, &buffer));
        }
        let depth = self.version.shared.psync().pio_max();
        let mut stream = self.version.shared.psync().stream(depth.min(fetches.len()));
        let mut spares = Spares::new(SPARE_BYTES);
        let mut waiting = fetches.iter().enumerate();
        for (number, fetch) in waiting.by_ref().take(depth) {
            stream.push(self.request(tasks, fetch, number, spares.take(fetch.bytes.len())));
        }
        stream.submit();
        self.look_into_cached(tasks, cached)?;
        while let Some(Completion { tag, buffer, result }) = stream.next() {
            if let Some((number, fetch)) = waiting.next() {
                stream.push(self.request(tasks, fetch, number, spares.take(fetch.bytes.len())));
            }
            result?;
            let fetch = &fetches[usize::try_from(tag).expect("a tag is the number of a request")];
            let buffer = buffer.expect("a read hands its buffer back");
            self.arrived(tasks, cached, fetch, &buffer)?;
            spares.keep(buffer);
        }
        Ok(())
    }

    fn request(&self, tasks: &[Task], fetch: &Fetch, number: usize, buffer: Buffer) -> Request {
        let offset = tasks[fetch.tasks.start].pointer.offset() + fetch.bytes.start as u64;
        Request::read(self.version.shared.pages().file(), offset, buffer, number as u64)
    }

    fn look_into_cached(&mut self, tasks: &[Task], cached: &[Option<Arc<Leaf>>]) -> Result<()> {
        let version = self.version;
        for (task, leaf) in tasks.iter().zip(cached) {
            if let Some(leaf) = leaf {
                version.shared.look_into(&task.pointer, task.part, leaf, |leaf| self.look_up_all(leaf, task))?;
            }
        }
        Ok(())
    }

    /// Which bytes are read: those of parts that are not cached, in one request where they lie close together.
    fn plan(&self, tasks: &[Task], cached: &[Option<Arc<Leaf>>]) -> Vec<Fetch> {
        let gap = self.version.shared.gap_bytes();
        let mut fetches: Vec<Fetch> = Vec::new();
        for (number, task) in tasks.iter().enumerate().filter(|(number, _)| cached[*number].is_none()) {
            let bytes = task.pointer.part(task.part);
            match fetches.last_mut() {
                Some(last)
                    if tasks[last.tasks.start].pointer.page == task.pointer.page
                        && bytes.start <= last.bytes.end + gap =>
                {
                    last.tasks.end = number + 1;
                    last.bytes.end = bytes.end;
                }
                _ => fetches.push(Fetch { tasks: number..number + 1, bytes }),
            }
        }
        fetches
    }

    /// Looks into the parts that a request brought.
    fn arrived(&mut self, tasks: &[Task], cached: &[Option<Arc<Leaf>>], fetch: &Fetch, buffer: &[u8]) -> Result<()> {
        let version = self.version;
        for number in fetch.tasks.clone().filter(|number| cached[*number].is_none()) {
            let task = &tasks[number];
            let bytes = task.pointer.part(task.part);
            let pages = &buffer[bytes.start - fetch.bytes.start..bytes.end - fetch.bytes.start];
            let look = |leaf: &Visible<'_>| self.look_up_all(leaf, task);
            version.shared.with_part(version.table, &task.pointer, task.part, pages, look)?;
        }
        Ok(())
    }

    /// Looks keys up in a part; what was appended counts more than an equal version before it.
    fn look_up_all(&mut self, leaf: &Visible<'_>, task: &Task) -> std::result::Result<(), Damage> {
        let is_last = task.part + 1 == task.pointer.parts();
        for position in task.keys.clone() {
            let index = self.order[position].1;
            let Some(update) = leaf.find(self.keys[index], self.at)? else { continue };
            let newer = |found: &Found| if is_last { update.seq >= found.seq } else { update.seq > found.seq };
            if self.out[index].as_ref().is_none_or(newer) {
                self.out[index] = Some(Found { seq: update.seq, value: stored(&update) });
            }
        }
        Ok(())
    }
}
