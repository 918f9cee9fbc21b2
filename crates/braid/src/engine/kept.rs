//! The choice of the log that is kept beyond the part that recovery needs ([`crate::engine::retention`]).

use index::Seq;

use crate::engine::{
    Engine,
    retention::{Choice, Kept},
};

/// The start of the kept log for a checkpoint that is written now. Called by the worker, with no apply under way.
pub(crate) fn choose(engine: &Engine) -> Choice {
    let needed = needed(engine);
    let most = engine.options.retain_log_bytes;
    if most == 0 || engine.retention.yields() || engine.pressure.full_disk().is_some() {
        return Choice { kept: needed, needed };
    }
    let most = most.saturating_add(engine.options.segment_bytes);
    let (end, dead) = (engine.wal.end(), dead_documents(engine));
    let cost = |kept: &Kept| {
        let documents = dead.iter().filter(|(last, _)| *last >= kept.seq).map(|(_, bytes)| bytes);
        documents.fold(end.0.saturating_sub(kept.from.0), |sum, bytes| sum.saturating_add(*bytes))
    };
    let now = engine.retention.kept();
    let starts = engine.wal.segment_starts().into_iter().map(|(from, seq)| Kept { from, seq: Seq(seq) });
    let later = starts.filter(|start| start.from > now.from && start.seq >= now.seq);
    let mut choices = std::iter::once(now).chain(later).take_while(|choice| choice.from < needed.from);
    Choice { kept: choices.find(|choice| cost(choice) <= most).unwrap_or(needed), needed }
}

/// The start of the log that recovery needs.
fn needed(engine: &Engine) -> Kept {
    engine.between_publications(|visible, frontier| {
        let tables = engine.catalog.live();
        let oldest = tables.iter().filter_map(|table| Some((table.oldest_unapplied()?, table.oldest_unapplied_seq()?)));
        let (from, seq) = oldest.min().unwrap_or((frontier, Seq(visible.0 + 1)));
        let before = engine.retention.needed();
        Kept { from: from.max(before.from), seq: seq.max(before.seq) }
    })
}

/// Last commit and bytes of each document segment that only the kept log refers to. Segments that readers of older
/// states hold are left out, because they would stay anyway.
fn dead_documents(engine: &Engine) -> Vec<(Seq, u64)> {
    let mut tables = engine.catalog.live();
    tables.extend(engine.catalog.dropped());
    tables.retain(|table| table.is_read_as_it_is());
    tables.iter().flat_map(|table| table.documents.dead()).map(|(last, bytes)| (Seq(last), bytes)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::{options::Options, words::structure::Structure};

    #[test]
    fn what_the_log_has_behind_the_last_commit_is_not_needed() {
        let options = Options::new().background(false);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("table", Structure::BTree).expect("created");
        (0..1000_u32).for_each(|number| table.put(number.to_be_bytes(), [1; 100]).map(drop).expect("put"));
        let (engine, behind_puts) = (table.engine(), table.engine().wal.end());
        assert!(super::needed(engine).from < behind_puts);
        database.checkpoint().expect("a checkpoint");
        assert!(engine.wal.end() > behind_puts, "what was applied is logged");
        assert_eq!(super::needed(engine).from, engine.wal.end());
        table.put("key", "value").expect("put");
        assert!(super::needed(engine).from < engine.wal.end());
    }

    #[test]
    fn what_a_reader_holds_in_any_case_costs_no_log() {
        let options = Options::new().background(false).segment_bytes(64 << 10).retain_log_bytes(1 << 20);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        let overwrite = |round: u8| {
            (0..50_u8).for_each(|number| table.put([number], vec![round; 10_000]).map(drop).expect("put"));
            db.checkpoint().expect("a checkpoint");
        };
        let kept = || table.engine().retention.kept().seq.0;
        overwrite(0);
        let mut reader = table.iter();
        assert!(reader.next().is_some());
        (1..8).for_each(overwrite);
        let dead: u64 = table.core.documents.dead().into_iter().map(|(_, bytes)| bytes).sum();
        assert!(dead > 2 << 20, "{dead} bytes are dead");
        assert!(kept() <= 1, "{} although nothing would be gained by it", kept());
        drop(reader);
        db.checkpoint().expect("a checkpoint");
        table.put([0], [0]).expect("put");
        db.checkpoint().expect("a checkpoint");
        assert!(kept() > 100, "now it would");
    }
}
