//! The assertions of the engine's control paths, each seen to fail.

#[cfg(test)]
mod tests {
    use std::{iter, path::Path, sync::Arc, time::Duration};

    use index::{Part, Seq, TableId};
    use psync::sim::SimDisk;
    use wal::Lsn;

    use crate::{
        apply::{
            install::{self, Documents, Step},
            round,
        },
        engine::{
            pressure::{LogLimit, Pressure},
            publish::{Change, LogState, Pending, Publisher, Safety},
            recent::Recent,
            retention::{Choice, Kept},
        },
        handles::{database::Database, table::Table},
        opq::Frozen,
        options::Options,
        words::{applied::AppliedThrough, structure::Structure},
    };

    fn open() -> (Database, Table) {
        let options = Options::new().background(false).cache_bytes(1 << 20);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("t", Structure::BTree).expect("a table");
        // Never closed, because a close would meet the assertion again.
        std::mem::forget(database.clone());
        (database, table)
    }

    #[test]
    #[should_panic(expected = "records end in the order of their seqs")]
    fn records_that_end_before_earlier_ones() {
        let publisher = Publisher::new(Seq(0), Lsn(0));
        for (seq, end) in [(1, 20), (2, 10)] {
            let change = Change::Drop(TableId(0));
            publisher.enqueue(Seq(seq), Pending { lsn: Lsn(end - 1), end: Lsn(end), safety: Safety::Written, change });
        }
        publisher.publish(|| LogState { durable: Lsn(30), written: Lsn(30) }, |_, _| {});
    }

    #[test]
    #[should_panic(expected = "queues give back what they took")]
    fn more_memory_that_comes_back_than_was_taken() {
        let pressure = Pressure::new(1 << 20, LogLimit::new(1 << 20, 1 << 20), Lsn(0), true);
        pressure.take(10, false, Lsn(0));
        pressure.give_back(11, 0, Duration::from_secs(1));
    }

    #[test]
    #[should_panic(expected = "queues are frozen once")]
    fn queues_that_are_frozen_twice() {
        let (_database, table) = open();
        table.put("key", "value").expect("put");
        let bytes = table.core.state.load().active.bytes();
        (0..2).for_each(|_| table.engine().note_frozen(&table.core, bytes));
    }

    #[test]
    #[should_panic(expected = "what is written is flushed before its flush-end is logged")]
    fn a_flush_end_before_the_data() {
        let (database, table) = open();
        table.put("key", "value").expect("put");
        database.drain().expect("applied");
        let (core, engine) = (table.core.hold(), table.engine());
        let compacted = core.tree.compact(Part::whole(), Seq::MAX, &engine.horizon(&core));
        let applied = compacted.expect("room").expect("there is something").applied;
        let step = Step::rewritten(&core, &applied, Documents::Stay);
        let flushed = install::flush_files(engine, iter::empty()).expect("nothing to do");
        drop(step.log(engine, &flushed));
    }

    #[test]
    #[should_panic(expected = "the log is trimmed at its start alone")]
    fn log_that_is_kept_again() {
        let (_database, table) = open();
        let kept = |from| Kept { from: Lsn(from), seq: Seq(1) };
        for from in [100, 99] {
            table.engine().retention.set(Choice { kept: kept(from), needed: kept(from) });
        }
    }

    #[test]
    #[cfg_attr(not(feature = "verify"), ignore = "takes the feature `verify`")]
    #[should_panic(expected = "stripes are held in one order")]
    fn stripes_that_are_held_in_another_order() {
        let recent = Recent::default();
        let mut places: Vec<_> = (0..10_u8).map(|key| recent.place(TableId(1), &[key])).collect();
        places.sort_unstable();
        places.reverse();
        drop(recent.hold(&places));
    }

    #[test]
    #[cfg_attr(not(feature = "verify"), ignore = "takes the feature `verify`")]
    #[should_panic(expected = "a structure loses no commit")]
    fn a_structure_that_has_less_than_before() {
        let (database, table) = open();
        table.put("key", "value").expect("put");
        database.drain().expect("applied");
        table.core.set_applied(AppliedThrough::new(Seq(0)));
    }

    #[test]
    #[cfg_attr(not(feature = "verify"), ignore = "takes the feature `verify`")]
    #[should_panic(expected = "what is active is newer than what is frozen")]
    fn queues_that_are_older_than_frozen_ones() {
        let (_database, table) = open();
        let (core, engine) = (&table.core, table.engine());
        table.put("key", "older").expect("put");
        let older = Arc::clone(&core.state.load().active);
        round::freeze_whole(engine, &core.hold(), || {});
        table.put("key", "newer").expect("put");
        let state = core.state.load_full();
        let newer = Frozen::new(Arc::clone(&state.active), Seq(3), state.active.bytes());
        core.hold().replace_state(older, Some(Arc::new(newer)), Arc::clone(&state.view));
    }

    #[test]
    #[should_panic(expected = "what is kept, needed, durable and logged")]
    fn a_checkpoint_that_needs_log_which_is_not_there() {
        let (database, table) = open();
        table.put("key", "value").expect("put");
        let end = table.engine().wal.end();
        let beyond = Kept { from: Lsn(end.0 + (1 << 20)), seq: Seq(1) };
        table.engine().retention.set(Choice { kept: beyond, needed: beyond });
        drop(database.checkpoint());
    }
}
