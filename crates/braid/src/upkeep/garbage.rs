//! Garbage of structures in files of their own: where there is too much, the worker has the files swept.
//!
//! A structure that only appends leaves a little alive in each of its segments, and a segment goes only as a whole.
//!
//! 1. A sweep begins when more than half as many bytes are dead as are alive, counted over segments in use
//!    ([`WORKING`]).
//! 2. It takes the segments with the fewest live bytes, and writes these bytes anew, stretch by stretch
//!    ([`crate::upkeep::sweep`]).
//! 3. It goes on until the dead bytes of the other segments are no more than a part of the live bytes ([`AT_REST`]).
//! 4. Entirely dead segments go with a checkpoint, which comes when there are many ([`crate::upkeep::clean`]).
//!
//! So a table seldom takes much more than one and a half times its live bytes, and the bytes that the sweep has
//! written.
//!
//! Where nobody writes ([`crate::upkeep::rest`]), the lower limit holds in any case ([`sweep_at_rest`]), because
//! applying all waiting operations makes nearly every leaf anew and leaves some of the old leaves in all segments.
//!
//! On a full disk a sweep would take space for all live bytes of its segments before any is released. There a few
//! segments are emptied at a time, in the room that is reserved for that ([`crate::upkeep::full_disk`]).

use std::sync::Arc;

use crate::{
    engine::{Engine, upkeep::Upkeep},
    error::{Error, Result},
    tables::catalog::TableCore,
    upkeep::sweep,
};

/// How much garbage a table may have: this part of the live bytes, or so many bytes, because less is not worth a
/// sweep.
#[derive(Clone, Copy)]
struct Limit {
    part: u64,
    least_bytes: u64,
}

/// While others write: half as much as is alive, or two segments full.
const WORKING: Limit = Limit { part: 2, least_bytes: 32 << 20 };
/// When nobody writes, and the goal of a sweep.
const AT_REST: Limit = Limit { part: 4, least_bytes: 4 << 20 };

impl Limit {
    /// Bytes of garbage above the limit.
    fn excess(self, table: &TableCore) -> u64 {
        let most = self.least_bytes.max(table.tree.room().live_bytes / self.part);
        table.tree.garbage_bytes().saturating_sub(most)
    }
}

/// Requests sweeps of tables with too much garbage, unless other sweeps wait or the disk is full.
pub(crate) fn look(engine: &Engine) {
    if !engine.sweeps.are_waiting() && engine.pressure.full_disk().is_none() {
        sweep_above(engine, WORKING);
    }
}

/// Whether there is more garbage than a database at rest should have, in files that are worth sweeping.
pub(crate) fn is_left(engine: &Engine) -> bool {
    above(engine, AT_REST).any(|table| !table.tree.sparse(1).is_empty())
}

/// Sweeps the garbage above the limit at rest, until there is a commit or the database is being closed, so nobody
/// waits for this. On a full disk the garbage stays.
pub(crate) fn sweep_at_rest(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    sweep_above(engine, AT_REST);
    let last = engine.wal.last_seq();
    while engine.sweeps.are_waiting() && engine.wal.last_seq() == last && !engine.is_closed() {
        match sweep::turn(engine, held) {
            Err(Error::DiskFull { .. }) => break,
            outcome => outcome.map(drop)?,
        }
    }
    engine.catalog.live().iter().for_each(|table| engine.sweeps.forget_files(table));
    Ok(())
}

fn sweep_above(engine: &Engine, limit: Limit) {
    for table in above(engine, limit) {
        engine.sweep_files(&table, table.tree.sparse(AT_REST.excess(&table)));
    }
}

/// Tables with more garbage than the limit. A table that is being compacted will have none.
fn above(engine: &Engine, limit: Limit) -> impl Iterator<Item = Arc<TableCore>> {
    let is_swept = |table: &TableCore| !engine.sweeps.is_compacted(table) && !table.is_damaged();
    engine.catalog.live().into_iter().filter(move |table| is_swept(table) && limit.excess(table) > 0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use index::Part;
    use psync::sim::SimDisk;

    use crate::{
        apply::{choice, round},
        handles::table::Table,
        options::Options,
        upkeep::rewrite,
        words::{durability::Durability, structure::Structure},
    };

    #[test]
    fn tries_that_are_overwritten_all_over_stay_bounded() {
        let options = Options::new().background(false).write_buffer_bytes(128 << 10).segment_bytes(256 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::Append).expect("a table");
        let key = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes();
        (0..20_000).for_each(|number| table.put(key(number), [1; 100]).expect("put"));
        let tree = &table.core.tree;
        let (mut most, mut written) = (0, 0);
        for round in 0..60_u32 {
            for number in 0..2000 {
                table.put(key((round * 7919 + number * 13) % 20_000), [round.to_le_bytes()[0]; 100]).expect("put");
            }
            most = most.max(tree.room().bytes);
            let node = |stream: &crate::handles::stats::StreamStats| stream.stream == "node";
            written = db
                .stats()
                .expect("stats")
                .streams
                .iter()
                .find(|stream| node(stream))
                .map_or(0, |node| node.written_bytes);
        }
        db.checkpoint().expect("a checkpoint");
        let live = tree.room().live_bytes;
        let limit = 2 * live + super::WORKING.least_bytes + (64 << 20);
        assert!(written > 3 * limit, "{written} bytes written, and {limit} may be there");
        assert!(most <= limit, "{most} bytes of {live} that live");
        assert_eq!(table.iter().count(), 20_000);
        assert_eq!(db.verify(&mut |_| {}).expect("verifies").findings, [""; 0]);
    }

    #[test]
    fn a_sweep_of_files_leaves_nothing_in_them_and_keeps_what_range_deletes_hide() {
        let options = Options::new().background(false).segment_bytes(64 << 10);
        let key = |number: u32| number.to_be_bytes();
        for operations in 0.. {
            let disk = SimDisk::new(operations);
            let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
            let table = db.table("t", Structure::Append).expect("a table");
            let put = |numbers: &mut dyn Iterator<Item = u32>, byte: u8| {
                numbers.for_each(|number| table.put_with(key(number), [byte; 100], Durability::Os).expect("put"));
                db.drain().expect("applies");
            };
            put(&mut (0..4000), 1);
            put(&mut (0..2000), 2);
            // The range delete cannot be swept before this put is applied.
            table.put(key(2000), "waits").expect("put");
            table.delete_range(key(1000)..key(3000)).expect("deleted");
            let is_whole = |table: &Table| {
                let pairs: Vec<_> = table.iter().map(|pair| pair.expect("a pair")).collect();
                let expected = (0..1000).map(|number| (number, 2)).chain((3000..4000).map(|number| (number, 1)));
                pairs.into_iter().eq(expected.map(|(number, byte)| (key(number).to_vec(), vec![byte; 100])))
            };
            let (engine, core) = (table.engine(), &table.core);
            let mut held = engine.upkeep.lock();
            round::run(engine, &mut held, &choice::fullest(engine, |_| true)).expect("a round");
            let files = core.tree.sparse(u64::MAX);
            assert!(!files.is_empty());
            disk.crash_after(operations);
            let part =
                Part { from: &[], until: None, bytes: usize::MAX, reclaims: true, below: None, only: Some(&files) };
            let is_swept = rewrite::rewrite(engine, &mut held, core, part, 1).is_ok();
            drop(held);
            if is_swept {
                assert!(core.tree.sparse(u64::MAX).is_disjoint(&files), "something lives in them");
                assert!(!core.state.load().tombstones.is_empty(), "other leaves have what it hides");
                assert!(is_whole(&table));
            }
            drop((table, db));
            disk.restart();
            let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
            assert!(is_whole(&db.table("t", Structure::Append).expect("a table")), "after {operations} operations");
            assert_eq!(db.verify(&mut |_| {}).expect("verifies").findings, [""; 0]);
            if is_swept {
                assert!(operations > 3, "{operations} operations are too few to say much");
                break;
            }
        }
    }

    #[test]
    fn a_file_of_nodes_that_is_gone_is_no_garbage() {
        let options = Options::new().background(false);
        let disk = SimDisk::new(1);
        let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::Append).expect("a table");
        table.put("key", "value").expect("put");
        db.checkpoint().expect("a checkpoint");
        drop(table);
        db.close().expect("closes");
        let nodes = disk.files().into_iter().find(|file| file.starts_with("/db/node")).expect("a file");
        disk.psync().remove(&nodes).expect("removed");
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::Append).expect("a table");
        assert_eq!(table.core.tree.garbage_bytes(), 0);
        assert!(table.get("key").is_err());
        assert!(!table.engine().sweeps.are_waiting());
    }

    #[test]
    fn dead_segments_do_not_wait_until_the_log_is_long() {
        let options = Options::new().background(false).write_buffer_bytes(2 << 20).segment_bytes(64 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::Append).expect("a table");
        let key = |number: u32| (number % 20_000).wrapping_mul(2_654_435_761).to_be_bytes();
        let mut most = 0;
        for number in 0..100_000 {
            table.put(key(number), [1; 200]).expect("put");
            most = most.max(table.core.tree.dead_bytes());
        }
        let streams = db.stats().expect("stats").streams;
        let written = streams.iter().find(|stream| stream.stream == "node").map_or(0, |node| node.written_bytes);
        assert!(written > 2 * (16 << 20), "{written} bytes written: more than a segment must have died");
        assert!(most < 8 << 20, "{most} bytes wait");
    }
}
