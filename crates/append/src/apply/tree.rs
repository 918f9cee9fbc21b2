//! B+-trees of a trie: their skipped chunks, and the end of small trees.
//!
//! - If a new key does not have the chunks that a B+-tree skips, another tree is put above, which skips the shared
//!   chunks.
//! - If a tree is left with a single tree below and nothing else, the two become one.
//! - If few keys are left in a tree, they go back into the leaf above.

use std::ops::Range;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Operation, Result};

use super::Apply;
use super::content::Content;
use super::frame::{Done, Frame, Leaf, Path, Step, Tree};
use super::leaf::{GROUP_BYTES_MAX, common_chunks};
use super::outcome::{Outcome, Owned};
use crate::format::Link;
use crate::format::node::{Group, Node};
use crate::search::chunk_at;
use crate::shared::corrupt;

impl Tree {
    pub(super) fn step(&mut self, apply: &mut Apply<'_>, below: Option<Done>) -> Result<Step> {
        let content = match (below, &self.root) {
            (Some(entries), _) => apply.grow(entries.entries())?,
            (None, Some(root)) if self.range.is_empty() => Content::of(root, Vec::new()),
            (None, _) => return Ok(Step::Down(self.below(apply))),
        };
        Ok(Step::Up(Done::Outcome(apply.finish(&self.skip, content, self.is_top)?)))
    }

    /// What leads to the entries of the new root.
    fn below(&mut self, apply: &Apply<'_>) -> Frame {
        let Range { start, end } = self.range;
        let Some(root) = &self.root else {
            let common = common_chunks(apply.work.key(start), apply.work.key(end - 1), apply.chunk_bytes());
            self.skip = apply.work.key(start)[..common].to_vec();
            return Frame::Leaf(Leaf::new(None, Vec::new(), start..end, common));
        };
        let common =
            |index: usize| common_chunks(&apply.work.key(index)[self.depth..], &self.skip, apply.chunk_bytes());
        let common = common(start).min(common(end - 1));
        let depth = self.depth + common;
        if common == self.skip.len() {
            return Frame::of_node(Arc::clone(root), Vec::new(), start..end, depth, true);
        }
        let mut old = self.skip.split_off(common);
        let skip = old.split_off(apply.chunk_bytes());
        let content = Content::new(0, Vec::new());
        Frame::Path(Path { root: Arc::clone(root), old, skip, depth, range: start..end, content, is_placed: false })
    }
}

impl Path {
    pub(super) fn step(&mut self, apply: &mut Apply<'_>, below: Option<Done>) -> Result<Step> {
        if let Some(outcome) = below {
            apply.put_outcome(&mut self.content, &self.old, outcome.outcome())?;
        }
        while !self.range.is_empty() {
            let same = apply.same_chunk(&self.range, self.depth);
            let chunk = chunk_at(apply.work.key(same.start), self.depth, apply.chunk_bytes()).to_vec();
            if !self.is_placed && chunk >= self.old {
                let updates = if chunk == self.old { same } else { 0..0 };
                self.range.start += updates.len();
                return Ok(self.down(updates));
            }
            self.range.start = same.end;
            apply.update_keys(&mut self.content, None, &chunk, same, self.depth + chunk.len())?;
        }
        if !self.is_placed {
            return Ok(self.down(0..0));
        }
        Ok(Step::Up(Done::Entries(self.content.take())))
    }

    /// To the old tree, with its updates.
    fn down(&mut self, range: Range<usize>) -> Step {
        self.is_placed = true;
        let (root, skip) = (Some(Arc::clone(&self.root)), std::mem::take(&mut self.skip));
        Step::Down(Frame::Tree(Tree { root, skip, depth: self.depth + self.old.len(), range, is_top: false }))
    }
}

impl Apply<'_> {
    /// Applies updates to the trie; returns the link to its new root.
    pub(super) fn update_trie(&mut self, range: Range<usize>) -> Result<Option<Link>> {
        let header = self.base.header();
        if range.is_empty() {
            return Ok(header.root.map(|pointer| Link { pointer, due: header.due, filter: Box::default() }));
        }
        let tree = match header.root {
            Some(root) => self.tree(&root, 0, range, true)?,
            None => Tree { root: None, skip: Vec::new(), depth: 0, range, is_top: true },
        };
        Ok(match self.walk(tree)? {
            Outcome::Tree(link) => Some(link),
            Outcome::Gone | Outcome::Small(_) => None,
        })
    }

    /// A B+-tree that updates have reached; `depth` is above its skip.
    pub(super) fn tree(
        &mut self, pointer: &DocPointer, depth: usize, range: Range<usize>, is_top: bool,
    ) -> Result<Tree> {
        let root = self.node(pointer, range.start)?;
        self.drop_node(pointer, &root);
        Ok(Tree { skip: root.skip().to_vec(), root: Some(root), depth, range, is_top })
    }

    /// Appends the root of a B+-tree, unless no root is to stay.
    fn finish(&mut self, skip: &[u8], content: Content, is_top: bool) -> Result<Outcome> {
        if content.len() == 0 {
            return Ok(Outcome::Gone);
        }
        let may_fold = !is_top && content.bytes() <= GROUP_BYTES_MAX / 2;
        if content.level == 0 && (content.len() == 1 || may_fold) {
            let node = Node::decode(&content.encode(skip), self.chunk_bytes());
            let node = node.map_err(|damage| corrupt(&self.base.nodes, &DocPointer::default(), damage))?;
            if let (1, Group::Tree(below)) = (node.len(), node.group(0)) {
                let root = self.neighbour(&below)?;
                self.drop_node(&below, &root);
                let skip = [skip, node.bound(0), root.skip()].concat();
                return Ok(Outcome::Tree(self.make(&Content::of(&root, Vec::new()), &skip, true)?));
            }
            if may_fold && let Some(versions) = folded(&node) {
                return Ok(Outcome::Small(versions));
            }
        }
        Ok(Outcome::Tree(self.make(&content, skip, true)?))
    }
}

/// The versions of all keys of a B+-tree that is a single leaf, if they are small without the tree.
fn folded(node: &Node) -> Option<Vec<Owned>> {
    let (mut versions, mut bytes) = (Vec::new(), node.bytes());
    for index in 0..node.len() {
        let Group::Keys(keys) = node.group(index) else { return None };
        for (rest, of_key) in keys.iter() {
            let rest = [node.skip(), node.bound(index), rest].concat();
            bytes += rest.len();
            if bytes > GROUP_BYTES_MAX / 2 {
                return None;
            }
            let first = versions.len();
            versions.extend(of_key.map(|(seq, operation)| {
                let value = match operation {
                    Operation::Put(value, _) => Some(value.to_stored()),
                    Operation::Delete => None,
                };
                Owned { rest: rest.clone(), seq, value, expiry: operation.expiry() }
            }));
            versions[first..].reverse();
        }
    }
    Some(versions)
}
