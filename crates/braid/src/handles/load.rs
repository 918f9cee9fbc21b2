//! Loads: an empty table is filled with sorted pairs, past the log.
//!
//! 1. From begin to end, only the load may change its table. Other writes are refused; those under way are waited for.
//! 2. Pairs go straight into packed leaves ([`Load`]). A value that is too long for a leaf, and every pair after it,
//!    waits until [`WAITING_BYTES`] have gathered. Then the long values go to the document log in one psync, and the
//!    pairs go on.
//! 3. At the end the data file is flushed, and the document files that were not flushed earlier because they were many.
//!    Then the table gets its new view in one logged step ([`Replacement`]).
//!
//! Invariants:
//! - A page taken by a load is written only after the change that freed the page is durable.
//! - Until its flush-end is logged, a checkpoint counts the pages of the load as free. So a crash leaves an empty
//!   table, and no page is lost.
//! - A reader below the seq of the load finds the table empty.

use doclog::{Retained, Unflushed};
use index::{DocPointer, Expiry, Loaded, Payload, Seq};
use space::PAGE;

use crate::{
    apply::{
        install::{self, Flushed},
        replace::Replacement,
    },
    commit,
    error::{Error, Result, shown},
    format::{self, kind},
    handles::table::Table,
    structures::load::Load,
    words::clock::Expires,
};

/// Bytes of pairs that wait for their documents, unless a single value is longer.
const WAITING_BYTES: usize = 4 << 20;
/// Up to this many pages in the data file, the log does not get its full reserve. The reserve would be most of a small
/// database.
const UNRESERVED_PAGES: u64 = (4 << 20) / PAGE as u64;

/// A load under way; see [`Table::loader`]. Dropping the loader unfinished leaves the table empty and releases all
/// space of the load.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// # use std::time::Duration;
/// let words = db.table("words", braid::Structure::BTree)?;
/// let mut loader = words.loader()?;
/// loader.push("apple", "fruit")?;
/// assert!(loader.push("ant", "insect").is_err(), "keys have to rise: it was not taken");
/// loader.push_expiring("banana", "fruit", Duration::from_secs(3600))?;
/// assert_eq!((loader.finish()?, words.iter().count()), (2, 2));
/// # Ok(())
/// # }
/// ```
pub struct Loader {
    table: Table,
    /// None once the load has ended.
    load: Option<Load>,
    waiting: Waiting,
    /// Documents written so far.
    retained: Vec<Retained>,
    unflushed: Unflushed,
    pairs: u64,
    bytes: u64,
    failed: Option<Error>,
}

impl Table {
    /// Fills the table, which must be empty, with pairs in ascending key order: packed, in long sequential writes, past
    /// the log. The pairs are durable when this returns, and no reader sees any of them before they are durable.
    /// Returns the number of pairs. [`Table::loader`] takes the pairs one by one.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let squares = db.table("squares", braid::Structure::BTree)?;
    /// let pairs = (0..1000_u32).map(|number| (number.to_be_bytes(), (number * number).to_string()));
    /// assert_eq!(squares.load(pairs)?, 1000);
    /// assert_eq!(squares.get(12_u32.to_be_bytes())?.as_deref(), Some(&b"144"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::loader`], [`Loader::push`] and [`Loader::finish`]; the table is then empty.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, sorted: impl IntoIterator<Item = (K, V)>) -> Result<u64> {
        let mut loader = self.loader()?;
        for (key, value) in sorted {
            loader.push(key, value)?;
        }
        loader.finish()
    }

    /// Begins a load of the table, which must be empty. Until the load ends, all other writes to the table are refused
    /// with [`crate::Error::Loading`], and reads find the table empty.
    ///
    /// # Errors
    /// [`crate::Error::NotEmpty`], [`crate::Error::Loading`], or when the database no longer writes.
    pub fn loader(&self) -> Result<Loader> {
        Loader::begin(self)
    }
}

impl Loader {
    fn begin(table: &Table) -> Result<Self> {
        let engine = table.engine();
        engine.check_writable()?;
        // A table without a visible key can still have leaves that hold deletes.
        if !table.core.tree.is_empty() && table.iter().keys_only().next().transpose()?.is_none() {
            table.clear()?;
        }
        table.core.begin_load()?;
        // From here on, dropping the loader ends the load.
        let mut loader = Self {
            table: table.clone(),
            load: None,
            waiting: Waiting::default(),
            retained: Vec::new(),
            unflushed: Unflushed::default(),
            pairs: 0,
            bytes: 0,
            failed: None,
        };
        engine.let_writes_end();
        engine.check_live(&table.core)?;
        engine.ask(false)?;
        engine.flush_log()?;
        let load = Load::begin(&*table.core.tree, engine.publisher.visible());
        loader.load = Some(load.ok_or_else(|| Error::NotEmpty { name: table.name().to_owned() })?);
        Ok(loader)
    }

    /// Takes the next pair.
    ///
    /// # Errors
    /// [`Error::LoadOrder`] when the key is not above the one before, and as [`Table::put`] outside the limits. The
    /// pair was then not taken, and the load can go on without it.
    ///
    /// Any other error ends the load and releases all its space. This call and [`Loader::finish`] then return the same
    /// error again.
    #[inline]
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.push_until(key.as_ref(), value.as_ref(), None)
    }

    /// Takes the next pair, with a value that expires: as [`Table::put_expiring`], but counted from now on.
    ///
    /// # Errors
    /// As [`Loader::push`]; [`Error::Option`] for an expiry after a duration of zero: the pair was then not taken.
    pub fn push_expiring(
        &mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<()> {
        let expires = expires.into();
        commit::check_expires(Some(expires))?;
        let expiry = expires.expiry(self.table.engine().clock.now());
        self.push_until(key.as_ref(), value.as_ref(), Some(expiry))
    }

    /// Takes the next pair, which expires if `expiry` is given.
    #[inline]
    pub(crate) fn push_until(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        commit::check_pair(&self.table.core, key, value)?;
        let Some(load) = &mut self.load else { return Err(self.failure()) };
        if !self.waiting.is_empty() || value.len() > self.table.core.logged_bytes() {
            return self.push_late(key, value, expiry);
        }
        if key <= load.last_key() {
            return Err(self.out_of_order(key));
        }
        let table = &self.table;
        if let Err(error) = load.push(key, Payload::Inline(value), expiry, &|| is_ready(table)) {
            return Err(self.fail(error));
        }
        self.count(key, value);
        Ok(())
    }

    /// Ends the load. All pairs are durable and visible when this returns. Returns the number of pairs.
    ///
    /// # Errors
    /// On a full disk, or when the database no longer writes. The table is then empty, except after
    /// [`Error::OutcomeUnknown`], which has the same meaning as for a commit.
    pub fn finish(mut self) -> Result<u64> {
        if self.load.is_none() {
            return Err(self.failure());
        }
        self.write_waiting()?;
        let load = self.load.take().expect("it was there, and waiting pairs that fail return");
        let (table, engine) = (&self.table, self.table.engine());
        let _open = engine.keep_open();
        engine.check_writable()?;
        let mut loaded = load.finish(&|| is_ready(table)).map_err(|error| engine.write_error(error))?;
        let mut files = std::mem::take(&mut loaded.files);
        files.extend(self.unflushed.take());
        files.extend(table.core.documents.take_unflushed());
        let flushed = install::flush_files(engine, files.iter())?;
        let seq = self.replace(loaded, &flushed)?;
        engine.publish();
        engine.publisher.wait(seq).map_err(|()| engine.outcome_unknown())?;
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        engine.counters.committed(usize::try_from(self.pairs).unwrap_or(usize::MAX), bytes);
        Ok(self.pairs)
    }

    /// Gives the load its seq, logs the load, and installs its view. A reader below that seq sees no pair.
    fn replace(&self, loaded: Loaded, flushed: &Flushed) -> Result<Seq> {
        let (table, engine) = (&self.table.core, self.table.engine());
        let _alone = engine.upkeep.lock();
        let held = table.hold();
        engine.check_writable()?;
        let replacement = Replacement { engine, table: &held, flushed, retained: &self.retained, restored: None };
        replacement.run(kind::LOAD, &format::encode_table(table.id), |seq| table.tree.take_loaded(loaded, seq))
    }

    /// Takes a pair that has to wait: its value is long, or other pairs wait before it.
    fn push_late(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let last = self.waiting.last_key().or_else(|| self.load.as_ref().map(Load::last_key));
        if last.is_some_and(|last| key <= last) {
            return Err(self.out_of_order(key));
        }
        if self.waiting.bytes() + key.len() + value.len() > WAITING_BYTES {
            self.write_waiting()?;
        }
        if value.len() > WAITING_BYTES {
            let document = self.append(&[value])?.pop();
            let document = document.expect("as many pointers as documents");
            self.push_payload(key, Payload::Document(document), expiry)?;
        } else {
            self.waiting.push(key, value, expiry);
        }
        self.count(key, value);
        Ok(())
    }

    /// Writes the documents of the waiting pairs, and pushes these pairs.
    fn write_waiting(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let limit = self.table.core.logged_bytes();
        let is_long = |value: &[u8]| value.len() > limit;
        let long: Vec<&[u8]> = waiting.pairs().map(|(_, value, _)| value).filter(|value| is_long(value)).collect();
        let mut documents = self.append(&long)?.into_iter();
        for (key, value, expiry) in waiting.pairs() {
            let document = is_long(value).then(|| documents.next()).flatten();
            self.push_payload(key, document.map_or(Payload::Inline(value), Payload::Document), expiry)?;
        }
        self.waiting = waiting.emptied();
        Ok(())
    }

    /// Appends documents, all in one psync.
    fn append(&mut self, values: &[&[u8]]) -> Result<Vec<DocPointer>> {
        let engine = self.table.engine();
        let append = || {
            is_ready(&self.table)?;
            engine.make_reserves(values.iter().map(|value| value.len() as u64).sum())?;
            let documents = &self.table.core.documents;
            engine.structures.append_documents(documents, &documents.pack(values)?)
        };
        let documents = append().map_err(|error| self.fail(error))?;
        // A flush of the log covers only document files of commits, so the load has to flush these itself.
        let written = self.table.core.documents.take_unflushed();
        let noted = self.unflushed.add(self.table.engine().store.psync(), written);
        noted.map_err(|error| self.fail(error.into()))?;
        documents.iter().for_each(|document| Retained::count(&mut self.retained, document));
        Ok(documents)
    }

    fn push_payload(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>) -> Result<()> {
        let table = &self.table;
        let Some(load) = &mut self.load else { return Err(self.failure()) };
        load.push(key, payload, expiry, &|| is_ready(table)).map_err(|error| self.fail(error))
    }

    #[inline]
    fn count(&mut self, key: &[u8], value: &[u8]) {
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let before = self.waiting.last_key().or_else(|| self.load.as_ref().map(Load::last_key));
        Error::LoadOrder {
            name: self.table.name().to_owned(),
            pair: self.pairs + 1,
            key: shown(key),
            before: shown(before.unwrap_or_default()),
        }
    }

    /// Ends the load because of an error, and releases all its space.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        let error = self.table.engine().write_error(error);
        self.load = None;
        self.failed = Some(error.clone());
        error
    }

    #[cold]
    fn failure(&self) -> Error {
        self.failed.clone().unwrap_or(Error::Closed)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.load = None;
        // Every pending document of the table belongs to this load. A load that ended well has retained its documents.
        self.table.core.documents.abandon_pending();
        self.table.core.end_load();
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Loader").field("table", &self.table.name()).field("pairs", &self.pairs).finish()
    }
}

/// Returns when a load may go on to write, because two conditions hold:
///
/// 1. The log and the data file have their reserves, if the table only appends or the data file has more than
///    `UNRESERVED_PAGES`. Otherwise files of the load could fill the disk while the log, still short, lacks the room
///    that deletes and upkeep need.
/// 2. No part of the disk reserve is lent out. The emptying of a segment borrows from the reserve and later returns
///    more than it took, so files do not grow meanwhile.
///
/// Pages that others have given up meanwhile are made free for the pages to come.
fn is_ready(table: &Table) -> Result<()> {
    let engine = table.engine();
    engine.check_writable()?;
    let pages = engine.pages.stats();
    let pages = pages.total_pages - pages.hole_pages;
    if table.core.structure.facts().only_appends || pages > UNRESERVED_PAGES {
        // The size of the load is not known in advance.
        engine.make_reserves(u64::MAX)?;
    }
    if engine.pages.has_unread() {
        engine.flush_log()?;
    }
    while engine.structures.is_room_lent() {
        engine.ask(false)?;
    }
    Ok(())
}

/// Pairs with documents that are not written yet, and the pairs between them.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// End of each key, end of each value, and expiry.
    ends: Vec<(usize, usize, Option<Expiry>)>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn push(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len(), expiry));
    }

    fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.ends[index - 1].1 }
    }

    fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<Expiry>)> {
        self.ends.iter().enumerate().map(|(index, &(key_end, value_end, expiry))| {
            (&self.bytes[self.start(index)..key_end], &self.bytes[key_end..value_end], expiry)
        })
    }

    fn last_key(&self) -> Option<&[u8]> {
        let &(key_end, ..) = self.ends.last()?;
        Some(&self.bytes[self.start(self.ends.len() - 1)..key_end])
    }

    /// The same memory, emptied for the next pairs.
    fn emptied(mut self) -> Self {
        self.bytes.clear();
        self.ends.clear();
        self
    }
}
