//! Loads: an empty table filled with sorted pairs, past the log.
//!
//! 1. From its begin to its end a load is the only one that may change its table: other writes are refused, and those under
//!    way are waited for.
//! 2. Pairs go straight into packed leaves ([`Load`]). From the first value that is too long for a leaf on they
//!    wait until [`WAITING_BYTES`] are together; then the long values go to the document log in one psync, and the pairs on.
//! 3. At the end the data file and the documents are flushed, as far as these were not when their files became many, and the table gets its new view in one logged step ([`Swap`]).
//!
//! Invariants: pages that a load takes are written only after what freed them is durable; until its flush-end is logged
//! a checkpoint counts them as free, so a crash leaves an empty table and no page lost; whoever reads below the load's seq finds the
//! table empty.

use btree::INLINE_BYTES_MAX;
use doclog::{Retained, Unflushed};
use index::{DocPointer, Expiry, Payload, Seq};
use psync::Request;
use space::PAGE;

use crate::{
    apply::swap::Swap,
    commit,
    error::{Error, Result, shown},
    format::{self, kind},
    handles::table::Table,
    structures::tree::{Load, Loaded},
    words::{clock::Expires, structure},
};

/// Bytes of pairs that wait for their documents, unless a single value is longer.
const WAITING_BYTES: usize = 4 << 20;
/// A data file of so few pages is no reason to give the log all of its reserve: a small database would be little else.
const UNRESERVED_PAGES: u64 = (4 << 20) / PAGE as u64;

/// A load under way; see [`Table::loader`]. Dropping it before it was finished leaves the table empty and gives everything back.
pub struct Loader {
    table: Table,
    /// None once it ended.
    load: Option<Load>,
    waiting: Waiting,
    /// Documents written so far.
    retained: Vec<Retained>,
    unflushed: Unflushed,
    pairs: u64,
    bytes: u64,
    failed: Option<Error>,
}

impl Loader {
    pub(crate) fn begin(table: &Table) -> Result<Self> {
        let engine = table.engine();
        engine.check_writable()?;
        // A table whose keys were deleted may still have leaves that say so.
        if !table.core.tree.is_empty() && table.iter().keys_only().next().transpose()?.is_none() {
            table.clear()?;
        }
        table.core.begin_load()?;
        // From here on dropping it ends the load.
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
        let load = table.core.tree.begin_load(engine.publisher.visible());
        loader.load = Some(load.ok_or_else(|| Error::NotEmpty { name: table.name().to_owned() })?);
        Ok(loader)
    }

    /// Takes the next pair.
    ///
    /// # Errors
    /// [`Error::LoadOrder`] when its key is not above the one before, and as [`Table::put`] outside the limits: then it was not taken, and
    /// the load can go on without it. After any other error the load has ended, everything was given back, and
    /// this and [`Loader::finish`] say so again.
    #[inline]
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.push_until(key.as_ref(), value.as_ref(), None)
    }

    /// Takes the next pair, whose value expires: as [`Table::put_expiring`], but counted from now on.
    ///
    /// # Errors
    /// As [`Loader::push`]; [`Error::Option`] where it is to expire after nothing.
    pub fn push_expiring(
        &mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<()> {
        let expires = expires.into();
        commit::check_expires(Some(expires))?;
        let expiry = expires.expiry(self.table.engine().clock.now());
        self.push_until(key.as_ref(), value.as_ref(), Some(expiry))
    }

    /// Takes the next pair, whose value expires where that is said.
    #[inline]
    pub(crate) fn push_until(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        commit::check_pair(&self.table.core, key, value)?;
        let Some(load) = &mut self.load else { return Err(self.failure()) };
        if !self.waiting.is_empty() || value.len() > INLINE_BYTES_MAX {
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

    /// Ends the load: all of it is durable and visible when this returns. Returns the number of pairs.
    ///
    /// # Errors
    /// On a full disk, or when the database does not write any more. The table is empty then, but after
    /// [`Error::OutcomeUnknown`], which is as for a commit.
    pub fn finish(mut self) -> Result<u64> {
        if self.load.is_none() {
            return Err(self.failure());
        }
        self.write_waiting()?;
        let load = self.load.take().expect("it was there, and waiting pairs that fail return");
        let (table, engine) = (&self.table, self.table.engine());
        let _open = engine.keep_open();
        engine.check_writable()?;
        let loaded = load.finish(&|| is_ready(table)).map_err(|error| engine.write_error(error))?;
        let mut files = loaded.files(engine.pages.file());
        files.extend(self.unflushed.take());
        files.extend(table.core.documents.take_unflushed());
        let flushes = files.iter().map(|file| Request::flush(file, 0));
        engine.store.psync().run_all(flushes.collect()).map_err(|error| engine.write_error(error.into()))?;
        let seq = self.publish(loaded)?;
        engine.publish();
        engine.publisher.wait(seq).map_err(|()| engine.outcome_unknown())?;
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        engine.counters.committed(usize::try_from(self.pairs).unwrap_or(usize::MAX), bytes);
        Ok(self.pairs)
    }

    /// Gives the load its seq, logs it, and puts its view in place: below that seq there is nothing in it.
    fn publish(&self, loaded: Loaded) -> Result<Seq> {
        let (table, engine) = (&self.table.core, self.table.engine());
        let _still = engine.maintenance.lock();
        engine.check_writable()?;
        let swap = Swap { engine, table, retained: &self.retained, restored: None };
        swap.run(kind::LOAD, &format::encode_table(table.id), |seq| table.tree.take_loaded(loaded, seq))
    }

    /// Takes a pair while others wait, or that has to wait itself.
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

    /// Writes the documents of the pairs that wait, and lets those go on.
    fn write_waiting(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
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
            engine.trees.append_documents(documents, &documents.pack(values)?)
        };
        let documents = append().map_err(|error| self.fail(error))?;
        // While nobody commits, the log does not take them.
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

    /// Ends the load because of an error, and gives everything back.
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
        // All that is pending there is of this load, and was retained where it ended well.
        self.table.core.documents.abandon_pending();
        self.table.core.end_load();
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Loader").field("table", &self.table.name()).field("pairs", &self.pairs).finish()
    }
}

fn is_long(value: &[u8]) -> bool {
    value.len() > INLINE_BYTES_MAX
}

/// Whether pages that were just taken may be written: what gave them up is durable then. And nobody has borrowed the room that is kept: while a segment is emptied, which gives back more
/// than it takes, files do not grow. Nor do they fill the disk before the log, which may still be short, has what deletes and upkeep need of it.
fn is_ready(table: &Table) -> Result<()> {
    let engine = table.engine();
    engine.check_writable()?;
    let pages = engine.pages.stats();
    let pages = pages.total_pages - pages.hole_pages;
    if structure::only_appends(table.core.structure) || pages > UNRESERVED_PAGES {
        // Nobody knows how much comes.
        engine.make_reserves(u64::MAX)?;
    }
    engine.flush_log()?;
    while engine.trees.is_room_lent() {
        engine.ask(false)?;
    }
    Ok(())
}

/// Pairs whose documents are not written yet, and those between them.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Where each key and each value ends, and when it expires.
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

    /// The same memory, for what comes next.
    fn emptied(mut self) -> Self {
        self.bytes.clear();
        self.ends.clear();
        self
    }
}
