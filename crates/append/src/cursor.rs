//! Scans.
//!
//! 1. The rest of the scan is a list of pieces in scan order: nodes, read or not read yet, and pairs. The first piece
//!    is taken apart as far as it lies within the bounds. An internal node gives its children, which become pieces of
//!    their own when the scan comes to them. A leaf gives pairs and B+-trees, at first a few of them, then ever more.
//! 2. If the first piece is not cached, the pieces behind are read in the same psync, ever more of them as the scan
//!    goes on. Nodes among them that were read before are taken apart, and the nodes below them are read. If one
//!    node of a psync cannot be read, each is read alone when the scan comes to it. So an error is reported behind all
//!    pairs before it, and no node is asked for more than twice.
//! 3. Pairs lie in memory of the scan, each key whole, those of neighbouring groups of a leaf together.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use doclog::DocPointer;
use index::{Bounds, Cursor, Direction, Moment, PairAt, PairRef, Pairs, Result, Share, Show};
use space::PAGE;

use crate::format::node::{Group, Keys, Node, partition};
use crate::shared::Reader;
use crate::version::Version;

/// Groups that a scan takes out of its first leaf at first, and the factor by which each next number grows.
const FIRST_GROUPS: usize = 1;
const GROUPS_GROWTH: usize = 2;
/// Pieces for which a scan has room at first: those of a few levels of nodes.
const FIRST_PIECES: usize = 8;
/// Nodes that the first read of a scan brings.
const FIRST_WINDOW: usize = 2;
/// Nodes of windows up to this size are read as lookups read them, because short scans begin at the same places.
const SHORT_WINDOW: usize = 4;
/// The largest first window if the whole range is expected to be asked for.
const EXPECTED_WINDOW: usize = 64;

/// The bytes that all keys below a node begin with.
type Prefix = Arc<[u8]>;

/// A node still to be scanned.
enum Ahead {
    Unread(DocPointer),
    /// This node, or one that was read with it, failed.
    Alone(DocPointer),
    Read(Arc<Node>),
}

enum Piece {
    /// A node; `is_root`: its skipped chunks are not in the prefix yet.
    Node {
        node: Ahead,
        prefix: Prefix,
        is_root: bool,
    },
    /// Children of a node that was read, or groups of a leaf.
    Parts {
        of: Arc<Node>,
        prefix: Prefix,
        range: Range<usize>,
    },
    Pairs(Run),
}

/// Pairs that follow one another.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    /// In key order, whatever the direction.
    places: Vec<PairAt>,
}

impl Run {
    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }
}

/// Walks a version in key order.
pub(crate) struct TrieCursor {
    version: Arc<Version>,
    bounds: Bounds,
    at: Moment,
    direction: Direction,
    ahead: VecDeque<Piece>,
    window: usize,
    /// Groups that are taken next out of a leaf.
    groups: usize,
    share: Share,
    /// The current pairs, and how many of them were shown.
    run: Run,
    shown: usize,
    ended: bool,
}

impl TrieCursor {
    pub(crate) fn new(version: Arc<Version>, bounds: &Bounds, at: Moment, direction: Direction) -> Self {
        let root = version.header().root.filter(|_| !bounds.is_empty());
        let root = root.map(|root| Piece::Node { node: Ahead::Unread(root), prefix: [].into(), is_root: true });
        let mut ahead = VecDeque::with_capacity(FIRST_PIECES);
        ahead.extend(root);
        let share = version.shared.read_ahead().share();
        Self {
            version,
            share,
            bounds: bounds.clone(),
            at,
            direction,
            ahead,
            window: FIRST_WINDOW,
            groups: FIRST_GROUPS,
            run: Run::default(),
            shown: 0,
            ended: false,
        }
    }

    /// Goes to the next pairs; false at the end.
    fn next_run(&mut self) -> Result<bool> {
        self.shown = 0;
        self.run.clear();
        while let Some(piece) = self.ahead.pop_front() {
            match piece {
                Piece::Pairs(run) => {
                    self.run = run;
                    return Ok(true);
                }
                Piece::Node { node: Ahead::Read(node), prefix, is_root } => self.take_apart(&node, prefix, is_root),
                Piece::Parts { of, prefix, range } => self.take_parts(of, prefix, range),
                Piece::Node { node: Ahead::Alone(pointer), prefix, is_root } => {
                    let node = self.version.nodes(&[pointer])?.remove(0);
                    self.take_apart(&node, prefix, is_root);
                }
                Piece::Node { node: Ahead::Unread(pointer), prefix, is_root } => {
                    let reader = if self.is_short() { Reader::Lookup } else { Reader::Walk };
                    if let Some(node) = self.version.cached(&pointer, reader) {
                        self.window = (self.window + 1).min(self.window_max());
                        self.take_apart(node.shared(), prefix, is_root);
                    } else {
                        self.ahead.push_front(Piece::Node { node: Ahead::Unread(pointer), prefix, is_root });
                        self.read_ahead();
                    }
                }
            }
        }
        Ok(false)
    }

    /// Reads the unread nodes of the first pieces. Nodes among them that were read before are taken apart first, so the
    /// nodes below them are read too.
    fn read_ahead(&mut self) {
        let window = self.window.min(self.share.bytes_max() / PAGE).max(FIRST_WINDOW);
        let mut first = VecDeque::with_capacity(window);
        while first.len() < window
            && let Some(piece) = self.ahead.pop_front()
        {
            match piece {
                Piece::Node { node: Ahead::Read(node), prefix, is_root } => self.take_apart(&node, prefix, is_root),
                Piece::Parts { of, prefix, range } => self.take_parts(of, prefix, range),
                other => first.push_back(other),
            }
        }
        let mut unread: Vec<(DocPointer, &mut Ahead)> = Vec::with_capacity(window);
        for piece in &mut first {
            if let Piece::Node { node, .. } = piece
                && let Ahead::Unread(pointer) = *node
            {
                unread.push((pointer, node));
            }
        }
        let pointers: Vec<_> = unread.iter().map(|(pointer, _)| *pointer).collect();
        let nodes = if self.is_short() { self.version.looked_up(&pointers) } else { self.version.nodes(&pointers) };
        match nodes {
            Ok(nodes) => unread.into_iter().zip(nodes).for_each(|((_, ahead), node)| *ahead = Ahead::Read(node)),
            Err(_) => unread.into_iter().for_each(|(pointer, ahead)| *ahead = Ahead::Alone(pointer)),
        }
        self.share.hold(first.len() * PAGE);
        first.append(&mut self.ahead);
        self.ahead = first;
        self.window = (self.window * 2).min(self.window_max());
    }

    /// Whether the scan has not gone far.
    const fn is_short(&self) -> bool {
        self.window <= SHORT_WINDOW
    }

    fn window_max(&self) -> usize {
        self.version.shared.pio_max().max(FIRST_WINDOW)
    }

    /// Puts the parts of a node before everything else.
    fn take_apart(&mut self, node: &Arc<Node>, prefix: Prefix, is_root: bool) {
        let prefix = if is_root && !node.skip().is_empty() { [&prefix, node.skip()].concat().into() } else { prefix };
        let range = self.parts(node, &prefix);
        self.take_parts(Arc::clone(node), prefix, range);
    }

    /// The children, or groups, that have keys within the bounds.
    fn parts(&self, node: &Node, prefix: &[u8]) -> Range<usize> {
        // Keys of part `i` are `≥ bound(i)`, except in the first part, and `< bound(i + 1)`.
        let bounds = 1..node.len().max(1);
        let start = match &self.bounds.lower {
            Bound::Included(key) | Bound::Excluded(key) => {
                partition(bounds.clone(), |index| order(prefix, node.bound(index), key).is_le()) - 1
            }
            Bound::Unbounded => 0,
        };
        let end = match &self.bounds.upper {
            Bound::Included(key) => partition(bounds, |index| order(prefix, node.bound(index), key).is_le()),
            Bound::Excluded(key) => partition(bounds, |index| order(prefix, node.bound(index), key).is_lt()),
            Bound::Unbounded => node.len(),
        };
        start..end.min(node.len())
    }

    /// Puts the next of these parts before everything else, and the remaining parts behind them.
    fn take_parts(&mut self, of: Arc<Node>, prefix: Prefix, range: Range<usize>) {
        let most = if of.level() > 0 { 1 } else { self.groups };
        let (next, left) = match self.direction {
            Direction::Forward => {
                let middle = range.end.min(range.start.saturating_add(most));
                (range.start..middle, middle..range.end)
            }
            Direction::Backward => {
                let middle = range.start.max(range.end.saturating_sub(most));
                (middle..range.end, range.start..middle)
            }
        };
        if !left.is_empty() {
            self.ahead.push_front(Piece::Parts { of: Arc::clone(&of), prefix: Arc::clone(&prefix), range: left });
        }
        if of.level() > 0 {
            for index in next {
                let node = Ahead::Unread(of.child(index));
                self.ahead.push_front(Piece::Node { node, prefix: Arc::clone(&prefix), is_root: false });
            }
            return;
        }
        self.groups = self.groups.saturating_mul(GROUPS_GROWTH);
        let mut pieces = self.groups(&of, &prefix, next);
        if self.direction == Direction::Forward {
            pieces.reverse();
        }
        for piece in pieces {
            self.ahead.push_front(piece);
        }
    }

    /// Pairs and trees of these groups of a leaf within the bounds, in key order.
    fn groups(&mut self, node: &Node, prefix: &Prefix, range: Range<usize>) -> Vec<Piece> {
        // The memory of the pairs that were shown is used again.
        let (mut pieces, mut run) = (Vec::with_capacity(1), std::mem::take(&mut self.run));
        run.bytes.reserve(node.entries_bytes(range.clone()));
        run.places.reserve(range.len());
        for index in range {
            let chunk = node.bound(index);
            match node.group(index) {
                Group::Keys(keys) => self.take_keys(&mut run, [prefix, chunk], keys),
                Group::Tree(pointer) => {
                    let begin = [prefix, chunk].concat();
                    if !self.bounds.below_upper(&begin) || all_before(&self.bounds, &begin) {
                        continue;
                    }
                    if !run.places.is_empty() {
                        pieces.push(Piece::Pairs(std::mem::take(&mut run)));
                    }
                    pieces.push(Piece::Node { node: Ahead::Unread(pointer), prefix: begin.into(), is_root: true });
                }
            }
        }
        if !run.places.is_empty() {
            pieces.push(Piece::Pairs(run));
        }
        pieces
    }

    /// Adds the keys of a group that are live at the scan's moment and within the bounds. All keys of the group begin
    /// with `prefix` and `chunk`.
    fn take_keys(&self, run: &mut Run, [prefix, chunk]: [&[u8]; 2], keys: Keys<'_>) {
        for (rest, mut versions) in keys.iter() {
            let Some((seq, operation)) = versions.find(|(seq, _)| *seq <= self.at.seq) else { continue };
            let Some(value) = operation.shown(self.at.now) else { continue };
            let start = run.bytes.len();
            [prefix, chunk, rest].into_iter().for_each(|part| run.bytes.extend_from_slice(part));
            if !self.bounds.contains(&run.bytes[start..]) {
                run.bytes.truncate(start);
                continue;
            }
            run.places.push(PairAt::put(&mut run.bytes, start, seq, value, operation.expiry()));
        }
    }

    /// The number of pairs not yet shown that come before `until`.
    fn before(&self, until: &[u8]) -> usize {
        let (places, bytes) = (&self.run.places, &self.run.bytes);
        let left = places.len() - self.shown;
        match self.direction {
            Direction::Forward => places[self.shown..].partition_point(|place| place.key(bytes) < until),
            Direction::Backward => left - places[..left].partition_point(|place| place.key(bytes) <= until),
        }
    }
}

/// Compares a key in two parts, `prefix` and `rest`, with `key`.
fn order(prefix: &[u8], rest: &[u8], key: &[u8]) -> Ordering {
    key.strip_prefix(prefix).map_or_else(|| prefix.cmp(key), |behind| rest.cmp(behind))
}

/// Whether every key that begins with `begin` is below the lower bound.
fn all_before(bounds: &Bounds, begin: &[u8]) -> bool {
    match &bounds.lower {
        Bound::Included(lower) | Bound::Excluded(lower) => begin < lower.as_slice() && !lower.starts_with(begin),
        Bound::Unbounded => false,
    }
}

impl Cursor for TrieCursor {
    fn advance(&mut self) -> Result<bool> {
        while !self.ended {
            if self.shown < self.run.places.len() {
                self.shown += 1;
                return Ok(true);
            }
            self.ended = true;
            self.ended = !self.next_run()?;
        }
        Ok(false)
    }

    fn current(&self) -> Option<PairRef<'_>> {
        let before = self.shown.checked_sub(1)?;
        let index = match self.direction {
            Direction::Forward => before,
            Direction::Backward => self.run.places.len() - 1 - before,
        };
        Some(self.run.places[index].pair(&self.run.bytes))
    }

    fn expect_all(&mut self) {
        self.window = self.version.shared.pio_max().clamp(FIRST_WINDOW, EXPECTED_WINDOW);
    }

    fn run(&mut self, until: Option<&[u8]>, show: &mut Show<'_>) -> Result<ControlFlow<()>> {
        while !self.ended {
            let (len, from) = (self.run.places.len(), self.shown);
            let count = until.map_or(len - from, |until| self.before(until));
            let places = match self.direction {
                Direction::Forward => from..from + count,
                Direction::Backward => len - from - count..len - from,
            };
            let pairs = Pairs::new(&self.run.places[places], &self.run.bytes, self.direction);
            if let ControlFlow::Break(shown) = show(pairs) {
                self.shown = from + shown;
                return Ok(ControlFlow::Break(()));
            }
            self.shown = from + count;
            if self.shown < len {
                return Ok(ControlFlow::Continue(()));
            }
            self.ended = true;
            self.ended = !self.next_run()?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
