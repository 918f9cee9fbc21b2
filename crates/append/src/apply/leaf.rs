//! Groups of a leaf, and the updates of their keys.

use std::ops::Range;

use index::merge::merge;
use index::{Operation, Result, Update};

use super::Apply;
use super::content::Content;
use super::frame::{Done, Frame, Leaf, Step};
use super::outcome::Outcome;
use crate::format::node::{Group, Keys, Node, put_keys, put_tree};
use crate::format::{Link, NODE_BYTES};
use crate::search::chunk_at;

/// Most bytes of a group with several keys. A larger group becomes a B+-tree of its own.
pub(super) const GROUP_BYTES_MAX: usize = NODE_BYTES / 4;

impl Leaf {
    pub(super) fn step(&mut self, apply: &mut Apply<'_>, below: Option<Done>) -> Result<Step> {
        let Self { leaf, index, range, depth, content } = self;
        let (leaf, depth) = (leaf.as_deref(), *depth);
        if let (Some(outcome), Some(leaf)) = (below, leaf) {
            apply.put_outcome(content, leaf.bound(*index - 1), outcome.outcome())?;
        }
        let groups = leaf.map_or(0, Node::len);
        while range.start < range.end {
            let same = apply.same_chunk(range, depth);
            let own = apply.work.update(same.start).map(|update| chunk_at(update.key, depth, apply.chunk_bytes()));
            let copy;
            let chunk = match own {
                Some(chunk) => chunk,
                None => {
                    copy = chunk_at(apply.work.key(same.start), depth, apply.chunk_bytes()).to_vec();
                    &copy
                }
            };
            let group = leaf.and_then(|leaf| {
                while *index < groups && leaf.bound(*index) < chunk {
                    content.copy(leaf.entry(*index));
                    *index += 1;
                }
                (*index < groups && leaf.bound(*index) == chunk).then(|| leaf.group(*index))
            });
            *index += usize::from(group.is_some());
            range.start = same.end;
            let keys = match group {
                Some(Group::Tree(pointer)) => {
                    let tree = apply.tree(&pointer, depth + chunk.len(), same, false)?;
                    return Ok(Step::Down(Frame::Tree(tree)));
                }
                Some(Group::Keys(keys)) => Some(keys),
                None => None,
            };
            apply.update_keys(content, keys, chunk, same, depth + chunk.len())?;
        }
        if let Some(leaf) = leaf {
            (*index..groups).for_each(|index| content.copy(leaf.entry(index)));
        }
        (apply.progress)(range.end.min(apply.work.batch.len()));
        Ok(Step::Up(Done::Entries(content.take())))
    }
}

impl Apply<'_> {
    /// Adds the new content of a group of keys; `depth` is behind its chunk.
    pub(super) fn update_keys(
        &mut self, content: &mut Content, keys: Option<Keys<'_>>, chunk: &[u8], range: Range<usize>, depth: usize,
    ) -> Result<()> {
        if keys.is_none() && range.len() == 1 && self.put_new(content, chunk, range.start, depth)? {
            return Ok(());
        }
        // Whole keys are needed, because range deletes are described by them.
        let above = &self.work.key(range.start)[..depth];
        let there = keys.into_iter().flat_map(|keys| keys.iter());
        let there: Vec<_> = there.map(|(rest, versions)| ([above, rest].concat(), versions)).collect();
        let mut entries = Vec::new();
        for (key, versions) in &there {
            let first = entries.len();
            entries.extend(versions.clone().map(|(seq, operation)| Update { key: key.as_slice(), seq, operation }));
            entries[first..].reverse();
        }
        entries.extend(range.filter_map(|index| self.work.update(index)));
        let mut merged = merge(entries, self.rules, &mut self.dropped_documents);
        for versions in merged.chunk_by(|one, other| one.key == other.key) {
            let oldest = &versions[0];
            if oldest.operation == Operation::Delete && oldest.seq > self.rules.through {
                self.again.add(oldest.key, oldest.seq);
            }
        }
        for version in &mut merged {
            self.expires |= version.operation.expiry().is_some();
            version.key = &version.key[depth..];
            self.place(version)?;
        }
        self.put_keys(content, chunk, &merged)
    }

    /// Adds a group of a single key where there was no group, as is most common while a table is filled. Returns
    /// whether this was possible: the update must be a put that does not expire, and no range tombstone may be there to
    /// hide it.
    fn put_new(&mut self, content: &mut Content, chunk: &[u8], index: usize, depth: usize) -> Result<bool> {
        let is_plain = |update: &Update<'_>| {
            matches!(update.operation, Operation::Put(_, None)) && self.rules.horizon.tombstones.is_empty()
        };
        let Some(mut version) = self.work.update(index).filter(is_plain) else { return Ok(false) };
        version.key = &version.key[depth..];
        self.place(&mut version)?;
        content.push_with(|bytes| put_keys(bytes, chunk, &[version]));
        Ok(true)
    }

    /// Adds the outcome of the B+-tree below a chunk.
    pub(super) fn put_outcome(&mut self, content: &mut Content, chunk: &[u8], outcome: Outcome) -> Result<()> {
        match outcome {
            Outcome::Gone => Ok(()),
            Outcome::Tree(link) => {
                let mut entry = Vec::new();
                put_tree(&mut entry, chunk, &link);
                content.push(&entry);
                Ok(())
            }
            Outcome::Small(versions) => {
                let versions: Vec<_> = versions.iter().map(|version| version.update()).collect();
                self.put_keys(content, chunk, &versions)
            }
        }
    }

    /// Adds a group of keys, as a B+-tree if the group is too large.
    fn put_keys(&mut self, content: &mut Content, chunk: &[u8], versions: &[Update<'_>]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        let mut entry = Vec::new();
        put_keys(&mut entry, chunk, versions);
        if is_too_large(&entry, versions) {
            let link = self.build_tree(versions)?;
            entry.clear();
            put_tree(&mut entry, chunk, &link);
        }
        content.push(&entry);
        Ok(())
    }

    /// Makes a B+-tree of the keys of a group, and before it those below it, on a stack of its own as [`Apply::walk`].
    fn build_tree(&mut self, versions: &[Update<'_>]) -> Result<Link> {
        let chunk_bytes = self.chunk_bytes();
        let mut stack = vec![Building::new(versions.to_vec(), chunk_bytes)];
        let mut entry = Vec::new();
        loop {
            let building = stack.last_mut().expect("it is left when the first is made");
            entry.clear();
            if let Some((chunk, below)) = building.next_group(chunk_bytes) {
                put_keys(&mut entry, chunk, &below);
                if is_too_large(&entry, &below) {
                    stack.push(Building::new(below, chunk_bytes));
                } else {
                    building.content.push(&entry);
                }
                continue;
            }
            let content = self.grow(building.content.take())?;
            let link = self.make(&content, building.skip, true)?;
            stack.pop();
            let Some(above) = stack.last_mut() else { return Ok(link) };
            put_tree(&mut entry, above.chunk, &link);
            above.content.push(&entry);
        }
    }
}

/// A B+-tree that is made of keys.
struct Building<'a> {
    /// Keys begin behind what leads to the tree.
    versions: Vec<Update<'a>>,
    /// What all keys share.
    skip: &'a [u8],
    /// Versions whose groups are behind, and the chunk of the last of these groups.
    done: usize,
    chunk: &'a [u8],
    content: Content,
}

impl<'a> Building<'a> {
    fn new(versions: Vec<Update<'a>>, chunk_bytes: usize) -> Self {
        let (first, last) = (versions[0].key, versions[versions.len() - 1].key);
        let skip = &first[..common_chunks(first, last, chunk_bytes)];
        Self { versions, skip, done: 0, chunk: b"", content: Content::new(0, Vec::new()) }
    }

    /// The next group, and its versions with what is behind its chunk of their keys.
    fn next_group(&mut self, chunk_bytes: usize) -> Option<(&'a [u8], Vec<Update<'a>>)> {
        let left = &self.versions[self.done..];
        let chunk_of = |version: &Update<'a>| chunk_at(version.key, self.skip.len(), chunk_bytes);
        let chunk = chunk_of(left.first()?);
        let above = self.skip.len() + chunk.len();
        let group = left.iter().take_while(|version| chunk_of(version) == chunk);
        let below: Vec<_> = group.map(|version| Update { key: &version.key[above..], ..*version }).collect();
        self.done += below.len();
        self.chunk = chunk;
        Some((chunk, below))
    }
}

/// Whether a group with this entry becomes a B+-tree of its own. A single key does not.
fn is_too_large(entry: &[u8], versions: &[Update<'_>]) -> bool {
    entry.len() > GROUP_BYTES_MAX && versions[0].key != versions[versions.len() - 1].key
}

/// Bytes of the whole chunks that two keys share at their beginning.
pub(super) fn common_chunks(one: &[u8], other: &[u8], chunk_bytes: usize) -> usize {
    let same = index::common_prefix(one, other);
    same - same % chunk_bytes
}
