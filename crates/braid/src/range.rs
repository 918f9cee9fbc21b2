//! Walks a table in key order: the queues and the structure, merged.
//!
//! 1. A range takes its table's state and the visible seq when it is first advanced, and sees that moment to its end.
//! 2. Each queue hands out steps in small, growing portions; the structure has a cursor that prefetches with psync.
//! 3. The nearest key wins; among equal keys the newest source does, for queues cover rising intervals of seqs.
//! 4. Pairs are gathered in a window, small at first, so that the documents of a window are read in one psync.

use std::{collections::VecDeque, sync::Arc};

use index::{Bounds, Cursor, Direction, DocPointer, Pair, Seq, Stored};
use parking_lot::RwLock;

use crate::{
    Error, Result, Table,
    catalog::TableState,
    opq::{Opq, Step},
};

const FIRST_WINDOW: usize = 8;
const LARGEST_WINDOW: usize = 256;
const DOCUMENT_BYTES_PER_WINDOW: u64 = 4 << 20;

/// A range of pairs in key order. Made by [`Table::range`], [`Table::prefix`] and [`Table::iter`].
pub struct Range {
    table: Table,
    bounds: Bounds,
    direction: Direction,
    keys_only: bool,
    walk: Option<Walk>,
    ready: VecDeque<(Vec<u8>, Vec<u8>)>,
    window: usize,
    ended: bool,
}

impl Range {
    pub(crate) const fn new(table: Table, bounds: Bounds) -> Self {
        Self {
            table,
            bounds,
            direction: Direction::Forward,
            keys_only: false,
            walk: None,
            ready: VecDeque::new(),
            window: FIRST_WINDOW,
            ended: false,
        }
    }

    /// The same pairs from the other end. To be called before the first pair is taken.
    #[must_use]
    pub fn rev(mut self) -> Self {
        debug_assert!(self.walk.is_none(), "a range is turned round before it is walked");
        self.direction = match self.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        self
    }

    /// Leaves values out: large ones are then not read. Each value shown is empty.
    #[must_use]
    pub const fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    fn fill(&mut self) -> Result<()> {
        if self.walk.is_none() {
            self.walk = Some(Walk::begin(&self.table, &self.bounds, self.direction)?);
        }
        let walk = self.walk.as_mut().expect("set above");
        let mut pairs = Vec::with_capacity(self.window);
        let mut documents: Vec<DocPointer> = Vec::new();
        let mut document_bytes = 0;
        while pairs.len() < self.window && document_bytes < DOCUMENT_BYTES_PER_WINDOW {
            let Some(pair) = walk.next()? else {
                self.ended = true;
                break;
            };
            if let (Stored::Document(document), false) = (&pair.value, self.keys_only) {
                document_bytes += document.length;
                documents.push(*document);
            }
            pairs.push(pair);
        }
        self.window = (self.window * 2).min(LARGEST_WINDOW);
        let values = if documents.is_empty() { Vec::new() } else { self.table.core.documents.read_many(&documents)? };
        let mut values = values.into_iter();
        for pair in pairs {
            let value = match pair.value {
                _ if self.keys_only => Vec::new(),
                Stored::Inline(value) => value,
                Stored::Document(_) => values.next().expect("one document was read for each pointer"),
            };
            self.ready.push_back((pair.key, value));
        }
        Ok(())
    }
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.ended {
            if self.bounds.is_empty() {
                self.ended = true;
            } else if let Err(error) = self.fill() {
                self.ended = true;
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl std::fmt::Debug for Range {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Range").field("table", &self.table).field("bounds", &self.bounds).finish()
    }
}

/// One queue's part of a walk.
struct QueueWalk {
    queue: Arc<RwLock<Opq>>,
    steps: VecDeque<Step>,
    last: Option<Vec<u8>>,
    portion: usize,
    ended: bool,
}

impl QueueWalk {
    const fn new(queue: Arc<RwLock<Opq>>) -> Self {
        Self { queue, steps: VecDeque::new(), last: None, portion: FIRST_WINDOW, ended: false }
    }

    fn fill(&mut self, bounds: &Bounds, direction: Direction, at: Seq) {
        if !self.steps.is_empty() || self.ended {
            return;
        }
        let steps = self.queue.read().steps(bounds, direction, self.last.as_deref(), self.portion, at);
        self.ended = steps.len() < self.portion;
        self.portion = (self.portion * 2).min(LARGEST_WINDOW);
        if let Some(step) = steps.last() {
            self.last = Some(step.key.clone());
        }
        self.steps.extend(steps);
    }
}

/// A walk under way.
struct Walk {
    bounds: Bounds,
    direction: Direction,
    at: Seq,
    queues: Vec<QueueWalk>,
    cursor: Box<dyn Cursor>,
    below: Option<Pair>,
    _state: Arc<TableState>,
}

impl Walk {
    fn begin(table: &Table, bounds: &Bounds, direction: Direction) -> Result<Self> {
        // Held before it is asked whether the table is live: what a later drop frees waits for this reader.
        let state = table.core.state.load_full();
        table.engine().check_live(&table.core)?;
        let at = table.engine().publisher.visible();
        let mut queues = vec![QueueWalk::new(Arc::clone(&state.active))];
        queues.extend(state.frozen.iter().map(|frozen| QueueWalk::new(Arc::clone(frozen.opq()))));
        let mut cursor = Arc::clone(&state.view).cursor(bounds, at, direction)?;
        let below = cursor.next()?;
        Ok(Self { bounds: bounds.clone(), direction, at, queues, cursor, below, _state: state })
    }

    /// The next pair that is not deleted.
    fn next(&mut self) -> Result<Option<Pair>> {
        loop {
            for queue in &mut self.queues {
                queue.fill(&self.bounds, self.direction, self.at);
            }
            let Some(nearest) = self.nearest() else { return Ok(None) };
            let mut winner = None;
            for queue in &mut self.queues {
                if queue.steps.front().is_some_and(|step| step.key == nearest) {
                    let step = queue.steps.pop_front().expect("its front was just seen");
                    winner.get_or_insert(step.found);
                }
            }
            if self.below.as_ref().is_some_and(|pair| pair.key == nearest) {
                let next = self.cursor.next().map_err(Error::from)?;
                let pair = std::mem::replace(&mut self.below, next).expect("it was just seen");
                if winner.is_none() {
                    return Ok(Some(pair));
                }
            }
            let found = winner.expect("the nearest key came from a queue or the cursor");
            if let Some(value) = found.value {
                return Ok(Some(Pair { key: nearest, seq: found.seq, value }));
            }
        }
    }

    fn nearest(&self) -> Option<Vec<u8>> {
        let fronts = self.queues.iter().filter_map(|queue| queue.steps.front().map(|step| step.key.as_slice()));
        let keys = fronts.chain(self.below.as_ref().map(|pair| pair.key.as_slice()));
        match self.direction {
            Direction::Forward => keys.min(),
            Direction::Backward => keys.max(),
        }
        .map(<[u8]>::to_vec)
    }
}
