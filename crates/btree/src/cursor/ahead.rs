//! The leaves of a scan, read ahead of it.
//!
//! 1. A scan goes from [`Piece`] to piece. A piece is one part of a leaf that was never appended to, or all of a leaf
//!    from a part on.
//! 2. A *fetch* is one request: a piece, or pieces that follow one another in the scan and on the device, up to
//!    [`FETCH_BYTES_MAX`] or half of the scan's share. A cached piece is a complete fetch.
//! 3. Fetches of pieces ahead of the scan are kept in flight on a stream, so the device works while the scan does.
//! 4. The window is the number of pieces asked for ahead (table below). Its bytes are at most as many as PioMax leaves,
//!    about [`WINDOW_BYTES_MAX`], and the scan's [`Share`].
//! 5. A long scan asks early for the next node of the level above leaves as well.
//! 6. Pieces are handed out in the order of the scan. A failure is kept until the scan arrives at it.
//!
//! | scan | window |
//! |---|---|
//! | fewer than [`SHORT_RECORDS`] pairs shown | the current piece, and at most a page more: most end before |
//! | later | as many pieces as gone through, or four times as many while these have at most [`FAST_BYTES`] |
//! | both ends known, all to be read | [`FAST_BYTES`] at once, as prange does; then as many pieces as gone through |
//!
//! So a short scan reads only the pairs that it shows, and a long scan keeps the device busy after some waits. Neither
//! holds much memory, nor do many scans together ([`Share`]).
//!
//! Invariant: memory that the device writes to belongs to the stream until the request is complete. Dropping a scan
//! waits for that.
//!
//! A scan looks into the cache. A piece that begins before [`SHORT_BYTES`] are behind the scan is left in the cache,
//! where the cache admits that piece. So short scans of data that fits in memory are answered from there. Later pieces
//! would only evict the pages of other operations.

use std::collections::VecDeque;
use std::ops::{Bound, Range};
use std::sync::Arc;

use index::{Direction, Error, Result, Share};
use psync::{Buffer, Completion, Request, Spares, Stream};
use space::PAGE;

use super::path::{Next, Path};
use super::piece::Piece;
use crate::counters::count;
use crate::format::Pointer;
use crate::leaf::Leaf;
use crate::node::Node;
use crate::version::Version;

/// A scan that has shown fewer pairs may be a short one.
const SHORT_RECORDS: usize = 100;

/// Pieces that a possibly short scan asks for at least.
const WINDOW_FIRST: usize = 1;

/// The window grows fast up to so many bytes, because a device reads them about as soon as a page.
const FAST_BYTES: usize = 256 << 10;

/// From this window on, nodes of the level above leaves are read ahead.
const WINDOW_LONG: usize = 16;

/// Most bytes asked for. Only the first pieces may exceed it.
const WINDOW_BYTES_MAX: usize = 4 << 20;

/// A scan is short until so many bytes are behind it. A leaf, as one piece, may be larger.
const SHORT_BYTES: usize = 64 << 10;

/// Most bytes of a fetch of several pieces.
const FETCH_BYTES_MAX: usize = 128 << 10;

/// The tag of a node's request. The tag of a fetch is its number.
const NODE_TAG: u64 = u64::MAX;

enum State {
    /// Not handed to the stream yet.
    New,
    Asked,
    Here(Buffer),
    Cached(Arc<Leaf>),
    Failed(psync::Error),
    /// The fetch failed as one. Its pieces are read alone, one at a time; this piece is here.
    Alone(Buffer),
}

struct Fetch {
    pieces: usize,
    /// Pieces of the fetch that were not handed out.
    left: usize,
    /// Where the fetch begins in the file.
    offset: u64,
    bytes: usize,
    state: State,
}

impl Fetch {
    fn new(piece: &Piece, state: State) -> Self {
        Self { pieces: 1, left: 1, offset: piece.place().start, bytes: piece.bytes(), state }
    }

    /// Takes in the next piece of the scan, if that piece lies beside the fetch's bytes.
    fn join(&mut self, piece: &Piece, gap_max: usize, bytes_max: usize) -> bool {
        let Range { start: offset, end } = piece.place();
        let (first, last) = (self.offset.min(offset), end.max(self.offset + self.bytes as u64));
        let gap = (last - first).checked_sub(self.bytes as u64 + (end - offset));
        let joins = matches!(self.state, State::New)
            && gap.is_some_and(|gap| gap <= gap_max as u64)
            && last - first <= bytes_max as u64;
        if joins {
            self.offset = first;
            self.bytes += usize::try_from(last - first).expect("at most bytes_max") - self.bytes;
            self.pieces += 1;
            self.left += 1;
        }
        joins
    }
}

/// The image of a piece.
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
    /// Boxed, because a scan of cached leaves has none: the cursor stays small.
    stream: Option<Box<Stream>>,
    node: Option<NodeAhead>,
    /// The fetch that the scan is in, and those behind it. `first` is the number of the first, counted over all fetches
    /// ever made.
    fetches: VecDeque<Fetch>,
    first: u64,
    /// The leaf that the path came to last, and its parts still to come as pieces.
    rest: Option<(Pointer, Range<usize>)>,
    /// Pieces that are asked for and not handed out, and their bytes.
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Whether all between two known ends is expected to be read.
    eager: bool,
    /// Pairs of earlier pieces that were shown.
    shown: usize,
    /// Pieces handed out, the bytes of the last of them, and the bytes of all pieces handed out.
    taken: usize,
    taken_bytes: usize,
    passed_bytes: usize,
    /// The image of the scan's current piece, where it is cached now.
    kept: Option<Arc<Leaf>>,
    /// The bound of all scans, and the share of this one.
    share: Share,
    spares: Spares,
}

impl Ahead {
    pub(super) fn new(version: Arc<Version>, path: Path) -> Self {
        let share = version.shared.read_ahead().share();
        Self {
            spares: version.shared.take_spares(share.bytes_max()),
            share,
            version,
            path,
            broken: None,
            stream: None,
            node: None,
            fetches: VecDeque::new(),
            first: 0,
            rest: None,
            pieces: VecDeque::new(),
            bytes: 0,
            eager: false,
            shown: 0,
            taken: 0,
            taken_bytes: 0,
            passed_bytes: 0,
            kept: None,
        }
    }

    /// Expects that all pairs between the two ends of the range will be asked for. An open range is exempt, because it
    /// goes on for longer than its reader may want.
    pub(super) const fn expect_all(&mut self) {
        let bounds = self.path.bounds();
        self.eager = !matches!((&bounds.lower, &bounds.upper), (Bound::Unbounded, _) | (_, Bound::Unbounded));
    }

    pub(super) const fn version(&self) -> &Arc<Version> {
        &self.version
    }

    pub(super) const fn path(&self) -> &Path {
        &self.path
    }

    /// Goes to the next piece, after the scan has shown so many pairs of the piece before. None at the end. Not to be
    /// called again after an error.
    pub(super) fn next(&mut self, shown: usize) -> Result<Option<Piece>> {
        self.shown += shown;
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
        let piece = self.pieces.pop_front().expect("a fetch has pieces left");
        fetch.left -= 1;
        self.taken += 1;
        self.taken_bytes = piece.bytes();
        self.bytes -= piece.bytes();
        match &fetch.state {
            State::Failed(error) if fetch.pieces == 1 => return Err(error.clone().into()),
            State::Failed(_) | State::Alone(_) => {
                let shared = &self.version.shared;
                let read = shared.read(&piece.pointer, piece.of().start / PAGE, piece.bytes(), 0);
                let buffer = shared.psync().run_all(vec![read])?.pop().flatten();
                fetch.state = State::Alone(buffer.expect("a read hands its buffer back"));
            }
            _ => {}
        }
        self.kept = None;
        if self.passed_bytes < SHORT_BYTES
            && let Image::Read(pages) = self.image(&piece)
        {
            self.kept = self.version.shared.keep_scanned(self.version.table, &piece, pages)?;
        }
        self.passed_bytes += piece.bytes();
        Ok(Some(piece))
    }

    /// The piece that `next` went to.
    pub(super) fn image(&self, piece: &Piece) -> Image<'_> {
        if let Some(leaf) = &self.kept {
            return Image::Cached(leaf);
        }
        let fetch = self.fetches.front().expect("the scan is in a piece");
        match &fetch.state {
            State::Cached(leaf) => Image::Cached(leaf),
            State::Here(buffer) => {
                let from = usize::try_from(piece.place().start - fetch.offset).expect("within the fetch");
                Image::Read(&buffer[from..from + piece.bytes()])
            }
            State::Alone(buffer) => Image::Read(buffer),
            State::New | State::Asked | State::Failed(_) => unreachable!("the scan is in a piece that is here"),
        }
    }

    /// Leaves the first fetch behind.
    fn leave(&mut self) {
        let fetch = self.fetches.pop_front().expect("the scan was in it");
        self.first += 1;
        if let State::Here(buffer) = fetch.state {
            self.spares.keep(buffer);
        }
    }

    /// Pieces to be asked for ahead of the scan.
    fn window(&self) -> usize {
        let fast = FAST_BYTES / self.taken_bytes.max(PAGE);
        if self.eager {
            return self.taken.max(fast);
        }
        if self.shown < SHORT_RECORDS {
            // A page more costs next to nothing.
            let is_page = self.pieces.front().is_some_and(|next| next.bytes() <= PAGE);
            return WINDOW_FIRST + usize::from(is_page);
        }
        self.taken.max(fast.min(4 * self.taken)).max(WINDOW_FIRST)
    }

    /// Bytes of those pieces beyond which no more are asked for.
    fn bytes_max(&self) -> usize {
        let leaf = self.version.root.leaf_pages as usize * PAGE;
        let most = if self.taken == 0 { FAST_BYTES } else { WINDOW_BYTES_MAX };
        (self.version.shared.psync().pio_max() * leaf).min(most).min(self.share.bytes_max())
    }

    /// Asks for more pieces when a good part of the window is free.
    fn refill(&mut self) {
        let (window, bytes_max) = (self.window(), self.bytes_max());
        let is_full = self.pieces.len() + (window / 4).max(1) > window || self.bytes + bytes_max / 4 > bytes_max;
        if is_full && self.pieces.len() >= WINDOW_FIRST.min(window) {
            return;
        }
        // The window of a possibly short scan grows with the pieces that it begins with.
        while self.pieces.len() < self.window() && (self.bytes < bytes_max || self.pieces.len() < WINDOW_FIRST) {
            if self.add_piece() {
                continue;
            }
            match self.path.next() {
                Some(Next::Leaf(pointer, parts)) => self.rest = Some((pointer, parts)),
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
        self.share.hold(self.bytes);
        if self.taken == 0 && !self.eager {
            // A short scan leaves nothing in flight.
            while self.stream.is_some() {
                self.arrived();
            }
        }
    }

    /// Adds the next piece of the leaf that the path came to last, if there is one left.
    fn add_piece(&mut self) -> bool {
        let Some((pointer, parts)) = &mut self.rest else { return false };
        let part = match self.path.direction() {
            Direction::Forward => parts.next(),
            Direction::Backward => parts.next_back(),
        };
        let parts_left = parts.clone();
        let (Some(part), pointer) = (part, *pointer) else {
            self.rest = None;
            return false;
        };
        let shared = &self.version.shared;
        let (piece, cached) = if pointer.appended {
            // Appended entries may be of any part, so all parts are gone through together.
            let part = part.min(parts_left.start);
            self.rest = None;
            (Piece { pointer, part, to_end: true }, shared.cached_leaf(&pointer, part))
        } else {
            (Piece { pointer, part, to_end: false }, shared.peek_part(&pointer, part))
        };
        let gap = shared.gap_bytes();
        // A buffer is released as a whole, so two are to be within the share: the scan's own and one ahead of it.
        let fetch_max = FETCH_BYTES_MAX.min(self.share.bytes_max() / 2);
        self.bytes += piece.bytes();
        self.pieces.push_back(piece);
        if let Some(leaf) = cached {
            self.fetches.push_back(Fetch::new(&piece, State::Cached(leaf)));
        } else if !self.fetches.back_mut().is_some_and(|fetch| fetch.join(&piece, gap, fetch_max)) {
            self.fetches.push_back(Fetch::new(&piece, State::New));
        }
        true
    }

    /// Hands new fetches to the system.
    fn ask(&mut self) {
        let counters = &self.version.shared.counters;
        for index in 0..self.fetches.len() {
            let Fetch { pieces, offset, bytes, state: State::New, .. } = self.fetches[index] else { continue };
            count(&counters.leaf_reads, pieces);
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

    /// Takes one completion, and waits for one if need be.
    fn arrived(&mut self) {
        let stream = self.stream.as_mut().expect("what is waited for is in flight");
        let Completion { tag, buffer, result } = stream.next().expect("what is waited for is in flight");
        if stream.in_flight() == 0 {
            // A cursor that is held for long holds no queue of the system.
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

impl Drop for Ahead {
    fn drop(&mut self) {
        for fetch in self.fetches.drain(..) {
            if let State::Here(buffer) | State::Alone(buffer) = fetch.state {
                self.spares.keep(buffer);
            }
        }
        self.version.shared.leave_spares(std::mem::take(&mut self.spares));
    }
}

fn stream<'a>(stream: &'a mut Option<Box<Stream>>, version: &Version) -> &'a mut Stream {
    let psync = version.shared.psync();
    stream.get_or_insert_with(|| Box::new(psync.stream(psync.pio_max())))
}
