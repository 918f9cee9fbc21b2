//! B+-trees of a trie: their skipped chunks, and the end of small trees.
//!
//! - If a new key does not have the chunks that a B+-tree skips, another tree is put above, which skips the shared
//!   chunks.
//! - If a tree is left with a single tree below and nothing else, the two become one.
//! - If few keys are left in a tree, they go back into the leaf above.

use std::ops::Range;

use doclog::DocPointer;
use index::{Operation, Result};

use super::Apply;
use super::content::Content;
use super::leaf::{GROUP_BYTES_MAX, common_chunks};
use super::outcome::{Outcome, Owned};
use crate::format::Link;
use crate::format::node::{Group, Node};
use crate::search::chunk_at;
use crate::shared::corrupt;

impl Apply<'_> {
    /// Applies updates to the trie; returns the link to its new root.
    pub(super) fn update_trie(&mut self, range: Range<usize>) -> Result<Option<Link>> {
        let header = self.base.header();
        if range.is_empty() {
            return Ok(header.root.map(|pointer| Link { pointer, due: header.due, filter: Box::default() }));
        }
        let outcome = match header.root {
            Some(root) => self.update_tree(&root, 0, range, true)?,
            None => {
                let (first, last) = (self.work.key(range.start), self.work.key(range.end - 1));
                let skip = first[..common_chunks(first, last, self.chunk_bytes())].to_vec();
                let content = self.merge_leaf(None, Vec::new(), range, skip.len())?;
                let content = if content.len() == 0 { None } else { Some(self.grow(content)?) };
                self.finish(&skip, content, true)?
            }
        };
        Ok(match outcome {
            Outcome::Tree(link) => Some(link),
            Outcome::Gone | Outcome::Small(_) => None,
        })
    }

    /// Applies updates to a B+-tree; `depth` is above its skip, and `is_top` marks the tree at the top of the trie.
    pub(super) fn update_tree(
        &mut self, pointer: &DocPointer, depth: usize, range: Range<usize>, is_top: bool,
    ) -> Result<Outcome> {
        let root = self.node(pointer, range.start)?;
        self.drop_node(pointer, &root);
        self.update_root(&root, root.skip(), depth, range, is_top)
    }

    /// As `update_tree`, for a tree that skips no more than `skip`. Without updates the root is made anew.
    fn update_root(
        &mut self, root: &Node, skip: &[u8], depth: usize, range: Range<usize>, is_top: bool,
    ) -> Result<Outcome> {
        super::deep(|| self.update_root_here(root, skip, depth, range, is_top))
    }

    fn update_root_here(
        &mut self, root: &Node, skip: &[u8], depth: usize, range: Range<usize>, is_top: bool,
    ) -> Result<Outcome> {
        if range.is_empty() {
            return self.finish(skip, Some(Content::of(root, Vec::new())), is_top);
        }
        let common = |index: usize| common_chunks(&self.work.key(index)[depth..], skip, self.chunk_bytes());
        let common = common(range.start).min(common(range.end - 1));
        let content = if common == skip.len() {
            self.root_content(root, range, depth + common)?
        } else {
            Some(self.part_path(root, &skip[common..], depth + common, range)?)
        };
        self.finish(&skip[..common], content, is_top)
    }

    /// The entries of a new B+-tree above `root`, whose skip not all updates share.
    fn part_path(&mut self, root: &Node, skip: &[u8], depth: usize, range: Range<usize>) -> Result<Content> {
        let (old, skip) = skip.split_at(self.chunk_bytes());
        let below = depth + old.len();
        let (mut content, mut start, mut is_placed) = (Content::new(0, Vec::new()), range.start, false);
        while start < range.end {
            let same = self.same_chunk(&(start..range.end), depth);
            let chunk = chunk_at(self.work.key(start), depth, self.chunk_bytes()).to_vec();
            start = same.end;
            if !is_placed && chunk.as_slice() >= old {
                is_placed = true;
                let is_its = chunk == old;
                let updates = if is_its { same.clone() } else { 0..0 };
                let outcome = self.update_root(root, skip, below, updates, false)?;
                self.put_outcome(&mut content, old, outcome, below)?;
                if is_its {
                    continue;
                }
            }
            self.update_group(&mut content, None, &chunk, same, depth + chunk.len())?;
        }
        if !is_placed {
            let outcome = self.update_root(root, skip, below, 0..0, false)?;
            self.put_outcome(&mut content, old, outcome, below)?;
        }
        self.grow(content)
    }

    /// Appends the root of a B+-tree, unless no root is to stay.
    fn finish(&mut self, skip: &[u8], content: Option<Content>, is_top: bool) -> Result<Outcome> {
        let Some(content) = content.filter(|content| content.len() > 0) else { return Ok(Outcome::Gone) };
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
