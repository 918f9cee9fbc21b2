//! The node translation table: for each node of the tree, the pages of its index units.
//!
//! A list has up to C pages, oldest first, in a row of C places, so that the table is one array. The table also counts
//! the lists of each page. A page on no list is free to be written again, the first in the file first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::page::Node;
use crate::trees::pager::{NodeId, Pager};
use crate::{Error, Result};

/// Pages reserved at a time.
const RESERVED_PAGES: u32 = 64;

/// No page.
const NONE: u32 = 0;

/// Lists of pages.
pub(super) struct Table {
    /// C: places of a list.
    places: usize,
    lists: Vec<u32>,
    free_nodes: Vec<Node>,
    /// Lists that each page is on.
    lists_of: Vec<u16>,
    free_pages: BinaryHeap<Reverse<u32>>,
}

impl Table {
    pub(super) const fn new(places: usize) -> Self {
        let free_pages = BinaryHeap::new();
        Self { places, lists: Vec::new(), free_nodes: Vec::new(), lists_of: Vec::new(), free_pages }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let words = self.lists.capacity() + self.free_nodes.capacity() + self.free_pages.capacity();
        (words * size_of::<u32>() + self.lists_of.capacity() * size_of::<u16>()) as u64
    }

    /// A new node with an empty list.
    pub(super) fn allocate(&mut self) -> Result<Node> {
        if let Some(node) = self.free_nodes.pop() {
            return Ok(node);
        }
        let node = u32::try_from(self.lists.len() / self.places).map_err(|_| too_large())?;
        self.lists.resize(self.lists.len() + self.places, NONE);
        Ok(Node(node))
    }

    /// Gives a node back.
    pub(super) fn free(&mut self, node: Node) {
        self.clear(node);
        self.free_nodes.push(node);
    }

    /// The pages of a node, oldest first.
    pub(super) fn pages(&self, node: Node) -> impl ExactSizeIterator<Item = NodeId> {
        let list = &self.lists[node.0 as usize * self.places..][..self.places];
        let length = list.iter().position(|page| *page == NONE).unwrap_or(self.places);
        list[..length].iter().map(|page| NodeId((*page).into()))
    }

    /// Whether a list has no place left.
    pub(super) fn is_full(&self, node: Node) -> bool {
        self.pages(node).len() == self.places
    }

    /// Empties the list of a node.
    pub(super) fn clear(&mut self, node: Node) {
        for place in node.0 as usize * self.places..(node.0 as usize + 1) * self.places {
            let page = std::mem::replace(&mut self.lists[place], NONE);
            if page != NONE {
                let lists = &mut self.lists_of[page as usize];
                *lists -= 1;
                if *lists == 0 {
                    self.free_pages.push(Reverse(page));
                }
            }
        }
    }

    /// Puts a page at the end of a node's list, which has a place left.
    pub(super) fn append(&mut self, node: Node, page: NodeId) -> Result<()> {
        let page = u32::try_from(page.0).map_err(|_| too_large())?;
        let place = node.0 as usize * self.places + self.pages(node).len();
        self.lists[place] = page;
        self.lists_of[page as usize] += 1;
        Ok(())
    }

    /// Pages that are on no list, in the order of the file.
    pub(super) fn allocate_pages(&mut self, pager: &Pager, count: usize) -> Result<Vec<NodeId>> {
        let mut pages = Vec::with_capacity(count);
        while pages.len() < count {
            if let Some(Reverse(page)) = self.free_pages.pop() {
                pages.push(NodeId(page.into()));
                pager.forget(NodeId(page.into()), 1);
                continue;
            }
            let first = u32::try_from(pager.reserve(RESERVED_PAGES.into())?.0).map_err(|_| too_large())?;
            let end = first.checked_add(RESERVED_PAGES).ok_or_else(too_large)?;
            self.free_pages.extend((first..end).map(Reverse));
            self.lists_of.resize(end as usize, 0);
        }
        Ok(pages)
    }
}

fn too_large() -> Error {
    Error::Invalid("a BFTL tree has at most 2³² pages".to_owned())
}
