//! The leaves of a scan, read ahead of it.
//!
//! 1. A *fetch* is one request: a leaf, or leaves that follow one another in the scan and on the device, up to
//!    [`FETCH_BYTES_MAX`]. A leaf that is cached is a fetch that is complete.
//! 2. Fetches of leaves that the scan has not reached yet are kept in flight on a stream, so the device works while the scan does.
//!    As many leaves as the scan has gone through are asked for ahead of it, three times as many while that is up to [`WINDOW_FAST`], at
//!    least [`WINDOW_FIRST`], at most PioMax and about [`WINDOW_BYTES_MAX`]: a short scan reads little, a long one keeps the device busy after
//!    three waits, and neither holds much memory.
//! 3. A long scan asks for the next node of the level above leaves early as well.
//! 4. Leaves are handed out in the order of the scan. A failure is kept until the scan arrives at it.
//!
//! Invariant: memory that the device writes to belongs to the stream until the request is complete; to drop a scan waits for that.
//!
//! A scan looks into the cache, but does not fill it with leaves and does not make those it finds there any hotter.

use std::collections::VecDeque;
use std::sync::Arc;

use index::{Error, Result};
use psync::{Buffer, Completion, Request, Spares, Stream};
use space::PAGE;

use super::path::{Next, Path};
use crate::counters::count;
use crate::format::Pointer;
use crate::leaf::Leaf;
use crate::node::Node;
use crate::version::Version;

/// Leaves that every scan asks for at first.
const WINDOW_FIRST: usize = 2;

/// Up to this window it grows fast: a device serves so many requests about as soon as one.
const WINDOW_FAST: usize = 16;

/// From this window on, nodes of the level above leaves are read ahead.
const WINDOW_LONG: usize = 16;

/// Bytes of leaves asked for beyond which no more are, but for the first two.
const WINDOW_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a fetch of several leaves.
const FETCH_BYTES_MAX: u64 = 128 << 10;

/// Most bytes of buffers kept to be used again: what becomes free between two times that leaves are asked for.
const SPARE_BYTES_MAX: usize = WINDOW_BYTES_MAX / 2;

/// The tag of a node's request. A fetch's is its number.
const NODE_TAG: u64 = u64::MAX;

enum State {
    /// Not handed to the stream yet.
    New,
    Asked,
    Here(Buffer),
    Cached(Arc<Leaf>),
    Failed(psync::Error),
    /// It failed as one. Its leaves are read alone, one at a time: this one is here.
    Alone(Buffer),
}

struct Fetch {
    leaves: usize,
    /// Leaves of it that were not handed out.
    left: usize,
    /// Where it begins in the file.
    offset: u64,
    bytes: usize,
    state: State,
}

impl Fetch {
    fn new(pointer: &Pointer, state: State) -> Self {
        Self { leaves: 1, left: 1, offset: pointer.offset(), bytes: pointer.published_bytes(), state }
    }

    /// Takes the next leaf of the scan in, if it lies beside the leaves that it has.
    fn join(&mut self, pointer: &Pointer, gap_max: usize) -> bool {
        let (offset, end) = (pointer.offset(), pointer.offset() + pointer.published_bytes() as u64);
        let (first, last) = (self.offset.min(offset), end.max(self.offset + self.bytes as u64));
        let gap = (last - first).checked_sub(self.bytes as u64 + (end - offset));
        let joins = matches!(self.state, State::New)
            && gap.is_some_and(|gap| gap <= gap_max as u64)
            && last - first <= FETCH_BYTES_MAX;
        if joins {
            self.offset = first;
            self.bytes += usize::try_from(last - first).expect("at most FETCH_BYTES_MAX") - self.bytes;
            self.leaves += 1;
            self.left += 1;
        }
        joins
    }
}

/// The image of a leaf.
pub(super) enum Image<'a> {
    Cached(&'a Leaf),
    /// The pages that were read, not checked yet.
    Read(&'a [u8]),
}

/// A node that was asked for ahead.
struct NodeAhead {
    pointer: Pointer,
    read: Option<Result<Arc<Node>>>,
}

pub(super) struct Ahead {
    version: Arc<Version>,
    path: Path,
    /// Why the path ended before its end.
    broken: Option<Error>,
    stream: Option<Stream>,
    node: Option<NodeAhead>,
    /// The fetch that the scan is in, and those behind it. The number of the first, of all that were ever made.
    fetches: VecDeque<Fetch>,
    first: u64,
    /// Leaves that are asked for and not handed out, and their bytes.
    leaves: VecDeque<Pointer>,
    bytes: usize,
    /// Leaves handed out.
    taken: usize,
    spares: Spares,
}

impl Ahead {
    pub(super) const fn new(version: Arc<Version>, path: Path) -> Self {
        Self {
            version,
            path,
            broken: None,
            stream: None,
            node: None,
            fetches: VecDeque::new(),
            first: 0,
            leaves: VecDeque::new(),
            bytes: 0,
            taken: 0,
            spares: Spares::new(SPARE_BYTES_MAX),
        }
    }

    pub(super) const fn version(&self) -> &Arc<Version> {
        &self.version
    }

    pub(super) const fn path(&self) -> &Path {
        &self.path
    }

    /// Goes to the next leaf; none at the end. Not to be called again after an error.
    pub(super) fn next(&mut self) -> Result<Option<Pointer>> {
        if self.fetches.front().is_some_and(|fetch| fetch.left == 0) {
            self.leave();
        }
        self.refill();
        while matches!(self.fetches.front(), Some(Fetch { state: State::Asked, .. })) {
            self.arrived();
        }
        let Some(fetch) = self.fetches.front_mut() else {
            return self.broken.take().map_or(Ok(None), Err);
        };
        let pointer = self.leaves.pop_front().expect("a fetch has leaves left");
        fetch.left -= 1;
        self.taken += 1;
        self.bytes -= pointer.published_bytes();
        match &fetch.state {
            State::Failed(error) if fetch.leaves == 1 => return Err(error.clone().into()),
            State::Failed(_) | State::Alone(_) => {
                let shared = &self.version.shared;
                let read = shared.read(&pointer, 0, pointer.published_bytes(), 0);
                let buffer = shared.psync().run_all(vec![read])?.pop().flatten();
                fetch.state = State::Alone(buffer.expect("a read hands its buffer back"));
            }
            _ => {}
        }
        Ok(Some(pointer))
    }

    /// The leaf that `next` went to.
    pub(super) fn image(&self, pointer: &Pointer) -> Image<'_> {
        let fetch = self.fetches.front().expect("the scan is in a leaf");
        match &fetch.state {
            State::Cached(leaf) => Image::Cached(leaf),
            State::Here(buffer) => {
                let from = usize::try_from(pointer.offset() - fetch.offset).expect("within the fetch");
                Image::Read(&buffer[from..from + pointer.published_bytes()])
            }
            State::Alone(buffer) => Image::Read(buffer),
            State::New | State::Asked | State::Failed(_) => unreachable!("the scan is in a leaf that is here"),
        }
    }

    /// Leaves the first fetch.
    fn leave(&mut self) {
        let fetch = self.fetches.pop_front().expect("the scan was in it");
        self.first += 1;
        if let State::Here(buffer) = fetch.state {
            self.spares.keep(buffer);
        }
    }

    /// Leaves to be asked for ahead of the scan.
    fn window(&self) -> usize {
        let window = self.taken.max((3 * self.taken).min(WINDOW_FAST));
        window.clamp(WINDOW_FIRST, self.version.shared.psync().pio_max().max(WINDOW_FIRST))
    }

    /// Asks for more leaves when a good part of the window is free.
    fn refill(&mut self) {
        let window = self.window();
        if self.leaves.len() + (window / 4).max(1) > window {
            return;
        }
        while self.leaves.len() < window && (self.bytes < WINDOW_BYTES_MAX || self.leaves.len() < WINDOW_FIRST) {
            match self.path.next() {
                Some(Next::Leaf(pointer)) => self.add(&pointer),
                Some(Next::Node(pointer, level)) => match self.node(&pointer, level) {
                    Ok(node) => self.path.enter(node),
                    Err(error) => {
                        self.path.end();
                        self.broken = Some(error);
                    }
                },
                None => break,
            }
        }
        if window >= WINDOW_LONG {
            self.ask_for_node();
        }
        self.ask();
        if self.taken == 0 {
            // A short scan leaves nothing in flight.
            while self.stream.is_some() {
                self.arrived();
            }
        }
    }

    fn add(&mut self, pointer: &Pointer) {
        self.bytes += pointer.published_bytes();
        self.leaves.push_back(*pointer);
        if let Some(leaf) = self.version.shared.cached_leaf(pointer) {
            self.fetches.push_back(Fetch::new(pointer, State::Cached(leaf)));
        } else if !self.fetches.back_mut().is_some_and(|fetch| fetch.join(pointer, gap)) {
            self.fetches.push_back(Fetch::new(pointer, State::New));
        }
    }

    /// Hands new fetches to the system.
    fn ask(&mut self) {
        let counters = &self.version.shared.counters;
        for index in 0..self.fetches.len() {
            let Fetch { leaves, offset, bytes, state: State::New, .. } = self.fetches[index] else { continue };
            count(&counters.leaf_reads, leaves);
            count(&counters.leaf_read_bytes, bytes);
            let buffer = self.spares.take(bytes);
            let file = self.version.shared.pages().file();
            let request = Request::read(file, offset, buffer, self.first + index as u64);
            self.fetches[index].state = State::Asked;
            stream(&mut self.stream, &self.version).push(request);
        }
        if let Some(stream) = &mut self.stream {
            stream.submit();
        }
    }

    /// Asks for the node of the level above leaves that the path comes to next.
    fn ask_for_node(&mut self) {
        let shared = &self.version.shared;
        let next = self.path.node_after().filter(|next| {
            let asked = self.node.as_ref().is_some_and(|ahead| ahead.pointer.page == next.page);
            !asked && !shared.has_node(next)
        });
        if let Some(pointer) = next {
            self.node = Some(NodeAhead { pointer, read: None });
            stream(&mut self.stream, &self.version).push(shared.read(&pointer, 0, PAGE, NODE_TAG));
        }
    }

    /// A node of the path.
    fn node(&mut self, pointer: &Pointer, level: u8) -> Result<Arc<Node>> {
        while self.node.as_ref().is_some_and(|ahead| ahead.pointer == *pointer && ahead.read.is_none()) {
            self.ask();
            self.arrived();
        }
        let ahead = self.node.take_if(|ahead| ahead.pointer == *pointer).and_then(|ahead| ahead.read);
        ahead.unwrap_or_else(|| {
            let version = Arc::clone(&self.version);
            if !version.shared.has_node(pointer) {
                self.ask();
            }
            version.shared.node(version.table, pointer, level)
        })
    }

    /// Takes one completion, waiting for it if need be.
    fn arrived(&mut self) {
        let stream = self.stream.as_mut().expect("what is waited for is in flight");
        let Completion { tag, buffer, result } = stream.next().expect("what is waited for is in flight");
        if stream.in_flight() == 0 {
            // Whoever holds a cursor for long holds no queue of the system with it.
            self.stream = None;
        }
        let result = result.map(|()| buffer.expect("a read hands its buffer back"));
        if tag == NODE_TAG {
            let ahead = self.node.as_mut().expect("a node is forgotten after it arrived");
            let (shared, table) = (&self.version.shared, self.version.table);
            let parse = |page: Buffer| shared.parse_node(table, &ahead.pointer, 1, &page);
            ahead.read = Some(result.map_err(Error::from).and_then(parse));
            return;
        }
        let index = usize::try_from(tag - self.first).expect("fetches in flight fit memory");
        self.fetches[index].state = result.map_or_else(State::Failed, State::Here);
    }
}

fn stream<'a>(stream: &'a mut Option<Stream>, version: &Version) -> &'a mut Stream {
    let psync = version.shared.psync();
    stream.get_or_insert_with(|| psync.stream(psync.pio_max()))
}
