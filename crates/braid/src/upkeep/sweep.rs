//! Sweeps: key ranges rewritten in the background, so that versions that nobody sees any more give their space back.
//!
//! 1. A sweep is requested for keys that have something to reclaim ([`Engine::sweep`]), or for what a structure wants
//!    rewritten ([`Engine::sweep_chosen`]).
//! 2. A range delete ([`index::RangeTombstones`]) is a request by its existence, once every older operation on its
//!    keys is in the structure and no snapshot is older than the delete. A swept range needs its tombstones no more.
//! 3. Where a round finds the disk full, keys that range deletes hide and keys that have expired are swept at once
//!    ([`crate::upkeep::full_disk`]).
//! 4. Between rounds the worker rewrites one stretch a turn, as a compaction does ([`rewrite`]). So rounds,
//!    checkpoints and readers wait for a stretch at most.
//! 5. A table in which a sweep meets damage is swept no more ([`unless_damaged`]). Writing goes on, because no writer
//!    has asked for the damaged part.
//!
//! Invariants:
//! - A table is whole after each stretch, so a sweep can end anywhere.
//! - Requests are in memory only. A requester that needs a sweep to its end must see from the stored bytes that the
//!   sweep is missing, and requests it again after a crash.
//! - A range tombstone goes in the same step in which the view that needs it no more is installed. After a crash it
//!   comes back if no checkpoint was written since, and hides nothing.

use std::sync::{Arc, atomic::Ordering};

use index::{Fragment, Part, Seq};
use space::PAGE;

use crate::{
    engine::{
        Engine,
        sweeps::{MANY_FRAGMENTS, Sweep},
        upkeep::Upkeep,
    },
    error::{Error, Result},
    tables::catalog::TableCore,
    upkeep::{rewrite::rewrite, settled::Settled},
};

/// Sweeps a stretch, if there is one to be swept. Returns whether there is more.
///
/// # Errors
/// As a compaction's. The stretch is then the next one again, except that what a structure has chosen is forgotten on a
/// full disk.
pub(crate) fn turn(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    // Values may expire as fast as they are swept; range tombstones must not wait for that.
    held.requests_first = !held.requests_first;
    let first = if held.requests_first { None } else { of_tombstones(engine) };
    let asked = if first.is_none() { engine.sweeps.asked.lock().pop_front() } else { None };
    if let Some(sweep) = asked {
        match unless_damaged(&sweep.table, stretch(engine, &sweep)) {
            Ok(None | Some(None)) => {}
            // A compaction rewrites the whole table.
            Ok(Some(Some(_))) if engine.sweeps.is_compacted(&sweep.table) => {}
            Ok(Some(Some(low))) => engine.sweeps.asked.lock().push_front(Sweep { low, ..sweep }),
            // The structure is asked to empty its files instead.
            Err(error @ Error::DiskFull { .. }) if sweep.chosen.is_some() => return Err(error),
            Err(error) => {
                engine.sweeps.asked.lock().push_front(sweep);
                return Err(error);
            }
        }
    } else if let Some(sweep) = first.or_else(|| of_tombstones(engine)) {
        unless_damaged(&sweep.table, stretch(engine, &sweep))?;
        engine.sweeps.swept.fetch_add(1, Ordering::Relaxed);
    }
    Ok(!engine.sweeps.asked.lock().is_empty() || of_tombstones(engine).is_some())
}

/// The outcome of upkeep of a table; none where upkeep met damage, which is noted.
///
/// # Errors
/// Any other.
pub(crate) fn unless_damaged<T>(table: &TableCore, outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error @ Error::Corrupt { .. }) => {
            table.note_damage(&error);
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

/// Whether a table has so many range tombstones that wait for queued operations that these must be applied. Tombstones
/// that a snapshot keeps do not count, because applying would not help them.
pub(crate) fn is_urgent(engine: &Engine) -> bool {
    let is_one = |table: &Arc<TableCore>| {
        let state = table.state.load();
        if table.is_damaged() || state.tombstones.fragments().len() < MANY_FRAGMENTS {
            return false;
        }
        let horizon = engine.horizon(table);
        let oldest = horizon.oldest().unwrap_or(Seq::MAX);
        let settled = Settled::of(&state, &horizon);
        let waits =
            |fragment: &&Arc<Fragment>| fragment.newest() <= oldest && fragment.newest() > settled.within(fragment);
        horizon.tombstones.fragments().iter().filter(waits).count() >= MANY_FRAGMENTS
    };
    engine.catalog.live().iter().any(is_one)
}

/// The first range tombstones that can be swept away. Where there are none, the end of the snapshot that keeps the
/// oldest wakes the worker.
fn of_tombstones(engine: &Engine) -> Option<Sweep> {
    loop {
        let (found, waits) = look(engine);
        let oldest = || engine.snapshots.oldest().unwrap_or(Seq::MAX);
        if found.is_some() || engine.sweeps.wait_for(waits, oldest) {
            return found;
        }
    }
}

/// The first range tombstones that can be swept away; if there are none, the oldest range delete that waits for
/// snapshots.
fn look(engine: &Engine) -> (Option<Sweep>, Option<Seq>) {
    let mut waits: Option<Seq> = None;
    let of_table = |table: Arc<TableCore>| {
        let state = table.state.load_full();
        if state.tombstones.is_empty() || table.is_damaged() || table.check_not_loading().is_err() {
            return None;
        }
        let horizon = engine.horizon(&table);
        let settled = Settled::of(&state, &horizon);
        let is_due = |fragment: &&Arc<Fragment>| fragment.newest() <= settled.within(fragment);
        let fragments = horizon.tombstones.fragments();
        let oldest = horizon.oldest().unwrap_or(Seq::MAX);
        let waiting = fragments.iter().map(|fragment| fragment.newest()).filter(|newest| *newest > oldest);
        waits = waiting.chain(waits).min();
        let first = fragments.iter().find(is_due)?;
        let last = fragments.iter().rfind(is_due).filter(|_| fragments.len() >= MANY_FRAGMENTS).unwrap_or(first);
        let (low, high) = (first.low.clone(), last.high.clone());
        Some(Sweep { table, low, high, chosen: None })
    };
    let found = engine.catalog.live().into_iter().find_map(of_table);
    (found, waits)
}

/// Sweeps the first stretch. Returns where the next one begins, if there is one.
pub(crate) fn stretch(engine: &Engine, sweep: &Sweep) -> Result<Option<Vec<u8>>> {
    let (table, high) = (sweep.table.hold(), sweep.high.as_deref());
    match engine.check_live(&table).and_then(|()| table.check_not_loading()) {
        Ok(()) => {}
        // A dropped table has nothing to sweep, and neither has one that is being loaded.
        Err(Error::NoSuchTable { .. } | Error::Loading { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let (bytes, chosen) = (engine.pressure.stretch_bytes(), sweep.chosen.as_ref());
    let mut part = Part { from: &sweep.low, until: high, bytes, reclaims: true, chosen, ..Part::whole() };
    let rewritten = loop {
        match rewrite(engine, &table, part) {
            // Space of the old leaves is free only at the end of the rewrite: a shorter stretch needs less before.
            Err(Error::DiskFull { .. }) if part.bytes > PAGE => part.bytes /= 2,
            rewritten => break rewritten?,
        }
    };
    Ok(rewritten.next.filter(|next| high.is_none_or(|high| next.as_slice() < high)))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use psync::sim::SimDisk;

    use crate::{
        apply::{choice::Choice, round},
        engine::sweeps::MANY_FRAGMENTS,
        handles::{batch::WriteBatch, database::Database, table::Table},
        options::Options,
        upkeep::checkpoint,
        words::structure::Structure,
    };

    const KEYS: u32 = 6000;

    fn open(disk: &SimDisk) -> (Database, Table) {
        let options =
            Options::new().background(false).leaf_pages(1).write_buffer_bytes(128 << 10).segment_bytes(64 << 10);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        (db, table)
    }

    /// Puts every key twice. A snapshot, which is gone in the end, keeps the older version.
    fn fill(db: &Database, table: &Table) {
        let put =
            |value: u8| (0..KEYS).for_each(|key| table.put(key.to_be_bytes(), [value; 60]).map(drop).expect("put"));
        put(1);
        let snapshot = db.snapshot();
        put(2);
        db.drain().expect("applies");
        drop(snapshot);
    }

    fn entries(table: &Table) -> u64 {
        table.stats().expect("stats").entries
    }

    #[test]
    fn only_what_is_asked_for_is_swept_and_loses_what_nobody_sees() {
        let (db, table) = open(&SimDisk::new(1));
        fill(&db, &table);
        assert_eq!(entries(&table), u64::from(2 * KEYS));
        let engine = table.engine();
        engine.sweep(&table.core, &2000u32.to_be_bytes(), Some(&4000u32.to_be_bytes()));
        engine.sweep(&table.core, &2500u32.to_be_bytes(), Some(&4000u32.to_be_bytes()));
        assert_eq!(engine.sweeps.asked.lock().len(), 1, "a part of what waits");
        engine.work_inline();
        let left = entries(&table);
        // The leaves at both ends go with these keys.
        assert!((u64::from(2 * KEYS) - 2100..=u64::from(2 * KEYS) - 2000).contains(&left), "{left} versions left");
        engine.sweep(&table.core, &[], None);
        engine.work_inline();
        assert_eq!(entries(&table), u64::from(KEYS));
        assert!(table.iter().all(|pair| pair.is_ok_and(|(_, value)| value == [2; 60])));
        assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
    }

    #[test]
    fn a_sweep_of_a_table_that_is_dropped_ends() {
        let (db, table) = open(&SimDisk::new(2));
        fill(&db, &table);
        let engine = table.engine();
        engine.sweep(&table.core, &[], None);
        engine.sweep(&table.core, &[1], None);
        db.drop_table("t").expect("drops");
        engine.work_inline();
        assert_eq!(engine.sweeps.asked.lock().len(), 0);
        assert!(!engine.signal.has_work());
    }

    #[test]
    fn what_was_deleted_before_it_was_applied_stays_so_when_its_tombstone_is_swept_away_and_the_log_kept() {
        let disk = SimDisk::new(3);
        let (db, table) = open(&disk);
        let (core, engine) = (&table.core, table.engine());
        let fences: Vec<Vec<u8>> = (1..16).map(|fence| vec![fence]).collect();
        let state = core.state.load_full();
        core.hold().replace_state(Arc::new(state.active.recut(&[], &fences, 2)), None, Arc::clone(&state.view));
        // The log is kept for the first key, whose section is not that of the deleted one.
        table.put([1u8], "older").expect("put");
        table.put([15u8], "deleted").expect("put");
        table.delete_range([10u8]..).expect("deleted");
        let choice = Choice { table: Arc::clone(core), sections: vec![1] };
        round::run(engine, &mut engine.upkeep.lock(), &[choice]).expect("a round");
        super::turn(engine, &mut engine.upkeep.lock()).expect("a sweep");
        assert!(core.state.load().tombstones.is_empty());
        checkpoint::write(engine, &mut engine.upkeep.lock()).expect("a checkpoint");
        disk.kill();
        drop((state, table, db));
        let (_db, table) = open(&disk);
        assert_eq!(table.get([15u8]).expect("read"), None);
        assert_eq!(table.get([1u8]).expect("read").as_deref(), Some(&b"older"[..]));
    }

    #[test]
    fn the_worker_is_woken_by_the_snapshot_that_was_waited_for_and_no_other() {
        let (db, table) = open(&SimDisk::new(5));
        let engine = table.engine();
        fill(&db, &table);
        let older = db.snapshot();
        table.delete_range([0u8]..).expect("deleted");
        let younger = db.snapshot();
        engine.work_inline();
        assert!(!engine.signal.has_work());
        drop(younger);
        assert!(!engine.signal.has_work(), "nothing waited for it");
        drop(older);
        assert!(engine.signal.has_work());
        engine.work_inline();
        assert_eq!(entries(&table), 0);
    }

    #[test]
    fn a_snapshot_that_goes_before_it_is_noted_that_it_is_waited_for_is_not_waited_for() {
        let (db, table) = open(&SimDisk::new(6));
        let engine = table.engine();
        fill(&db, &table);
        let snapshot = db.snapshot();
        table.delete_range([0u8]..).expect("deleted");
        db.drain().expect("applies");
        engine.sweeps.waits.store(0, super::Ordering::Relaxed);
        let (found, waits) = super::look(engine);
        assert!(found.is_none() && waits.is_some());
        drop(snapshot);
        assert!(!engine.signal.has_work(), "nobody had said that he waits");
        assert!(!engine.sweeps.wait_for(waits, || engine.snapshots.oldest().unwrap_or(super::Seq::MAX)));
    }

    #[test]
    fn tombstones_have_their_turn_while_others_are_swept() {
        let (db, table) = open(&SimDisk::new(7));
        fill(&db, &table);
        let engine = table.engine();
        engine.sweep(&table.core, &0u32.to_be_bytes(), Some(&5000u32.to_be_bytes()));
        table.core.change_tombstones(|tombstones| {
            let high = 5600u32.to_be_bytes();
            tombstones.add(
                &5500u32.to_be_bytes(),
                Some(&high),
                engine.publisher.visible(),
                &engine.horizon(&table.core),
            );
        });
        (0..2).for_each(|_| {
            assert!(super::turn(engine, &mut engine.upkeep.lock()).expect("a stretch"), "there is more");
        });
        assert!(table.core.state.load().tombstones.is_empty());
        assert!(engine.sweeps.are_waiting());
    }

    #[test]
    fn tombstones_that_a_snapshot_keeps_are_not_urgent() {
        let (db, table) = open(&SimDisk::new(4));
        let engine = table.engine();
        table.put("key", "value").expect("put");
        db.drain().expect("applies");
        let snapshot = db.snapshot();
        let ranges = u16::try_from(MANY_FRAGMENTS).expect("few");
        let mut batch = WriteBatch::new();
        let key = |number: u16| [b"later".as_slice(), &number.to_be_bytes()].concat();
        (0..ranges).for_each(|number| batch.delete_range(&table, key(2 * number)..key(2 * number + 1)));
        table.put(key(0), "waits").expect("put");
        db.write(&batch).expect("deleted");
        assert!(!super::is_urgent(engine));
        drop(snapshot);
        engine.work_inline();
        assert!(table.core.state.load().tombstones.fragments().is_empty());
    }
}
