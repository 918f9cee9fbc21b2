//! The queues and the structure of a table, merged in key order.
//!
//! 1. A walk takes the state of its table, the visible seq and the time when it begins, or is given them by a range or
//!    a snapshot. It sees that moment to its end.
//! 2. The queues of each age hand out steps in small, growing portions. The structure has a cursor that reads ahead
//!    with psync.
//! 3. The nearest key wins. Among equal keys the newest source wins, because queues cover rising intervals of seqs.
//!
//! A pair of the structure is shown where the cursor has it; nothing is copied.
//!
//! A walk passes over hidden versions. Its cost does not depend on the number of deleted keys, for two reasons:
//!
//! - Range deletes: where the structure has nothing else under the deleted keys, the cursor goes on behind them after a
//!   few pairs, and queues go on with newer operations.
//! - Keys that were deleted one by one: the first walk over them looks at each, and notes where they were. Later walks
//!   pass over them as over a range delete ([`Gaps`](crate::tables::gaps::Gaps)).

use std::{
    cmp::Ordering,
    collections::VecDeque,
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use index::{Bounds, Cursor, Direction, Moment, PairRef, Pairs, RangeTombstones, Seq, Show};

use crate::{
    engine::Engine,
    error::Result,
    opq::{Pass, Sections, SectionsWalk, Step},
    read::{hidden::Hidden, point, then::Then},
    tables::catalog::{TableCore, TableState},
    words::key_range::KeyRange,
};

/// Few, because the first pair of a range often is all that is asked for.
const FIRST_PORTION: usize = 2;
const LARGEST_PORTION: usize = 256;
/// Hidden pairs that are passed over one by one. Then the cursor goes on behind all pairs that are hidden with them,
/// which costs about a page.
const PASSED_MAX: usize = 64;
/// A gap of at least `GAP_MIN` keys between two pairs is noted. A longer one is also noted every `GAP_STEP` keys,
/// before the next pair comes.
const GAP_MIN: usize = 16;
const GAP_STEP: usize = 4096;

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

    fn fill(&mut self, bounds: &Bounds, direction: Direction, at: Moment, pass: &Pass<'_>) {
        if self.steps.is_empty() {
            self.steps = self.sections.next(bounds, direction, self.portion, at, pass).into();
            self.portion = (self.portion * 2).min(LARGEST_PORTION);
        }
    }

    fn key(&self) -> Option<&[u8]> {
        Some(&self.steps.front()?.key)
    }
}

/// The position of a walk.
#[derive(Clone, Copy)]
enum On {
    /// Before the first pair, or at the end.
    Nothing,
    /// The cursor's pair.
    Below,
    /// The front of the nearest queue. With `shadows`, the cursor's pair has the same key and lies under it.
    Queue { shadows: bool },
}

/// A walk under way. A new walk stands before the first pair.
pub(crate) struct Walk {
    bounds: Bounds,
    direction: Direction,
    at: Moment,
    /// The newest first.
    queues: Vec<QueueWalk>,
    /// The index of the queue with the nearest key.
    nearest: Option<usize>,
    cursor: Box<dyn Cursor>,
    expects_all: bool,
    /// The range deletes within bounds, if there are any.
    hidden: Option<Hidden>,
    /// Hidden pairs of the cursor that were passed over since the last shown pair.
    passed: usize,
    begun: bool,
    on: On,
    gap: Gap,
    /// The table that is told of gaps; none where other walks could still see the keys passed over.
    told: Option<Arc<TableCore>>,
    state: Arc<TableState>,
}

/// Keys that were passed over since the last shown pair.
#[derive(Default)]
struct Gap {
    keys: usize,
    /// The first of these keys, or one of the first. None: the gap begins where the walk began.
    begin: Option<Vec<u8>>,
    has_shown: bool,
}

impl Walk {
    pub(crate) fn begin(
        engine: &Engine, table: &Arc<TableCore>, bounds: &Bounds, direction: Direction, then: Option<&dyn Then>,
    ) -> Result<Self> {
        Self::begin_at(table, point::moment(engine, table, then)?, bounds, direction, None)
    }

    /// Begins a walk over a state, as of a moment. Leaves out the keys of `deleted`.
    pub(crate) fn begin_at(
        table: &Arc<TableCore>, (state, at): (Arc<TableState>, Moment), bounds: &Bounds, direction: Direction,
        deleted: Option<&RangeTombstones>,
    ) -> Result<Self> {
        // The gaps are taken after the state, because the gaps of that time know all versions of the state.
        let gaps = table.gaps_of(&state);
        let hidden = Hidden::new(&state.tombstones, deleted, gaps.as_deref().map(|gaps| &**gaps), bounds, at);
        let ages = std::iter::once(&state.active).chain(state.frozen.iter().map(|frozen| frozen.sections()));
        let queues = ages.map(|sections| QueueWalk::new(sections, bounds, direction)).collect();
        let below = hidden.as_ref().map(|hidden| hidden.clip(bounds));
        let cursor = Arc::clone(&state.view).cursor(below.as_ref().unwrap_or(bounds), at, direction)?;
        Ok(Self {
            bounds: bounds.clone(),
            direction,
            at,
            queues,
            nearest: None,
            cursor,
            expects_all: false,
            hidden,
            passed: 0,
            begun: false,
            on: On::Nothing,
            gap: Gap::default(),
            told: deleted.is_none().then(|| Arc::clone(table)),
            state,
        })
    }

    /// Announces that most likely all pairs will be read. To be called before the first pair.
    pub(crate) fn expect_all(&mut self) {
        self.expects_all = true;
        self.cursor.expect_all();
    }

    /// Moves to the next pair that is neither deleted nor expired; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            self.leave()?;
            let step = self.nearest.and_then(|nearest| self.queues[nearest].steps.front());
            self.on = match (step, self.cursor.current()) {
                (None, None) => {
                    self.end_gap(false);
                    return Ok(false);
                }
                (None, Some(_)) => On::Below,
                (Some(_), None) => On::Queue { shadows: false },
                (Some(step), Some(pair)) => match self.direction.order(pair.key, &step.key) {
                    Ordering::Less => On::Below,
                    order => On::Queue { shadows: order == Ordering::Equal },
                },
            };
            let is_shown = match step {
                Some(step) if !matches!(self.on, On::Below) => {
                    step.found.value.is_some() && !self.is_hidden(&step.key, step.found.seq)
                }
                _ => !self.passes()?,
            };
            if is_shown {
                self.end_gap(true);
                return Ok(true);
            }
            self.grow_gap();
        }
    }

    /// Counts a key that was passed over.
    fn grow_gap(&mut self) {
        self.gap.keys += 1;
        if self.gap.keys >= GAP_MIN && self.gap.has_shown && self.gap.begin.is_none() {
            self.gap.begin = self.key().map(<[u8]>::to_vec);
        }
        if self.gap.keys.is_multiple_of(GAP_STEP) {
            self.note_gap(true);
        }
    }

    /// Ends the gap, at a shown pair or at the end of the walk.
    fn end_gap(&mut self, is_shown: bool) {
        if self.gap.keys >= GAP_MIN {
            self.note_gap(is_shown);
        }
        if self.gap.keys > 0 || !self.gap.has_shown {
            self.gap = Gap { has_shown: true, ..Gap::default() };
        }
    }

    /// Notes that nothing lies between the begin of the gap and the current key, or the end.
    fn note_gap(&self, is_shown: bool) {
        let Some(core) = self.told.as_ref().filter(|_| self.gap.begin.is_some() || !self.gap.has_shown) else { return };
        let end = match self.key() {
            Some(key) => Some(Bound::Excluded(key.to_vec())),
            None if is_shown => return,
            None => None,
        };
        let begin = self.gap.begin.clone().map(Bound::Included);
        let (lower, upper) = match self.direction {
            Direction::Forward => (begin, end),
            Direction::Backward => (end, begin),
        };
        let bounds = Bounds {
            lower: lower.unwrap_or_else(|| self.bounds.lower.clone()),
            upper: upper.unwrap_or_else(|| self.bounds.upper.clone()),
        };
        if let Some(range) = KeyRange::of(&bounds) {
            core.note_gap(&self.state, &range, self.at);
        }
    }

    /// The current key, shown or passed over.
    fn key(&self) -> Option<&[u8]> {
        match self.on {
            On::Nothing => None,
            On::Below => self.cursor.current().map(|pair| pair.key),
            On::Queue { .. } => self.queues[self.nearest?].key(),
        }
    }

    fn is_hidden(&self, key: &[u8], seq: Seq) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.hides(key, seq))
    }

    /// Whether the cursor's pair is hidden, and so passed over. After many hidden pairs, the cursor passes over all
    /// pairs that are hidden with this one.
    fn passes(&mut self) -> Result<bool> {
        let (Some(hidden), Some(pair)) = (&self.hidden, self.cursor.current()) else { return Ok(false) };
        if !hidden.hides(pair.key, pair.seq) {
            self.passed = 0;
            return Ok(false);
        }
        self.passed += 1;
        if self.passed < PASSED_MAX {
            return Ok(true);
        }
        let Some(rest) = hidden.behind(pair.key, &self.bounds, self.direction) else { return Ok(true) };
        self.cursor = Arc::clone(&self.state.view).cursor(&rest, self.at, self.direction)?;
        if self.expects_all {
            self.cursor.expect_all();
        }
        (self.passed, self.on) = (0, On::Nothing);
        self.cursor.advance()?;
        Ok(true)
    }

    /// Shows the next pairs, as long as all of them are the structure's and `show` goes on. Does nothing unless the
    /// walk stands on a pair of the structure. Afterwards the walk stands on the last pair shown, and only
    /// [`Walk::advance`] may be called next.
    pub(crate) fn run(&mut self, show: &mut Show<'_>) -> Result<ControlFlow<()>> {
        if !matches!(self.on, On::Below) {
            return Ok(ControlFlow::Continue(()));
        }
        let step = self.nearest.and_then(|nearest| self.queues[nearest].steps.front());
        let mut until = step.map(|step| step.key.as_slice());
        if let (Some(hidden), Some(pair)) = (&self.hidden, self.cursor.current()) {
            let Some(free) = hidden.free_until(pair.key, self.direction) else { return Ok(ControlFlow::Continue(())) };
            until = until.into_iter().chain(free).min_by(|one, other| self.direction.order(one, other));
        }
        Ok(self.cursor.run(until, show)?)
    }

    /// Shows the remaining pairs, until the end or until `show` breaks; returns the value of the break. Documents are
    /// not read.
    pub(crate) fn visit<B>(&mut self, mut show: impl FnMut(PairRef<'_>) -> ControlFlow<B>) -> Result<ControlFlow<B>> {
        while self.advance()? {
            if let Some(ControlFlow::Break(with)) = self.current().map(&mut show) {
                return Ok(ControlFlow::Break(with));
            }
            let mut broken = None;
            let ran = self.run(&mut |pairs: Pairs<'_>| {
                for (before, pair) in pairs.enumerate() {
                    if let ControlFlow::Break(with) = show(pair) {
                        broken = Some(with);
                        return ControlFlow::Break(before + 1);
                    }
                }
                ControlFlow::Continue(())
            });
            let _ = ran?;
            if let Some(with) = broken {
                return Ok(ControlFlow::Break(with));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The state that the walk reads. While a caller holds the state, the documents that it refers to stay.
    pub(crate) const fn state(&self) -> &Arc<TableState> {
        &self.state
    }

    /// The current pair.
    pub(crate) fn current(&self) -> Option<PairRef<'_>> {
        match self.on {
            On::Nothing => None,
            On::Below => self.cursor.current(),
            On::Queue { .. } => {
                let Step { key, found } = self.queues[self.nearest?].steps.front()?;
                Some(PairRef { key, seq: found.seq, value: found.value.as_ref()?.as_payload(), expiry: found.expiry })
            }
        }
    }

    /// Moves every source behind the current key.
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
            self.cursor.advance()?;
        } else if matches!(on, On::Below | On::Queue { shadows: true }) {
            self.cursor.advance()?;
        }
        Ok(())
    }

    fn find_nearest(&mut self) {
        let (hidden, direction) = (self.hidden.as_ref(), self.direction);
        let pass = |key: &[u8]| hidden?.passed(key, direction);
        for queue in &mut self.queues {
            queue.fill(&self.bounds, direction, self.at, &pass);
        }
        // Among equal keys the first is found, which is of the newest queue.
        let keys = self.queues.iter().enumerate().filter_map(|(number, queue)| Some((number, queue.key()?)));
        self.nearest = keys.min_by(|(_, one), (_, other)| self.direction.order(one, other)).map(|(number, _)| number);
    }
}
