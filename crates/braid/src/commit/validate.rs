//! Whether a transaction may commit: since the begin, no other commit may have changed the keys written by the
//! transaction, nor, for a serializable one, its reads.
//!
//! 1. [`Check::look`] runs without any lock. Keys whose place was noted since the begin are looked up themselves.
//!    Ranges are compared with the commits in the ring. Where the ring does not reach back to the begin, the ranges are
//!    walked again and compared with their former versions.
//! 2. [`Check::confirm`] runs while the stripes are held, so that no such commit gets its seq. It only makes sure that
//!    no commit came after the look.
//! 3. Otherwise [`Check::look_again`] looks at the new commits, and step 2 is repeated. It reads no ranges.
//!
//! First committer wins: a transaction that finds a later commit in its way is the one in conflict.

use index::{Direction, Seq};

use crate::{
    commit::{item::Item, reads::Reads},
    engine::{
        Engine,
        recent::{Hit, LockKey, Owner, Place, Places, Stripes},
    },
    error::{Error, Result},
    read::{pin::Pin, point, walk::Walk},
    tables::catalog::TableCore,
};

/// How often the ranges of a commit are walked while more is committed meanwhile than the ring holds.
const WALKS_MAX: usize = 3;

/// The check of a commit that belongs to a transaction.
pub(crate) struct Check<'a> {
    pin: &'a Pin,
    owner: Owner,
    reads: Option<&'a Reads>,
    /// Places whose keys were looked up at these seqs, and found unchanged. In the order of places.
    cleared: Vec<(Place, Seq)>,
    /// Of this many commits that first entered the ring, none was in the way of a range.
    ranges_clear: u64,
    /// The key of the conflict that was found, where it is over one key.
    changed: Changed,
}

/// A key that another commit changed.
pub(crate) type Changed = Option<LockKey>;

/// A key that may have been changed.
struct Suspect<'a> {
    table: &'a TableCore,
    key: &'a [u8],
    noted: Seq,
}

impl<'a> Check<'a> {
    /// The check of the transaction `owner`, which sees the moment of `pin` and, if it is serializable, read `reads`.
    pub(crate) const fn new(pin: &'a Pin, owner: Owner, reads: Option<&'a Reads>) -> Self {
        Self { pin, owner, reads, cleared: Vec::new(), ranges_clear: 0, changed: None }
    }

    /// The transaction.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// The key of the conflict that was found, where it is over one key.
    pub(crate) fn take_changed(&mut self) -> Changed {
        self.changed.take()
    }

    /// Releases the pin: the commit has its place, so the versions that the transaction saw are no longer needed.
    pub(crate) fn release(&self) {
        self.pin.release();
    }

    /// Whether the confirmation needs every stripe.
    pub(crate) fn needs_all(&self) -> bool {
        self.reads.is_some_and(|reads| reads.ranges().next().is_some())
    }

    /// Adds the places of the keys read to those of the keys to be written.
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
        self.look_at_keys(engine, items)?;
        self.look_at_ranges(engine)
    }

    /// Looks at the commits since the last look.
    ///
    /// # Errors
    /// As [`Check::look`]; also if so many commits came that ranges would have to be walked once more.
    pub(crate) fn look_again(&mut self, engine: &Engine, items: &[Item<'_>]) -> Result<()> {
        self.look_at_keys(engine, items)?;
        match self.reads.filter(|_| self.needs_all()) {
            Some(reads) if self.ranges_are_clear(engine, reads)?.is_none() => Err(too_much_came(reads)),
            _ => Ok(()),
        }
    }

    fn look_at_keys(&mut self, engine: &Engine, items: &[Item<'_>]) -> Result<()> {
        if seeded::on(seeded::Bug::ConflictMissed) {
            return Ok(());
        }
        let read = self.reads.iter().flat_map(|reads| reads.keys());
        let points = items.iter().filter(|item| item.is_point());
        let keys = points.map(|item| (&**item.table, item.key)).chain(read);
        look_up(engine, self.pin.seq(), &mut self.cleared, &mut self.changed, keys)
    }

    /// Whether no commit came that [`Check::look`] did not see, now that the stripes of all places are held.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a commit is in the way for certain.
    pub(crate) fn confirm(&mut self, engine: &Engine, stripes: &Stripes<'_>, places: &Places) -> Result<bool> {
        if seeded::on(seeded::Bug::ConflictMissed) {
            return Ok(true);
        }
        let begin = self.pin.seq();
        if !places.iter().all(|place| is_clear(&self.cleared, begin, *place, stripes.newest(*place))) {
            return Ok(false);
        }
        match self.reads.filter(|_| self.needs_all()) {
            Some(reads) => Ok(self.ranges_are_clear(engine, reads)?.is_some()),
            None => Ok(true),
        }
    }

    /// Fails if a load changed a table of the transaction, because a load changes every key. To be asked again while
    /// `writing` is held, so that no load comes later.
    ///
    /// # Errors
    /// [`Error::Conflict`] when there was a load, [`Error::Loading`] while there is one.
    pub(crate) fn look_for_loads(&self, items: &[Item<'_>]) -> Result<()> {
        let read = self.reads.iter().flat_map(|reads| reads.tables());
        for table in items.iter().map(|item| item.table).chain(read) {
            // A load under way may have its seq before this commit, and show only after it.
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
        let mut after = self.pin.seq();
        for _ in 0..WALKS_MAX {
            match engine.recent.ring().find_after(after, |table, logged| reads.is_changed_by(table, logged)) {
                Ok((hit, count)) => {
                    self.ranges_clear = count;
                    return no_hit(reads, hit, &mut self.changed);
                }
                Err(floor) => {
                    wait_until_visible(engine, floor)?;
                    // At the same time as before, because an expiry since then is no commit.
                    let now = Pin::take_at_time_of(self.pin);
                    for (table, bounds) in reads.ranges() {
                        let before = Walk::begin(engine, table, bounds, Direction::Forward, Some(self.pin))?;
                        let after = Walk::begin(engine, table, bounds, Direction::Forward, Some(&*now))?;
                        same(table, before, after)?;
                    }
                    after = now.seq();
                }
            }
        }
        Err(too_much_came(reads))
    }

    /// Fails when a commit since the look is in the way of a range. None if the ring does not reach back to the look.
    fn ranges_are_clear(&mut self, engine: &Engine, reads: &Reads) -> Result<Option<()>> {
        if seeded::on(seeded::Bug::PhantomMissed) {
            return Ok(Some(()));
        }
        let hit =
            engine.recent.ring().find_since(self.ranges_clear, |table, logged| reads.is_changed_by(table, logged));
        hit.map(|hit| no_hit(reads, hit, &mut self.changed)).transpose()
    }
}

/// The conflict of a transaction for which the check of its ranges came to no end.
fn too_much_came(reads: &Reads) -> Error {
    let table = reads.ranges().next().map_or("", |(table, _)| &table.name);
    Error::conflict(table, "perhaps a range", None)
}

/// Fails when a commit is in the way of a range, and sets `changed` to its key.
fn no_hit(reads: &Reads, hit: Hit, changed: &mut Changed) -> Result<()> {
    let Some((id, key)) = hit else { return Ok(()) };
    let name = reads.tables().find(|table| table.id == id).map_or("", |table| &table.name);
    let conflict = Error::conflict(name, "a range", Some(&key));
    *changed = Some((id, key));
    Err(conflict)
}

/// Whether no key at `place`, where `newest` is noted, can have changed after `begin`.
fn is_clear(cleared: &[(Place, Seq)], begin: Seq, place: Place, newest: Seq) -> bool {
    let known = cleared.binary_search_by_key(&place, |(place, _)| *place);
    newest <= begin || known.is_ok_and(|at| cleared[at].1 == newest)
}

/// Fails when the newest version of a key is of a commit after `begin`, and sets `changed` to the key.
///
/// # Errors
/// [`Error::Conflict`], or when storage fails.
pub(crate) fn look_up_one(
    engine: &Engine, begin: Seq, table: &TableCore, key: &[u8], changed: &mut Changed,
) -> Result<()> {
    look_up(engine, begin, &mut Vec::new(), changed, std::iter::once((table, key)))
}

/// Looks up the keys whose places were noted after `begin`, as one batch per table. Then sets `cleared` to the places
/// that are clear nevertheless, with their noted seqs, or `changed` to the key that is not.
fn look_up<'a>(
    engine: &Engine, begin: Seq, cleared: &mut Vec<(Place, Seq)>, changed: &mut Changed,
    keys: impl Iterator<Item = (&'a TableCore, &'a [u8])>,
) -> Result<()> {
    let (mut seen, mut suspects) = (Vec::new(), Vec::new());
    for (table, key) in keys {
        let place = engine.recent.place(table.id, key);
        let noted = engine.recent.newest(place);
        seen.push((place, noted));
        if !is_clear(cleared, begin, place, noted) {
            suspects.push(Suspect { table, key, noted });
        }
    }
    if let Some(newest) = suspects.iter().map(|suspect| suspect.noted).max() {
        wait_until_visible(engine, newest)?;
    }
    suspects.sort_by_key(|suspect| suspect.table.id);
    for of_table in suspects.chunk_by(|one, other| one.table.id == other.table.id) {
        let table = of_table[0].table;
        let keys: Vec<&[u8]> = of_table.iter().map(|suspect| suspect.key).collect();
        for (key, newest) in keys.iter().zip(point::newest_many(engine, table, &keys)?) {
            // A key without any version was not changed: a deletion stays as long as there is an older snapshot.
            if newest.is_some_and(|newest| newest > begin) {
                *changed = Some((table.id, key.to_vec()));
                return Err(Error::conflict(&table.name, "a key", Some(key)));
            }
        }
    }
    seen.sort_unstable();
    // A place may be noted anew between two of its keys. Then only the oldest seq holds for all of its keys.
    seen.dedup_by_key(|(place, _)| *place);
    seen.retain(|(_, noted)| *noted > begin);
    *cleared = seen;
    Ok(())
}

/// Waits until commits up to `seq` are visible; they have their seqs already.
pub(crate) fn wait_until_visible(engine: &Engine, seq: Seq) -> Result<()> {
    engine.publisher.wait(seq).map_err(|()| Error::Failed { cause: engine.why_ended() })
}

/// Fails unless both walks meet the same versions of the same keys.
fn same(table: &TableCore, mut before: Walk, mut after: Walk) -> Result<()> {
    loop {
        let (one, other) = (before.advance()?, after.advance()?);
        let version = |walk: &Walk| walk.current().map(|pair| (pair.key.to_vec(), pair.seq));
        let (one, other) = (one.then(|| version(&before)).flatten(), other.then(|| version(&after)).flatten());
        if one != other {
            let key = [one, other].into_iter().flatten().map(|(key, _)| key).min();
            return Err(Error::conflict(&table.name, "a range", key.as_deref()));
        }
        if one.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use super::*;
    use crate::{options::Options, words::structure::Structure};

    #[test]
    fn a_commit_between_two_keys_of_one_place_is_not_overlooked() {
        let options = Options::new().background(false);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("table", Structure::BTree).expect("a table");
        let (engine, core) = (table.engine(), &*table.core);
        let place = |key: u32| engine.recent.place(core.id, &key.to_be_bytes());
        let mut known = std::collections::HashMap::new();
        let pair = (0..).find_map(|key| known.insert(place(key), key).map(|other| (other, key)));
        let (one, other) = pair.expect("there are more keys than places");
        table.put(one.to_be_bytes(), "").expect("put");
        table.put(other.to_be_bytes(), "").expect("put");
        let begin = engine.publisher.visible();
        let _pin = db.snapshot();
        let (one_key, other_key) = (one.to_be_bytes(), other.to_be_bytes());
        let keys = [(core, one_key.as_slice()), (core, other_key.as_slice())];
        // The first key is committed after it was looked at, and before the second is.
        let mut cleared = Vec::new();
        let between = keys.into_iter().inspect(|(_, key)| {
            if *key == other_key {
                table.put(one_key, "later").expect("put");
            }
        });
        look_up(engine, begin, &mut cleared, &mut None, between).expect("the second is unchanged");
        let newest = engine.recent.newest(place(one));
        assert!(!is_clear(&cleared, begin, place(one), newest), "{cleared:?}");
        let again = look_up(engine, begin, &mut cleared, &mut None, keys.into_iter());
        assert!(matches!(again, Err(Error::Conflict { .. })), "{again:?}");
        // A neighbour's commit at the same place does not touch an unchanged key.
        let begin = engine.publisher.visible();
        let _pin = db.snapshot();
        table.put(one_key, "neighbour").expect("put");
        look_up(engine, begin, &mut cleared, &mut None, std::iter::once(keys[1])).expect("unchanged");
        assert!(is_clear(&cleared, begin, place(other), engine.recent.newest(place(other))));
    }
}
