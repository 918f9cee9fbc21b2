//! Ranges of pairs, as users see them.
//!
//! 1. A range takes its moment when it is made, and begins its [`Walk`] at the first advance.
//! 2. A pair whose value is in the structure is shown in place.
//! 3. When the walk comes to a document, pairs are gathered in a window, so that the documents of a window are read in
//!    one psync. The window is small at first. Once a range has proved long, the documents of the next window are read
//!    while the current one is shown.
//! 4. An error is returned after everything before the failed place was shown. The range is then at its end.
//! 5. Pairs can be taken from the other end too ([`ends`]).

mod ends;
pub(crate) mod limit;

use std::{
    collections::VecDeque,
    ops::{ControlFlow, RangeBounds},
    sync::Arc,
    time::SystemTime,
};

use doclog::ReadAhead;
use index::{
    Bounds, Direction, DocPointer, Expiry, Moment, Pair, PairRef, Pairs, Payload, RangeTombstones, Share, Stored,
};

use limit::Limit;

use crate::{
    error::{Error, Result},
    handles::table::Table,
    read::{point, then::Then, walk::Walk},
    tables::catalog::TableState,
    words::{
        clock::system_time,
        key_range::{prefix_bounds, range_bounds},
    },
};

const FIRST_WINDOW: usize = 8;
const LARGEST_WINDOW: usize = 256;
const DOCUMENT_BYTES_PER_WINDOW: u64 = 4 << 20;

/// A range of pairs in key order. Made by [`Table::range`], [`Table::prefix`] and [`Table::iter`], and by the methods
/// of the same names of a [`Snapshot`](crate::Snapshot) and a [`TableAt`](crate::TableAt).
///
/// A range shows one moment: that of its making, or of its snapshot. As long as the range exists, the memory and the
/// space of that moment stay. Making a range does not fail; whatever is wrong comes with the first pair.
///
/// Pairs can be taken from both ends ([`DoubleEndedIterator`]); [`Range::rev`] reverses all that a range does, and
/// [`Range::seek`] goes to another place. For steps to and fro from a place, see [`Cursor`](crate::Cursor).
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let users = db.table("users", braid::Structure::BTree)?;
/// for name in ["ada", "barbara", "grace"] {
///     users.put(name, "")?;
/// }
/// let (name, _) = users.iter().rev().next().expect("a pair, or an error")?;
/// assert_eq!(name, b"grace");
/// let mut range = users.range("a".."c").keys_only();
/// assert_eq!(range.next_back().transpose()?.map(|(name, _)| name), Some(b"barbara".to_vec()));
/// assert_eq!(range.next().transpose()?.map(|(name, _)| name), Some(b"ada".to_vec()));
/// assert!(range.next().is_none(), "the two ends have met");
/// # Ok(())
/// # }
/// ```
///
/// The iterator returns copies; [`Range::next_pair`] shows the same pairs without copies:
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let users = braid::Database::open(directory.path().join("data"))?.table("users", braid::Structure::BTree)?;
/// let mut range = users.range("a".."n");
/// let mut bytes = 0;
/// while let Some((key, value)) = range.next_pair()? {
///     bytes += key.len() + value.len();
/// }
/// # Ok(())
/// # }
/// ```
pub struct Range {
    table: Table,
    bounds: Bounds,
    direction: Direction,
    keys_only: bool,
    /// What the range shows, or why it shows nothing.
    moment: Result<(Arc<TableState>, Moment)>,
    /// Holds the moment, if it is an earlier one.
    then: Option<Arc<dyn Then>>,
    /// Keys that the range does not show.
    deleted: Option<RangeTombstones>,
    walk: Option<Walk>,
    gathered: VecDeque<(Vec<u8>, Vec<u8>, Option<Expiry>)>,
    /// This range's share, for documents, of the read-ahead budget that all ranges have for documents and leaves.
    share: Option<Share>,
    window: usize,
    /// The window behind the gathered pairs.
    ahead: Option<Window>,
    shown: Shown,
    /// The error behind the gathered pairs.
    failed: Option<Error>,
    ended: bool,
    has_begun: bool,
    /// The bounds of the walk, where it does not begin at the end of the range.
    walked: Option<Bounds>,
    /// Key of the last pair that was given away, where the range does not stand on it any more.
    given: Option<Vec<u8>>,
    /// The range from the other end, once something was taken there.
    other: Option<Box<Self>>,
    limit: Limit,
    /// The pair that the range stands on was not shown, because of the limit.
    is_held: bool,
}

/// A pair with its expiry. Made by [`Range::next_entry`], which has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; empty where values are left out.
    pub value: &'a [u8],
    /// The expiry of the value; none for a value that does not expire.
    pub expiry: Option<SystemTime>,
}

/// Pairs whose documents are on their way.
struct Window {
    pairs: Vec<Pair>,
    documents: ReadAhead,
    document_bytes: u64,
    /// The end of the walk behind these pairs, if the walk ended.
    end: Option<Result<()>>,
}

/// The place of the pair that the range stands on.
enum Shown {
    Nothing,
    /// The current pair of the walk.
    Walked,
    /// The first of the gathered pairs.
    Gathered,
}

impl Table {
    /// The pairs with keys within `range`, in key order; [`Range::rev`] reverses the order. The range sees the moment
    /// of this call, however long the walk takes and whenever it begins.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// for name in ["ada", "alan", "grace"] {
    ///     users.put(name, "")?;
    /// }
    /// assert_eq!(users.range("ada"..="alan").count(), 2);
    /// assert_eq!(users.range("al"..).count(), 2);
    /// assert_eq!(users.range(b"a".to_vec()..b"b".to_vec()).count(), 2);
    /// assert_eq!(users.prefix("a").count(), 2);
    /// assert_eq!(users.range::<&[u8]>(..).count(), 3); // `..` alone does not name the type of the keys
    /// assert_eq!(users.iter().count(), 3);
    /// for pair in users.prefix("a").rev() {
    ///     let (key, value) = pair?; // an error ends the range
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        Range::new(self.clone(), range_bounds(&range), None)
    }

    /// The pairs with keys that begin with `prefix`, in key order, as in the example of [`Table::range`].
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::new(self.clone(), prefix_bounds(prefix.as_ref()), None)
    }

    /// Every pair, in key order, as in the example of [`Table::range`].
    #[must_use]
    pub fn iter(&self) -> Range {
        Range::new(self.clone(), Bounds::all(), None)
    }
}

impl Range {
    pub(crate) fn new(table: Table, bounds: Bounds, then: Option<Arc<dyn Then>>) -> Self {
        let moment = point::moment(table.engine(), &table.core, then.as_deref());
        Self::of(table, bounds, then, moment)
    }

    /// A range that shows nothing but an error.
    pub(crate) fn failed(table: Table, error: Error) -> Self {
        Self::of(table, Bounds::all(), None, Err(error))
    }

    fn of(
        table: Table, bounds: Bounds, then: Option<Arc<dyn Then>>, moment: Result<(Arc<TableState>, Moment)>,
    ) -> Self {
        Self {
            table,
            bounds,
            direction: Direction::Forward,
            keys_only: false,
            moment,
            then,
            deleted: None,
            walk: None,
            gathered: VecDeque::new(),
            share: None,
            window: FIRST_WINDOW,
            ahead: None,
            shown: Shown::Nothing,
            failed: None,
            ended: false,
            has_begun: false,
            walked: None,
            given: None,
            other: None,
            limit: Limit::None,
            is_held: false,
        }
    }

    /// Another range of the same moment.
    pub(crate) fn within(&self, bounds: Bounds, direction: Direction) -> Self {
        let mut range = Self::of(self.table.clone(), bounds, self.then.clone(), self.moment.clone());
        (range.direction, range.keys_only) = (direction, self.keys_only);
        range.deleted.clone_from(&self.deleted);
        range
    }

    /// Without the keys that are `deleted`.
    pub(crate) fn without(mut self, deleted: Option<&RangeTombstones>) -> Self {
        self.deleted = deleted.cloned();
        self
    }

    /// The same pairs in reverse order, to be called before the first pair is taken. Later the range shows an error in
    /// place of its next pair; [`DoubleEndedIterator::next_back`] takes pairs from the other end at any time.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.turn();
        self
    }

    /// As [`Range::rev`].
    pub(crate) fn turn(&mut self) {
        if self.has_begun || self.other.is_some() {
            self.stop(Error::RangeBegun);
        } else {
            self.direction = self.direction.reversed();
        }
    }

    /// Ends with this error.
    pub(crate) fn stop(&mut self, error: Error) {
        (self.walk, self.ahead, self.share, self.shown) = (None, None, None, Shown::Nothing);
        (self.other, self.limit, self.is_held) = (None, Limit::None, false);
        self.gathered.clear();
        self.failed = Some(error);
    }

    /// Leaves values out, so that large ones are not read. Each value shown is empty.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self.other.iter_mut().for_each(|other| other.keys_only = true);
        self
    }

    /// The next key and value, borrowed until the range moves on; none at the end. A long scan that looks at pairs and
    /// passes on is faster this way than as an iterator.
    ///
    /// # Errors
    /// When storage fails, stored bytes are damaged, or the table was dropped. Every pair before the failed place was
    /// shown, and no pair comes after the error.
    pub fn next_pair(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(if self.advance()? { self.pair() } else { None })
    }

    /// As [`Range::next_pair`], with the expiry of the value.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::Duration;
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// sessions.put("ada", "for ever")?;
    /// sessions.put_expiring("grace", "token", Duration::from_secs(60))?;
    /// let (mut range, mut lasting) = (sessions.iter(), 0);
    /// while let Some(entry) = range.next_entry()? {
    ///     lasting += usize::from(entry.expiry.is_none());
    /// }
    /// assert_eq!(lasting, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Range::next_pair`].
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        let expiry = self.expiry().map(system_time);
        Ok(self.pair().map(|(key, value)| Entry { key, value, expiry }))
    }

    /// Shows the remaining pairs until the end or until `show` breaks; returns the break value of `show`. This is the
    /// fastest way to look at many pairs, for two reasons:
    ///
    /// - Nothing is copied, and nothing stands between two pairs.
    /// - A range with two ends that begins with this call has all useful requests in flight from its first pair on, up
    ///   to 256 KiB.
    ///
    /// For only a few pairs of a long range, [`Range::next_pair`] or the iterator is better, because these begin with
    /// small reads.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use std::ops::ControlFlow;
    ///
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// let late = users.iter().visit(|key, value| match value > b"1900" {
    ///     true => ControlFlow::Break(key.to_vec()),
    ///     false => ControlFlow::Continue(()),
    /// })?;
    /// assert_eq!(late, ControlFlow::Break(b"grace".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Range::next_pair`].
    pub fn visit<B>(&mut self, mut show: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>) -> Result<ControlFlow<B>> {
        self.visit_expiring(|key, value, _| show(key, value))
    }

    /// As [`Range::visit`], with the expiry of each value.
    pub(crate) fn visit_expiring<B>(
        &mut self, mut show: impl FnMut(&[u8], &[u8], Option<Expiry>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        if self.walk.is_none() && !self.ended && self.failed.is_none() && !self.walked().is_empty() {
            match self.begin() {
                Ok(walk) => walk.expect_all(),
                Err(error) => return self.end(Err(error)).map(|_| ControlFlow::Continue(())),
            }
        }
        while self.advance()? {
            let expiry = self.expiry();
            let Some((key, value)) = self.pair() else { break };
            if let ControlFlow::Break(with) = show(key, value, expiry) {
                return Ok(ControlFlow::Break(with));
            }
            if let Shown::Walked = self.shown
                && self.is_alone()
                && let Some(with) = self.run(&mut show)?
            {
                return Ok(ControlFlow::Break(with));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Shows pairs from the place of the walk on, as far as that needs no look at queues or documents. Returns the
    /// break value of `show`.
    fn run<B>(&mut self, show: &mut impl FnMut(&[u8], &[u8], Option<Expiry>) -> ControlFlow<B>) -> Result<Option<B>> {
        let Some(walk) = &mut self.walk else { return Ok(None) };
        let (mut with, mut document) = (None, false);
        let keys_only = self.keys_only;
        let ran = walk.run(&mut |pairs: Pairs<'_>| {
            let mut shown = 0;
            for pair in pairs {
                shown += 1;
                let value = match pair.value {
                    Payload::Inline(value) if !keys_only => value,
                    Payload::Document(_) if !keys_only => {
                        document = true;
                        return ControlFlow::Break(shown);
                    }
                    _ => &[],
                };
                if let ControlFlow::Break(broken) = show(pair.key, value, pair.expiry) {
                    with = Some(broken);
                    return ControlFlow::Break(shown);
                }
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = ran {
            return self.end(Err(error)).map(|_| None);
        }
        if document {
            self.shown = Shown::Nothing;
            self.gather();
        }
        Ok(with)
    }

    fn advance(&mut self) -> Result<bool> {
        self.has_begun = true;
        if std::mem::take(&mut self.is_held) {
            return self.meet();
        }
        match self.moved() {
            Ok(true) if self.is_alone() => Ok(true),
            Ok(true) => self.meet(),
            over => self.end(over),
        }
    }

    fn end(&mut self, how: Result<bool>) -> Result<bool> {
        self.shown = Shown::Nothing;
        self.ended = true;
        self.ahead = None;
        self.walk = None;
        self.share = None;
        how
    }

    fn moved(&mut self) -> Result<bool> {
        if let Shown::Gathered = self.shown {
            self.gathered.pop_front();
        }
        loop {
            if !self.gathered.is_empty() {
                self.shown = Shown::Gathered;
                return Ok(true);
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.ahead.is_some() {
                self.gather();
                continue;
            }
            if self.ended || self.walked().is_empty() {
                return Ok(false);
            }
            let walk = match &mut self.walk {
                Some(walk) => walk,
                None => self.begin()?,
            };
            if !walk.advance()? {
                return Ok(false);
            }
            let inline = walk.current().is_some_and(|pair| matches!(pair.value, Payload::Inline(_)));
            if inline || self.keys_only {
                self.shown = Shown::Walked;
                return Ok(true);
            }
            self.gather();
        }
    }

    fn begin(&mut self) -> Result<&mut Walk> {
        let moment = self.moment.clone()?;
        let walk = Walk::begin_at(&self.table.core, moment, self.walked(), self.direction, self.deleted.as_ref())?;
        Ok(self.walk.insert(walk))
    }

    /// The order in which pairs are shown.
    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// The pair that the range stands on.
    pub(crate) fn pair(&self) -> Option<(&[u8], &[u8])> {
        match self.shown {
            Shown::Nothing => None,
            Shown::Walked => match self.walk.as_ref()?.current()? {
                PairRef { key, value: Payload::Inline(value), .. } if !self.keys_only => Some((key, value)),
                PairRef { key, .. } => Some((key, &[])),
            },
            Shown::Gathered => self.gathered.front().map(|(key, value, _)| (key.as_slice(), value.as_slice())),
        }
    }

    fn expiry(&self) -> Option<Expiry> {
        match self.shown {
            Shown::Nothing => None,
            Shown::Walked => self.walk.as_ref()?.current()?.expiry,
            Shown::Gathered => self.gathered.front()?.2,
        }
    }

    /// Gathers the next window of pairs: the window that was begun, or else a new one from the place of the walk on.
    fn gather(&mut self) {
        let begun = self.ahead.take();
        let Some(mut window) = begun.or_else(|| self.begin_window()) else { return };
        if window.end.is_none() && window.pairs.len() > FIRST_WINDOW {
            match self.walk.as_mut().map_or(Ok(false), Walk::advance) {
                Ok(true) => self.ahead = self.begin_window(),
                Ok(false) => window.end = Some(Ok(())),
                Err(error) => window.end = Some(Err(error)),
            }
        }
        let bytes = |window: &Window| usize::try_from(window.document_bytes).unwrap_or(usize::MAX);
        let held = bytes(&window).saturating_add(self.ahead.as_ref().map_or(0, bytes));
        if let Some(share) = &mut self.share {
            // Held until the next window is gathered: pairs of this window stay counted after they are shown.
            share.hold(held);
        }
        let mut values = window.documents.finish().into_iter();
        for pair in window.pairs {
            let value = match pair.value {
                Stored::Inline(value) => value,
                Stored::Document(_) => match values.next().expect("a document of every pair that has one") {
                    Ok(value) => value,
                    Err(error) => {
                        self.failed = Some(error.into());
                        return;
                    }
                },
            };
            self.gathered.push_back((pair.key, value, pair.expiry));
        }
        match window.end {
            Some(Ok(())) => self.ended = true,
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
    }

    /// Begins to read a window of pairs from the place of the walk on.
    fn begin_window(&mut self) -> Option<Window> {
        let walk = self.walk.as_mut()?;
        let share = self.share.get_or_insert_with(|| self.table.engine().structures.read_ahead().share());
        // Half of the share, because two windows exist at a time.
        let bytes_max = DOCUMENT_BYTES_PER_WINDOW.min(share.bytes_max() as u64 / 2);
        let mut pairs = Vec::with_capacity(self.window);
        let mut documents: Vec<DocPointer> = Vec::new();
        let (mut document_bytes, mut end) = (0, None);
        while let Some(pair) = walk.current() {
            if let Payload::Document(document) = pair.value {
                document_bytes += document.length.original();
                documents.push(document);
            }
            pairs.push(pair.to_pair());
            if pairs.len() >= self.window || document_bytes >= bytes_max {
                break;
            }
            match walk.advance() {
                Ok(true) => {}
                Ok(false) => end = Some(Ok(())),
                Err(error) => end = Some(Err(error)),
            }
        }
        self.window = (self.window * 2).min(LARGEST_WINDOW);
        Some(Window { pairs, documents: self.table.core.documents.read_ahead(&documents), document_bytes, end })
    }
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Err(error) => Some(Err(error)),
            Ok(false) => None,
            Ok(true) => match self.shown {
                Shown::Gathered => {
                    self.shown = Shown::Nothing;
                    let given = self.gathered.pop_front();
                    self.given = given.as_ref().map(|(key, ..)| key.clone());
                    given.map(|(key, value, _)| Ok((key, value)))
                }
                _ => self.pair().map(|(key, value)| Ok((key.to_vec(), value.to_vec()))),
            },
        }
    }
}

impl std::iter::FusedIterator for Range {}

impl std::fmt::Debug for Range {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Range").field("table", &self.table).field("bounds", &self.bounds).finish()
    }
}
