//! The chain of groups, checked window by window, for who shows them meanwhile.
//!
//! 1. A [`Checker`] reads a window of a segment, follows the chain through it, and hands both on: the bytes, and which groups are in them. So next to nothing is read
//!    or checked twice.
//! 2. A thread of its own does that for a log of more than one window, so that the next is checked while one is shown. On a simulated disk the caller's thread does both, because
//!    there the order of requests is part of what is tested.
//!
//! Invariant: memory is [`AHEAD`] windows and two, and what the taker keeps.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

use parking_lot::Mutex;
use psync::Buffer;

use crate::format::{GroupHeader, WholeGroup};
use crate::geometry::Geometry;
use crate::scan::{ChainEnd, Scanner};
use crate::{Lsn, Result};

/// Windows that are checked before anybody takes them.
const AHEAD: usize = 1;

/// A window of a segment, as far as the chain leads through it.
pub(crate) struct Checked {
    bytes: Arc<Buffer>,
    groups: Vec<Place>,
    /// The offset of its segment that it begins at.
    from: usize,
    /// How many of them were taken.
    taken: usize,
    /// The largest durable position that a group states, up to the last one of these.
    pub(crate) durable: Lsn,
}

/// Where in its segment a group is that checks, and the seq behind its last. No more, for most groups are short.
struct Place {
    offset: u32,
    next_seq: u64,
}

impl Checked {
    /// Memory that it takes, above all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The first group that was not taken.
    pub(crate) fn next(&self) -> Option<WholeGroup<'_>> {
        let Place { offset, next_seq } = self.groups.get(self.taken)?;
        GroupHeader::open_again(*next_seq, self.bytes.get(*offset as usize - self.from..)?)
    }

    /// Takes that one.
    pub(crate) const fn take(&mut self) {
        self.taken += 1;
    }
}

/// Follows a chain, a window at a time.
pub(crate) struct Checker<'a> {
    scanner: Scanner<'a>,
    geometry: Geometry,
    end: ChainEnd,
    /// How many groups were in the window before.
    before: usize,
}

impl<'a> Checker<'a> {
    /// One that begins with segment `first`.
    pub(crate) fn new(scanner: Scanner<'a>, geometry: Geometry, first: u64) -> Self {
        Self { scanner, geometry, end: ChainEnd::before(geometry.first(first)), before: 0 }
    }

    /// The next window; none where the chain has ended.
    fn next(&mut self) -> Result<Option<Checked>> {
        if self.end.flaw.is_some() {
            return Ok(None);
        }
        let mut groups = Vec::with_capacity(self.before);
        while let Some(group) = self.scanner.group(&mut self.end)? {
            let (header, next_seq) = (group.header, group.next_seq);
            let offset = u32::try_from(self.geometry.offset(header.lsn)).expect("segments are at most 1 GiB");
            groups.push(Place { offset, next_seq });
            self.end.pass(self.geometry, &header, next_seq);
            if !self.scanner.has(self.end.lsn) {
                break;
            }
        }
        self.before = groups.len();
        let nothing = || (0, Arc::new(Buffer::zeroed(0)));
        let (from, bytes) = self.scanner.loaded().unwrap_or_else(nothing);
        Ok(Some(Checked { bytes, groups, from, taken: 0, durable: self.end.durable }))
    }

    /// Shows all windows to `take`, until it fails. Where the chain ends, and what read it.
    pub(crate) fn run<E: From<crate::Error>>(
        self, with_thread: bool, take: &mut dyn FnMut(Checked) -> std::result::Result<(), E>,
    ) -> std::result::Result<(Scanner<'a>, ChainEnd), E> {
        let checker = Mutex::new(self);
        if with_thread {
            std::thread::scope(|scope| {
                let (sender, receiver) = sync_channel(AHEAD);
                let checker = &checker;
                let run = move || send(checker, &sender);
                // Where there is no thread to be had, what follows does its part.
                let _ = Builder::new().name("braid-log".to_owned()).spawn_scoped(scope, run);
                receiver.into_iter().try_for_each(|checked| take(checked?))
            })?;
        }
        let mut checker = checker.into_inner();
        while let Some(checked) = checker.next()? {
            take(checked)?;
        }
        Ok((checker.scanner, checker.end))
    }
}

/// Sends all windows, until one cannot be read or nobody wants them any more.
fn send(checker: &Mutex<Checker<'_>>, windows: &SyncSender<Result<Checked>>) {
    let mut checker = checker.lock();
    while let Some(checked) = checker.next().transpose() {
        let has_failed = checked.is_err();
        if windows.send(checked).is_err() || has_failed {
            return;
        }
    }
}
