//! The chain of groups, checked segment by segment, for who shows them meanwhile.
//!
//! 1. A [`Checker`] reads a segment whole, follows the chain through it, and hands both on: the bytes, and which groups are in them. So nothing is read
//!    or checked twice.
//! 2. A thread of its own does that for a log of more than one segment, so that the next is checked while one is shown. On a simulated disk the caller's thread does both, because
//!    there the order of requests is part of what is tested.
//!
//! Invariant: memory is three segments, and what the taker keeps.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

use parking_lot::Mutex;

use crate::format::{GroupHeader, WholeGroup};
use crate::geometry::Geometry;
use crate::scan::{ChainEnd, Scanner};
use crate::{Lsn, Result};

/// A segment, as far as the chain leads through it.
pub(crate) struct Checked {
    bytes: Arc<Vec<u8>>,
    groups: Vec<Place>,
    /// How many of them were taken.
    taken: usize,
    /// The largest durable position that a group states, up to the last one of this segment.
    pub(crate) durable: Lsn,
}

/// A group that checks, and where in its segment it is.
struct Place {
    offset: usize,
    header: GroupHeader,
    next_seq: u64,
}

impl Checked {
    /// The first group that was not taken.
    pub(crate) fn next(&self) -> Option<WholeGroup<'_>> {
        let Place { offset, header, next_seq } = self.groups.get(self.taken)?;
        Some(header.checked(*next_seq, &self.bytes[*offset..]))
    }

    /// Takes that one.
    pub(crate) const fn take(&mut self) {
        self.taken += 1;
    }
}

/// Follows a chain, a segment at a time.
pub(crate) struct Checker<'a> {
    scanner: Scanner<'a>,
    geometry: Geometry,
    end: ChainEnd,
}

impl<'a> Checker<'a> {
    /// One that begins with segment `first`.
    pub(crate) fn new(scanner: Scanner<'a>, geometry: Geometry, first: u64) -> Self {
        Self { scanner, geometry, end: ChainEnd::before(geometry.first(first)) }
    }

    /// The next segment; none where the chain has ended.
    fn next(&mut self) -> Result<Option<Checked>> {
        if self.end.flaw.is_some() {
            return Ok(None);
        }
        let (geometry, number) = (self.geometry, self.geometry.number(self.end.lsn));
        let mut groups = Vec::new();
        while let Some(group) = self.scanner.group(&mut self.end)? {
            let (header, next_seq) = (group.header, group.next_seq);
            groups.push(Place { offset: geometry.offset(header.lsn), header, next_seq });
            self.end.pass(geometry, &header, next_seq);
            if geometry.number(self.end.lsn) != number {
                break;
            }
        }
        Ok(Some(Checked { bytes: self.scanner.loaded(), groups, taken: 0, durable: self.end.durable }))
    }

    /// Shows all segments to `take`, until it fails. Where the chain ends, and what read it.
    pub(crate) fn run<E: From<crate::Error>>(
        self, with_thread: bool, take: &mut dyn FnMut(Checked) -> std::result::Result<(), E>,
    ) -> std::result::Result<(Scanner<'a>, ChainEnd), E> {
        let checker = Mutex::new(self);
        if with_thread {
            std::thread::scope(|scope| {
                let (sender, receiver) = sync_channel(0);
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

/// Sends all segments, until one cannot be read or nobody wants them any more.
fn send(checker: &Mutex<Checker<'_>>, segments: &SyncSender<Result<Checked>>) {
    let mut checker = checker.lock();
    while let Some(checked) = checker.next().transpose() {
        let has_failed = checked.is_err();
        if segments.send(checked).is_err() || has_failed {
            return;
        }
    }
}
