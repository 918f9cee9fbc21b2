//! Tree search: which versions have their documents in the segments to clean.
//!
//! A stretch has up to [`Plan::window_bytes`] of documents, keys and bookkeeping for both, or one version, however
//! long its document is. A key with many versions that snapshots see is cut between two of them.

use std::ops::ControlFlow;

use doclog::DocPointer;
use index::{
    Horizon, Seq, Update, View,
    merge::{Rules, merge},
};

use super::moves::{Fate, Moves, Version};
use crate::{
    engine::cleaning::{Plan, Position},
    error::Result,
};

/// A stretch ends after so many keys, or so many found versions, however few bytes these are.
const KEYS_MAX: usize = 64 << 10;
const VERSIONS_MAX: usize = 16 << 10;

/// The versions of the stretch that begins at `from`, and where the next one begins.
pub(super) fn search(
    view: &dyn View, from: &Position, plan: &Plan, horizon: &Horizon, through: Seq,
) -> Result<(Moves, Option<Position>)> {
    let moves = Moves { keys: Vec::new(), versions: Vec::new(), through, class: plan.class };
    let mut search = Search { moves, plan, rules: Rules { horizon, through, is_all: true }, bytes: 0 };
    let (mut keys, mut next) = (0, None);
    view.documents(&from.key, &mut |key, versions| {
        keys += 1;
        let behind = if *key == *from.key { from.behind } else { Seq::default() };
        if let Some(behind) = search.take(key, behind, versions) {
            next = Some(Position { key: key.to_vec(), behind });
        } else if search.is_full() || keys >= KEYS_MAX {
            let key = if versions.is_empty() { key.to_vec() } else { [key, &[0]].concat() };
            next = Some(Position { key, behind: Seq::default() });
        } else {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    })?;
    Ok((search.moves, next))
}

struct Search<'a> {
    moves: Moves,
    plan: &'a Plan,
    rules: Rules<'a>,
    /// Memory that the found versions need.
    bytes: u64,
}

impl Search<'_> {
    fn is_full(&self) -> bool {
        self.bytes >= self.plan.window_bytes || self.moves.versions.len() >= VERSIONS_MAX
    }

    fn has_room(&self, bytes: u64) -> bool {
        let fits = self.bytes + bytes <= self.plan.window_bytes && self.moves.versions.len() < VERSIONS_MAX;
        fits || self.moves.versions.is_empty()
    }

    /// Adds the versions of a key behind a seq. Where there is no room for all of them, returns the seq of the last
    /// version that was looked at.
    fn take(&mut self, key: &[u8], from: Seq, versions: &[Update<'_>]) -> Option<Seq> {
        let segments = &self.plan.segments;
        let is_there = |document: DocPointer| segments.contains(&document.segment);
        if !versions.iter().any(|version| version.operation.document().is_some_and(is_there)) {
            return None;
        }
        let stay = merge(versions.to_vec(), self.rules, &mut Vec::new());
        let (mut behind, start, mut own) = (from, self.moves.keys.len(), key.len() as u64);
        for same in versions.chunk_by(|one, other| one.seq == other.seq).skip_while(|same| same[0].seq <= from) {
            // The last of equal versions counts.
            let last = &same[same.len() - 1];
            let mut documents = same.iter().filter_map(|version| version.operation.document());
            let Some(document) = last.operation.document().filter(|_| documents.any(is_there)) else {
                behind = last.seq;
                continue;
            };
            let kept = stay.binary_search_by_key(&last.seq, |kept| kept.seq).ok();
            let stays = kept.is_some_and(|kept| stay[kept].operation.document() == Some(document));
            let fate = if stays && is_there(document) { Fate::Moves } else { Fate::Dies };
            own += size_of::<Version>() as u64 + if fate == Fate::Moves { document.stored_bytes() } else { 0 };
            if !self.has_room(own) {
                return Some(behind);
            }
            if self.moves.keys.len() == start {
                self.moves.keys.extend_from_slice(key);
            }
            self.bytes += std::mem::take(&mut own);
            let (key, expiry) = (start..start + key.len(), last.operation.expiry());
            self.moves.versions.push(Version { key, seq: last.seq, expiry, document, fate });
            behind = last.seq;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;
    use space::Class;

    use super::super::{CompactionTimes, Moved, stretch};
    use super::*;
    use crate::{
        apply::{choice, round},
        engine::cleaning::How,
        handles::{database::Database, table::Table},
        options::Options,
        upkeep::checkpoint,
        words::structure::Structure,
    };

    fn plan(table: &Table, window_bytes: u64) -> Plan {
        table.core.documents.seal();
        let segments = table.core.documents.live().into_keys().collect();
        let how = How { submission_batch: 128, sorted: true, direct: true, overlapped: true };
        Plan { segments, window_bytes, how, class: Class::Normal }
    }

    /// Moves everything; returns the counts of each stretch.
    fn move_all(table: &Table, plan: &Plan) -> Vec<Moved> {
        let engine = table.engine();
        let held = table.core.hold();
        let (mut from, mut stretches) = (Some(Position::default()), Vec::new());
        while let Some(position) = from {
            let (mut moved, mut times) = (Moved::default(), CompactionTimes::default());
            from = stretch(engine, &held, &position, plan, &mut moved, &mut times).expect("moves");
            stretches.push(moved);
            assert!(stretches.len() < 10_000, "it gets on");
        }
        stretches
    }

    #[test]
    fn a_key_with_many_versions_moves_a_few_at_a_time() {
        for &structure in Structure::ALL {
            let options = Options::new().background(false).segment_bytes(256 << 10);
            let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
            let table = db.table("t", structure).expect("a table");
            let mut snapshots = Vec::new();
            for number in 0..100_u8 {
                for key in ["a", "b", "c"] {
                    let bytes = if key == "b" { 10_000 } else { 3000 };
                    table.put(key, vec![number; bytes]).expect("put");
                }
                if number % 4 != 3 {
                    snapshots.push((number, db.snapshot()));
                }
            }
            db.drain().expect("applies");
            let window = 64 << 10;
            for window_bytes in [window, 1] {
                let plan = plan(&table, window_bytes);
                let (live, moved) = (table.core.documents.stats().live_bytes, move_all(&table, &plan));
                assert!(moved.iter().all(|moved| moved.bytes <= window && (window_bytes > 1 || moved.documents <= 1)));
                assert!(moved.iter().map(|moved| moved.bytes).sum::<u64>() <= live);
                let left = table.core.documents.live();
                assert!(plan.segments.iter().all(|segment| !left.contains_key(segment)), "{structure:?}: {left:?}");
            }
            db.drop_caches();
            for (number, snapshot) in &snapshots {
                let value = snapshot.get(&table, "b").expect("reads");
                assert_eq!(value.expect("is there"), vec![*number; 10_000], "{structure:?}");
            }
            assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
        }
    }

    #[test]
    fn what_was_moved_is_found_while_its_queue_is_applied_in_part() {
        for &structure in Structure::ALL {
            let options = Options::new().background(false).segment_bytes(64 << 10).bcnt(7);
            let disk = SimDisk::new(1);
            let open = || options.clone().open_on(disk.psync(), Path::new("/db")).expect("opens");
            let db = open();
            let table = db.table("t", structure).expect("a table");
            (0..24).for_each(|number| table.put([number], [number; 10_000]).map(drop).expect("put"));
            let engine = table.engine();
            let round = || {
                let held = &mut engine.upkeep.lock();
                let choices = if table.core.state.load().frozen.is_some() {
                    choice::left_over(engine, choice::Held::Too)
                } else {
                    choice::fullest(engine, |_| true)
                };
                round::run(engine, held, &choices).expect("applies");
            };
            let holds = |db: &Database, table: &Table| {
                db.drop_caches();
                let found = table.iter().collect::<Result<Vec<_>>>().expect("reads");
                let expected = (0..24).map(|number| (vec![number], vec![number; 10_000]));
                assert!(expected.eq(found), "{structure}");
                let one = |number: u8| assert_eq!(table.get([number]).expect("reads"), Some(vec![number; 10_000]));
                (0..24).for_each(one);
            };
            for _ in 0..3 {
                round();
                move_all(&table, &plan(&table, 1 << 20));
                let segments = table.core.documents.stats().segments;
                checkpoint::write(engine, &mut engine.upkeep.lock()).expect("a checkpoint");
                assert!(table.core.documents.stats().segments < segments, "some are released");
                assert!(table.core.state.load().frozen.is_some(), "some of the queue is left");
                holds(&db, &table);
            }
            disk.restart();
            let db = open();
            let table = db.table("t", structure).expect("a table");
            holds(&db, &table);
            db.drain().expect("applies");
            holds(&db, &table);
            assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
        }
    }

    #[test]
    fn long_keys_and_documents_count_and_one_always_goes() {
        let options = Options::new().background(false).segment_bytes(256 << 10);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::Append).expect("a table");
        for number in 0..64_u8 {
            let bytes = if number % 8 == 0 { 200_000 } else { 300 };
            table.put([number; 8000], vec![number; bytes]).expect("put");
        }
        db.drain().expect("applies");
        let plan = plan(&table, 50_000);
        let moved = move_all(&table, &plan);
        assert_eq!(moved.iter().map(|moved| moved.documents).sum::<u64>(), 64);
        assert_eq!(moved.iter().filter(|moved| moved.bytes > 200_000).count(), 8);
        assert!(moved.iter().all(|moved| moved.documents <= 5 && (moved.documents == 1 || moved.bytes < 50_000)));
    }
}
