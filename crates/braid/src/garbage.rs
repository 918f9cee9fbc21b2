//! Space that structures leave behind in files of their own: the worker has tables swept in which there is too much of it.
//!
//! A structure that only appends leaves a little alive in each of its segments, and a segment goes as a whole. When what is dead in segments that are in use is more
//! than what is alive, and more than [`LEAST_BYTES`], the table is made anew in key order, stretch by stretch ([`crate::sweep`]), and what was there before dies. So it seldom takes
//! much more than twice what is alive, and what the sweep has written; what died whole goes with a checkpoint, which comes when there is much of it ([`crate::clean`]).
//!
//! On a full disk a sweep in key order would take space for all that is alive before it gives any back. There the segments in which least lives are emptied, a few at a time, in the
//! room that is kept for that ([`relieve`]).

use std::{cmp::Reverse, sync::Arc};

use crate::{Error, Result, catalog::TableCore, compact, engine::Engine, sweep};

/// Less is not worth it: about what two segments hold.
const LEAST_BYTES: u64 = 32 << 20;
/// What lives in files that are emptied together on a full disk: far less than the room that is kept for it.
const EMPTIED_BYTES: u64 = 128 << 10;

/// Asks for sweeps of tables with too much garbage, unless others wait. One that is being compacted will have none.
pub(crate) fn look(engine: &Engine) {
    if engine.sweeps.are_waiting() {
        return;
    }
    for table in engine.catalog.live().into_iter().filter(|table| !engine.sweeps.is_compacted(table)) {
        let dead = table.tree.garbage_bytes();
        if dead > LEAST_BYTES.max(table.tree.room().live_bytes) {
            engine.sweep(&table, &[], None);
        }
    }
}

/// On a full disk: empties files of a table in which little lives, those of one table that has them. Whether there was any, room for that, and something to be had
/// of it: what is on the way to that is written anew too.
pub(crate) fn relieve(engine: &Engine) -> Result<bool> {
    let before = in_use(engine);
    let mut tables = engine.catalog.live();
    tables.retain(|table| table.tree.garbage_bytes() > 0 && table.is_read_as_it_is());
    tables.retain(|table| !table.is_damaged() && table.check_not_loading().is_ok());
    tables.sort_by_key(|table| Reverse(table.tree.garbage_bytes()));
    for table in tables {
        let mut bytes = EMPTIED_BYTES;
        loop {
            match sweep::unless_damaged(&table, compact::empty(engine, &table, bytes)) {
                // What lives in one file may be less.
                Err(Error::DiskFull { .. }) if bytes > 1 => bytes = 1,
                Err(Error::DiskFull { .. }) | Ok(None | Some(false)) => break,
                Ok(Some(true)) => return Ok(in_use(engine) + EMPTIED_BYTES / 2 <= before),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(false)
}

/// Bytes of segments that no checkpoint lets go of as things are, of all tables.
fn in_use(engine: &Engine) -> u64 {
    segment_bytes(engine) - dead_bytes(engine)
}

/// Bytes of segments, of all tables.
pub(crate) fn segment_bytes(engine: &Engine) -> u64 {
    bytes_of(&engine.catalog.live())
}

/// Bytes of segments of these tables.
pub(crate) fn bytes_of(tables: &[Arc<TableCore>]) -> u64 {
    tables.iter().map(|table| table.tree.room().bytes + table.documents.stats().bytes).sum()
}

/// Bytes of segments that a checkpoint may let go of, of all tables.
pub(crate) fn dead_bytes(engine: &Engine) -> u64 {
    let of_table = |table: &Arc<TableCore>| {
        let documents: u64 = table.documents.dead().into_iter().map(|(_, bytes)| bytes).sum();
        table.tree.dead_bytes() + documents
    };
    engine.catalog.live().iter().map(of_table).sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::{Options, Structure};

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
            let node = |stream: &crate::StreamStats| stream.stream == "node";
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
        let limit = 2 * live + super::LEAST_BYTES + (64 << 20);
        assert!(written > 3 * limit, "{written} bytes written, and {limit} may be there");
        assert!(most <= limit, "{most} bytes of {live} that live");
        assert_eq!(table.iter().count(), 20_000);
        assert_eq!(db.verify(&mut |_| {}).expect("verifies").findings, [""; 0]);
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
