//! Sweeps: parts of tables rewritten in the background, so that what nobody sees in them any more gives its space back.
//!
//! 1. Whoever knows of keys under which there is something to be had asks for them ([`Engine::sweep`]).
//! 2. Between rounds the worker rewrites them, one stretch a turn, as a compaction does ([`compact::rewrite`]): so rounds, checkpoints and readers
//!    wait for a stretch at most.
//!
//! Invariants: a table is whole after each stretch, so a sweep can end anywhere. What is asked for is in memory only: who
//! needs a sweep to its end must know by what is stored that it was none yet, and asks again after a crash.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use crate::{Error, Result, catalog::TableCore, compact, engine::Engine};

/// Keys of a table that are to be swept.
struct Sweep {
    table: Arc<TableCore>,
    low: Vec<u8>,
    /// Where they end, if they do.
    high: Option<Vec<u8>>,
}

/// What is to be swept, in the order in which it was asked for.
#[derive(Default)]
pub(crate) struct Sweeps {
    asked: Mutex<VecDeque<Sweep>>,
}

impl Engine {
    /// Has the keys from `low` to below `high` swept; where they wait already, that is enough.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "range deletes and keys that end ask for sweeps, and come after this")
    )]
    pub(crate) fn sweep(&self, table: &Arc<TableCore>, low: &[u8], high: Option<&[u8]>) {
        let mut asked = self.sweeps.asked.lock();
        let has = |sweep: &Sweep| {
            let ends_there = |end: &Vec<u8>| high.is_some_and(|high| high <= end.as_slice());
            Arc::ptr_eq(&sweep.table, table)
                && sweep.low.as_slice() <= low
                && sweep.high.as_ref().is_none_or(ends_there)
        };
        if !asked.iter().any(has) {
            asked.push_back(Sweep { table: Arc::clone(table), low: low.to_vec(), high: high.map(<[u8]>::to_vec) });
            drop(asked);
            self.signal.kick();
        }
    }
}

/// Sweeps a stretch, if there is one to be swept; whether there is more. By the worker, who holds [`Engine::maintenance`].
///
/// # Errors
/// As a compaction's; the stretch is then the next one again.
pub(crate) fn turn(engine: &Engine) -> Result<bool> {
    let Some(sweep) = engine.sweeps.asked.lock().pop_front() else { return Ok(false) };
    let next = match stretch(engine, &sweep) {
        Ok(next) => next,
        Err(error) => {
            engine.sweeps.asked.lock().push_front(sweep);
            return Err(error);
        }
    };
    let mut asked = engine.sweeps.asked.lock();
    if let Some(low) = next {
        asked.push_front(Sweep { low, ..sweep });
    }
    Ok(!asked.is_empty())
}

/// Sweeps the first stretch; where the next one begins, if there is any.
fn stretch(engine: &Engine, sweep: &Sweep) -> Result<Option<Vec<u8>>> {
    let (table, high) = (&sweep.table, sweep.high.as_deref());
    match engine.check_live(table).and_then(|()| table.check_not_loading()) {
        Ok(()) => {}
        // There is nothing to sweep in what is not there, nor in what is only coming.
        Err(Error::NoSuchTable { .. } | Error::Loading { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let rewritten = compact::rewrite(engine, table, &sweep.low, high, table.tree.leaf_pages())?;
    Ok(rewritten.next.filter(|next| high.is_none_or(|high| next.as_slice() < high)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::{Database, Options, Structure, Table};

    const KEYS: u32 = 6000;

    fn open(disk: &SimDisk) -> (Database, Table) {
        let options =
            Options::new().background(false).leaf_pages(1).write_buffer_bytes(128 << 10).segment_bytes(64 << 10);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        (db, table)
    }

    /// Puts every key twice, the older version kept for a snapshot that is gone in the end.
    fn fill(db: &Database, table: &Table) {
        let put = |value: u8| (0..KEYS).for_each(|key| table.put(key.to_be_bytes(), [value; 60]).expect("put"));
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
        // The leaves at both ends go with it.
        assert!((u64::from(2 * KEYS) - 2100..=u64::from(2 * KEYS) - 2000).contains(&left), "{left} versions left");
        engine.sweep(&table.core, &[], None);
        engine.work_inline();
        assert_eq!(entries(&table), u64::from(KEYS));
        assert!(table.iter().all(|pair| pair.is_ok_and(|(_, value)| value == [2; 60])));
        assert_eq!(db.verify(&mut |_| {}).expect("verifies").findings, [""; 0]);
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
}
