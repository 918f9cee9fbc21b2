//! I/O past the pool, for trees that write pages once and in bulk: extents in large requests, several nodes in one
//! batch.
//!
//! An extent is a row of nodes that [`Pager::reserve`] took from the end of the file. The caller of [`Pager::reserve`]
//! keeps account of the extent. Extents are written past the pool and read either way. Before an extent is written
//! again, the pool has to [`Pager::forget`] the old nodes.

use std::mem;
use std::sync::atomic::Ordering;

use psync::{Buffer, Request};

use super::{NodeId, Pager, Pinned, ReadGuard, WriteLatch};
use crate::{Error, Result};

impl Pager {
    /// The first of `nodes` new nodes in a row.
    ///
    /// # Errors
    /// When the file cannot grow.
    pub fn reserve(&self, nodes: u64) -> Result<NodeId> {
        let mut space = self.space.lock();
        let first = self.end.load(Ordering::Relaxed);
        while space.grown < first + nodes - 1 {
            self.grow(&mut space)?;
        }
        self.end.store(first + nodes, Ordering::Release);
        Ok(NodeId(first))
    }

    /// Drops the pool's copies of an extent. No thread may ask for its nodes until they are written again.
    pub fn forget(&self, first: NodeId, nodes: u64) {
        let mut pool = self.pool.lock();
        for node in first.0..first.0 + nodes {
            pool.frames.pop(&NodeId(node));
        }
    }

    /// Reads extents of so many nodes, all in one batch, past the pool.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read_past(&self, extents: impl Iterator<Item = (NodeId, usize)>) -> Result<Vec<Buffer>> {
        let read = |(first, nodes)| {
            self.reads.fetch_add(nodes as u64, Ordering::Relaxed);
            Request::read(&self.file, self.offset(first), Buffer::zeroed(nodes * self.node_bytes), 0)
        };
        let buffers = self.psync.run_all(extents.map(read).collect())?;
        Ok(buffers.into_iter().flatten().collect())
    }

    /// Writes extents, all in one batch; the buffers come back in order.
    ///
    /// # Errors
    /// When the device fails.
    pub fn write_past(&self, extents: impl Iterator<Item = (NodeId, Buffer)>) -> Result<Vec<Buffer>> {
        let write = |(first, buffer): (NodeId, Buffer)| {
            self.writes.fetch_add((buffer.len() / self.node_bytes) as u64, Ordering::Relaxed);
            Request::write(&self.file, self.offset(first), buffer, 0)
        };
        let buffers = self.psync.run_all(extents.map(write).collect())?;
        Ok(buffers.into_iter().flatten().collect())
    }

    /// Latches different nodes for reading, in their order, into `guards`. Nodes outside the pool are read in one
    /// batch.
    ///
    /// A thread finishes its own reads before it waits for a latch, so threads that ask for the same nodes do not wait
    /// in a circle.
    ///
    /// # Errors
    /// As [`Pager::read`].
    pub fn read_many(&self, nodes: &[NodeId], guards: &mut Vec<ReadGuard>) -> Result<()> {
        guards.clear();
        if let [node] = nodes {
            guards.push(self.read(*node)?);
            return Ok(());
        }
        let mut pinned = Vec::with_capacity(nodes.len());
        let all = nodes.iter().try_for_each(|node| {
            pinned.push(self.pin(*node)?);
            Ok(())
        });
        if let Err(error) = all.and_then(|()| self.load_many(&mut pinned)) {
            self.abandon(pinned);
            return Err(error);
        }
        for (pinned, node) in pinned.into_iter().zip(nodes) {
            let latch = match pinned {
                Pinned::Held(frame) => frame.read_arc(),
                Pinned::Empty(latch) => WriteLatch::downgrade(latch),
            };
            // The frame belongs to another node if the read failed in the thread that had begun the read.
            let guard = if latch.node == *node { ReadGuard(latch) } else { self.read(*node)? };
            guards.push(guard);
        }
        Ok(())
    }

    /// Reads the missing nodes, in one batch.
    fn load_many(&self, pinned: &mut [Pinned]) -> Result<()> {
        let missing = pinned.iter_mut().filter_map(|pinned| match pinned {
            Pinned::Held(_) => None,
            Pinned::Empty(latch) => Some(latch),
        });
        let mut missing: Vec<&mut WriteLatch> = missing.collect();
        let read = |latch: &mut &mut WriteLatch| {
            let buffer = mem::replace(&mut latch.bytes, Buffer::zeroed(0));
            Request::read(&self.file, self.offset(latch.node), buffer, 0)
        };
        let requests = missing.iter_mut().map(read).collect();
        self.reads.fetch_add(missing.len() as u64, Ordering::Relaxed);
        let mut failed = None;
        for (latch, completion) in missing.into_iter().zip(self.psync.run(requests)) {
            latch.bytes = completion.buffer.unwrap_or_else(|| Buffer::zeroed(self.node_bytes));
            failed = failed.or(completion.result.err());
        }
        failed.map_or(Ok(()), |error| Err(Error::from(error)))
    }

    /// Drops the frames that were taken for nodes which are not read.
    fn abandon(&self, pinned: Vec<Pinned>) {
        for pinned in pinned {
            if let Pinned::Empty(mut latch) = pinned {
                let node = mem::take(&mut latch.node);
                self.pool.lock().frames.pop(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use psync::BLOCK;
    use psync::sim::SimDisk;

    use super::*;
    use crate::trees::{Setting, Shape};

    fn pager(disk: &SimDisk) -> Pager {
        let directory = PathBuf::from("/pager");
        disk.psync().create_directory(&directory).expect("made");
        let shape = Shape { key_bytes: 8, value_bytes: 8 };
        let setting = Setting { psync: disk.psync(), directory, shape, memory_bytes: 0 };
        Pager::create(&setting, "pages", BLOCK, 8 * BLOCK as u64).expect("created")
    }

    fn pages(bytes: &[u8]) -> Buffer {
        Buffer::from_slice(&bytes.iter().flat_map(|byte| [*byte; BLOCK]).collect::<Vec<_>>())
    }

    #[test]
    fn extents_are_written_in_bulk_and_read_either_way() {
        let disk = SimDisk::new(1);
        let pager = pager(&disk);
        let first = pager.reserve(3).expect("reserved");
        let second = pager.reserve(2).expect("reserved");
        assert_eq!(second, NodeId(first.0 + 3));
        let written = [(first, pages(&[1, 2, 3])), (second, pages(&[4, 5]))];
        pager.write_past(written.into_iter()).expect("written");

        assert_eq!(pager.read(NodeId(first.0 + 1)).expect("read")[0], 2);
        let nodes = [second, NodeId(first.0 + 1), NodeId(first.0 + 2)];
        let mut guards = Vec::new();
        let before = pager.counters();
        pager.read_many(&nodes, &mut guards).expect("read");
        assert_eq!(
            guards.iter().map(|guard| (guard.id(), guard[BLOCK - 1])).collect::<Vec<_>>(),
            [(second, 4), (nodes[1], 2), (nodes[2], 3)]
        );
        assert_eq!(pager.counters().reads - before.reads, 2, "one was in the pool");

        pager.forget(second, 2);
        pager.write_past([(second, pages(&[6, 7]))].into_iter()).expect("written");
        pager.read_many(&[second, first], &mut guards).expect("read");
        assert_eq!((guards[0][0], guards[1][0]), (6, 1));
        let past = pager.read_past([(second, 2), (first, 3)].into_iter()).expect("read");
        assert_eq!((past[0][BLOCK], past[1][2 * BLOCK]), (7, 3));
    }

    #[test]
    fn a_batch_that_fails_leaves_nothing_wrong_in_the_pool() {
        let disk = SimDisk::new(1);
        let pager = pager(&disk);
        let first = pager.reserve(2).expect("reserved");
        pager.write_past([(first, pages(&[1, 2]))].into_iter()).expect("written");
        let mut guards = Vec::new();
        assert!(pager.read_many(&[first, NodeId(first.0 + 2)], &mut guards).is_err());
        assert_eq!(pager.read(first).expect("read")[0], 1);

        pager.file().set_len(BLOCK as u64).expect("cut");
        assert!(pager.read_many(&[NodeId(first.0 + 1), first], &mut guards).is_err());
        assert_eq!(pager.read(first).expect("read")[0], 1);
        assert!(pager.read(NodeId(first.0 + 1)).is_err());
    }
}
