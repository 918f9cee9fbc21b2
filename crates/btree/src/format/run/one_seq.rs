//! Writing runs of updates that come one by one and all have one seq, as in a load.
//!
//! Entries are encoded as they come, at first as those of a uniform run. The first update of another shape moves the
//! entries apart, once, to their places in a general run. The run is the same as [`super::Plan`] makes of the same
//! updates.

use index::{Seq, Update};
use space::PAGE;

use super::plan::encode_entry;
use super::{ENTRY_FIXED, Identity, RUN_HEADER, RunSize, SHAPE, SLOT, Shape, short};

/// A run of updates that come one by one and all have one seq.
pub(crate) struct OneSeqRun {
    seq: Seq,
    size: RunSize,
    /// The encoded entries, one behind the other.
    entries: Box<[u8; PAGE]>,
    used: usize,
    /// Where each entry begins among `entries`, in a general run.
    starts: Vec<u16>,
}

impl OneSeqRun {
    pub(crate) fn new(seq: Seq) -> Self {
        let starts = Vec::with_capacity(PAGE / ENTRY_FIXED);
        Self { seq, size: RunSize::new(), entries: Box::new([0; PAGE]), used: 0, starts }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Number of updates.
    pub(crate) fn count(&self) -> usize {
        self.size.count()
    }

    /// Bytes of the run with one more update.
    #[inline]
    pub(crate) fn bytes_with(&self, update: &Update<'_>) -> usize {
        self.size.with(update).bytes()
    }

    /// Adds an update; the run with the update must be at most a page.
    #[inline]
    pub(crate) fn push(&mut self, update: &Update<'_>) {
        debug_assert_eq!(update.seq, self.seq, "all have one seq");
        let size = self.size.with(update);
        if size.shape.is_none() {
            if let Some(shape) = self.size.shape {
                self.move_apart(shape);
            }
            self.starts.push(short(self.used));
        }
        self.used = encode_entry(update, size.shape, 0, 0, self.used, &mut self.entries[..]);
        self.size = size;
    }

    /// Turns the entries, all of `shape`, into those of a general run. They fit, because the general run with one more
    /// update is at most a page.
    #[cold]
    fn move_apart(&mut self, shape: Shape) {
        let (from, to) = (shape.bytes(), SHAPE + shape.bytes());
        // Last entry first, so that no entry is overwritten before its move.
        for index in (0..self.size.count()).rev() {
            self.entries.copy_within(index * from..(index + 1) * from, index * to + SHAPE);
            self.entries[index * to..index * to + SHAPE].copy_from_slice(&shape.encode());
        }
        self.used = self.size.count() * to;
        self.starts.extend((0..self.size.count()).map(|index| short(index * to)));
    }

    /// Writes the run to the beginning of `out`, which is a page, and zeros behind the run; returns its bytes and its
    /// CRC. `self` is then empty.
    pub(crate) fn finish(&mut self, identity: &Identity, position: u32, previous: u32, out: &mut [u8]) -> (usize, u32) {
        let plan = self.size.plan();
        let first = plan.entries_at();
        let (run, rest) = out.split_at_mut(plan.bytes);
        plan.encode_header(run);
        // A uniform run has no slots, and its `starts` are empty.
        for (index, start) in self.starts.iter().enumerate() {
            let slot = RUN_HEADER + SLOT * index;
            run[slot..slot + SLOT].copy_from_slice(&(short(first) + start).to_le_bytes());
        }
        run[first..].copy_from_slice(&self.entries[..self.used]);
        rest.fill(0);
        let crc = identity.crc(position, previous, run);
        run[2..6].copy_from_slice(&crc.to_le_bytes());
        (self.size, self.used) = (RunSize::new(), 0);
        self.starts.clear();
        (plan.bytes, crc)
    }
}
