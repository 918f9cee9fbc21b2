//! MPSearch (Roh et al., PVLDB 5(4), 2011, section 3.1.1, algorithm 1): many keys go down the tree together.
//!
//! 1. Keys are sorted. At each level, the nodes that hold any of the keys are read with one psync, each once.
//! 2. A leaf's filter names the block to look in ([`crate::filter`]). So a lookup reads one page of a leaf of any size,
//!    and mostly none for an absent key. A key that is missing from its block goes on to the next one, without waiting
//!    for other keys. The reason is a false positive of the filter, or a reader older than the appended runs.
//! 3. A leaf without a filter is searched in the part that its fences name, and in the last block if anything was
//!    appended. A leaf that is the root is searched in all blocks, because no node has its fences.
//! 4. Blocks are asked for as soon as the last level names them, while the other keys are still on their way down.
//!    Blocks of a leaf that lie close together come in one request.
//! 5. Cached blocks are looked into first. As each request completes, its keys are looked up while the other requests
//!    are in flight. At most PioMax are in flight at a time, or as many as
//!    [`Shared::with_lookups_in_flight`](crate::Shared::with_lookups_in_flight) says.
//!
//! Memory: one request per block of a leaf. All batches and scans together have a bound of memory ([`index::Share`]).
//! As many keys go down together as the batch's share of it allows, at most [`KEYS_MAX`]. So lists, images and buffers
//! of all of them are bounded together. A single key goes the same way without the lists.

use std::ops::Range;
use std::sync::Arc;

use index::bloom::Hash;
use index::{Found, Moment, Result, head};
use psync::{Buffer, Completion, Request, Spares, Stream};
use space::PAGE;

use crate::filter::{Filter, Link};
use crate::format::{Damage, Pointer};
use crate::leaf::{Leaf, Span, Visible};
use crate::node::Node;
use crate::version::Version;
use crate::way::{Way, way};

/// Keys that go down together.
const KEYS_MAX: usize = 4096;

/// Bytes that a key takes on its way: the page of a node or a leaf that is read for the key, and the image of another.
const KEY_BYTES: usize = 2 * PAGE;

/// Requests that are not worth a stream: those of one key.
const FEW: usize = 2;

/// One in so many of the requests in flight is waited for together, because a thread that is woken for each spends more
/// on waking than on work.
const TAKEN_TOGETHER: usize = 8;

/// Blocks found in memory that are held at most, about, before they are looked into. The bound is needed because some
/// may be copies.
const LOOKED_TOGETHER: usize = 128;

/// Requests that are handed to the device together while keys go down.
const GATHERED: usize = 16;

pub(crate) fn get_many(version: &Version, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
    let Some(root) = &version.root.pointer else { return Ok(()) };
    if let [key] = keys {
        return get(version, root, key, at, out);
    }
    let mut order: Vec<_> = (0..keys.len()).map(|index| (head(keys[index]), index)).collect();
    order.sort_unstable_by(|one, other| (one.0, keys[one.1]).cmp(&(other.0, keys[other.1])));
    let together = version.shared.read_ahead().share();
    for group in order.chunks(together.lookups(KEY_BYTES).min(KEYS_MAX)) {
        Search { version, keys, at, order: group, out }.run(root)?;
    }
    Ok(())
}

fn get(version: &Version, root: &Pointer, key: &[u8], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
    match way(version, root, key)? {
        Some(way) => get_in(version, &way, key, at, out),
        None => Search { version, keys: &[key], at, order: &[(0, 0)], out }.root_leaf(root),
    }
}

/// Looks `key` up in its leaf.
pub(crate) fn get_in(
    version: &Version, way: &Way<'_>, key: &[u8], at: Moment, out: &mut [Option<Found>],
) -> Result<()> {
    let (pointer, part) = (way.pointer, way.part);
    let mut search = Search { version, keys: &[key], at, order: &[(0, 0)], out };
    if !pointer.is_filtered() {
        return search.unfiltered(pointer, part);
    }
    let (filter, hash) = (Filter::new(&pointer, way.filter()), Hash::of(key));
    let mut block = filter.next(hash, part, None);
    while let Some(number) = block {
        search.one_block(&Task { pointer, block: number, link: filter.link(number), keys: 0..1, leaf: None })?;
        if search.out[0].is_some() {
            break;
        }
        block = filter.next(hash, part, Some(number));
    }
    Ok(())
}

/// A block of a leaf, and the keys that are looked up in it.
struct Task {
    pointer: Pointer,
    block: usize,
    link: Link,
    /// Among [`Leaves::positions`].
    keys: Range<usize>,
    /// The place of the leaf, if its keys may have to go on to another block: a node among [`Leaves::nodes`], and the
    /// child.
    leaf: Option<(usize, usize)>,
}

impl Task {
    fn of(&self) -> (&Pointer, usize, Link) {
        (&self.pointer, self.block, self.link)
    }

    fn cached(&self, version: &Version) -> Option<Arc<Leaf>> {
        version.shared.found_block(version.table, &self.pointer, self.block, self.link)
    }
}

/// The blocks of a leaf without a filter that may hold a key of a part: that part and, where anything was appended, the
/// last block.
pub(crate) fn unfiltered(pointer: &Pointer, part: usize) -> impl Iterator<Item = usize> {
    let last = pointer.blocks() - 1;
    std::iter::once(part).chain((pointer.appended && part != last).then_some(last))
}

/// The state of a task's block.
enum Block {
    /// Found in memory, still to be looked into.
    Cached(Arc<Leaf>),
    /// Looked into.
    Done,
    /// To be read.
    Missing,
}

impl Block {
    const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }

    /// The image, to be looked into.
    fn take(&mut self) -> Option<Arc<Leaf>> {
        let Self::Cached(leaf) = self else { return None };
        let leaf = Arc::clone(leaf);
        *self = Self::Done;
        Some(leaf)
    }
}

/// A request for bytes of a leaf.
#[derive(Clone)]
struct Fetch {
    /// The tasks of these bytes. Those with a cached block have been looked into.
    tasks: Range<usize>,
    bytes: Range<usize>,
}

impl Fetch {
    fn request(&self, version: &Version, tasks: &[Task], number: usize, buffer: Buffer) -> Request {
        let offset = tasks[self.tasks.start].pointer.offset() + self.bytes.start as u64;
        Request::read(version.shared.pages().file(), offset, buffer, number as u64)
    }
}

/// Adds the fetches of the tasks from `first` on: blocks that are not cached, in one request where they lie close
/// together.
fn plan(version: &Version, tasks: &[Task], blocks: &[Block], first: usize, fetches: &mut Vec<Fetch>) {
    let gap = version.shared.gap_bytes();
    for number in (first..tasks.len()).filter(|number| blocks[*number].is_missing()) {
        let task = &tasks[number];
        let bytes = task.pointer.block(task.block);
        match fetches.last_mut() {
            Some(last)
                if last.tasks.start >= first
                    && tasks[last.tasks.start].pointer.page == task.pointer.page
                    && bytes.start >= last.bytes.start
                    && bytes.start <= last.bytes.end + gap =>
            {
                last.tasks.end = number + 1;
                last.bytes.end = bytes.end.max(last.bytes.end);
            }
            _ => fetches.push(Fetch { tasks: number..number + 1, bytes }),
        }
    }
}

/// The blocks of leaves that a group of keys needs. A block that is not cached is read as soon as it is known, while
/// the other keys go down.
struct Leaves<'v> {
    version: &'v Version,
    tasks: Vec<Task>,
    /// Positions of keys, those of one task after the other.
    positions: Vec<usize>,
    /// The nodes above leaves.
    nodes: Vec<Arc<Node>>,
    /// For each task that was asked for, the state of its block.
    blocks: Vec<Block>,
    /// Number of leading tasks whose cached blocks were looked into.
    looked: usize,
    fetches: Vec<Fetch>,
    /// `asked`: fetches that were handed to the stream, or read. `gathered`: those since the stream was last told to
    /// start.
    asked: usize,
    gathered: usize,
    /// None as long as plain calls suffice.
    stream: Option<Stream>,
    /// For the stream's reads.
    spares: Spares,
}

impl<'v> Leaves<'v> {
    fn new(version: &'v Version, expected: usize) -> Self {
        Self {
            version,
            tasks: Vec::with_capacity(expected),
            positions: Vec::with_capacity(expected),
            nodes: Vec::new(),
            blocks: Vec::with_capacity(expected),
            looked: 0,
            fetches: Vec::with_capacity(expected),
            asked: 0,
            gathered: 0,
            stream: None,
            spares: Spares::default(),
        }
    }

    /// Asks for the blocks of the tasks added since the last call.
    fn ask(&mut self) {
        let first = self.blocks.len();
        let cached = |task: &Task| task.cached(self.version).map_or(Block::Missing, Block::Cached);
        self.blocks.extend(self.tasks[first..].iter().map(cached));
        plan(self.version, &self.tasks, &self.blocks, first, &mut self.fetches);
        if self.stream.is_some() || self.fetches.len() - self.asked > FEW {
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
                self.spares = self.version.shared.take_spares(self.fetches.capacity() * KEY_BYTES);
                self.stream.insert(psync.stream(self.version.shared.lookups_in_flight()))
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

    /// The number and the bytes of a complete fetch. None when all were taken.
    fn next(&mut self) -> Result<Option<(usize, Buffer)>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        stream.gather(stream.in_flight() / TAKEN_TOGETHER);
        let Some(Completion { tag, buffer, result }) = stream.next() else { return Ok(None) };
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

    /// Looks the only key up in a block.
    fn one_block(&mut self, task: &Task) -> Result<()> {
        let version = self.version;
        let shared = &version.shared;
        if let Some(leaf) = task.cached(self.version) {
            return shared.look_into(task.of(), &leaf, |leaf| self.look_up_all(leaf, task, &[0]));
        }
        let bytes = task.pointer.block(task.block);
        let read = shared.read(&task.pointer, bytes.start / PAGE, bytes.len(), 0);
        let pages = shared.psync().run_all(vec![read])?.pop().flatten().expect("a read hands its buffer back");
        let look = |leaf: &Visible<'_>| self.look_up_all(leaf, task, &[0]);
        shared.with_block(version.table, task.of(), &pages, &mut Vec::new(), look)
    }

    /// Looks the only key up in a leaf without a filter.
    fn unfiltered(&mut self, pointer: Pointer, part: usize) -> Result<()> {
        let mut leaves = Leaves::new(self.version, FEW);
        leaves.positions.push(0);
        let task = |block| Task { pointer, block, link: Link::default(), keys: 0..1, leaf: None };
        leaves.tasks.extend(unfiltered(&pointer, part).map(task));
        leaves.ask();
        self.look_into(leaves)
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
            self.descend_to_leaves(node, range, &mut leaves);
            leaves.ask();
            if leaves.blocks.len() - leaves.looked >= LOOKED_TOGETHER {
                self.look_into_cached(&mut leaves)?;
            }
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

    /// Gives the keys of a node to blocks of its leaves.
    fn descend_to_leaves(&self, node: Arc<Node>, range: Range<usize>, leaves: &mut Leaves<'_>) {
        let mut start = range.start;
        let mut wanted = Vec::new();
        while start < range.end {
            let mut place = node.find(self.key(start));
            let (child, pointer) = (place.child, node.pointer(place.child));
            let filter = Filter::new(&pointer, node.filter(child));
            wanted.clear();
            loop {
                let mut end = start + 1;
                while end < range.end && node.below_part_end(place, self.key(end)) {
                    end += 1;
                }
                if !pointer.is_filtered() {
                    for block in unfiltered(&pointer, place.part) {
                        wanted.extend((start..end).map(|position| (block, position)));
                    }
                } else {
                    for position in start..end {
                        let block = filter.next(Hash::of(self.key(position)), place.part, None);
                        wanted.extend(block.map(|block| (block, position)));
                    }
                }
                start = end;
                if start == range.end || !node.below_end(child, self.key(start)) {
                    break;
                }
                place = node.find(self.key(start));
            }
            // Stable, so that keys stay in order.
            wanted.sort_by_key(|(block, _)| *block);
            let leaf = pointer.is_filtered().then_some((leaves.nodes.len(), child));
            for keys in wanted.chunk_by(|one, other| one.0 == other.0) {
                let (block, first) = (keys[0].0, leaves.positions.len());
                leaves.positions.extend(keys.iter().map(|(_, position)| *position));
                let keys = first..leaves.positions.len();
                leaves.tasks.push(Task { pointer, block, link: filter.link(block), keys, leaf });
            }
        }
        leaves.nodes.push(node);
    }

    /// Looks all keys up in the only leaf of the tree.
    fn root_leaf(&mut self, root: &Pointer) -> Result<()> {
        let mut leaves = Leaves::new(self.version, root.blocks());
        leaves.positions.extend(0..self.order.len());
        let keys = 0..leaves.positions.len();
        let task = |block| Task { pointer: *root, block, link: Link::default(), keys: keys.clone(), leaf: None };
        leaves.tasks.extend((0..root.blocks()).map(task));
        leaves.ask();
        self.look_into(leaves)
    }

    /// Looks into all blocks, those that are cached first.
    fn look_into(&mut self, mut leaves: Leaves<'_>) -> Result<()> {
        leaves.submit();
        let mut spans = Vec::new();
        self.look_into_cached(&mut leaves)?;
        while leaves.stream.is_none() && leaves.asked < leaves.fetches.len() {
            self.look_into_few(&mut leaves, &mut spans)?;
        }
        while let Some((number, buffer)) = leaves.next()? {
            self.arrived(&mut leaves, number, &buffer, &mut spans)?;
            leaves.spares.keep(buffer);
        }
        if leaves.stream.is_some() {
            self.version.shared.leave_spares(leaves.spares);
        }
        Ok(())
    }

    /// Asks for the blocks of tasks added since the last call, and looks into the cached ones.
    fn look_into_cached(&mut self, leaves: &mut Leaves<'_>) -> Result<()> {
        let version = self.version;
        loop {
            while leaves.looked < leaves.blocks.len() {
                let number = leaves.looked;
                leaves.looked += 1;
                if let Some(leaf) = leaves.blocks[number].take() {
                    let (task, positions) = (&leaves.tasks[number], &leaves.positions);
                    let look = |leaf: &Visible<'_>| self.look_up_all(leaf, task, &positions[task.keys.clone()]);
                    version.shared.look_into(task.of(), &leaf, look)?;
                    self.go_on(leaves, number);
                }
            }
            if leaves.blocks.len() == leaves.tasks.len() {
                return Ok(());
            }
            leaves.ask();
        }
    }

    /// Reads the blocks that are not cached with one psync, and looks into them.
    fn look_into_few(&mut self, leaves: &mut Leaves<'_>, spans: &mut Vec<Span>) -> Result<()> {
        let few = leaves.asked..leaves.fetches.len();
        leaves.asked = few.end;
        let request =
            |fetch: &Fetch| fetch.request(self.version, &leaves.tasks, 0, Buffer::for_read(fetch.bytes.len()));
        let requests = leaves.fetches[few.clone()].iter().map(request).collect();
        let buffers = self.version.shared.psync().run_all(requests)?;
        let mut read = few.zip(buffers.into_iter().flatten());
        read.try_for_each(|(number, buffer)| self.arrived(leaves, number, &buffer, spans))
    }

    /// Looks into the blocks that a request brought.
    fn arrived(&mut self, leaves: &mut Leaves<'_>, number: usize, buffer: &[u8], spans: &mut Vec<Span>) -> Result<()> {
        let version = self.version;
        let Fetch { tasks, bytes: read } = leaves.fetches[number].clone();
        for number in tasks.filter(|number| leaves.blocks[*number].is_missing()).collect::<Vec<_>>() {
            let task = &leaves.tasks[number];
            let bytes = task.pointer.block(task.block);
            let pages = &buffer[bytes.start - read.start..bytes.end - read.start];
            let positions = &leaves.positions[task.keys.clone()];
            let look = |leaf: &Visible<'_>| self.look_up_all(leaf, task, positions);
            version.shared.with_block(version.table, task.of(), pages, spans, look)?;
            self.go_on(leaves, number);
        }
        self.look_into_cached(leaves)
    }

    /// Gives the keys of a task that were not found to the next block that may have them.
    fn go_on(&self, leaves: &mut Leaves<'_>, number: usize) {
        let task = &leaves.tasks[number];
        let Some((above, child)) = task.leaf else { return };
        let (pointer, last, keys) = (task.pointer, task.block, task.keys.clone());
        for key in keys {
            let position = leaves.positions[key];
            if self.out[self.order[position].1].is_some() {
                continue;
            }
            let node = &leaves.nodes[above];
            let filter = Filter::new(&pointer, node.filter(child));
            let (key, part) = (self.key(position), node.find(self.key(position)).part);
            if let Some(block) = filter.next(Hash::of(key), part, Some(last)) {
                let link = filter.link(block);
                let first = leaves.positions.len();
                leaves.positions.push(position);
                leaves.tasks.push(Task { pointer, block, link, keys: first..first + 1, leaf: Some((above, child)) });
            }
        }
    }

    /// Looks keys up in a block. An appended version counts more than an equal version before it.
    fn look_up_all(&mut self, leaf: &Visible<'_>, task: &Task, positions: &[usize]) -> std::result::Result<(), Damage> {
        let is_last = task.block + 1 == task.pointer.blocks();
        for position in positions {
            let index = self.order[*position].1;
            let Some(update) = leaf.find(self.keys[index], self.at.seq)? else { continue };
            let newer = |found: &Found| if is_last { update.seq >= found.seq } else { update.seq > found.seq };
            if self.out[index].as_ref().is_none_or(newer) {
                self.out[index] = Some(Found::of(&update, self.at.now));
            }
        }
        Ok(())
    }
}
