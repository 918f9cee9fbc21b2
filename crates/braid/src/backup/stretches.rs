//! The pairs of a table at a snapshot, walked by several threads.
//!
//! 1. The table is cut at fences of its structure into stretches of about [`STRETCH_BYTES`]. There are `n` threads: one
//!    per core, at most [`THREADS_MAX`]. Each walks every `n`th stretch and fills blocks with the pairs whose values
//!    are in the structure.
//! 2. Each thread sends its blocks through a short channel; they are taken in key order. So a thread is at most
//!    [`BLOCKS_AHEAD`] blocks ahead.
//! 3. Values that are documents are not read. Their places are listed at the end of each stretch.

use std::{
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use index::{Bounds, Direction, PairRef, Payload};

use super::{
    blocks::{Block, Blocks, Memory, Take},
    documents::Documents,
    encoder::no_thread,
};
use crate::{
    error::{Error, Result},
    handles::{snapshot::Snapshot, table::Table},
    read::{point, walk::Walk},
};

/// About the bytes of a stretch in the structure.
const STRETCH_BYTES: u64 = 4 << 20;
/// Most stretches of a table.
const STRETCHES_MAX: u64 = 4096;
/// Blocks of a thread that may wait until the blocks before them in key order are taken: the blocks of one stretch, and
/// some more.
const BLOCKS_AHEAD: usize = 24;

/// Most threads. Each thread holds waiting blocks, and this number keeps a device busy.
const THREADS_MAX: usize = 4;

/// The parts of a stretch, in this order.
pub(super) enum Piece {
    /// A block of pairs.
    Block(Block),
    /// The documents of the stretch.
    End(Documents),
}

/// Takes the pieces of each stretch, with the number of the stretch. A break at the end of a stretch ends the walk.
pub(super) type Taken<'a> = &'a mut dyn FnMut(usize, Piece) -> Result<ControlFlow<()>>;

/// A table cut into stretches.
pub(super) struct Stretches<'a> {
    snapshot: &'a Snapshot,
    table: &'a Table,
    /// The first keys of all stretches but the first.
    fences: Vec<Vec<u8>>,
    threads: usize,
}

impl<'a> Stretches<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, table: &'a Table) -> Result<Self> {
        let (state, _) = point::moment(table.engine(), &table.core, Some(snapshot.pin()))?;
        let wanted = (state.view.stats()?.entry_bytes / STRETCH_BYTES).min(STRETCHES_MAX);
        let wanted = usize::try_from(wanted).unwrap_or(0);
        let fences = if wanted > 1 { state.view.fences(wanted)? } else { Vec::new() };
        let each = fences.len().div_ceil(wanted.max(1)).max(1);
        let fences: Vec<_> = fences.into_iter().skip(each - 1).step_by(each).collect();
        let cores = if table.engine().options.background { tally::processors() } else { 1 };
        let threads = cores.min(THREADS_MAX).min(fences.len() + 1);
        Ok(Self { snapshot, table, fences, threads })
    }

    /// Walks all stretches from number `first` on.
    pub(super) fn walk(&self, first: usize, shows: Shows, memory: &Memory, taken: Taken<'_>) -> Result<()> {
        let all = first..self.fences.len() + 1;
        if self.threads == 1 {
            for stretch in all {
                let documents = self.stretch(stretch, shows, memory, &mut Direct { stretch, taken })?;
                if taken(stretch, Piece::End(documents))?.is_break() {
                    break;
                }
            }
            return Ok(());
        }
        thread::scope(|scope| {
            let mut workers = Vec::with_capacity(self.threads);
            let mut pieces = Vec::with_capacity(self.threads);
            for worker in 0..self.threads {
                let (out, from) = sync_channel(BLOCKS_AHEAD);
                let own = all.clone().skip(worker).step_by(self.threads);
                let walking = move || self.walk_some(own, shows, memory, &out);
                let builder = thread::Builder::new().name("braid-backup-scan".into());
                workers.push(builder.spawn_scoped(scope, walking).map_err(no_thread)?);
                pieces.push(from);
            }
            let take_all = || {
                for (stretch, worker) in all.zip((0..self.threads).cycle()) {
                    loop {
                        // The channel of a failed thread is closed; its error comes from the join.
                        let Ok(piece) = pieces[worker].recv() else { return Ok(()) };
                        let is_end = matches!(piece, Piece::End(_));
                        match taken(stretch, piece)? {
                            ControlFlow::Break(()) if is_end => return Ok(()),
                            _ if is_end => break,
                            _ => {}
                        }
                    }
                }
                Ok(())
            };
            let took = take_all();
            drop(pieces);
            let mut walked = Ok(());
            for worker in workers {
                let outcome = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                walked = walked.and(outcome);
            }
            took.and(walked)
        })
    }

    /// Walks the stretches of one thread.
    fn walk_some(
        &self, stretches: impl Iterator<Item = usize>, shows: Shows, memory: &Memory, out: &SyncSender<Piece>,
    ) -> Result<()> {
        for stretch in stretches {
            let documents = match self.stretch(stretch, shows, memory, &mut Ahead(out)) {
                Err(Error::Stopped { .. }) => return Ok(()),
                walked => walked?,
            };
            if out.send(Piece::End(documents)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn stretch(&self, stretch: usize, shows: Shows, memory: &Memory, out: &mut dyn Take) -> Result<Documents> {
        let pin = self.snapshot.pin();
        let mut walk =
            Walk::begin(self.table.engine(), &self.table.core, &self.bounds(stretch), Direction::Forward, Some(pin))?;
        walk.expect_all();
        let mut documents = Documents::new(Arc::clone(walk.state()));
        let mut blocks = Blocks::new(memory, out);
        let shown = walk.visit(|pair: PairRef<'_>| {
            let put = match pair.value {
                Payload::Inline(value) if shows == Shows::All => blocks.pair(pair.key, value, pair.expiry),
                Payload::Inline(_) => Ok(()),
                Payload::Document(document) => {
                    documents.push(pair.key, document, pair.expiry);
                    Ok(())
                }
            };
            put.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        })?;
        match shown {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => blocks.flush().map(|()| documents),
        }
    }

    fn bounds(&self, stretch: usize) -> Bounds {
        let lower = stretch.checked_sub(1).and_then(|before| self.fences.get(before));
        let upper = self.fences.get(stretch);
        Bounds {
            lower: lower.map_or(Bound::Unbounded, |low| Bound::Included(low.clone())),
            upper: upper.map_or(Bound::Unbounded, |high| Bound::Excluded(high.clone())),
        }
    }
}

/// The contents to be shown by a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// Pairs, and the places of documents.
    All,
    /// Places of documents only.
    Documents,
}

/// Passes blocks directly to the caller.
struct Direct<'a, 'b> {
    stretch: usize,
    taken: &'a mut (dyn FnMut(usize, Piece) -> Result<ControlFlow<()>> + 'b),
}

impl Take for Direct<'_, '_> {
    fn take(&mut self, block: Block) -> Result<()> {
        (self.taken)(self.stretch, Piece::Block(block)).map(|_| ())
    }
}

/// Passes blocks to the channel of a thread. The walk ends once the channel is closed.
struct Ahead<'a>(&'a SyncSender<Piece>);

impl Take for Ahead<'_> {
    fn take(&mut self, block: Block) -> Result<()> {
        self.0.send(Piece::Block(block)).map_err(|_| Error::Stopped { what: "the backup" })
    }
}
