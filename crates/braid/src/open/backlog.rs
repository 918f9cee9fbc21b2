//! The replayed operations of recovery, until they are in the queues.
//!
//! 1. During replay, the operations of a table go to parts of its keys. The parts are cut where the rounds of the table
//!    have cut them: at the steps of the commits that its structure has. So a later flush-end covers whole parts, or
//!    most of one, and these operations go at once.
//! 2. Then each part is put in order and becomes the queue of a section. A large part is first cut into about equal
//!    ones at some of its keys, so opening reads no node. Each thread takes one part after the other.
//!
//! So an operation is moved about once, whatever the log holds, and applied operations take no more memory than the
//! others.

use std::{sync::Arc, thread::Builder};

use index::{Seq, Update};
use parking_lot::Mutex;
use wal::Lsn;

use crate::{
    engine::Engine,
    opq::{Opq, Sections, Sequence, Sorting},
    tables::catalog::TableCore,
    words::applied::AppliedThrough,
};

/// With fewer operations, another thread does not pay.
const WORTH_A_THREAD: usize = 10_000;
/// A part with applied operations is swept when it holds more than twice the operations that the last sweep left, plus
/// this many.
const WORTH_A_LOOK: usize = 1_000;
/// A part larger than so many rounds is cut. A section becomes that large before its turn comes.
const ROUNDS_PER_PART: u64 = 3;
/// Keys that are looked at for each part that a large one is cut into.
const SAMPLES: usize = 64;

/// The replayed operations of one table that its structure lacks, and some that the structure has.
pub(crate) struct Backlog {
    /// The parts begin at its steps.
    cut: AppliedThrough,
    parts: Vec<Part>,
    /// The commits that the structure has, as far as the log was replayed.
    applied: AppliedThrough,
}

/// The replayed operations on some of the table's keys.
struct Part {
    operations: Sequence,
    /// How many operations were left when applied ones were last removed.
    kept: usize,
    /// The structure has the commits up to the first seq for all of the keys, and up to the second for some.
    applied: (Seq, Seq),
}

/// The keys of a part: from the first to below the second.
type Keys<'a> = (&'a [u8], Option<&'a [u8]>);

impl Backlog {
    /// An empty backlog of a table whose structure has these commits.
    pub(crate) fn new(applied: AppliedThrough) -> Self {
        let part = |(_, seq): &(_, Seq)| Part { operations: Sequence::default(), kept: 0, applied: (*seq, *seq) };
        Self { parts: applied.steps().iter().map(part).collect(), cut: applied.clone(), applied }
    }

    /// Takes an operation of the commit at `lsn`, unless the structure has that operation.
    pub(crate) fn append(&mut self, update: &Update<'_>, lsn: Lsn) {
        let Part { operations, applied: (all, some), .. } = &mut self.parts[self.cut.step_of(update.key)];
        if update.seq > *some || (update.seq > *all && self.applied.lacks(update.key, update.seq)) {
            operations.append(update, lsn);
        }
    }

    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.operations.len()).sum()
    }

    /// Removes operations that the structure has by now, which has the commits of `applied`.
    ///
    /// - A part that the structure has as a whole is emptied.
    /// - A part of which the structure has some is swept before it holds more than twice what had to stay, so each
    ///   operation is moved about once.
    pub(crate) fn sweep(&mut self, applied: AppliedThrough) {
        for (number, part) in self.parts.iter_mut().enumerate() {
            part.note_applied(keys(&self.cut, number), &applied);
            let has = part.has_applied();
            if has == Has::All {
                (part.operations, part.kept) = (Sequence::default(), 0);
            } else if has == Has::Some && part.operations.len() > 2 * part.kept + WORTH_A_LOOK {
                part.operations = lacked(&part.operations, &applied);
                part.kept = part.operations.len();
            }
        }
        self.applied = applied;
    }

    /// Moves the operations that the structure of `table` lacks into its queues.
    pub(crate) fn fill_queues(self, engine: &Engine, table: &TableCore) {
        let sorting = engine.options.sorting;
        let queues = self.queues(ROUNDS_PER_PART * engine.pressure.round_bytes(), sorting);
        // Adjacent sections without operations become one. The next rounds cut sections anew.
        let sections = Sections::of(queues, sorting).recut(&[], &[], 1);
        engine.note_growth(table, 0, sections.bytes(), false, engine.wal.end());
        table.hold().replace_state(Arc::new(sections), None, table.tree.view());
    }

    /// The queues of the operations that the structure lacks, each with the key where it begins. A queue has at most
    /// about `most` bytes where operations are about equally long.
    fn queues(self, most: u64, sorting: Sorting) -> Vec<(Vec<u8>, Opq)> {
        let threads = if self.len() < WORTH_A_THREAD { 1 } else { tally::processors() };
        let parts = self.parts.into_iter().enumerate().map(|(number, part)| (keys(&self.cut, number), part)).collect();
        let queues = on_threads(threads, parts, |(keys, part)| part.queues(keys, &self.applied, most, sorting));
        queues.into_iter().flatten().collect()
    }
}

fn keys(cut: &AppliedThrough, part: usize) -> Keys<'_> {
    let begin = |step: usize| cut.steps().get(step).map(|(key, _)| key.as_slice());
    (begin(part).unwrap_or_default(), begin(part + 1))
}

/// The share of a part that a structure has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Nothing,
    Some,
    All,
}

impl Part {
    /// Notes that the structure has the commits of `applied`.
    fn note_applied(&mut self, (low, high): Keys<'_>, applied: &AppliedThrough) {
        let seqs = || applied.steps_between(low, high).iter().map(|(_, seq)| *seq);
        self.applied = seqs().min().zip(seqs().max()).unwrap_or(self.applied);
    }

    /// The share of this part that the structure has, as far as its first and last operation tell.
    fn has_applied(&self) -> Has {
        let Some(last) = self.operations.end().checked_sub(1) else { return Has::Nothing };
        let [first, last] = [0, last].map(|index| self.operations.update(index).seq);
        match self.applied {
            (all, _) if all >= last => Has::All,
            (_, some) if some >= first => Has::Some,
            _ => Has::Nothing,
        }
    }

    /// The queues of the operations of this part that the structure lacks, each with the key where it begins.
    fn queues(self, (low, _): Keys<'_>, applied: &AppliedThrough, most: u64, sorting: Sorting) -> Vec<(Vec<u8>, Opq)> {
        let operations = match self.has_applied() {
            Has::All => Sequence::default(),
            Has::Some => lacked(&self.operations, applied),
            Has::Nothing => self.operations,
        };
        let count = usize::try_from(operations.bytes() as u64 / most).unwrap_or(usize::MAX) + 1;
        let mut lows = vec![low.to_vec()];
        lows.extend(cuts(&operations, count).into_iter().filter(|cut| *cut > low).map(<[u8]>::to_vec));
        let cut = if lows.len() == 1 {
            vec![operations]
        } else {
            let mut cut: Vec<Sequence> = lows.iter().map(|_| Sequence::default()).collect();
            for (update, lsn) in operations.updates() {
                cut[lows.partition_point(|low| low.as_slice() <= update.key) - 1].append(&update, lsn);
            }
            cut
        };
        lows.into_iter().zip(cut).map(|(low, operations)| (low, Opq::of(operations, sorting))).collect()
    }
}

/// Keys that cut operations into `count` parts, about equal by their number, in order. There are fewer where keys
/// repeat.
fn cuts(operations: &Sequence, count: usize) -> Vec<&[u8]> {
    let step = (operations.len() / count.saturating_mul(SAMPLES)).max(1);
    let mut sample: Vec<&[u8]> =
        (0..operations.end()).step_by(step).map(|index| operations.update(index).key).collect();
    sample.sort_unstable();
    let count = count.min(sample.len());
    let mut cuts: Vec<&[u8]> = (1..count).map(|part| sample[part * sample.len() / count]).collect();
    cuts.dedup();
    cuts
}

/// The operations that a structure lacks, if the structure has the commits of `applied`.
fn lacked(operations: &Sequence, applied: &AppliedThrough) -> Sequence {
    let mut left = Sequence::default();
    operations
        .updates()
        .filter(|(update, _)| applied.lacks(update.key, update.seq))
        .for_each(|(update, lsn)| left.append(&update, lsn));
    left
}

/// The results of `make` for all items, in their order, computed on so many threads.
fn on_threads<T: Send, M: Send>(threads: usize, of: Vec<T>, make: impl Fn(T) -> M + Sync) -> Vec<M> {
    let mut made: Vec<Option<M>> = of.iter().map(|_| None).collect();
    let left = Mutex::new(of.into_iter().zip(&mut made));
    let next = || left.lock().next();
    let run = || {
        while let Some((one, made)) = next() {
            *made = Some(make(one));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, the others do its part.
            let _ = Builder::new().name("braid-replay".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    made.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use index::{Operation, Payload};
    use proptest::prelude::*;

    use super::*;

    /// A step in the life of a table whose keys are single bytes: commits of some keys, or a round through a key range.
    #[derive(Clone, Debug)]
    enum Step {
        Commits(Vec<u8>),
        Round(u8, Option<u8>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let commits = prop::collection::vec(any::<u8>(), 1..1500).prop_map(Step::Commits);
        let round = (any::<u8>(), prop::option::of(1u8..80));
        prop_oneof![
            commits,
            round.prop_map(|(low, count)| Step::Round(low, count.and_then(|count| low.checked_add(count))))
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_is_left_is_what_the_structure_lacks(
            before in prop::collection::vec((any::<u8>(), any::<u8>()), 0..6),
            steps in prop::collection::vec(step(), 1..30),
            most in 1u64..200_000,
        ) {
            let mut applied = AppliedThrough::new(Seq(0));
            for (step, (low, high)) in (1..).zip(before) {
                // All commits have higher seqs.
                applied.cover(&[low.min(high)], (low != high).then_some(&[low.max(high)]), Seq(step));
            }
            let mut backlog = Backlog::new(applied.clone());
            let mut model: BTreeMap<u64, u8> = BTreeMap::new();
            let mut seq = 100_u64;
            for step in steps {
                match step {
                    Step::Commits(keys) => for key in keys {
                        seq += 1;
                        let value = seq.to_le_bytes();
                        let operation = Operation::Put(Payload::Inline(&value), None);
                        backlog.append(&Update { key: &[key], seq: Seq(seq), operation }, Lsn(2 * seq));
                        model.insert(seq, key);
                    },
                    Step::Round(low, high) => {
                        // The round covers the frozen operations; newer ones have come since.
                        let through = seq - (seq - 100) / 3;
                        applied.cover(&[low], high.as_ref().map(std::slice::from_ref), Seq(through));
                        backlog.sweep(applied.clone());
                        model.retain(|seq, key| *seq > applied.at(&[*key]).0);
                    }
                }
            }
            let queues = backlog.queues(most, Sorting::Always);
            prop_assert!(queues[0].0.is_empty() && queues.is_sorted_by(|(one, _), (other, _)| one < other));
            let sections = Sections::of(queues, Sorting::Always);
            let mut left = BTreeMap::new();
            for (section, queue) in sections.queues().iter().enumerate() {
                for (update, lsn) in queue.read().updates() {
                    prop_assert!(sections.has_key(section, update.key) && lsn == Lsn(2 * update.seq.0));
                    left.insert(update.seq.0, update.key[0]);
                }
            }
            prop_assert_eq!(left, model);
        }
    }
}
