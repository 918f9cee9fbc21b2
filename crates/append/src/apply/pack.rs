//! Lists of children: small nodes are joined with a neighbour, large ones are split.

use index::Result;

use super::Apply;
use super::content::Content;
use super::frame::{Child, Children, Done, Frame, Step};
use crate::search::chunk_at;

impl Children {
    pub(super) fn step(&mut self, apply: &mut Apply<'_>, below: Option<Done>) -> Result<Step> {
        self.children.extend(below.map(Done::entries).filter(|content| content.len() > 0).map(Child::New));
        let node = &*self.node;
        while self.index < node.len() {
            let index = self.index;
            self.index += 1;
            let is_below = |key: &[u8]| {
                index + 1 == node.len() || chunk_at(key, self.depth, apply.chunk_bytes()) < node.bound(index + 1)
            };
            let mut updates = self.range.clone();
            let end = updates.find(|number| !is_below(apply.work.key(*number))).unwrap_or(self.range.end);
            let link = node.link(index).expect("a node above leaves has children");
            let low = if index == 0 { self.low.clone() } else { node.bound(index).to_vec() };
            let updates = self.range.start..end;
            if updates.is_empty() {
                self.children.push(Child::Old { low, link });
                continue;
            }
            self.range.start = end;
            let child = apply.node(&link.pointer, updates.start)?;
            apply.drop_node(&link.pointer, &child);
            return Ok(Step::Down(Frame::of_node(child, low, updates, self.depth, false)));
        }
        let children = apply.balance(std::mem::take(&mut self.children))?;
        let (level, low) = (node.level(), std::mem::take(&mut self.low));
        let content =
            if self.is_root { apply.root(children, level) } else { apply.make_children(children, level, low) };
        Ok(Step::Up(Done::Entries(content?)))
    }
}
impl Apply<'_> {
    /// The entries of the root above these children. A root with a single child gives way to it.
    fn root(&mut self, mut children: Vec<Child>, level: u8) -> Result<Content> {
        match (children.len(), children.pop()) {
            (1, Some(child)) => self.content(child),
            (_, last) => {
                children.extend(last);
                self.make_children(children, level, Vec::new())
            }
        }
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
