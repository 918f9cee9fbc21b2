//! MPSearch (Roh et al., PVLDB 5(4), 2011, section 3.1.1, algorithm 1): many keys go down the tree together.
//!
//! 1. Keys are sorted. At each level, the nodes that hold any of them are read with one psync, each once.
//! 2. A leaf of several parts is searched in one of them, which its fences name, and in the last, if anything was appended: so a search reads
//!    a page or two of a large leaf. Only of a leaf that is the root nobody knows the fences: it is searched in all.
//! 3. Parts are asked for as soon as the last level names them, while the other keys are still on their way down; parts of a leaf that lie
//!    close together come in one request. Parts that the cache has are looked into first. As each request completes its keys are looked
//!    up, while the others are in flight, at most PioMax at a time.
//!
//! Memory: one request per part of a leaf and at most [`KEYS_MAX`] keys go down together, so the lists of a level are bounded. A single key
//! goes the same way without the lists.

use std::ops::Range;
use std::sync::Arc;

use index::{Found, Moment, Result, head};
use psync::{Buffer, Completion, Request, Spares, Stream};

use crate::format::{Damage, Pointer};
use crate::leaf::{Leaf, Span, Visible};
use crate::look;
use crate::node::Node;
use crate::version::Version;

/// Keys that go down together.
const KEYS_MAX: usize = 4096;

/// Requests that are not worth a stream: what one key needs.
const FEW: usize = 2;

/// Requests that are handed to the device together while keys go down.
const GATHERED: usize = 16;

pub(crate) fn get_many(version: &Version, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
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

fn get(version: &Version, root: &Pointer, key: &[u8], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
    let Some((pointer, part)) = look::leaf_of(version, root, key)? else {
        return Search { version, keys: &[key], at, order: &[(0, 0)], out }.root_leaf(root);
    };
    let last = pointer.parts() - 1;
    let cached = |part| version.shared.cached_part(&pointer, part);
    let other = (pointer.appended && part != last).then(|| cached(last)).flatten();
    get_in(version, &pointer, part, [cached(part), other], key, at, out)
}

/// Looks `key` up in a part of a leaf, and in the last one if anything was appended: in the images of both that the caller has, and
/// else on storage.
pub(crate) fn get_in(
    version: &Version, pointer: &Pointer, part: usize, cached: [Option<Arc<Leaf>>; 2], key: &[u8], at: Moment,
    out: &mut [Option<Found>],
) -> Result<()> {
    let mut search = Search { version, keys: &[key], at, order: &[(0, 0)], out };
    let tasks = [part, pointer.parts() - 1].map(|part| Task { part, pointer: *pointer, keys: 0..1 });
    let tasks = if pointer.appended && tasks[0].part != tasks[1].part { &tasks[..] } else { &tasks[..1] };
    let mut fetches = Vec::new();
    plan(version, tasks, &cached, 0, &mut fetches);
    search.look_into_cached(tasks, &cached)?;
    search.look_into_few(tasks, &cached, &fetches)
}

/// A part of a leaf, and the keys that are looked up in it.
struct Task {
    pointer: Pointer,
    part: usize,
    keys: Range<usize>,
}

impl Task {
    fn cached(&self, version: &Version) -> Option<Arc<Leaf>> {
        version.shared.cached_part(&self.pointer, self.part)
    }
}

/// A request for bytes of a leaf.
struct Fetch {
    /// Tasks that they are for; those of them that were cached have been looked into.
    tasks: Range<usize>,
    bytes: Range<usize>,
}

impl Fetch {
    fn request(&self, version: &Version, tasks: &[Task], number: usize, buffer: Buffer) -> Request {
        let offset = tasks[self.tasks.start].pointer.offset() + self.bytes.start as u64;
        Request::read(version.shared.pages().file(), offset, buffer, number as u64)
    }
}

/// Adds what is to be read for tasks from `first` on: parts that are not cached, in one request where they lie close together.
fn plan(version: &Version, tasks: &[Task], cached: &[Option<Arc<Leaf>>], first: usize, fetches: &mut Vec<Fetch>) {
    let gap = version.shared.gap_bytes();
    for number in (first..tasks.len()).filter(|number| cached[*number].is_none()) {
        let task = &tasks[number];
        let bytes = task.pointer.part(task.part);
        match fetches.last_mut() {
            Some(last)
                if last.tasks.start >= first
                    && tasks[last.tasks.start].pointer.page == task.pointer.page
                    && bytes.start <= last.bytes.end + gap =>
            {
                last.tasks.end = number + 1;
                last.bytes.end = bytes.end;
            }
            _ => fetches.push(Fetch { tasks: number..number + 1, bytes }),
        }
    }
}

/// The parts of leaves that a group of keys needs. What is not cached is read as soon as it is known, while the rest of the keys go down.
struct Leaves<'v> {
    version: &'v Version,
    tasks: Vec<Task>,
    /// Of each task its part, if it was cached.
    cached: Vec<Option<Arc<Leaf>>>,
    fetches: Vec<Fetch>,
    /// Fetches that were handed to the stream, and how many of them since it was last told to start.
    asked: usize,
    gathered: usize,
    /// None as long as plain calls may do.
    stream: Option<Stream>,
    /// For the stream's reads.
    spares: Spares,
}

impl<'v> Leaves<'v> {
    fn new(version: &'v Version, expected: usize) -> Self {
        Self {
            version,
            tasks: Vec::with_capacity(expected),
            cached: Vec::with_capacity(expected),
            fetches: Vec::with_capacity(expected),
            asked: 0,
            gathered: 0,
            stream: None,
            spares: Spares::default(),
        }
    }

    /// Asks for what tasks need that were added.
    fn ask(&mut self) {
        let first = self.cached.len();
        self.cached.extend(self.tasks[first..].iter().map(|task| task.cached(self.version)));
        plan(self.version, &self.tasks, &self.cached, first, &mut self.fetches);
        if self.fetches.len() > FEW {
            self.push();
        }
        if self.gathered >= GATHERED {
            self.submit();
        }
    }

    /// Hands fetches to the stream, as many as it may have in flight.
    fn push(&mut self) {
        let psync = self.version.shared.psync();
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                self.spares = self.version.shared.take_spares();
                self.stream.insert(psync.stream(psync.pio_max()))
            }
        };
        while self.asked < self.fetches.len() && stream.in_flight() < stream.depth() {
            let fetch = &self.fetches[self.asked];
            let buffer = self.spares.take(fetch.bytes.len());
            stream.push(fetch.request(self.version, &self.tasks, self.asked, buffer));
            self.asked += 1;
            self.gathered += 1;
        }
    }

    fn submit(&mut self) {
        self.gathered = 0;
        if let Some(stream) = &mut self.stream {
            stream.submit();
        }
    }

    /// The number and the bytes of a fetch that is complete; none when all were taken.
    fn next(&mut self) -> Result<Option<(usize, Buffer)>> {
        let Some(Completion { tag, buffer, result }) = self.stream.as_mut().and_then(Iterator::next) else {
            return Ok(None);
        };
        self.push();
        result?;
        let number = usize::try_from(tag).expect("a tag is the number of a request");
        Ok(Some((number, buffer.expect("a read hands its buffer back"))))
    }
}

/// A group of keys on its way down.
struct Search<'a, 'k> {
    version: &'a Version,
    keys: &'a [&'k [u8]],
    at: Moment,
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
        let mut leaves = Leaves::new(self.version, self.order.len());
        for (node, range) in level {
            self.descend_to_leaves(&node, range, &mut leaves.tasks);
            leaves.ask();
        }
        self.look_into(leaves)
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
            let mut place = node.find(self.key(start));
            let (child, pointer) = (place.child, node.pointer(place.child));
            let last = pointer.parts() - 1;
            loop {
                let mut end = start + 1;
                while end < range.end && node.below_part_end(place, self.key(end)) {
                    end += 1;
                }
                if !(pointer.appended && place.part == last) {
                    tasks.push(Task { pointer, part: place.part, keys: start..end });
                }
                start = end;
                if start == range.end || !node.below_end(child, self.key(start)) {
                    break;
                }
                place = node.find(self.key(start));
            }
            if pointer.appended {
                tasks.push(Task { pointer, part: last, keys: first..start });
            }
        }
    }

    /// Looks all keys up in the only leaf of the tree.
    fn root_leaf(&mut self, root: &Pointer) -> Result<()> {
        let keys = 0..self.order.len();
        let mut leaves = Leaves::new(self.version, root.parts());
        leaves.tasks.extend((0..root.parts()).map(|part| Task { pointer: *root, part, keys: keys.clone() }));
        leaves.ask();
        self.look_into(leaves)
    }

    /// Looks into all parts, those that are cached first.
    fn look_into(&mut self, mut leaves: Leaves<'_>) -> Result<()> {
        leaves.submit();
        self.look_into_cached(&leaves.tasks, &leaves.cached)?;
        if leaves.stream.is_none() {
            return self.look_into_few(&leaves.tasks, &leaves.cached, &leaves.fetches);
        }
        let mut spans = Vec::new();
        while let Some((number, buffer)) = leaves.next()? {
            self.arrived(&leaves.tasks, &leaves.cached, &leaves.fetches[number], &buffer, &mut spans)?;
            leaves.spares.keep(buffer);
        }
        self.version.shared.leave_spares(leaves.spares);
        Ok(())
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

    /// Reads what is not cached with one psync, and looks into it.
    fn look_into_few(&mut self, tasks: &[Task], cached: &[Option<Arc<Leaf>>], fetches: &[Fetch]) -> Result<()> {
        if fetches.is_empty() {
            return Ok(());
        }
        let request = |fetch: &Fetch| fetch.request(self.version, tasks, 0, Buffer::for_read(fetch.bytes.len()));
        let buffers = self.version.shared.psync().run_all(fetches.iter().map(request).collect())?;
        let (mut read, mut spans) = (fetches.iter().zip(buffers.into_iter().flatten()), Vec::new());
        read.try_for_each(|(fetch, buffer)| self.arrived(tasks, cached, fetch, &buffer, &mut spans))
    }

    /// Looks into the parts that a request brought.
    fn arrived(
        &mut self, tasks: &[Task], cached: &[Option<Arc<Leaf>>], fetch: &Fetch, buffer: &[u8], spans: &mut Vec<Span>,
    ) -> Result<()> {
        let version = self.version;
        for number in fetch.tasks.clone().filter(|number| cached[*number].is_none()) {
            let task = &tasks[number];
            let bytes = task.pointer.part(task.part);
            let pages = &buffer[bytes.start - fetch.bytes.start..bytes.end - fetch.bytes.start];
            let look = |leaf: &Visible<'_>| self.look_up_all(leaf, task);
            version.shared.with_part(version.table, &task.pointer, task.part, pages, spans, look)?;
        }
        Ok(())
    }

    /// Looks keys up in a part; what was appended counts more than an equal version before it.
    fn look_up_all(&mut self, leaf: &Visible<'_>, task: &Task) -> std::result::Result<(), Damage> {
        let is_last = task.part + 1 == task.pointer.parts();
        for position in task.keys.clone() {
            let index = self.order[position].1;
            let Some(update) = leaf.find(self.keys[index], self.at.seq)? else { continue };
            let newer = |found: &Found| if is_last { update.seq >= found.seq } else { update.seq > found.seq };
            if self.out[index].as_ref().is_none_or(newer) {
                self.out[index] = Some(Found::of(&update, self.at.now));
            }
        }
        Ok(())
    }
}
