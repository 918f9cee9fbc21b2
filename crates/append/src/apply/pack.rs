//! Lists of children: small nodes are joined with a neighbour, large ones are split.

use std::ops::Range;

use doclog::DocPointer;
use index::Result;

use super::Apply;
use super::content::Content;
use crate::format::Link;
use crate::format::node::Node;
use crate::search::chunk_at;

/// A child of an internal node.
pub(super) enum Child {
    /// A child that the batch did not touch.
    Old { low: Vec<u8>, link: Link },
    /// A child that is to be written.
    New(Content),
}

impl Apply<'_> {
    /// The entries of the new root of a B+-tree, after the updates of `range`. None if no key is left.
    pub(super) fn root_content(&mut self, root: &Node, range: Range<usize>, depth: usize) -> Result<Option<Content>> {
        let content = if root.level() == 0 {
            self.merge_leaf(Some(root), Vec::new(), range, depth)?
        } else {
            let mut children = self.update_children(root, Vec::new(), range, depth)?;
            match (children.len(), children.pop()) {
                (1, Some(Child::New(content))) => content,
                (1, Some(Child::Old { low, link })) => {
                    let node = self.neighbour(&link.pointer)?;
                    self.drop_node(&link.pointer, &node);
                    Content::of(&node, low)
                }
                (_, last) => {
                    children.extend(last);
                    self.make_children(children, root.level(), Vec::new())?
                }
            }
        };
        Ok(if content.len() == 0 { None } else { Some(self.grow(content)?) })
    }

    /// Puts levels above entries that one node does not hold.
    pub(super) fn grow(&mut self, mut content: Content) -> Result<Content> {
        while content.is_large() {
            let level = content.level + 1;
            let pieces = content.split().into_iter().map(Child::New).collect();
            content = self.make_children(pieces, level, Vec::new())?;
        }
        Ok(content)
    }

    /// Appends the new children, and returns the entries of the node above.
    fn make_children(&mut self, children: Vec<Child>, level: u8, low: Vec<u8>) -> Result<Content> {
        let mut above = Content::new(level, low);
        for child in children {
            match child {
                Child::Old { low, link } => above.push_child(&low, &link),
                Child::New(content) => {
                    let link = self.make(&content, b"", false)?;
                    above.push_child(&content.low, &link);
                }
            }
        }
        Ok(above)
    }

    /// The new content of a node below a root.
    fn update_node(
        &mut self, pointer: &DocPointer, low: Vec<u8>, range: Range<usize>, depth: usize,
    ) -> Result<Content> {
        let node = self.node(pointer, range.start)?;
        self.drop_node(pointer, &node);
        if node.level() == 0 {
            return self.merge_leaf(Some(&node), low, range, depth);
        }
        let children = self.update_children(&node, low.clone(), range, depth)?;
        self.make_children(children, node.level(), low)
    }

    /// The new children of a node.
    fn update_children(&mut self, node: &Node, low: Vec<u8>, range: Range<usize>, depth: usize) -> Result<Vec<Child>> {
        let (mut children, mut start) = (Vec::with_capacity(node.len()), range.start);
        for index in 0..node.len() {
            let is_below = |key: &[u8]| {
                index + 1 == node.len() || chunk_at(key, depth, self.chunk_bytes()) < node.bound(index + 1)
            };
            let end = (start..range.end).find(|number| !is_below(self.work.key(*number))).unwrap_or(range.end);
            let link = node.link(index).expect("a node above leaves has children");
            let low = if index == 0 { low.clone() } else { node.bound(index).to_vec() };
            if start == end {
                children.push(Child::Old { low, link });
                continue;
            }
            let content = self.update_node(&link.pointer, low, start..end, depth)?;
            if content.len() > 0 {
                children.push(Child::New(content));
            }
            start = end;
        }
        self.balance(children)
    }

    /// Joins small nodes with a neighbour and splits large ones.
    fn balance(&mut self, children: Vec<Child>) -> Result<Vec<Child>> {
        self.read_neighbours(&children)?;
        let mut joined: Vec<Child> = Vec::with_capacity(children.len());
        for child in children {
            match joined.pop() {
                None => joined.push(child),
                Some(before) => self.join(before, child, &mut joined)?,
            }
        }
        let mut balanced = Vec::with_capacity(joined.len());
        for child in joined {
            match child {
                Child::New(content) if content.is_large() => {
                    balanced.extend(content.split().into_iter().map(Child::New))
                }
                other => balanced.push(other),
            }
        }
        Ok(balanced)
    }

    /// Puts two neighbours into a list, as one node if one of them is small.
    fn join(&mut self, before: Child, child: Child, list: &mut Vec<Child>) -> Result<()> {
        let is_small = |child: &Child| matches!(child, Child::New(content) if content.is_small());
        if !is_small(&before) && !is_small(&child) {
            list.extend([before, child]);
            return Ok(());
        }
        let mut content = self.content(before)?;
        content.join(&self.content(child)?);
        list.push(Child::New(content));
        Ok(())
    }

    fn content(&mut self, child: Child) -> Result<Content> {
        match child {
            Child::New(content) => Ok(content),
            Child::Old { low, link } => {
                let node = self.neighbour(&link.pointer)?;
                self.drop_node(&link.pointer, &node);
                Ok(Content::of(&node, low))
            }
        }
    }

    /// Reads the neighbours that small nodes are to be joined with, in one psync.
    fn read_neighbours(&mut self, children: &[Child]) -> Result<()> {
        let mut wanted = Vec::new();
        for pair in children.windows(2) {
            match pair {
                [Child::New(content), Child::Old { link, .. }] | [Child::Old { link, .. }, Child::New(content)]
                    if content.is_small() =>
                {
                    wanted.push(link.pointer);
                }
                _ => {}
            }
        }
        if !wanted.is_empty() {
            self.fetch(&wanted)?;
        }
        Ok(())
    }
}
