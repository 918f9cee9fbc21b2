//! Relief on a full disk: the measures that give space back, and the order in which they are tried.
//!
//! | [`Measure`] | gives back | needs |
//! |---|---|---|
//! | `ReleaseDead` | segments that are dead as a whole | a checkpoint |
//! | `SweepHidden` | keys that range deletes hide, or that have expired | room for a stretch, of half the reserve |
//! | `DeleteAhead` | nothing itself: deletes for `EmptyNodes` ([`ahead`]) | room for some deletes, of all the reserve |
//! | `EmptyNodes` | node segments with few live bytes | room for [`EMPTIED_BYTES`], of all the reserve |
//! | `EmptyDocuments` | the document segment with the fewest live bytes | room for these, lent from the reserve |
//!
//! Whoever finds the disk full takes the measures of its list one after the other, until one has given space back:
//! a round ([`OF_ROUND`]); a sweep, and a commit with documents ([`OF_OTHERS`]). No stretch of a compaction is under
//! way meanwhile: it could take what is given back.
//!
//! Left to others: the shares of the reserve ([`space::Class`]); the slices of a round ([`crate::apply::round`]); which
//! commits are refused ([`crate::engine::pressure`]); the log kept for readers ([`crate::engine::retention`]).

use std::{cmp::Reverse, sync::Arc};

use index::{Fragment, Seq};

use crate::{
    engine::{
        Engine,
        sweeps::{PIECES_MAX, Relief, Sweep},
        upkeep::Upkeep,
    },
    error::{Error, Result},
    tables::usage,
    upkeep::{ahead, checkpoint, clean, rewrite, sweep, sweep::unless_damaged},
};

/// A way to give space back.
#[derive(Clone, Copy)]
enum Measure {
    ReleaseDead,
    SweepHidden,
    DeleteAhead,
    EmptyNodes,
    EmptyDocuments,
}

const OF_ROUND: [Measure; 5] =
    [Measure::ReleaseDead, Measure::SweepHidden, Measure::DeleteAhead, Measure::EmptyNodes, Measure::EmptyDocuments];
/// Without `SweepHidden`: a sweep would only meet itself.
const OF_OTHERS: [Measure; 3] = [Measure::ReleaseDead, Measure::EmptyNodes, Measure::EmptyDocuments];

/// Live bytes of node segments that are emptied together: far less than the room that is reserved for that.
const EMPTIED_BYTES: u64 = 128 << 10;

/// Bytes by which the data file may have to grow for an image: far more than an image takes while files are few, which
/// they are where this room is much of the reserve.
const IMAGE_ROOM_BYTES: u64 = 128 << 10;

/// Runs a round. Where space was given back, another round can follow.
pub(crate) fn of_round(engine: &Engine, held: &mut Upkeep, round: impl FnMut(&mut Upkeep) -> Result<()>) -> Result<()> {
    relieved(engine, held, &OF_ROUND, (), round)
}

/// Runs a sweep. Returns whether there is more to sweep.
pub(crate) fn of_sweep(
    engine: &Engine, held: &mut Upkeep, sweep: impl FnMut(&mut Upkeep) -> Result<bool>,
) -> Result<bool> {
    relieved(engine, held, &OF_OTHERS, true, sweep)
}

/// Relief for a commit that found no room for its documents.
pub(crate) fn of_commit(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    let _alone = engine.stretches.alone();
    relieve(engine, held, &OF_OTHERS).map(drop)
}

/// Relief where nobody writes, until nothing more can be given back or it is over.
pub(crate) fn of_rest(engine: &Engine, held: &mut Upkeep, is_over: impl Fn() -> bool) -> Result<()> {
    let _alone = engine.stretches.alone();
    while !is_over() && relieve(engine, held, &OF_OTHERS)? {}
    Ok(())
}

/// Takes a step. Where the step finds the disk full, a stretch of a compaction may have had the room for a while: the
/// step is taken once more without it. Where that is of no use, measures are taken. If one of them has given space
/// back, the step is taken before a stretch can have that space, and is due `again` if that was not enough.
fn relieved<T>(
    engine: &Engine, held: &mut Upkeep, measures: &[Measure], again: T, mut step: impl FnMut(&mut Upkeep) -> Result<T>,
) -> Result<T> {
    let ended = engine.stretches.ended();
    let mut outcome = step(held);
    if !matches!(outcome, Err(Error::DiskFull { .. })) {
        return outcome;
    }
    let _alone = engine.stretches.alone();
    if engine.stretches.ended() != ended {
        engine.flush_log()?;
        outcome = step(held);
    }
    match outcome {
        Err(Error::DiskFull { .. }) if relieve(engine, held, measures)? => match step(held) {
            Err(Error::DiskFull { .. }) => Ok(again),
            outcome => outcome,
        },
        outcome => outcome,
    }
}

fn relieve(engine: &Engine, held: &mut Upkeep, measures: &[Measure]) -> Result<bool> {
    for measure in measures {
        let has_given = match measure {
            Measure::ReleaseDead => release_dead(engine, held),
            Measure::SweepHidden => sweep_hidden(engine, held),
            Measure::DeleteAhead => ahead::delete(engine, &mut held.relief.ahead).map(|()| false),
            Measure::EmptyNodes => empty_nodes(engine),
            Measure::EmptyDocuments => clean::empty_one(engine, held),
        };
        match has_given {
            Ok(true) => return Ok(true),
            // Another measure may need less room.
            Ok(false) | Err(Error::DiskFull { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Writes a checkpoint that releases dead segments, if there are any. Returns whether some were released.
fn release_dead(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    // A segment whose documents were all given up counts no bytes, and has its file.
    let before = (usage::dead_files(&engine.catalog), usage::segment_bytes(&engine.catalog));
    if before.0 == 0 {
        return Ok(false);
    }
    match checkpoint::write(engine, held) {
        // The image has become longer than the data file has room for.
        Err(Error::DiskFull { .. }) => match engine.structures.lend_room(IMAGE_ROOM_BYTES)? {
            Some(_loan) => checkpoint::write(engine, held)?,
            None => return Ok(false),
        },
        written => written?,
    }
    let after = (usage::dead_files(&engine.catalog), usage::segment_bytes(&engine.catalog));
    Ok(after.0 < before.0 || after.1 < before.1)
}

/// Sweeps a stretch of keys that range deletes hide from all readers, or of leaves in which enough has expired. Returns
/// whether there was any.
///
/// Range deletes are taken once each, though older operations on their keys cannot be applied yet, because those may
/// wait for this space.
fn sweep_hidden(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    if held.relief.left.is_empty() {
        gather(&mut held.relief, engine)?;
    }
    while let Some(sweep) = held.relief.left.pop_front() {
        match unless_damaged(&sweep.table, sweep::stretch(engine, &sweep)) {
            Ok(None) => {}
            Ok(Some(next)) => {
                held.relief.left.extend(next.map(|low| Sweep { low, ..sweep }));
                return Ok(true);
            }
            // Others may need less.
            Err(Error::DiskFull { .. }) if held.relief.again.contains(&sweep) => {}
            Err(Error::DiskFull { .. }) => held.relief.again.push_back(sweep),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Gathers the sweeps that would give space back now.
fn gather(relief: &mut Relief, engine: &Engine) -> Result<()> {
    let (before, mut through) = (relief.through, Seq::MAX);
    for table in engine.catalog.live().into_iter().filter(|table| !table.is_damaged()) {
        let horizon = engine.horizon(&table);
        let seen_by_all = horizon.visible.min(horizon.oldest().unwrap_or(Seq::MAX));
        through = through.min(seen_by_all);
        let is_due = |fragment: &&Arc<Fragment>| fragment.newest() > before && fragment.newest() <= seen_by_all;
        let fragments = horizon.tombstones.fragments().iter().filter(is_due);
        let hidden = fragments.map(|fragment| (fragment.low.clone(), fragment.high.clone()));
        let due = unless_damaged(&table, table.tree.due(horizon.now, PIECES_MAX).map_err(Error::from))?;
        let due = due.into_iter().flatten().map(|keys| (keys.low, keys.high));
        let of_table =
            hidden.chain(due).map(|(low, high)| Sweep { table: Arc::clone(&table), low, high, chosen: None });
        relief.left.extend(of_table);
    }
    relief.left.append(&mut relief.again);
    relief.through = through;
    Ok(())
}

/// Empties node segments with few live bytes, all of one table, the one with the most garbage first. Leaves on the way
/// to the live ones are written anew too.
///
/// Returns whether there were such segments, room to empty them, and bytes to gain.
fn empty_nodes(engine: &Engine) -> Result<bool> {
    let before = in_use(engine);
    let mut tables = engine.catalog.live();
    tables.retain(|table| table.is_read_as_it_is() && !table.is_damaged() && table.check_not_loading().is_ok());
    tables.sort_by_key(|table| Reverse(table.tree.space().garbage_bytes));
    let has_given = || in_use(engine) + EMPTIED_BYTES / 2 <= before;
    for table in tables.into_iter().filter(|table| table.tree.can_be_emptied()) {
        let (mut bytes, mut last) = (EMPTIED_BYTES, before);
        loop {
            match unless_damaged(&table, rewrite::empty(engine, &table.hold(), bytes)) {
                // One segment may have fewer live bytes.
                Err(Error::DiskFull { .. }) if bytes > 1 => bytes = 1,
                Err(Error::DiskFull { .. }) | Ok(None | Some(false)) => break,
                Ok(Some(true)) if has_given() => return Ok(true),
                // Little may come to much.
                Ok(Some(true)) if in_use(engine) < last => last = in_use(engine),
                Ok(Some(true)) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(false)
}

/// Bytes of segments of all tables that no checkpoint could release now.
fn in_use(engine: &Engine) -> u64 {
    usage::segment_bytes(&engine.catalog) - usage::dead_bytes(&engine.catalog)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use super::*;
    use crate::options::Options;

    #[test]
    fn a_step_that_finds_the_disk_full_beside_a_stretch_is_taken_once_more() {
        let options = Options::new().background(false);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let engine = database.engine();
        let full = || Error::DiskFull { path: engine.path.clone(), problem: "no room".into() };
        let held = &mut engine.upkeep.lock();
        for is_beside in [true, false] {
            let mut times = 0;
            let outcome = relieved(engine, held, &[], (), |_| {
                times += 1;
                if is_beside && times == 1 {
                    drop(engine.stretches.alone().begin());
                    return Err(full());
                }
                if is_beside { Ok(()) } else { Err(full()) }
            });
            assert_eq!((outcome.is_ok(), times), (is_beside, if is_beside { 2 } else { 1 }));
        }
        assert!(engine.stretches.is_idle());
    }
}
