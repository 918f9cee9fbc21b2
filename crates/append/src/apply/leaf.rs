//! Groups of a leaf, and the updates of their keys.

use std::ops::Range;

use index::merge::merge;
use index::{Operation, Result, Update};

use super::Apply;
use super::content::Content;
use super::outcome::Outcome;
use crate::format::node::{Group, Node, put_keys, put_tree};
use crate::format::{Link, NODE_BYTES};
use crate::search::chunk_at;

/// Most bytes of a group with several keys. A larger group becomes a B+-tree of its own.
pub(super) const GROUP_BYTES_MAX: usize = NODE_BYTES / 4;

impl Apply<'_> {
    /// The new content of a leaf, or of a missing one; `depth` is that of its B+-tree.
    pub(super) fn merge_leaf(
        &mut self, leaf: Option<&Node>, low: Vec<u8>, range: Range<usize>, depth: usize,
    ) -> Result<Content> {
        let (mut content, mut index, mut start) = (Content::new(0, low), 0, range.start);
        let groups = leaf.map_or(0, Node::len);
        while start < range.end {
            let same = self.same_chunk(&(start..range.end), depth);
            let own = self.work.update(start).map(|update| chunk_at(update.key, depth, self.chunk_bytes()));
            let copy;
            let chunk = match own {
                Some(chunk) => chunk,
                None => {
                    copy = chunk_at(self.work.key(start), depth, self.chunk_bytes()).to_vec();
                    &copy
                }
            };
            let group = leaf.and_then(|leaf| {
                while index < groups && leaf.bound(index) < chunk {
                    content.copy(leaf.entry(index));
                    index += 1;
                }
                (index < groups && leaf.bound(index) == chunk).then(|| leaf.group(index))
            });
            index += usize::from(group.is_some());
            start = same.end;
            self.update_group(&mut content, group, chunk, same, depth + chunk.len())?;
        }
        if let Some(leaf) = leaf {
            (index..groups).for_each(|index| content.copy(leaf.entry(index)));
        }
        (self.progress)(range.end.min(self.work.batch.len()));
        Ok(content)
    }

    /// Adds the new content of a group; `depth` is behind its chunk.
    pub(super) fn update_group(
        &mut self, content: &mut Content, group: Option<Group<'_>>, chunk: &[u8], range: Range<usize>, depth: usize,
    ) -> Result<()> {
        if group.is_none() && range.len() == 1 && self.put_new(content, chunk, range.start, depth)? {
            return Ok(());
        }
        let keys = match group {
            Some(Group::Tree(pointer)) => {
                let outcome = self.update_tree(&pointer, depth, range, false)?;
                return self.put_outcome(content, chunk, outcome, depth);
            }
            Some(Group::Keys(keys)) => Some(keys),
            None => None,
        };
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
        self.put_keys(content, chunk, &merged, depth)
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
    pub(super) fn put_outcome(
        &mut self, content: &mut Content, chunk: &[u8], outcome: Outcome, depth: usize,
    ) -> Result<()> {
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
                self.put_keys(content, chunk, &versions, depth)
            }
        }
    }

    /// Adds a group of keys, as a B+-tree if the group is too large.
    fn put_keys(&mut self, content: &mut Content, chunk: &[u8], versions: &[Update<'_>], depth: usize) -> Result<()> {
        let [first, .., last] = versions else {
            if !versions.is_empty() {
                let mut entry = Vec::new();
                put_keys(&mut entry, chunk, versions);
                content.push(&entry);
            }
            return Ok(());
        };
        let mut entry = Vec::new();
        put_keys(&mut entry, chunk, versions);
        if entry.len() > GROUP_BYTES_MAX && first.key != last.key {
            let link = self.build_tree(versions, depth)?;
            entry.clear();
            put_tree(&mut entry, chunk, &link);
        }
        content.push(&entry);
        Ok(())
    }

    /// Makes a B+-tree of the keys of a group; the keys in `versions` begin behind `depth`.
    fn build_tree(&mut self, versions: &[Update<'_>], depth: usize) -> Result<Link> {
        let chunk_bytes = self.chunk_bytes();
        let skip = match versions {
            [first, .., last] => &first.key[..common_chunks(first.key, last.key, chunk_bytes)],
            _ => b"",
        };
        let mut content = Content::new(0, Vec::new());
        let chunk_of = |key| chunk_at(key, skip.len(), chunk_bytes);
        for group in versions.chunk_by(|one, other| chunk_of(one.key) == chunk_of(other.key)) {
            let chunk = chunk_of(group[0].key);
            let above = skip.len() + chunk.len();
            let below: Vec<_> = group.iter().map(|version| Update { key: &version.key[above..], ..*version }).collect();
            super::deep(|| self.put_keys(&mut content, chunk, &below, depth + above))?;
        }
        let content = self.grow(content)?;
        self.make(&content, skip, true)
    }
}

/// Bytes of the whole chunks that two keys share at their beginning.
pub(super) fn common_chunks(one: &[u8], other: &[u8], chunk_bytes: usize) -> usize {
    let same = index::common_prefix(one, other);
    same - same % chunk_bytes
}
