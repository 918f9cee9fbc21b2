//! Multi-path search: many keys at once (Roh et al., PVLDB 5(4), 2011, section 3.1.1, algorithm 1).
//!
//! 1. The keys are sorted and taken in groups of [`KEYS_MAX`], which bounds the memory of a search, as PioMax does in the
//!    paper.
//! 2. A group goes down level by level. A level's distinct nodes are read in one psync.
//! 3. Leaves are read as a stream of at most PioMax requests: those that have arrived are checked and searched while the
//!    others are on their way.
//!
//! One key alone goes the same way without the lists.

use index::{Found, Operation, Payload, Result, Seq, Stored, Update};
use std::ops::Range;

use crate::format::{Damage, Pointer};
use crate::leaf::Visible;
use crate::node::{Node, head};
use crate::version::Version;

/// Keys that go down together.
const KEYS_MAX: usize = 4096;

pub(crate) fn get_many(version: &Version, keys: &[&[u8]], at: Seq, out: &mut [Option<Found>]) -> Result<()> {
    let Some(root) = &version.root.pointer else { return Ok(()) };
    if let ([key], [found]) = (keys, &mut *out) {
        return get(version, root, key, at, found);
    }
    let mut order: Vec<_> = (0..keys.len()).map(|index| (head(keys[index]), index)).collect();
    order.sort_unstable_by(|one, other| (one.0, keys[one.1]).cmp(&(other.0, keys[other.1])));
    for group in order.chunks(KEYS_MAX) {
        Search { version, keys, at, order: group, out }.run(root)?;
    }
    Ok(())
}

fn get(version: &Version, root: &Pointer, key: &[u8], at: Seq, out: &mut Option<Found>) -> Result<()> {
    let shared = &version.shared;
    let mut pointer = version.top()?.map_or(*root, |top| *top.pointer(top.search(key)));
    for level in (1..version.root.height.saturating_sub(1)).rev() {
        let node = shared.node(version.table, &pointer, level)?;
        pointer = *node.pointer(node.search(key));
    }
    let look = |leaf: &Visible<'_>| look_up(leaf, key, at, out);
    match shared.cached_leaf(&pointer, false) {
        Some(leaf) => shared.look_into(&pointer, &leaf, look),
        None => {
            let read = shared.read(&pointer, 0, pointer.published_bytes(), 0);
            let buffer = shared.psync().run_all(vec![read])?.pop().flatten();
            shared.with_leaf(version.table, &pointer, &buffer.expect("a read hands its buffer back"), look)
        }
    }
}

/// Looks a key up in its leaf.
fn look_up(leaf: &Visible<'_>, key: &[u8], at: Seq, out: &mut Option<Found>) -> std::result::Result<(), Damage> {
    if let Some(update) = leaf.find(key, at)? {
        *out = Some(Found { seq: update.seq, value: stored(&update) });
    }
    Ok(())
}

/// What a version holds, or none where it is a tombstone.
pub(crate) fn stored(update: &Update<'_>) -> Option<Stored> {
    match update.operation {
        Operation::Put(Payload::Inline(value)) => Some(Stored::Inline(value.to_vec())),
        Operation::Put(Payload::Document(document)) => Some(Stored::Document(document)),
        Operation::Delete => None,
    }
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
        let mut tasks = Vec::new();
        match self.version.top()? {
            Some(top) => self.descend(top, 0..self.order.len(), &mut tasks),
            None => tasks.push((*root, 0..self.order.len())),
        }
        for level in (1..self.version.root.height.saturating_sub(1)).rev() {
            let pointers: Vec<_> = tasks.iter().map(|(pointer, _)| *pointer).collect();
            let nodes = self.version.shared.nodes(self.version.table, &pointers, level)?;
            let mut below = Vec::with_capacity(self.order.len().min(nodes.len() * 8));
            for (node, (_, range)) in nodes.iter().zip(tasks) {
                self.descend(node, range, &mut below);
            }
            tasks = below;
        }
        self.leaves(&tasks)
    }

    /// Gives the keys of a node to its children.
    fn descend(&self, node: &Node, range: Range<usize>, below: &mut Vec<(Pointer, Range<usize>)>) {
        let mut start = range.start;
        while start < range.end {
            let child = node.search(self.key(start));
            let mut end = start + 1;
            while end < range.end && node.below_end(child, self.key(end)) {
                end += 1;
            }
            below.push((*node.pointer(child), start..end));
            start = end;
        }
    }

    fn leaves(&mut self, tasks: &[(Pointer, Range<usize>)]) -> Result<()> {
        let version = self.version;
        let depth = version.shared.psync().pio_max();
        let mut stream = None;
        for (number, (pointer, range)) in tasks.iter().enumerate() {
            if let Some(leaf) = version.shared.cached_leaf(pointer, false) {
                version.shared.look_into(pointer, &leaf, |leaf| self.look_up_all(leaf, range))?;
                continue;
            }
            let stream = stream.get_or_insert_with(|| version.shared.psync().stream(depth.min(tasks.len())));
            if stream.in_flight() >= depth {
                let completion = stream.next().expect("requests are in flight");
                self.arrived(tasks, completion)?;
            }
            stream.push(version.shared.read(pointer, 0, pointer.published_bytes(), number as u64));
        }
        for completion in stream.into_iter().flatten() {
            self.arrived(tasks, completion)?;
        }
        Ok(())
    }

    fn arrived(&mut self, tasks: &[(Pointer, Range<usize>)], completion: psync::Completion) -> Result<()> {
        completion.result?;
        let number = usize::try_from(completion.tag).expect("a tag is the number of a task");
        let (pointer, range) = &tasks[number];
        let buffer = completion.buffer.expect("a read hands its buffer back");
        let version = self.version;
        version.shared.with_leaf(version.table, pointer, &buffer, |leaf| self.look_up_all(leaf, range))
    }

    fn look_up_all(&mut self, leaf: &Visible<'_>, range: &Range<usize>) -> std::result::Result<(), Damage> {
        for position in range.clone() {
            let index = self.order[position].1;
            look_up(leaf, self.keys[index], self.at, &mut self.out[index])?;
        }
        Ok(())
    }
}
