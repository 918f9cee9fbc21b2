//! Whether a transaction may commit: nobody else committed what it wrote, or, where it is serializable, what it read, since it began.
//!
//! 1. [`Check::look`] runs without any lock. Keys whose place was noted since the begin are looked up themselves; ranges are
//!    compared with the commits in the ring, or, where that does not reach back to the begin, walked again beside what they were.
//! 2. [`Check::confirm`] runs while the stripes are held, so that no such commit gets its seq: it only makes sure that nothing came after
//!    the look. Otherwise it is looked again.
//!
//! First committer wins: who finds a later commit in the way is the one that is in conflict.

use index::Seq;

use super::reads::Reads;
use crate::{
    Error, Result, Table,
    batch::Item,
    catalog::TableCore,
    engine::Engine,
    recent::{Owner, Place, Places, Stripes},
    snapshot::Pin,
    table,
    walk::Walk,
};

/// What a commit that belongs to a transaction has to be checked for.
pub(crate) struct Check<'a> {
    pin: &'a Pin,
    owner: Owner,
    reads: Option<&'a Reads>,
    /// Keys at these places were looked up when they had these seqs: none of them was in the way. In the order of places.
    cleared: Vec<(Place, Seq)>,
    /// No commit up to here was in the way of a range.
    ranges_through: Seq,
}

/// A key that may have been changed.
struct Suspect<'a> {
    table: &'a TableCore,
    key: &'a [u8],
    place: Place,
    noted: Seq,
}

impl<'a> Check<'a> {
    /// Of the transaction `owner` that sees what `pin` holds and, if it is serializable, read `reads`.
    pub(super) const fn new(pin: &'a Pin, owner: Owner, reads: Option<&'a Reads>) -> Self {
        Self { pin, owner, reads, cleared: Vec::new(), ranges_through: pin.seq() }
    }

    /// The transaction.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// The commit has its place: what the transaction saw is needed no more.
    pub(crate) fn release(&self) {
        self.pin.release();
    }

    /// Whether it is to be confirmed with every stripe held.
    pub(crate) fn needs_all(&self) -> bool {
        self.reads.is_some_and(|reads| reads.ranges().next().is_some())
    }

    /// Adds the places of what was read to those of what will be written.
    pub(crate) fn add_places(&self, engine: &Engine, places: &mut Places) {
        for (table, key) in self.reads.iter().flat_map(|reads| reads.keys()) {
            places.push(engine.recent.place(table.id, key));
        }
    }

    /// Looks for commits in the way, without a lock.
    ///
    /// # Errors
    /// [`Error::Conflict`] when there is one; when storage fails.
    pub(crate) fn look(&mut self, engine: &Engine, items: &[Item<'_>]) -> Result<()> {
        self.look_for_loads(items)?;
        if seeded::on(seeded::Bug::ConflictMissed) {
            return Ok(());
        }
        let read = self.reads.iter().flat_map(|reads| reads.keys());
        let keys = items.iter().map(|item| (&**item.table, item.key)).chain(read);
        self.cleared = look_up(engine, self.pin.seq(), keys)?;
        self.look_at_ranges(engine)
    }

    /// Whether nothing came since [`Check::look`] that it did not see, now that the stripes of all its places are held.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something is in the way for certain.
    pub(crate) fn confirm(&self, engine: &Engine, stripes: &Stripes<'_>, places: &Places) -> Result<bool> {
        if seeded::on(seeded::Bug::ConflictMissed) {
            return Ok(true);
        }
        let is_clear = |place: &Place| {
            let newest = stripes.newest(*place);
            let known = self.cleared.binary_search_by_key(place, |(place, _)| *place);
            newest <= self.pin.seq() || known.is_ok_and(|at| self.cleared[at].1 == newest)
        };
        if !places.iter().all(is_clear) {
            return Ok(false);
        }
        match self.reads.filter(|_| self.needs_all()) {
            Some(reads) => self.ring_is_clear(engine, reads, self.ranges_through).map(|reaches| reaches.is_ok()),
            None => Ok(true),
        }
    }

    /// A load changes every key of its table.
    fn look_for_loads(&self, items: &[Item<'_>]) -> Result<()> {
        let read = self.reads.iter().flat_map(|reads| reads.tables());
        for table in items.iter().map(|item| item.table).chain(read) {
            // One that is under way may have its seq before this commit, and show only after it.
            table.check_not_loading()?;
            if table.loaded() > self.pin.seq() {
                return Err(Error::conflict(&table.name, "the whole", None));
            }
        }
        Ok(())
    }

    fn look_at_ranges(&mut self, engine: &Engine) -> Result<()> {
        let Some(reads) = self.reads.filter(|_| self.needs_all() && !seeded::on(seeded::Bug::PhantomMissed)) else {
            return Ok(());
        };
        if let Err(floor) = self.ring_is_clear(engine, reads, self.ranges_through)? {
            wait_until_visible(engine, floor)?;
            let now = Pin::take(self.pin.handle());
            for (table, bounds) in reads.ranges() {
                let direction = index::Direction::Forward;
                let before = Walk::begin(table, bounds, direction, Some(self.pin))?;
                let after = Walk::begin(table, bounds, direction, Some(&now))?;
                same(table, before, after)?;
            }
            self.ranges_through = now.seq();
        }
        Ok(())
    }

    /// Fails when a commit in the ring after `after` is in the way of a range; says up to where commits are missing if the ring does not reach back to it.
    fn ring_is_clear(&self, engine: &Engine, reads: &Reads, after: Seq) -> Result<std::result::Result<(), Seq>> {
        if seeded::on(seeded::Bug::PhantomMissed) {
            return Ok(Ok(()));
        }
        match engine.recent.find_after(after, |table, key| reads.covers(table, key)) {
            Ok(None) => Ok(Ok(())),
            Ok(Some((id, key))) => {
                let table = reads.tables().find(|table| table.id == id);
                let name = table.map_or("", |table| &table.name);
                Err(Error::conflict(name, "a range", Some(&key)))
            }
            Err(floor) => Ok(Err(floor)),
        }
    }
}

/// Fails when the newest version of a key is of a commit after `begin`.
///
/// # Errors
/// [`Error::Conflict`], or when storage fails.
pub(super) fn look_up_one(engine: &Engine, begin: Seq, table: &TableCore, key: &[u8]) -> Result<()> {
    look_up(engine, begin, std::iter::once((table, key))).map(drop)
}

/// Looks the keys up whose places were noted after `begin`, those of a table as one batch. The places that are clear nevertheless, in order,
/// with the seqs that they had.
fn look_up<'a>(
    engine: &Engine, begin: Seq, keys: impl Iterator<Item = (&'a TableCore, &'a [u8])>,
) -> Result<Vec<(Place, Seq)>> {
    let mut suspects = Vec::new();
    for (table, key) in keys {
        let place = engine.recent.place(table.id, key);
        let noted = engine.recent.newest(place);
        if noted > begin {
            suspects.push(Suspect { table, key, place, noted });
        }
    }
    let Some(newest) = suspects.iter().map(|suspect| suspect.noted).max() else { return Ok(Vec::new()) };
    wait_until_visible(engine, newest)?;
    suspects.sort_by_key(|suspect| suspect.table.id);
    for of_table in suspects.chunk_by(|one, other| one.table.id == other.table.id) {
        let table = of_table[0].table;
        let keys: Vec<&[u8]> = of_table.iter().map(|suspect| suspect.key).collect();
        for (key, newest) in keys.iter().zip(table::newest_many(table, &keys)?) {
            // Where there is nothing at all, nothing came: a deletion stays as long as a snapshot is older.
            if newest.is_some_and(|newest| newest > begin) {
                return Err(Error::conflict(&table.name, "a key", Some(key)));
            }
        }
    }
    let mut cleared: Vec<_> = suspects.iter().map(|suspect| (suspect.place, suspect.noted)).collect();
    cleared.sort_unstable();
    // Of a place that was noted anew between two of its keys, only the older seq says something about both.
    cleared.dedup_by_key(|(place, _)| *place);
    Ok(cleared)
}

/// Waits for commits that have their seqs already.
pub(super) fn wait_until_visible(engine: &Engine, seq: Seq) -> Result<()> {
    engine.publisher.wait(seq).map_err(|()| {
        let cause = engine.health.cause().unwrap_or("publishing ended").to_owned();
        Error::Failed { cause }
    })
}

/// Fails unless two walks meet the same versions of the same keys.
fn same(table: &Table, mut before: Walk, mut after: Walk) -> Result<()> {
    loop {
        let (one, other) = (before.advance()?, after.advance()?);
        let version = |walk: &Walk| walk.current().map(|pair| (pair.key.to_vec(), pair.seq));
        let (one, other) = (one.then(|| version(&before)).flatten(), other.then(|| version(&after)).flatten());
        if one != other {
            let key = [one, other].into_iter().flatten().map(|(key, _)| key).min();
            return Err(Error::conflict(table.name(), "a range", key.as_deref()));
        }
        if one.is_none() {
            return Ok(());
        }
    }
}
