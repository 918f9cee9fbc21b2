//! Deletes ahead of the puts they wait with: for a full disk, and structures that merge later.
//!
//! Such a structure needs room for waiting puts, and gives nothing back before deletes are in it. Deletes alone need
//! little room. So they are applied without the puts, and what they delete can be merged away. All operations, these
//! deletes too, stay where they are, and are applied once more in their turn.
//!
//! Invariant: readers look into the queues first, which have at least what is in the structure by then. After a crash
//! the same operations come again, because the log before them is kept.

use std::{collections::HashMap, ops::RangeInclusive};

use index::{Batch, Operation, Seq, TableId, Update};
use space::Class;

use crate::{
    apply::round,
    engine::{Engine, sweeps::Ahead},
    error::{Error, Result},
    opq::Frozen,
    tables::held::HeldTable,
    upkeep::rewrite,
};

/// Deletes in key order, each of which comes again.
struct Deletes<'a>(&'a [Update<'a>]);

impl Batch for Deletes<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        self.0[index]
    }

    fn through(&self) -> Seq {
        Seq(0)
    }

    fn class(&self) -> Class {
        Class::Emptying
    }
}

/// The fewest deletes that are worth a file, and the most that are applied before they are merged: these may have all
/// of the reserve, and leave most of it to the merge.
const DELETES: RangeInclusive<usize> = 128..=2048;

/// Applies deletes among the frozen operations, each once. Of each table these are the next in key order, as many as
/// there is room for.
///
/// # Errors
/// Those of a round. On a full disk the deletes may have no room either.
pub(crate) fn delete(engine: &Engine, ahead: &mut HashMap<TableId, Ahead>) -> Result<()> {
    for table in engine.catalog.live() {
        let is_of_use =
            table.structure.facts().merges_later && !table.is_damaged() && table.check_not_loading().is_ok();
        let frozen = table.state.load().frozen.clone().filter(|_| is_of_use);
        if let Some(frozen) = frozen {
            round::sort(engine, &table, &frozen);
            apply(engine, &table.hold(), &frozen, ahead.entry(table.id).or_default())?;
        }
    }
    Ok(())
}

fn apply(engine: &Engine, table: &HeldTable<'_>, frozen: &Frozen, ahead: &mut Ahead) -> Result<()> {
    let mut deletes = left(frozen, ahead);
    if deletes.is_empty() && !ahead.next.is_empty() {
        *ahead = Ahead { through: ahead.newest, ..Ahead::default() };
        deletes = left(frozen, ahead);
    }
    let Some(newest) = deletes.iter().map(|delete| delete.seq).max() else { return Ok(()) };
    if ahead.next.is_empty() {
        ahead.newest = newest;
    }
    engine.flush_log()?;
    let (horizon, mut count) = (engine.horizon(table), deletes.len().min(*DELETES.end()));
    let applied = loop {
        let applied = table.tree.apply(&Deletes(&deletes[..count]), &horizon, &|_| ());
        match applied.map_err(|error| engine.write_error(error.into())) {
            Err(Error::DiskFull { .. }) if count > *DELETES.start() => count /= 2,
            applied => break applied?,
        }
    };
    rewrite::finish(engine, table, &applied, |_| {})?;
    ahead.next = deletes[count - 1].key.to_vec();
    ahead.next.push(0);
    Ok(())
}

/// The deletes that are left, in key order. One that is behind another operation on its key, which a snapshot sees or
/// which has a document, is not among them: a structure gets the versions of a key in the order of their seqs.
fn left<'a>(frozen: &'a Frozen, ahead: &Ahead) -> Vec<Update<'a>> {
    let mut before: Option<&[u8]> = None;
    let is_left = |update: &Update<'a>| {
        let is_first = before.replace(update.key) != Some(update.key);
        is_first
            && update.operation == Operation::Delete
            && update.seq > ahead.through
            && update.key >= ahead.next.as_slice()
    };
    frozen.left().filter(is_left).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, path::Path};

    use psync::sim::SimDisk;

    use crate::{
        apply::{
            choice::{self, Held},
            round,
        },
        handles::table::Table,
        options::Options,
        words::structure::Structure,
    };

    #[test]
    fn deletes_go_ahead_and_every_reader_sees_what_it_saw() {
        [false, true].into_iter().for_each(check);
    }

    fn check(crashes: bool) {
        let options = Options::new().background(false).write_buffer_bytes(4 << 20).segment_bytes(1 << 20);
        let disk = SimDisk::new(1);
        let open = || options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
        let db = open();
        let table = db.table("t", Structure::Lsm).expect("a table");
        let key = |number: u32| number.to_be_bytes();
        (0..6000).for_each(|number| table.put(key(number), "old").map(drop).expect("put"));
        db.drain().expect("applies");
        let (engine, before) = (table.engine(), db.snapshot());
        let tombstones = || table.stats().expect("stats").figure("tombstones").expect("is counted");
        (0..5000).for_each(|number| table.delete(key(number)).map(drop).expect("deleted"));
        (5500..6500).for_each(|number| table.put(key(number), "new").map(drop).expect("put"));
        // These are not alone with their deletes: a snapshot sees the first put, and the second has a document.
        table.put(key(5200), "seen").expect("put");
        let middle = db.snapshot();
        table.put(key(5201), vec![1; 20_000]).expect("put");
        [5200, 5201].into_iter().for_each(|number| table.delete(key(number)).map(drop).expect("deleted"));
        round::freeze_whole(engine, &table.core.hold(), || ());
        let frozen = table.core.state.load().frozen.clone().expect("operations wait");
        round::sort(engine, &table.core, &frozen);
        let mut ahead = HashMap::new();
        for _ in 0..10 {
            super::delete(engine, &mut ahead).expect("applies deletes");
        }
        assert_eq!(tombstones(), 5000, "each delete once");
        let is_left = |number: &u32| ![5200, 5201].contains(number);
        let keys: Vec<Vec<u8>> = (5000..6500).filter(is_left).map(|number| key(number).to_vec()).collect();
        let found = |table: &Table| table.iter().map(|pair| pair.expect("a pair").0).collect::<Vec<_>>();
        let is_whole = || {
            assert_eq!((found(&table), before.iter(&table).count()), (keys.clone(), 6000));
            assert_eq!(middle.get(&table, key(5200)).expect("reads").as_deref(), Some(&b"seen"[..]));
        };
        is_whole();
        // They come again in their turn, or after a crash.
        if !crashes {
            round::run(engine, &mut engine.upkeep.lock(), &choice::left_over(engine, Held::Too)).expect("a round");
            is_whole();
            table.compact().expect("compacts");
            is_whole();
            assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
        }
        drop((before, middle, table, db));
        disk.restart();
        let db = open();
        assert_eq!(found(&db.open_table("t").expect("there")), keys);
        assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
    }
}
