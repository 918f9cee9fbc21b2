//! Checks everything that a version refers to.
//!
//! 1. The trie is walked from the root, past the cache, many nodes in one psync. Each node is checked in five respects:
//!    - its checksum,
//!    - its own form ([`Node::decode`]),
//!    - its level,
//!    - its chunks, which must lie where the parents say,
//!    - its filter, which must have everything in the node.
//! 2. The commit header is read, and compared with the counts of the walk: nodes, bytes, versions and keys, and the
//!    live bytes of each segment.
//!
//! Anything that does not check is a finding; the walk goes on with the rest.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use doclog::{DocPointer, SegmentId};
use index::{Error, Operation, Result, Seq, Visit};

use crate::filter;
use crate::format::Damage;
use crate::format::node::{Group, Node};
use crate::format::record::{Header, Shape};
use crate::shared::corrupt;
use crate::version::Version;

/// Nodes that are read in one psync.
const BATCH: usize = 256;

/// A node to be checked.
struct Task {
    pointer: DocPointer,
    /// None for the root of a B+-tree, which may have any level.
    level: Option<u8>,
    /// Bounds for the chunks of the node.
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// The bytes that all keys below the node begin with.
    prefix: Arc<[u8]>,
    /// The filter in the link to the node.
    filter: Box<[u8]>,
}

impl Task {
    fn root(pointer: DocPointer, prefix: Vec<u8>, filter: &[u8]) -> Self {
        Self { pointer, level: None, low: Vec::new(), high: None, prefix: prefix.into(), filter: filter.into() }
    }
}

struct Walk<'a> {
    version: &'a Version,
    visit: &'a mut dyn Visit,
    shape: Shape,
    live: BTreeMap<SegmentId, u64>,
    /// Places seen, so that a loop of damaged pointers ends.
    seen: HashSet<(SegmentId, u64)>,
    is_whole: bool,
}

/// Checks a version.
pub(crate) fn verify(version: &Version, visit: &mut dyn Visit) -> Result<()> {
    let mut walk =
        Walk { version, visit, shape: Shape::default(), live: BTreeMap::new(), seen: HashSet::new(), is_whole: true };
    let mut tasks: Vec<Task> =
        version.header().root.map(|root| Task::root(root, Vec::new(), b"")).into_iter().collect();
    while !tasks.is_empty() {
        let batch = tasks.split_off(tasks.len().saturating_sub(BATCH));
        walk.check(batch, &mut tasks);
    }
    walk.commit();
    Ok(())
}

impl Walk<'_> {
    fn finding(&mut self, error: &Error) {
        self.is_whole = false;
        self.visit.finding(error.to_string());
    }

    fn damage(&mut self, pointer: &DocPointer, damage: Damage) {
        let error = corrupt(&self.version.nodes, pointer, damage);
        self.finding(&error);
    }

    /// Checks nodes; the nodes below them are added to `tasks`.
    fn check(&mut self, batch: Vec<Task>, tasks: &mut Vec<Task>) {
        let pointers: Vec<_> = batch.iter().map(|task| task.pointer).collect();
        for (task, read) in batch.into_iter().zip(self.version.nodes.read_each(&pointers)) {
            let pointer = task.pointer;
            if !self.seen.insert((pointer.segment, pointer.offset)) {
                self.damage(&pointer, Damage::new(0, "node", "one pointer to it", "two"));
                continue;
            }
            match read {
                Err(error) => self.finding(&error.into()),
                Ok(bytes) => {
                    let node = Node::decode(&bytes, self.version.header().chunk_bytes());
                    match node.and_then(|node| self.node(&task, &node)) {
                        Ok(below) => tasks.extend(below),
                        Err(damage) => self.damage(&pointer, damage),
                    }
                }
            }
        }
    }

    fn node(&mut self, task: &Task, node: &Node) -> std::result::Result<Vec<Task>, Damage> {
        if let Some(expected) = task.level.filter(|level| *level != node.level()) {
            return Err(Damage::new(0, "level of a node", expected, node.level()));
        }
        if task.level.is_some() && !node.skip().is_empty() {
            return Err(Damage::new(1, "skip of a node below a root", "none", node.skip().len()));
        }
        let is_known = if node.level() > 0 { task.filter.is_empty() } else { filter::knows(&task.filter, node) };
        if !is_known {
            return Err(Damage::new(0, "filter of a node", "all that is in it", "less"));
        }
        let (versions, keys) = node.counts();
        let bytes = node.bytes() as u64;
        if node.level() == 0 {
            self.shape.leaves += 1;
            self.shape.leaf_bytes += bytes;
        } else {
            self.shape.internal_nodes += 1;
            self.shape.internal_bytes += bytes;
        }
        self.shape.versions += versions;
        self.shape.keys += keys;
        self.count(&task.pointer);
        // The bound of the first child says nothing.
        let first = usize::from(node.level() > 0);
        let within =
            |bound: &[u8]| bound >= task.low.as_slice() && task.high.as_deref().is_none_or(|high| bound < high);
        if !(first..node.len()).all(|index| within(node.bound(index))) {
            return Err(Damage::new(0, "chunks of a node", "those between its bounds", "others"));
        }
        let prefix = match node.skip() {
            b"" => Arc::clone(&task.prefix),
            skip => [&task.prefix, skip].concat().into(),
        };
        let (mut below, mut live) = (Vec::new(), 0);
        for index in 0..node.len() {
            if node.level() > 0 {
                let high = (index + 1 < node.len()).then(|| node.bound(index + 1).to_vec());
                let low = if index == 0 { task.low.clone() } else { node.bound(index).to_vec() };
                let (pointer, level) = (node.child(index), Some(node.level() - 1));
                below.push(Task {
                    pointer,
                    level,
                    low,
                    high: high.or_else(|| task.high.clone()),
                    prefix: Arc::clone(&prefix),
                    filter: node.filter(index).into(),
                });
                continue;
            }
            let begin = [&prefix, node.bound(index)].concat();
            match node.group(index) {
                Group::Tree(pointer) => below.push(Task::root(pointer, begin, node.filter(index))),
                Group::Keys(keys) => {
                    for (rest, versions) in keys.iter() {
                        let key = [&begin, rest].concat();
                        if key.len() > crate::KEY_BYTES_MAX {
                            let limit = crate::KEY_BYTES_MAX;
                            return Err(Damage::new(0, "key", format!("at most {limit} bytes"), key.len()));
                        }
                        let is_live = |(seq, operation): (Seq, Operation<'_>)| {
                            operation != Operation::Delete && !self.visit.is_hidden(&key, seq)
                        };
                        live += u64::from(versions.clone().next().is_some_and(is_live));
                        for (_, operation) in versions {
                            if let Some(document) = operation.document() {
                                self.visit.document(&document);
                            }
                        }
                    }
                }
            }
        }
        self.visit.keys(live);
        Ok(below)
    }

    fn count(&mut self, pointer: &DocPointer) {
        *self.live.entry(pointer.segment).or_default() += pointer.stored_bytes();
    }

    /// Checks the commit header against the counts of the walk.
    fn commit(&mut self) {
        let Some(place) = self.version.commit.place else { return };
        let read = self.version.nodes.read_many(&[place]).map(|mut bytes| bytes.remove(0));
        match read {
            Err(error) => return self.finding(&error.into()),
            Ok(bytes) => match Header::decode(&bytes, self.version.header().table) {
                Err(damage) => return self.damage(&place, damage),
                Ok(header) if header != *self.version.header() => {
                    let (expected, found) = (format!("{:?}", self.version.header()), format!("{header:?}"));
                    return self.damage(&place, Damage::new(0, "commit header", expected, found));
                }
                Ok(_) => self.count(&place),
            },
        }
        // Damage hides the nodes below it.
        if !self.is_whole {
            return;
        }
        let header = self.version.header();
        if header.shape != self.shape {
            let (expected, found) = (format!("{:?}", header.shape), format!("{:?}", self.shape));
            self.damage(&place, Damage::new(0, "counts of a trie", expected, found));
        }
        let bytes = self.live.values().sum::<u64>();
        if header.live_bytes != bytes {
            self.damage(&place, Damage::new(80, "live bytes of a trie", header.live_bytes, bytes));
        }
        let segments: Vec<_> = self.live.keys().chain(self.version.live.keys()).copied().collect();
        for segment in segments.into_iter().collect::<std::collections::BTreeSet<_>>() {
            let of = |live: &BTreeMap<SegmentId, u64>| live.get(&segment).copied().unwrap_or(0);
            let (counted, met) = (of(&self.version.live), of(&self.live));
            if counted != met {
                let file = self.version.nodes.path_of(segment);
                self.visit.finding(format!(
                    "{} at byte 0: {counted} bytes of its nodes are counted as live, and {met} are in use",
                    file.display()
                ));
            }
        }
    }
}
