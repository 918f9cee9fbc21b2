//! Cleaning in the background: segments of documents with much garbage are emptied ([`crate::upkeep::relocate`]), so
//! that live bytes bound the space of documents.
//!
//! 1. A *cycle* begins when a table's segments hold more than [`DUE`] tenths of their live bytes and
//!    `SLACK_SEGMENTS` segments more. It chooses the segments with the most garbage, as many as bring the space down
//!    to [`GOAL`] tenths, but moves only a part of the live bytes (an eighth, or a segment). One walk through the
//!    table empties all of them.
//! 2. The worker moves one stretch between two rounds, and [`URGENT_STRETCHES`] where the space is above [`URGENT`]
//!    tenths of the live bytes. Cleaning makes way for readers as rounds do. Writers fill the write buffer meanwhile,
//!    which slows them down smoothly. Above `URGENT` tenths commits of documents are delayed too, by ever more up to
//!    `BOUND` tenths ([`pace`]), so writers settle at the speed of cleaning.
//! 3. A cycle ends with a checkpoint, because only a checkpoint releases the emptied segments. Enough dead bytes that
//!    wait for a checkpoint bring one about as well.
//! 4. Operations in the queues hide dead documents. Where the queued documents are many compared with the live ones,
//!    everything is applied first.
//! 5. On a full disk segments are emptied one at a time, the one with the fewest live bytes of all tables first:
//!    - Its live bytes must be at most half of it, unless cleaning of its table is due.
//!    - The copies go to the room that is reserved for them, in ever smaller stretches, which grow again as soon as
//!      they go in.
//!    - A writer that finds no room for its documents has a segment emptied at once ([`empty_one`]).
//!    - Where not one document goes in, cleaning waits until another writer finds no room, a checkpoint or a drain is
//!      requested, nobody writes, or `PAUSE` has passed at the worker's next look. By then the disk may have room
//!      again ([`Cleaning::try_again`]).
//!    - A cycle that cannot read something is given up.
//! 6. An emptied segment goes only when no reader has an older state of its table. Where more than a part of the live
//!    bytes waits for readers (`HELD_PART`), no other cycle begins, because copies would take space and bring none.
//!    With the readers gone a checkpoint releases those segments, and cleaning goes on.
//! 7. A segment that a cycle could not empty (only queues refer to its documents, or they are damaged) is not chosen
//!    again before fewer of its bytes live.
//!
//! Invariants: as a stretch's; a cycle is in memory only, and after any end of a cycle the next one chooses by the
//! segments as they then are.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use doclog::{SegmentId, Usage};
use space::Class;

use crate::{
    commit::pacing::{Filling, SLACK_SEGMENTS, URGENT, is_held, pace, released_dead},
    engine::{
        Engine,
        cleaning::{Cycle, How, Plan, Position},
        upkeep::Upkeep,
    },
    error::{Error, Result},
    tables::{catalog::TableCore, usage},
    upkeep::{
        checkpoint,
        relocate::{self, CompactionTimes, Moved},
    },
};

/// Limits on the space of a table's segments, in tenths of their live bytes: a cycle begins above `DUE`, and brings
/// the space down to `GOAL`.
const DUE: u64 = 15;
const GOAL: u64 = 13;
/// A cycle moves this part of the live bytes, or a segment.
const CYCLE_PART: u64 = 8;
/// A checkpoint is written where more than this part of the live bytes, and so many segments besides, is dead and
/// waits for one.
const DEAD_PART: u64 = 16;
const DEAD_SEGMENTS: u64 = 2;
/// A segment with more live bytes than this, in tenths, is left alone.
const FULL: u64 = 9;
/// Documents in queues are many if they take this part of the live bytes.
const QUEUED_PART: u64 = 8;
/// Bytes that emptying a segment on a full disk takes beside the live bytes: rounding, and a little of the structure.
const ROOM_SLACK_BYTES: u64 = 64 << 10;
/// Stretches of a turn when cleaning is behind.
const URGENT_STRETCHES: usize = 4;

/// Whether the queues of a table must be applied before the dead documents can be known.
pub(crate) fn needs_apply(engine: &Engine) -> bool {
    let segment_bytes = engine.options.segment_bytes;
    engine.catalog.live().iter().any(|table| {
        let queued = table.queued_documents.load(Ordering::Relaxed);
        if queued < segment_bytes {
            return false;
        }
        let stats = table.documents.stats();
        let filling = Filling { bytes: stats.bytes - stats.pinned_bytes, live_bytes: stats.live_bytes, dead_bytes: 0 };
        let least = stats.live_bytes.saturating_sub(queued);
        queued > stats.live_bytes / QUEUED_PART && filling.is_above(DUE, least, segment_bytes)
    })
}

/// Moves a stretch, or a few, if there is something to clean. Returns whether there is more.
///
/// # Errors
/// As a stretch's, except a full disk.
pub(crate) fn turn(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    if engine.cleaning.has_paused() {
        engine.cleaning.try_again();
    }
    if engine.cleaning.is_waiting() {
        return Ok(false);
    }
    let (mut number, mut stretches) = (0, 1);
    // A cycle with lent room is brought to its end, before anything else takes that room.
    while number < stretches || engine.structures.is_room_lent() {
        number += 1;
        if engine.cleaning.is_waiting() {
            break;
        }
        let Some(cycle) = held.cycle.take().or_else(|| choose(engine)) else {
            return release(engine, held);
        };
        let filling = Filling::of(&cycle.table.documents.usage());
        if filling.is_above(URGENT, filling.live_bytes, engine.options.segment_bytes) {
            stretches = URGENT_STRETCHES;
        }
        let table = Arc::clone(&cycle.table);
        stretch(engine, held, cycle)?;
        pace(engine, &table);
    }
    let waits = engine.cleaning.is_waiting();
    Ok(!waits && (held.cycle.is_some() || choose(engine).is_some()))
}

/// Empties the segment with the fewest live bytes among those with enough garbage. Returns
/// whether that released any bytes.
///
/// # Errors
/// As a stretch's, except a full disk.
pub(crate) fn empty_one(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    let before = usage::segment_bytes(&engine.catalog);
    engine.cleaning.try_again();
    engine.cleaning.tighten();
    let is_of_use = |cycle: &Cycle| cycle.plan.segments.len() == 1 && cycle.table.is_read_as_it_is();
    let under_way = held.cycle.take().filter(is_of_use);
    let mut next = under_way.or_else(|| choose(engine)).or_else(|| {
        seal_half_dead(engine);
        choose(engine)
    });
    while let Some(mut cycle) = next
        && !engine.cleaning.is_waiting()
    {
        cycle.at_once = true;
        stretch(engine, held, cycle)?;
        next = held.cycle.take();
    }
    Ok(usage::segment_bytes(&engine.catalog) < before)
}

/// Seals segments that are being appended to and of which half is dead: later appends go elsewhere, so that these can
/// be emptied.
fn seal_half_dead(engine: &Engine) {
    let is_half_dead = |segment: Usage| segment.live_bytes <= segment.bytes / 2 && segment.live_bytes > 0;
    for table in engine.catalog.live() {
        if table.documents.usage().into_iter().any(|segment| !segment.is_settled && is_half_dead(segment)) {
            table.documents.seal();
        }
    }
}

fn stretch(engine: &Engine, held: &mut Upkeep, mut cycle: Cycle) -> Result<()> {
    let table = Arc::clone(&cycle.table);
    if engine.check_live(&table).is_err() || table.check_not_loading().is_err() {
        return Ok(());
    }
    // A reader that has begun to read an older state since then keeps the emptied segment: room lent for it would not
    // come back.
    if cycle.loan.is_some() && !table.is_read_as_it_is() {
        return Ok(());
    }
    let (mut moved, mut times) = (Moved::default(), CompactionTimes::default());
    let ended = engine.stretches.ended();
    let mut stretch = || relocate::stretch(engine, &table.hold(), &cycle.low, &cycle.plan, &mut moved, &mut times);
    let mut next = stretch();
    // A stretch of a compaction may have had the room for a while. None is under way during what follows from a full
    // disk.
    let alone = matches!(next, Err(Error::DiskFull { .. })).then(|| engine.stretches.alone());
    if alone.is_some() && engine.stretches.ended() != ended {
        next = stretch();
    }
    engine.cleaning.documents.fetch_add(moved.documents, Ordering::Relaxed);
    engine.cleaning.bytes.fetch_add(moved.bytes, Ordering::Relaxed);
    match next {
        Ok(Some(low)) => {
            cycle.low = low;
            // A full disk may have made the window short.
            cycle.plan.window_bytes =
                cycle.plan.window_bytes.saturating_mul(2).min(engine.pressure.stretch_bytes() as u64);
            held.cycle = Some(cycle);
            Ok(())
        }
        Ok(None) => {
            engine.cleaning.end(&cycle);
            // The loan is used up, or can go back: a writer that waits for room should find the room that the
            // checkpoint brings.
            drop(cycle);
            held.stuck_bytes = 0;
            checkpoint::write(engine, held)
        }
        // Nor is room lent for segments that readers hold.
        Err(Error::DiskFull { .. }) if cycle.plan.segments.len() > 1 || !table.is_read_as_it_is() => {
            engine.cleaning.tighten();
            Ok(())
        }
        Err(Error::DiskFull { .. }) if !cycle.has_asked => {
            let live = |usage: &Usage| if cycle.plan.segments.contains(&usage.segment) { usage.live_bytes } else { 0 };
            let live_bytes: u64 = table.documents.usage().iter().map(live).sum();
            // With a smaller loan some documents would move, and no segment go.
            let lent = engine.structures.lend_room(live_bytes + ROOM_SLACK_BYTES);
            cycle.loan = lent.map_err(|error| engine.write_error(error))?;
            if cycle.loan.is_some() {
                cycle.plan.class = Class::Emptying;
            }
            cycle.has_asked = true;
            held.cycle = Some(cycle);
            Ok(())
        }
        Err(Error::DiskFull { .. }) if cycle.plan.window_bytes > 1 && (!cycle.at_once || cycle.loan.is_some()) => {
            cycle.plan.window_bytes /= 2;
            held.cycle = Some(cycle);
            Ok(())
        }
        Err(Error::DiskFull { .. }) => {
            engine.cleaning.wait();
            Ok(())
        }
        Err(error) if error.is_read_failure() || matches!(error, Error::Corrupt { .. }) => {
            events::warn!(%error, table = table.name, "segments of documents cannot be cleaned");
            engine.cleaning.end(&cycle);
            Ok(())
        }
        Err(error) => {
            held.cycle = Some(cycle);
            Err(error)
        }
    }
}

/// The next table to be cleaned, and the segments to empty there.
fn choose(engine: &Engine) -> Option<Cycle> {
    let segment_bytes = engine.options.segment_bytes;
    let is_tight = engine.cleaning.tight.load(Ordering::Relaxed);
    let of_table = |table: Arc<TableCore>| {
        if !is_tight && table.documents.stats().segments < SLACK_SEGMENTS || table.check_not_loading().is_err() {
            return None;
        }
        let mut usage = table.documents.usage();
        let filling = Filling::of(&usage);
        let is_due = filling.is_above(DUE, filling.live_bytes, segment_bytes);
        // Where older states are read, an emptied segment goes only with their readers: emptying would take room and
        // give none.
        let is_in_vain = if is_tight { !table.is_read_as_it_is() } else { !is_due || is_held(engine, &table) };
        if is_in_vain {
            return None;
        }
        usage.retain(|segment| !engine.cleaning.is_left(table.id, segment));
        let (live_bytes, segments) = if is_tight {
            usage.retain(|segment| is_worth_it(segment) && (is_due || segment.live_bytes <= segment.bytes / 2));
            let least = usage.into_iter().min_by_key(|segment| segment.live_bytes)?;
            (least.live_bytes, BTreeSet::from([least.segment]))
        } else {
            (filling.live_bytes, fullest_of_garbage(usage, &filling, segment_bytes))
        };
        let how =
            How { submission_batch: engine.store.psync().pio_max(), sorted: true, direct: true, overlapped: true };
        let window_bytes = engine.pressure.stretch_bytes() as u64;
        let plan = Plan { segments, window_bytes, how, class: Class::Normal };
        let cycle = Cycle { table, plan, low: Position::default(), has_asked: false, loan: None, at_once: false };
        (!cycle.plan.segments.is_empty()).then_some((live_bytes, cycle))
    };
    let mut cycles = engine.catalog.live().into_iter().filter_map(of_table);
    // Where room is tight, the cycle with the fewest live bytes comes first.
    let chosen = if is_tight { cycles.min_by_key(|(live_bytes, _)| *live_bytes) } else { cycles.next() };
    chosen.map(|(_, cycle)| cycle)
}

fn is_worth_it(segment: &Usage) -> bool {
    segment.is_settled && segment.live_bytes > 0 && segment.live_bytes * 10 <= segment.bytes * FULL
}

/// The segments with the greatest part of garbage, as many as are needed.
fn fullest_of_garbage(mut usage: Vec<Usage>, filling: &Filling, segment_bytes: u64) -> BTreeSet<SegmentId> {
    usage.retain(is_worth_it);
    // Two fractions are compared by cross-multiplication: live bytes of the one times all bytes of the other.
    let product = |live: u64, bytes: u64| u128::from(live) * u128::from(bytes);
    usage.sort_by(|one, other| product(one.live_bytes, other.bytes).cmp(&product(other.live_bytes, one.bytes)));
    let goal = filling.live_bytes / 10 * GOAL;
    let most = (filling.live_bytes / CYCLE_PART).max(segment_bytes);
    let (mut left, mut moved, mut chosen) = (filling.bytes, 0, BTreeSet::new());
    for segment in usage {
        if left <= goal || moved + segment.live_bytes > most && !chosen.is_empty() {
            break;
        }
        left = left.saturating_sub(segment.bytes.saturating_sub(segment.live_bytes));
        moved += segment.live_bytes;
        chosen.insert(segment.segment);
    }
    chosen
}

/// Writes a checkpoint where that releases enough. Returns whether there is more to do.
pub(crate) fn release(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    let dead = releasable(engine);
    // Bytes that one checkpoint could not release the next one cannot either, until there are twice as many.
    if dead == 0 || dead < 2 * held.stuck_bytes {
        return Ok(false);
    }
    // What a stretch of a compaction gives up behind the checkpoint is not stuck.
    let alone = engine.stretches.alone();
    checkpoint::write(engine, held)?;
    held.stuck_bytes = releasable(engine);
    drop(alone);
    Ok(choose(engine).is_some())
}

/// Bytes of dead segments that a checkpoint may release, counted for tables that have many.
fn releasable(engine: &Engine) -> u64 {
    let of_table = |table: &Arc<TableCore>| {
        let own = table.tree.space();
        let dead = released_dead(engine, table) + own.dead_bytes;
        let live = table.documents.stats().live_bytes + own.live_bytes;
        if dead > live / DEAD_PART + DEAD_SEGMENTS * engine.options.segment_bytes { dead } else { 0 }
    };
    engine.catalog.live().iter().filter(|table| table.is_read_as_it_is()).map(of_table).sum()
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use psync::sim::SimDisk;

    use super::*;
    use crate::{
        apply::{choice, round},
        engine::cleaning::PAUSE,
        options::Options,
        words::structure::Structure,
    };

    #[test]
    fn stretches_that_a_full_disk_has_made_short_grow_again() {
        let options = Options::new().background(false).segment_bytes(256 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        (0..200_u8).for_each(|number| table.put([number], [number; 3000]).map(drop).expect("put"));
        db.drain().expect("applies");
        let (core, engine) = (&table.core, table.engine());
        core.documents.seal();
        let how = How { submission_batch: 16, sorted: true, direct: true, overlapped: true };
        let plan =
            Plan { segments: core.documents.live().into_keys().collect(), window_bytes: 1, how, class: Class::Normal };
        let low = Position::default();
        let mut cycle =
            Some(Cycle { table: Arc::clone(core), plan, low, has_asked: false, loan: None, at_once: false });
        let held = &mut engine.upkeep.lock();
        let mut stretches = 0;
        while let Some(now) = cycle {
            stretch(engine, held, now).expect("moves");
            cycle = held.cycle.take();
            stretches += 1;
        }
        assert!(stretches < 40, "{stretches} stretches");
        assert_eq!(engine.cleaning.moved().0, 200);
    }

    #[test]
    fn on_a_full_disk_nothing_is_emptied_that_readers_hold() {
        let options = Options::new().background(false).segment_bytes(64 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        let put = |from: u8| {
            (from..200).step_by(2).for_each(|number| table.put([number], [from; 3000]).map(drop).expect("put"))
        };
        put(0);
        put(1);
        db.drain().expect("applies");
        let mut reader = table.iter();
        assert!(reader.next().is_some());
        put(0);
        db.drain().expect("applies");
        let engine = table.engine();
        engine.cleaning.tight.store(true, Ordering::Relaxed);
        assert!(choose(engine).is_none(), "it would come back with the reader only");
        drop(reader);
        assert!(choose(engine).is_some());
    }

    #[test]
    fn on_a_full_disk_what_takes_least_is_emptied_first_and_what_is_appended_to_as_well() {
        let options = Options::new().background(false).segment_bytes(256 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let [large, small] = ["a", "b"].map(|name| db.table(name, Structure::BTree).expect("a table"));
        let put = |table: &crate::handles::table::Table, keys: std::ops::Range<u8>| {
            keys.for_each(|number| table.put([number], [number; 3000]).map(drop).expect("put"));
        };
        // A third of the one segment lives, and a tenth of the other.
        put(&large, 0..60);
        put(&small, 0..60);
        db.drain().expect("applies");
        large.delete_range([20]..).expect("deletes");
        small.delete_range([6]..).expect("deletes");
        (0..3).for_each(|_| db.drain().expect("applies"));
        let engine = large.engine();
        engine.cleaning.tighten();
        assert!(choose(engine).is_none(), "both are appended to");
        seal_half_dead(engine);
        assert_eq!(choose(engine).expect("a cycle").table.name, "b");
        let held = &mut engine.upkeep.lock();
        let before = usage::segment_bytes(&engine.catalog);
        assert!(empty_one(engine, held).expect("cleans"));
        assert!(usage::segment_bytes(&engine.catalog) < before);
        assert_eq!(engine.cleaning.moved().0, 6);
    }

    #[test]
    fn what_a_full_disk_has_stopped_goes_on_though_nobody_asks() {
        let options = Options::new().background(false).segment_bytes(64 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        let engine = table.engine();
        engine.cleaning.tighten();
        engine.cleaning.wait();
        *engine.cleaning.full.lock() = Instant::now().checked_add(360 * PAUSE);
        for round in 0..8 {
            let keys = (0..200_u8).filter(|number| number % 8 >= round);
            keys.for_each(|number| table.put([number], [round; 3000]).map(drop).expect("put"));
        }
        let held = &mut engine.upkeep.lock();
        round::run(engine, held, &choice::fullest(engine, |_| true)).expect("applies");
        assert!(!turn(engine, held).expect("nothing to do"), "the disk was just full");
        assert_eq!(engine.cleaning.moved().0, 0);
        *engine.cleaning.full.lock() = Instant::now().checked_sub(PAUSE);
        while turn(engine, held).expect("cleans") {}
        assert!(engine.cleaning.moved().0 > 0);
        assert!(!engine.cleaning.tight.load(Ordering::Relaxed));
    }

    fn segment(number: u64, bytes: u64, live_bytes: u64) -> Usage {
        Usage { segment: SegmentId(number), bytes, live_bytes, is_settled: true }
    }

    fn chosen(usage: &[Usage]) -> Vec<u64> {
        let filling = Filling::of(usage);
        fullest_of_garbage(usage.to_vec(), &filling, 100).into_iter().map(|segment| segment.0).collect()
    }

    #[test]
    fn the_segments_with_the_most_garbage_go_first_and_as_few_as_do() {
        let full = (10..30).map(|number| segment(number, 100, 100));
        let usage: Vec<_> = [segment(1, 100, 50), segment(2, 1000, 10), segment(3, 100, 10), segment(4, 100, 95)]
            .into_iter()
            .chain(full)
            .collect();
        assert_eq!(chosen(&usage), [2], "that is enough: 1% of it lives");
        let usage: Vec<_> = (0..20).map(|number| segment(number, 100, 40 + number)).collect();
        // An eighth of the live bytes, or a segment.
        assert_eq!(chosen(&usage), [0, 1, 2]);
        assert_eq!(chosen(&[segment(1, 100, 95), segment(2, 100, 100)]), [0; 0]);
        let waits = Usage { is_settled: false, ..segment(1, 1000, 1) };
        assert_eq!(chosen(&[waits, segment(2, 100, 30), segment(3, 100, 60)]), [2, 3]);
    }

    #[test]
    fn what_is_dead_counts_for_itself() {
        let filling = Filling::of(&[segment(1, 100, 0), segment(2, 200, 100)]);
        assert_eq!((filling.bytes, filling.live_bytes, filling.dead_bytes), (200, 100, 100));
        assert!(filling.is_above(DUE, 100, 1) && !filling.is_above(DUE, 100, 50));
    }
}
