//! Pages for new nodes, from contiguous extents that double in size. Each extent is written in one piece.

use index::{Result, TableId, due};
use psync::{Buffer, File, Request};
use space::{Extent, PAGE};

use super::claims::Claims;
use crate::counters::count;
use crate::format::Pointer;
use crate::format::node::{NodeIdentity, decode, encode};
use crate::node::Edges;
use crate::shared::Shared;

/// Pages of the first and of the largest extent that a batch takes for nodes.
const EXTENT_PAGES: (u32, u32) = (4, 256);

/// Hands out pages for new nodes, and writes the nodes in long pieces.
#[derive(Default)]
pub(crate) struct NodeWriter {
    open: Option<Open>,
    /// Pages of the next extent.
    next: u32,
    writes: Vec<Request>,
}

/// An extent with free pages.
struct Open {
    extent: Extent,
    buffer: Buffer,
    used: u32,
}

impl NodeWriter {
    /// Adds a new node, which is in the cache from now on.
    pub(crate) fn write(
        &mut self, claims: &mut Claims, shared: &Shared, table: TableId, level: u8, edges: &Edges,
    ) -> Result<Pointer> {
        let (page, bytes) = self.page(claims, shared.pages().file())?;
        let due = due::first(edges.pointers().iter().map(|child| child.due));
        let pointer = Pointer { due, ..Pointer::to_node(page, shared.incarnation()) };
        let identity = NodeIdentity { table, page, incarnation: pointer.incarnation, level };
        encode(&identity, edges, bytes);
        let node = decode(&identity, bytes).expect("a node that was just encoded");
        shared.keep_node(&pointer, node);
        count(&shared.counters.nodes_written, 1);
        Ok(pointer)
    }

    /// The next page, and the buffer for its bytes.
    fn page(&mut self, claims: &mut Claims, file: &File) -> Result<(u64, &mut [u8])> {
        if self.open.as_ref().is_some_and(|open| open.used == open.extent.pages) {
            self.close(claims, file)?;
        }
        let open = match self.open.take() {
            Some(open) => self.open.insert(open),
            None => {
                let extent = claims.allocate_long(1, self.next.clamp(EXTENT_PAGES.0, EXTENT_PAGES.1))?;
                self.next = extent.pages * 2;
                self.open.insert(Open { extent, buffer: Buffer::zeroed(extent.pages as usize * PAGE), used: 0 })
            }
        };
        let at = open.used as usize * PAGE;
        open.used += 1;
        Ok((open.extent.page.0 + u64::from(open.used) - 1, &mut open.buffer[at..at + PAGE]))
    }

    /// Gives back the unused pages, and queues the others to be written.
    pub(crate) fn close(&mut self, claims: &mut Claims, file: &File) -> Result<()> {
        if let Some(mut open) = self.open.take() {
            claims.shorten(open.extent, open.used)?;
            open.buffer.truncate(open.used as usize * PAGE);
            self.writes.push(Request::write(file, open.extent.offset(), open.buffer, 0));
        }
        Ok(())
    }

    /// Takes the queued writes.
    pub(crate) fn take_writes(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.writes)
    }
}
