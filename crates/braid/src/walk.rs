//! The queues and the structure of a table, merged in key order.
//!
//! 1. A walk takes its table's state and the visible seq when it begins, or its snapshot's, and sees that moment to its end.
//! 2. The queues of each age hand out steps in small, growing portions; the structure has a cursor that reads ahead with psync.
//! 3. The nearest key wins; among equal keys the newest source does, for queues cover rising intervals of seqs.
//!
//! A pair of the structure is shown where the cursor has it; nothing is copied.

use std::{cmp::Ordering, collections::VecDeque, ops::ControlFlow, sync::Arc};

use index::{Bounds, Cursor, Direction, PairRef, Payload, Seq, Show, Stored};

use crate::{
    Result, Table,
    catalog::TableState,
    opq::{Sections, SectionsWalk, Step},
    snapshot::Pin,
};

const FIRST_PORTION: usize = 8;
const LARGEST_PORTION: usize = 256;

/// The part of a walk in queues of one age.
struct QueueWalk {
    sections: SectionsWalk,
    steps: VecDeque<Step>,
    portion: usize,
}

impl QueueWalk {
    fn new(sections: &Arc<Sections>, bounds: &Bounds, direction: Direction) -> Self {
        let sections = SectionsWalk::new(Arc::clone(sections), bounds, direction);
        Self { sections, steps: VecDeque::new(), portion: FIRST_PORTION }
    }

    fn fill(&mut self, bounds: &Bounds, direction: Direction, at: Seq) {
        if self.steps.is_empty() {
            self.steps.extend(self.sections.next(bounds, direction, self.portion, at));
            self.portion = (self.portion * 2).min(LARGEST_PORTION);
        }
    }

    fn key(&self) -> Option<&[u8]> {
        Some(&self.steps.front()?.key)
    }
}

/// What a walk stands on.
#[derive(Clone, Copy)]
enum On {
    /// It is before the first pair, or at the end.
    Nothing,
    /// The cursor's pair.
    Below,
    /// The front of the nearest queue, over the cursor's pair of the same key where `shadows` says so.
    Queue { shadows: bool },
}

/// A walk under way. It begins before the first pair.
pub(crate) struct Walk {
    bounds: Bounds,
    direction: Direction,
    at: Seq,
    /// Newest first.
    queues: Vec<QueueWalk>,
    /// Which of them has the nearest key.
    nearest: Option<usize>,
    cursor: Box<dyn Cursor>,
    /// Whether the cursor stands on a pair.
    below: bool,
    begun: bool,
    on: On,
    _state: Arc<TableState>,
}

impl Walk {
    pub(crate) fn begin(table: &Table, bounds: &Bounds, direction: Direction, pin: Option<&Pin>) -> Result<Self> {
        let (state, at) = table.moment(pin)?;
        let ages = std::iter::once(&state.active).chain(state.frozen.iter().map(|frozen| frozen.sections()));
        let queues = ages.map(|sections| QueueWalk::new(sections, bounds, direction)).collect();
        let cursor = Arc::clone(&state.view).cursor(bounds, at, direction)?;
        Ok(Self {
            bounds: bounds.clone(),
            direction,
            at,
            queues,
            nearest: None,
            cursor,
            below: false,
            begun: false,
            on: On::Nothing,
            _state: state,
        })
    }

    /// All pairs will most likely be asked for. To be said before the first one is.
    pub(crate) fn expect_all(&mut self) {
        self.cursor.expect_all();
    }

    /// Moves to the next pair that is not deleted; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            self.leave()?;
            let Some(queue) = self.nearest.map(|nearest| &self.queues[nearest]) else {
                self.on = if self.below { On::Below } else { On::Nothing };
                return Ok(self.below);
            };
            let step = queue.steps.front().expect("the nearest queue has a step");
            self.on = match self.cursor.current().map(|pair| self.direction.order(pair.key, &step.key)) {
                Some(Ordering::Less) => On::Below,
                Some(Ordering::Equal) => On::Queue { shadows: true },
                Some(Ordering::Greater) | None => On::Queue { shadows: false },
            };
            if matches!(self.on, On::Below) || step.found.value.is_some() {
                return Ok(true);
            }
        }
    }

    /// Where the walk stands on a pair of the structure: moves on and shows each pair that it comes to, as long as they are all the
    /// structure's and `show` goes on. It stands on the last one shown, which only [`Walk::advance`] may be asked about.
    pub(crate) fn run(&mut self, show: &mut Show<'_>) -> Result<ControlFlow<()>> {
        if !matches!(self.on, On::Below) {
            return Ok(ControlFlow::Continue(()));
        }
        let step = self.nearest.and_then(|nearest| self.queues[nearest].steps.front());
        Ok(self.cursor.run(step.map(|step| step.key.as_slice()), show)?)
    }

    /// The pair that it stands on.
    pub(crate) fn current(&self) -> Option<PairRef<'_>> {
        match self.on {
            On::Nothing => None,
            On::Below => self.cursor.current(),
            On::Queue { .. } => {
                let Step { key, found } = self.queues[self.nearest?].steps.front()?;
                let value = match found.value.as_ref()? {
                    Stored::Inline(value) => Payload::Inline(value),
                    Stored::Document(document) => Payload::Document(*document),
                };
                Some(PairRef { key, seq: found.seq, value })
            }
        }
    }

    /// Moves every source behind the key that the walk stands on.
    fn leave(&mut self) -> Result<()> {
        let on = std::mem::replace(&mut self.on, On::Nothing);
        if let (On::Queue { .. }, Some(nearest)) = (on, self.nearest) {
            let left = self.queues[nearest].steps.pop_front();
            for queue in &mut self.queues {
                if queue.key().is_some_and(|key| left.as_ref().is_some_and(|left| left.key == key)) {
                    queue.steps.pop_front();
                }
            }
            self.find_nearest();
        }
        if !self.begun {
            self.begun = true;
            self.find_nearest();
            self.below = self.cursor.advance()?;
        } else if matches!(on, On::Below | On::Queue { shadows: true }) {
            self.below = self.cursor.advance()?;
        }
        Ok(())
    }

    fn find_nearest(&mut self) {
        for queue in &mut self.queues {
            queue.fill(&self.bounds, self.direction, self.at);
        }
        // Of equal keys the first is found, which is the newest.
        let keys = self.queues.iter().enumerate().filter_map(|(number, queue)| Some((number, queue.key()?)));
        self.nearest = keys.min_by(|(_, one), (_, other)| self.direction.order(one, other)).map(|(number, _)| number);
    }
}
