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
    /// The position that it begins at.
    first: Lsn,
    /// How many of them were taken.
    taken: usize,
    /// The largest durable position that a group states, up to the last one of these.
    pub(crate) durable: Lsn,
}

/// Where a group is that checks, and what checking it told. No more, for most groups are short.
struct Place {
    lsn: Lsn,
    next_seq: u64,
    payload_bytes: u32,
}

impl Checked {
    /// Memory that it takes, above all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The first group that was not taken.
    pub(crate) fn next(&self) -> Option<WholeGroup<'_>> {
        let Place { lsn, next_seq, payload_bytes } = *self.groups.get(self.taken)?;
        let at = usize::try_from(lsn.0 - self.first.0).ok()?;
        GroupHeader::open_again(next_seq, payload_bytes, self.bytes.get(at..)?)
    }

    /// Takes that one.
    pub(crate) const fn take(&mut self) {
        self.taken += 1;
    }
}

/// Follows a chain, a window at a time.
pub(crate) struct Checker<'a> {
    scanner: Scanner<'a>,
    end: ChainEnd,
    /// How many groups were in the window before.
    before: usize,
}

impl<'a> Checker<'a> {
    /// One that begins with segment `first`.
    pub(crate) fn new(scanner: Scanner<'a>, geometry: Geometry, first: u64) -> Self {
        Self { scanner, end: ChainEnd::before(geometry.first(first)), before: 0 }
    }

    /// The next window; none where the chain has ended.
    fn next(&mut self) -> Result<Option<Checked>> {
        if self.end.flaw.is_some() {
            return Ok(None);
        }
        let mut groups = Vec::with_capacity(self.before);
        self.scanner.follow_in_window(&mut self.end, |group| {
            let WholeGroup { header, next_seq, payload_bytes, .. } = group;
            groups.push(Place { lsn: header.lsn, next_seq: *next_seq, payload_bytes: *payload_bytes });
        })?;
        self.before = groups.len();
        let nothing = || (Lsn(0), Arc::new(Buffer::zeroed(0)));
        let (first, bytes) = self.scanner.loaded().unwrap_or_else(nothing);
        Ok(Some(Checked { bytes, groups, first, taken: 0, durable: self.end.durable }))
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
