//! Checking the chain of groups window by window, while the caller shows earlier windows.
//!
//! 1. A [`Checker`] reads a window of a segment and follows the chain through that window. The checker hands on the
//!    bytes and the places of the groups in them, so that next to nothing is read or checked twice.
//! 2. Behind the end of the chain, the checker looks for statements about durability, unless the log was
//!    closed there in the last epoch.
//! 3. For a log of more than one window a separate thread runs the checker, so that the next window is checked while
//!    one is shown. On a simulated disk the caller's thread does both, because there the order of requests is under
//!    test.
//!
//! Invariant: memory ≤ that of the scanner, in which up to [`AHEAD`] windows wait for the taker, plus the windows that
//! the taker keeps.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

use parking_lot::Mutex;
use psync::Buffer;

use crate::format::{GROUP_HEADER, GroupHeader, WholeGroup};
use crate::scan::{ChainEnd, Scanner, Statements, WINDOWS_BEFORE};
use crate::{Lsn, Result};

/// Checked windows that may wait for the taker, which has one more; the next one is read meanwhile.
const AHEAD: usize = WINDOWS_BEFORE - 2;

/// A window of a segment, as far as the chain leads through that window.
pub(crate) struct Checked {
    bytes: Arc<Buffer>,
    groups: Vec<Place>,
    /// The position of the first byte.
    first: Lsn,
    /// The number of groups that were taken.
    taken: usize,
    /// The largest durable position that a group states, up to the last group of this window.
    pub(crate) durable: Lsn,
}

/// A checked group without its bytes.
struct Place {
    header: GroupHeader,
    next_seq: u64,
    payload_bytes: u32,
}

impl Checked {
    /// Memory of the window and of the list of its groups, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.groups.capacity() * size_of::<Place>()
    }

    /// The first group that was not taken.
    pub(crate) fn next(&self) -> Option<WholeGroup<'_>> {
        let Place { header, next_seq, payload_bytes } = *self.groups.get(self.taken)?;
        let at = usize::try_from(header.lsn.0 - self.first.0).ok()?;
        let records = header.records(self.bytes.get(at..at + header.length as usize)?.get(GROUP_HEADER..)?);
        Some(WholeGroup { header, records, next_seq, payload_bytes })
    }

    /// Takes the group that `next` shows.
    pub(crate) const fn take(&mut self) {
        self.taken += 1;
    }
}

/// Follows a chain of groups, a window at a time.
pub(crate) struct Checker<'a> {
    scanner: Scanner<'a>,
    end: ChainEnd,
    /// The number of groups in the window before.
    before: usize,
    /// The newest epoch in which the log can have been closed.
    last_epoch: u64,
    /// The statements behind the end of the chain, once looked for.
    statements: Option<Statements>,
}

impl<'a> Checker<'a> {
    /// A checker that begins with the group at `begin`.
    pub(crate) const fn new(scanner: Scanner<'a>, begin: Lsn, last_epoch: u64) -> Self {
        Self { scanner, end: ChainEnd::before(begin), before: 0, last_epoch, statements: None }
    }

    /// The next window; none where the chain has ended, once all statements behind its end are read.
    fn next(&mut self) -> Result<Option<Checked>> {
        if self.end.flaw.is_some() {
            if self.statements.is_none() && !self.end.is_closed_in(self.last_epoch) {
                self.statements = Some(self.scanner.statements(self.end.lsn)?);
            }
            return Ok(None);
        }
        let mut groups = Vec::with_capacity(self.before);
        self.scanner.follow_in_window(&mut self.end, |group| {
            let WholeGroup { header, next_seq, payload_bytes, .. } = group;
            groups.push(Place { header: *header, next_seq: *next_seq, payload_bytes: *payload_bytes });
        })?;
        self.before = groups.len();
        let nothing = || (Lsn(0), Arc::new(Buffer::zeroed(0)));
        let (first, bytes) = self.scanner.loaded().unwrap_or_else(nothing);
        Ok(Some(Checked { bytes, groups, first, taken: 0, durable: self.end.durable }))
    }

    /// Shows all windows to `take`, until `take` fails. Returns the end of the chain, the statements behind that end,
    /// and the scanner that read the chain.
    pub(crate) fn run<E: From<crate::Error>>(
        self, with_thread: bool, take: &mut dyn FnMut(Checked) -> std::result::Result<(), E>,
    ) -> std::result::Result<(Scanner<'a>, ChainEnd, Statements), E> {
        let checker = Mutex::new(self);
        if with_thread {
            std::thread::scope(|scope| {
                let (sender, receiver) = sync_channel(AHEAD);
                let checker = &checker;
                let run = move || send(checker, &sender);
                // Without a thread, the loop below checks and shows all windows.
                let _ = Builder::new().name("braid-log".to_owned()).spawn_scoped(scope, run);
                receiver.into_iter().try_for_each(|checked| take(checked?))
            })?;
        }
        let mut checker = checker.into_inner();
        while let Some(checked) = checker.next()? {
            take(checked)?;
        }
        Ok((checker.scanner, checker.end, checker.statements.unwrap_or_default()))
    }
}

/// Sends all windows, until one cannot be read or the receiver is gone.
fn send(checker: &Mutex<Checker<'_>>, windows: &SyncSender<Result<Checked>>) {
    let mut checker = checker.lock();
    while let Some(checked) = checker.next().transpose() {
        let has_failed = checked.is_err();
        if windows.send(checked).is_err() || has_failed {
            return;
        }
    }
}
