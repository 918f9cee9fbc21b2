//! Compaction: a table's structure rebuilt in key order, while others read and write.
//!
//! 1. Waiting operations are applied first, so that they are packed too.
//! 2. Documents are moved to new segments in key order, stretch by stretch ([`crate::upkeep::relocate`]). The old
//!    segments go when the whole table is through.
//! 3. The structure rewrites itself stretch by stretch ([`index::Upkeep::compact`]), `Pressure::stretch_bytes` at a
//!    time, in the caller's thread. Each stretch is made durable as a round is: log flushed, data written and flushed,
//!    flush-end logged, view installed. The set of commits that the table has does not change.
//! 4. A stretch holds its table, and the worker applies operations of other tables meanwhile. Between two stretches the
//!    caller is told the progress and can stop.
//! 5. Pages behind the front of the data file are moved to the front, whichever table they belong to
//!    ([`Run::gather`]). The front is as long as all content of the file needs.
//! 6. At the end a checkpoint releases files that are not needed any more, and the disk gets its room back
//!    ([`crate::upkeep::rest`]).
//!
//! Invariants:
//! - as a round's;
//! - a table is whole after each stretch, so a crash, an error or the caller can end a compaction anywhere;
//! - until a compaction is through, it needs the space of the tables' content, beside the cost of fragmentation; with
//!   less space it makes do with shorter extents.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use index::Part;
use parking_lot::MutexGuard;
use space::{Class, PAGE, PageId};

use crate::{
    engine::{
        Engine,
        cleaning::{How, Plan, Position},
        stretches::UnderWay,
    },
    error::{Error, Result},
    options::TableHints,
    tables::{catalog::TableCore, held::HeldTable, traffic::Shares},
    upkeep::{
        relocate::{self, CompactionTimes, Moved, Watch},
        rewrite::{Rewritten, rewrite},
    },
};

/// Documents that are moved together: longer stretches, because each costs two flushes.
const DOCUMENT_STRETCH_BYTES_MAX: u64 = 16 << 20;
const DOCUMENT_STRETCH_PART: u64 = 4;

/// A gathering is repeated at most `GATHERINGS_MAX` times. Each moves so many ranges of keys of a compacted table;
/// another table with more than `OTHERS_MAX` ranges is left alone.
const GATHERINGS_MAX: usize = 4;
const GATHERED_MAX: usize = 1024;
const OTHERS_MAX: usize = 64;
/// This part of the used pages may be lost to free pieces that are too short to be of use.
const GATHERED_PART: u64 = 64;

/// Most documents that a compaction can have in flight.
pub const SUBMISSION_BATCH_MAX: usize = psync::PIO_MAX_LIMIT;

/// How a compaction reads documents, and the use that leaf sizes are chosen for. The defaults are the fastest way to
/// read, and the use that the tables have seen.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use std::ops::ControlFlow;
///
/// # let pages = db.table("pages", braid::Structure::BTree)?;
/// # pages.put("/", "text")?;
/// let for_lookups = braid::CompactOptions::new().used_for(0.0, 1.0); // no puts, keys looked up in batches
/// pages.compact_with(&for_lookups, &mut |_| ControlFlow::Continue(()))?;
/// assert!(braid::CompactOptions::new().submission_batch(0) != braid::CompactOptions::default());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactOptions {
    submission_batch: Option<usize>,
    sorted: bool,
    direct: bool,
    overlapped: bool,
    used_for: Option<Shares>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { submission_batch: None, sorted: true, direct: true, overlapped: true, used_for: None }
    }
}

impl CompactOptions {
    /// The defaults: as many documents in flight as suits the device, sorted by place, read past the page cache, and
    /// read while documents that have arrived are written.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Documents in flight at a time, from 1 to [`SUBMISSION_BATCH_MAX`]. Half of them is submitted together, when the
    /// half before the last one has arrived. With one, documents are read one after the other.
    #[must_use]
    pub const fn submission_batch(mut self, documents: usize) -> Self {
        self.submission_batch = Some(documents);
        self
    }

    /// Whether the documents of a stretch are read in the order of their places, instead of the order of their keys.
    #[must_use]
    pub const fn sorted(mut self, sorted: bool) -> Self {
        self.sorted = sorted;
        self
    }

    /// Whether documents are read past the page cache, where the file system allows that.
    #[must_use]
    pub const fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Whether documents are read while others are written. Otherwise all documents of a stretch are read before any
    /// is written, as in the paper.
    #[must_use]
    pub const fn overlapped(mut self, overlapped: bool) -> Self {
        self.overlapped = overlapped;
        self
    }

    /// The use that the sizes of leaves are chosen for. `insert_share` is the share of operations that are puts or
    /// deletes, and `batched_share` the share of looked up keys that come in batches; both are from 0 to 1. Without
    /// this, the use of each table since the database was opened decides. A table with too little use to judge keeps
    /// the size of its leaves.
    #[must_use]
    pub const fn used_for(mut self, insert_share: f64, batched_share: f64) -> Self {
        self.used_for = Some(Shares { insert: insert_share, batched: batched_share });
        self
    }

    fn how(&self, engine: &Engine) -> Result<How> {
        if let Some(Shares { insert, batched }) = self.used_for {
            TableHints::new().insert_share(insert).batched_share(batched).check()?;
        }
        let submission_batch = self.submission_batch.unwrap_or_else(|| engine.store.psync().pio_max());
        if !(1..=SUBMISSION_BATCH_MAX).contains(&submission_batch) {
            let problem =
                format!("from 1 to {SUBMISSION_BATCH_MAX} documents can be in flight, not {submission_batch}");
            return Err(Error::Option { option: "submission_batch", problem });
        }
        Ok(How { submission_batch, sorted: self.sorted, direct: self.direct, overlapped: self.overlapped })
    }
}

/// Progress of a compaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactProgress {
    /// The table being compacted.
    pub table: String,
    /// Bytes of runs rewritten and of documents moved so far, over all tables.
    pub bytes: u64,
    /// Bytes of runs and live documents in all tables to be compacted when the compaction began.
    pub total_bytes: u64,
}

/// Totals of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Leaves that were rewritten.
    pub leaves: u64,
    /// Bytes of runs that were in these leaves.
    pub bytes: u64,
    /// Documents that were moved.
    pub documents: u64,
    /// Bytes that these documents take in their segments.
    pub document_bytes: u64,
    /// Damaged documents: they stay where they are.
    pub damaged_documents: u64,
    /// Where the time went.
    pub times: CompactionTimes,
    /// The caller stopped the compaction before its end.
    pub stopped: bool,
}

/// Called after each stretch; [`ControlFlow::Break`] stops the compaction there.
pub type CompactReport<'a> = &'a mut dyn FnMut(CompactProgress) -> ControlFlow<()>;

/// A compaction under way.
struct Run<'a, 'r> {
    engine: &'a Engine,
    done: Compaction,
    total_bytes: u64,
    report: CompactReport<'r>,
    used_for: Option<Shares>,
}

/// Whether a compaction makes the data file shorter too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HowFar {
    Tables,
    /// The data file too.
    File,
}

/// Compacts tables.
pub(crate) fn run(
    engine: &Engine, tables: &[Arc<TableCore>], options: &CompactOptions, how_far: HowFar, report: CompactReport<'_>,
) -> Result<Compaction> {
    let mut watch = Watch::start();
    let how = options.how(engine)?;
    engine.ask(false)?;
    let mut total_bytes = 0;
    for table in tables {
        total_bytes += table.state.load_full().view.stats()?.entry_bytes + table.documents.stats().live_bytes;
    }
    let _compacting = engine.sweeps.compacting(tables);
    let mut run = Run { engine, done: Compaction::default(), total_bytes, report, used_for: options.used_for };
    for table in tables {
        run.documents(table, how)?;
        run.structure(table)?;
    }
    if how_far == HowFar::File {
        run.gather(tables)?;
    }
    let Run { mut done, .. } = run;
    if how_far == HowFar::File {
        engine.ask_for_rest(true)?;
    } else {
        engine.ask(true)?;
    }
    let mut all = Duration::ZERO;
    watch.lap(&mut all);
    let CompactionTimes { search, sort, read, write, flush, pack, .. } = done.times;
    done.times.other = all.saturating_sub(search + sort + read + write + flush + pack);
    Ok(done)
}

impl Run<'_, '_> {
    /// Moves all documents that a table's structure refers to now.
    fn documents(&mut self, table: &Arc<TableCore>, how: How) -> Result<()> {
        table.documents.seal();
        let budget = self.engine.pressure.budget();
        let plan = Plan {
            segments: table.documents.live().into_keys().collect(),
            window_bytes: (budget / DOCUMENT_STRETCH_PART).min(DOCUMENT_STRETCH_BYTES_MAX),
            how,
            class: Class::Normal,
        };
        let mut from = Some(Position::default()).filter(|_| !plan.segments.is_empty());
        while let Some(low) = from.filter(|_| !self.done.stopped) {
            let mut moved = Moved::default();
            from = turn(self.engine, table, |table| {
                relocate::stretch(self.engine, table, &low, &plan, &mut moved, &mut self.done.times)
            })?;
            self.done.documents += moved.documents;
            self.done.document_bytes += moved.bytes;
            self.done.damaged_documents += moved.damaged;
            // The structure is still to come.
            self.tell(table, true);
        }
        Ok(())
    }

    /// Rewrites the structure of a table.
    fn structure(&mut self, table: &Arc<TableCore>) -> Result<()> {
        let settings = self.engine.settings_for(table, self.used_for)?;
        self.engine.sweeps.forget(table);
        let all = Part { settings: settings.as_deref(), ..Part::whole() };
        self.part(table, all).map(drop)
    }

    /// Rewrites a part of a table, stretch by stretch. Returns the number of leaves that the table had there.
    fn part(&mut self, table: &Arc<TableCore>, part: Part<'_>) -> Result<u64> {
        let mut leaves = 0;
        let mut from = Some(part.from.to_vec());
        while let Some(low) = from.filter(|_| !self.done.stopped) {
            let mut watch = Watch::start();
            let mut rewritten = Rewritten::default();
            from = turn(self.engine, table, |table| {
                let part = Part { from: &low, bytes: self.engine.pressure.stretch_bytes(), ..part };
                rewritten = rewrite(self.engine, table, part)?;
                Ok(rewritten.next.take().filter(|next| part.has(next)))
            })?;
            watch.lap(&mut self.done.times.pack);
            leaves += rewritten.leaves;
            self.done.leaves += rewritten.leaves;
            self.done.bytes += rewritten.bytes;
            self.tell(table, from.is_some());
        }
        Ok(leaves)
    }

    /// Moves pages from the back of the data file to the front, so that the file can be cut. The front is as long as
    /// all used pages need. The pages are those of the compacted tables, and of others where these have few there.
    ///
    /// Pages that readers of older states hold stay, and so do pages that find no room in the front or cannot be read.
    fn gather(&mut self, tables: &[Arc<TableCore>]) -> Result<()> {
        for _ in 0..GATHERINGS_MAX {
            // Pages of the last rewrite are free only once its flush-end is durable.
            self.engine.flush_log()?;
            let (page, total) = gathered_below(self.engine);
            if total <= page.0 + page.0 / GATHERED_PART {
                break;
            }
            let mut moved = 0;
            for table in self.engine.catalog.live() {
                let is_ours = tables.iter().any(|ours| Arc::ptr_eq(ours, &table));
                match self.gather_table(&table, page, is_ours) {
                    Ok(leaves) => moved += leaves,
                    Err(Error::DiskFull { .. }) => return Ok(()),
                    Err(error)
                        if error.is_read_failure()
                            || matches!(error, Error::Corrupt { .. } | Error::Loading { .. }) =>
                    {
                        events::warn!(%error, table = table.name, "what lies far back in the data file stays there");
                    }
                    Err(error) => return Err(error),
                }
            }
            if moved == 0 || self.done.stopped {
                break;
            }
        }
        Ok(())
    }

    /// Moves content of a table behind a page to the front: a part of it for a compacted table; for another table all
    /// of it, where it is in few places.
    fn gather_table(&mut self, table: &Arc<TableCore>, page: PageId, is_ours: bool) -> Result<u64> {
        let most = if is_ours { GATHERED_MAX } else { OTHERS_MAX + 1 };
        let places = table.tree.beyond(page, most)?;
        if !is_ours && places.len() == most {
            return Ok(0);
        }
        let mut moved = 0;
        for keys in &places {
            let part = Part { from: &keys.low, until: keys.high.as_deref(), below: Some(page), ..Part::whole() };
            moved += self.part(table, part)?;
        }
        Ok(moved)
    }

    /// Tells the caller the progress. The caller may stop the compaction as long as there is more to do.
    fn tell(&mut self, table: &TableCore, is_more: bool) {
        // Without background threads this is the worker's turn.
        self.engine.work_inline();
        let bytes = self.done.bytes + self.done.document_bytes;
        let progress = CompactProgress { table: table.name.clone(), bytes, total_bytes: self.total_bytes.max(bytes) };
        self.done.stopped = (self.report)(progress).is_break() && is_more;
    }
}

/// The page below which all used pages of the data file would find room, and the total of pages. The room includes a
/// stretch, the reserve, and a share for free pieces that are too short.
fn gathered_below(engine: &Engine) -> (PageId, u64) {
    let pages = engine.pages.stats();
    let used = pages.used_pages();
    let page = used + used / GATHERED_PART + pages.reserve_pages + (engine.pressure.stretch_bytes() / PAGE) as u64;
    (PageId(page), pages.total_pages)
}

/// Runs a stretch. None where the table is gone.
///
/// The stretch runs beside the worker, except on a full disk. Where it finds the disk full, it runs once more with
/// nothing beside it, because the worker's work may have had the room for a while.
fn turn<P>(
    engine: &Engine, table: &TableCore, mut stretch: impl FnMut(&HeldTable<'_>) -> Result<Option<P>>,
) -> Result<Option<P>> {
    let _makes_way = psync::Background::enter();
    if engine.pressure.full_disk().is_none() {
        let under_way = begin(engine)?;
        let outcome = held(engine, table, &mut stretch);
        drop(under_way);
        if engine.stretches.take_awaited() {
            engine.signal.kick();
        }
        if !matches!(outcome, Err(Error::DiskFull { .. })) {
            return outcome;
        }
    }
    let nothing_else = engine.upkeep.lock();
    let alone = engine.stretches.alone();
    let outcome = held(engine, table, &mut stretch);
    drop(alone);
    MutexGuard::unlock_fair(nothing_else);
    outcome
}

/// Begins a stretch. Room that is lent for the emptying of a segment is not to be taken by others.
fn begin(engine: &Engine) -> Result<UnderWay<'_>> {
    loop {
        let alone = engine.stretches.alone();
        if !engine.structures.is_room_lent() {
            return Ok(alone.begin());
        }
        drop(alone);
        // No loan outlives a turn of the worker, unless the turn ends all writing.
        drop(engine.upkeep.lock());
        engine.check_writable()?;
    }
}

/// Runs a stretch while its table is held.
fn held<P>(
    engine: &Engine, table: &TableCore, stretch: &mut impl FnMut(&HeldTable<'_>) -> Result<Option<P>>,
) -> Result<Option<P>> {
    let held = table.hold();
    engine.check_writable()?;
    if engine.check_live(table).is_err() {
        return Ok(None);
    }
    table.check_not_loading()?;
    stretch(&held)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use index::Seq;
    use psync::{Request, sim::SimDisk};

    use super::*;
    use crate::{
        apply::{choice, round},
        handles::{batch::WriteBatch, database::Database, table::Table},
        options::Options,
        words::{durability::Durability, structure::Structure},
    };

    const KEYS: u32 = 3000;

    fn open(disk: &SimDisk) -> (Database, [Table; 2]) {
        let options = Options::new().background(false).leaf_pages(1).write_buffer_bytes(8 << 20);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let tables = ["one", "other"].map(|name| db.table(name, Structure::BTree).expect("a table"));
        (db, tables)
    }

    fn put(db: &Database, table: &Table, value: u8) {
        let mut batch = WriteBatch::new();
        (0..KEYS).for_each(|key| batch.put(table, key.to_be_bytes(), [value; 60]));
        db.write_with(&batch, Durability::Os).expect("puts");
    }

    fn waits(table: &Table) -> bool {
        table.core.oldest_unapplied().is_some()
    }

    #[test]
    fn a_round_applies_other_tables_while_a_stretch_has_its_own() {
        let (db, [one, other]) = open(&SimDisk::new(1));
        [&one, &other].into_iter().for_each(|table| put(&db, table, 1));
        let engine = one.engine();
        let next = turn(engine, &one.core, |_| {
            while waits(&other) {
                let chosen = choice::fullest(engine, |_| true);
                assert!(chosen.iter().all(|choice| Arc::ptr_eq(&choice.table, &other.core)), "the other is held");
                round::run(engine, &mut engine.upkeep.lock(), &chosen)?;
            }
            let left = choice::fullest(engine, |_| true);
            assert!(left.iter().any(|choice| Arc::ptr_eq(&choice.table, &one.core)), "nothing else is left");
            Ok(Some(()))
        });
        assert_eq!(next.expect("a stretch"), Some(()));
        assert!(waits(&one) && !waits(&other));
    }

    #[test]
    fn a_stretch_without_room_runs_once_more_with_nothing_beside_it() {
        let (_db, [one, _]) = open(&SimDisk::new(2));
        let engine = one.engine();
        let full = || Error::DiskFull { path: engine.path.clone(), problem: "no room".into() };
        let mut alone = Vec::new();
        let next = turn(engine, &one.core, |_| {
            alone.push(engine.upkeep.is_locked());
            if alone.len() == 1 { Err(full()) } else { Ok(Some(())) }
        });
        assert_eq!((next.expect("a stretch"), alone), (Some(()), vec![false, true]));
        let refused = turn(engine, &one.core, |_| Err::<Option<()>, _>(full()));
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        assert!(!engine.upkeep.is_locked() && engine.stretches.is_idle());
    }

    /// A table is written anew in a round while a stretch of another one is under way, and the power goes before the
    /// round is durable. Returns what is wrong afterwards.
    fn life(seed: u64, is_early: bool) -> Vec<String> {
        let disk = SimDisk::new(seed);
        let (db, [one, other]) = open(&disk);
        [&one, &other].into_iter().for_each(|table| put(&db, table, 1));
        db.checkpoint().expect("a checkpoint");
        put(&db, &other, 2);
        let engine = one.engine();
        let horizon = engine.horizon(&one.core);
        engine.flush_log().expect("a flush");
        round::run(engine, &mut engine.upkeep.lock(), &choice::fullest(engine, |_| true)).expect("a round");
        assert!(engine.pages.has_unread(), "leaves were written anew");
        if is_early {
            engine.pages.release_unread(engine.pages.take_unread());
        }
        let rewritten = one.core.tree.compact(Part::whole(), Seq::MAX, &horizon).expect("a rewrite");
        assert!(rewritten.is_some_and(|rewritten| rewritten.leaves > 10));
        engine.store.psync().run_all(vec![Request::flush(engine.pages.file(), 0)]).expect("a flush");
        disk.crash();
        drop((one, other, db));
        disk.restart();
        let (db, [one, other]) = open(&disk);
        let mut problems = db.verify().expect("verifies").findings;
        for table in [one, other] {
            let count = table.iter().filter(Result::is_ok).count();
            problems.extend((count != KEYS as usize).then(|| format!("{count} pairs of {}", table.name())));
        }
        problems
    }

    #[test]
    fn pages_that_a_round_gave_up_are_not_written_by_a_stretch_before_that_is_durable() {
        (0..20).for_each(|seed| assert_eq!(life(seed, false), [""; 0], "seed {seed}"));
        assert!((0..20).any(|seed| !life(seed, true).is_empty()), "pages free too early are noticed");
    }
}
