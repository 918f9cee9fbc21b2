//! Content that structures want rewritten ([`index::Upkeep::wants`]): where there is such content, the worker has it
//! swept ([`crate::upkeep::sweep`]).
//!
//! 1. While others write, a structure wants little.
//! 2. Where nobody writes ([`crate::upkeep::rest`]), it may want more.
//! 3. Entirely dead files go with a checkpoint, which comes when there are many ([`crate::upkeep::clean`]).
//!
//! On a full disk a sweep would take space for all that lives in the chosen files before any is released. There a few
//! files are emptied at a time, in the room that is reserved for that ([`crate::upkeep::full_disk`]).

use std::sync::Arc;

use index::{Chosen, When};

use crate::{
    engine::{Engine, signal::Request, upkeep::Upkeep},
    error::{Error, Result},
    tables::catalog::TableCore,
    upkeep::{clean, full_disk, sweep},
};

/// How often structures are asked for sweeps in one rest, because whoever comes meanwhile may have to wait for its end.
/// What is left waits for the next rest.
const SWEEPS_MAX: usize = 64;

/// Requests sweeps of what structures want rewritten, unless other sweeps wait or the disk is full.
pub(crate) fn look(engine: &Engine) {
    if !engine.sweeps.are_waiting() && engine.pressure.full_disk().is_none() {
        ask(engine, When::Busy);
    }
}

/// Whether a structure wants something rewritten before the database is at rest.
pub(crate) fn is_left(engine: &Engine) -> bool {
    wanting(engine, When::Idle).next().is_some()
}

/// Sweeps what structures want rewritten where nobody writes, and then what else they want, as long as there is no
/// commit, nothing is asked for behind `asked`, and the database is not being closed: so nobody waits long for this. On
/// a full disk only what gives space back is rewritten.
pub(crate) fn sweep_at_rest(engine: &Engine, held: &mut Upkeep, asked: Request) -> Result<()> {
    let last = engine.wal.last_seq();
    let is_over = || engine.wal.last_seq() != last || engine.is_closed() || engine.signal.is_asked_more(asked);
    let mut sweeps = 0;
    let outcome = loop {
        if !engine.sweeps.are_waiting() && sweeps < SWEEPS_MAX {
            ask(engine, When::Idle);
            sweeps += 1;
        }
        if !engine.sweeps.are_waiting() || is_over() {
            break Ok(());
        }
        if let Err(error) = sweep::turn(engine, held).and_then(|_| clean::release(engine, held)) {
            break Err(error);
        }
    };
    engine.catalog.live().iter().for_each(|table| engine.sweeps.forget_chosen(table));
    match outcome {
        Err(Error::DiskFull { .. }) => full_disk::of_rest(engine, held, is_over),
        outcome => outcome,
    }
}

fn ask(engine: &Engine, when: When) {
    wanting(engine, when).for_each(|(table, chosen)| engine.sweep_chosen(&table, chosen));
}

/// Tables whose structures want something rewritten. One that is being compacted is rewritten anyway.
fn wanting(engine: &Engine, when: When) -> impl Iterator<Item = (Arc<TableCore>, Chosen)> {
    let is_swept = |table: &Arc<TableCore>| !engine.sweeps.is_compacted(table) && !table.is_damaged();
    let tables = engine.catalog.live().into_iter().filter(is_swept);
    tables.filter_map(move |table| table.tree.wants(when).map(|chosen| (table, chosen)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use index::{Part, When};
    use psync::sim::SimDisk;

    use crate::{
        apply::{choice, round},
        handles::{batch::WriteBatch, table::Table},
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
        (0..20_000).for_each(|number| table.put(key(number), [1; 100]).map(drop).expect("put"));
        let tree = &table.core.tree;
        let (mut most, mut written) = (0, 0);
        for round in 0..60_u32 {
            for number in 0..2000 {
                table.put(key((round * 7919 + number * 13) % 20_000), [round.to_le_bytes()[0]; 100]).expect("put");
            }
            most = most.max(tree.space().bytes);
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
        let live = tree.space().live_bytes;
        let limit = 2 * live + (32 << 20) + (64 << 20);
        assert!(written > 3 * limit, "{written} bytes written, and {limit} may be there");
        assert!(most <= limit, "{most} bytes of {live} that live");
        assert_eq!(table.iter().count(), 20_000);
        assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
    }

    #[test]
    fn a_sweep_of_what_is_chosen_gives_it_back_and_keeps_what_range_deletes_hide() {
        const KEYS: u32 = 32_000;
        let options = Options::new().background(false).write_buffer_bytes(4 << 20).segment_bytes(1 << 20);
        let key = |number: u32| number.to_be_bytes();
        // A few leaves stay alive in each segment.
        let is_put_again = |number: &u32| !(number / 32).is_multiple_of(4);
        for operations in (0..).step_by(3) {
            let disk = SimDisk::new(operations);
            let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
            let table = db.table("t", Structure::Append).expect("a table");
            let put = |numbers: &mut dyn Iterator<Item = u32>, byte: u8| {
                let numbers: Vec<u32> = numbers.collect();
                for numbers in numbers.chunks(1000) {
                    let mut batch = WriteBatch::new();
                    numbers.iter().for_each(|number| batch.put(&table, key(*number), [byte; 250]));
                    db.write_with(&batch, Durability::Os).expect("puts");
                }
                db.drain().expect("applies");
            };
            put(&mut (0..KEYS), 1);
            put(&mut (0..KEYS).filter(is_put_again), 2);
            // The range delete cannot be swept before this put is applied.
            table.put(key(2000), "waits").expect("put");
            table.delete_range(key(1000)..key(3000)).expect("deleted");
            let is_whole = |table: &Table| {
                let pairs: Vec<_> = table.iter().map(|pair| pair.expect("a pair")).collect();
                let value = |number: u32| if is_put_again(&number) { 2 } else { 1 };
                let expected =
                    (0..1000).chain(3000..KEYS).map(|number| (key(number).to_vec(), vec![value(number); 250]));
                pairs.into_iter().eq(expected)
            };
            let (engine, core) = (table.engine(), &table.core);
            let mut held = engine.upkeep.lock();
            round::run(engine, &mut held, &choice::fullest(engine, |_| true)).expect("a round");
            let chosen = core.tree.wants(When::Idle).expect("more is dead than alive");
            let garbage = core.tree.space().garbage_bytes;
            disk.crash_after(operations);
            let part = Part { reclaims: true, chosen: Some(&chosen), ..Part::whole() };
            let is_swept = rewrite::rewrite(engine, &core.hold(), part).is_ok();
            drop(held);
            if is_swept {
                let left = core.tree.space().garbage_bytes;
                assert!(left < garbage, "{left} bytes of {garbage} are left");
                assert!(!core.state.load().tombstones.is_empty(), "other leaves have what it hides");
                assert!(is_whole(&table));
            }
            drop((table, db));
            disk.restart();
            let db = options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
            assert!(is_whole(&db.table("t", Structure::Append).expect("a table")), "after {operations} operations");
            assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
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
        assert_eq!(table.core.tree.space().garbage_bytes, 0);
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
            most = most.max(table.core.tree.space().dead_bytes);
        }
        let streams = db.stats().expect("stats").streams;
        let written = streams.iter().find(|stream| stream.stream == "node").map_or(0, |node| node.written_bytes);
        assert!(written > 2 * (16 << 20), "{written} bytes written: more than a segment must have died");
        assert!(most < 8 << 20, "{most} bytes wait");
    }
}
