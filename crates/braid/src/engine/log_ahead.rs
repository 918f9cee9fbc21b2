//! Keeps the log ahead of its writers: flushes lazy and submitted commits in time, and prepares the next segment before
//! an append needs one.
//!
//! 1. [`flush_in_time`] sleeps until the earliest deadline of a lazy or submitted commit ([`crate::engine::keeper`]),
//!    flushes through the last waiting commit, and publishes.
//! 2. [`prepare_ahead`] checks at regular intervals whether the log has its spare segments. There is no check while
//!    the reserve lacks room, because the disk is full then, and a segment would take the room of the operations that
//!    give space back. An append that needs a segment still makes one, or takes a spare one.
//!
//! Invariant: the two have a thread each. Making a segment takes longer than a lazy commit may wait, and lazy commits
//! may come so close together that a flush is always due.

use std::{sync::Arc, time::Duration};

use wal::Lsn;

use crate::{engine::Engine, error::Error};

/// Time between two checks of the spare segments.
const PREPARE_PACE: Duration = Duration::from_millis(100);

/// Flushes lazy and submitted commits when they are due, until the keeper is stopped or the log fails.
pub(crate) fn flush_in_time(engine: &Arc<Engine>) {
    while let Some(end) = engine.keeper.next() {
        if !flush(engine, end) {
            return;
        }
    }
}

/// Flushes the log through `end`, and publishes. False when the log takes no more.
fn flush(engine: &Engine, end: Lsn) -> bool {
    if engine.health.check().is_err() {
        return false;
    }
    let flushed = engine.wal.flush_through_then(end, &|| engine.publish());
    // Whoever flushed this part before may not have published.
    flushed.map(|()| engine.publish()).map_err(|error| engine.fail(Error::from(error).cause())).is_ok()
}

/// Prepares the next log segments, until the keeper is stopped or a failure ends all writing.
pub(crate) fn prepare_ahead(engine: &Arc<Engine>) {
    while engine.keeper.pause(PREPARE_PACE) && engine.health.check().is_ok() {
        prepare(engine);
    }
}

/// Prepares the next log segments, unless they would take room that the reserve lacks. The log goes on without them,
/// unless the log failed.
pub(crate) fn prepare(engine: &Engine) {
    if !engine.structures.can_spare(engine.wal.prepared_bytes()) {
        return;
    }
    match engine.wal.prepare() {
        Ok(()) => {}
        Err(failed @ wal::Error::Failed(_)) => engine.fail(Error::from(failed).cause()),
        Err(error) => events::warn!(%error, "no spare log segment"),
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::UNIX_EPOCH};

    use psync::sim::{Fault, SimDisk};
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        handles::database::Database,
        options::Options,
        words::{clock::ManualClock, durability::Durability, structure::Structure},
    };

    const LONGEST_MS: u64 = 12;
    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;

    fn open(disk: &SimDisk, clock: &ManualClock) -> Database {
        let options =
            Options::new().background(false).cache_bytes(1 << 20).segment_bytes(64 << 10).clock(clock.clone());
        options.open_on(disk.psync(), Path::new("/db")).expect("opens")
    }

    /// Lazy commits at set times, until the power goes. Returns the number of lost commits.
    fn live_and_lose_power(seed: u64) -> usize {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new(seed);
        let clock = ManualClock::new(UNIX_EPOCH);
        let database = open(&disk, &clock);
        let table = database.table("t", Structure::BTree).expect("a table");
        let engine = table.engine();
        disk.crash_after(random.random_range(1..60));
        // The deadline of each commit, and the time until which every due commit was flushed.
        let (mut deadlines, mut flushed) = (Vec::new(), None);
        for tick in 0..200 {
            clock.advance(Duration::from_millis(u64::from(tick > 0)));
            // The work of the thread that wakes at a deadline.
            let due = engine.keeper.state.lock().take_due(engine.keeper.clock.instant());
            if due.is_some_and(|end| !flush(engine, end)) {
                break;
            }
            flushed = Some(tick);
            for _ in 0..random.random_range(0..3) {
                let interval = random.random_range(1..=LONGEST_MS);
                let key = u32::try_from(deadlines.len()).expect("few").to_be_bytes();
                let value = vec![1; random.random_range(0..2000)];
                if table.put_with(key, value, Durability::Lazy(Duration::from_millis(interval))).is_ok() {
                    deadlines.push(tick + interval);
                }
            }
        }
        disk.restart();
        drop((table, database));
        let database = open(&disk, &clock);
        let table = database.open_table("t").expect("it was there");
        let found = table.iter().count();
        let keys = table.iter().map(|pair| pair.expect("reads").0);
        assert!(keys.eq((0..u32::try_from(found).expect("few")).map(|key| key.to_be_bytes())), "seed {seed}: a prefix");
        let due = deadlines.iter().rposition(|deadline| Some(*deadline) <= flushed).map_or(0, |last| last + 1);
        assert!(found >= due, "seed {seed}: {due} commits were older than their interval, {found} are there");
        // A commit that met the failure may be there.
        deadlines.len().saturating_sub(found)
    }

    #[test]
    fn a_log_that_fails_while_it_is_prepared_ends_all_writing_and_a_full_disk_does_not() {
        for (errno, fails) in [(ENOSPC, false), (EIO, true)] {
            let disk = SimDisk::new(1);
            let options = Options::new().background(false).segment_bytes(1 << 20);
            let database = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
            let table = database.table("t", Structure::BTree).expect("a table");
            let put = || (0..20).try_for_each(|key| table.put([key], [1; 1000]).map(drop));
            put().expect("there is room");
            disk.fail_operation(Fault::Growth, 0, errno);
            prepare(table.engine());
            assert_eq!(disk.faults_left(), 0, "the segment was to be longer");
            assert_eq!(table.engine().health.check().is_err(), fails);
            assert_eq!(matches!(put(), Err(Error::Failed { .. })), fails);
        }
    }

    #[test]
    fn a_log_takes_no_room_ahead_that_the_reserve_lacks() {
        for is_short in [false, true] {
            let disk = SimDisk::new(1);
            let options = Options::new().background(false).segment_bytes(1 << 20);
            let database = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
            let table = database.table("t", Structure::Append).expect("a table");
            let put = || (0..=255).for_each(|key| table.put([key], [1; 1000]).map(drop).expect("there is room"));
            let engine = table.engine();
            put();
            database.drain().expect("applies");
            if is_short {
                drop(engine.structures.lend_room(64 << 10).expect("cuts").expect("there is as much"));
            }
            (0..2).for_each(|_| put());
            // The reserve has 4 MiB for nodes, and spare segments take 3.
            let with = |room: u64| is_short.then_some(disk.used_bytes() + (room << 20));
            disk.set_capacity(with(6));
            disk.fail_operation(Fault::Growth, 0, ENOSPC);
            prepare(engine);
            assert_eq!(disk.faults_left(), usize::from(is_short));
            // With plenty of room, the log has its share again.
            disk.set_capacity(with(9));
            prepare(engine);
            assert_eq!(disk.faults_left(), 0);
        }
    }

    #[test]
    fn power_takes_no_lazy_commit_back_that_is_older_than_its_interval() {
        let lost: usize = (0..150).map(live_and_lose_power).sum();
        assert!(lost > 150, "{lost} commits lost: power went when there was little to lose");
    }
}
