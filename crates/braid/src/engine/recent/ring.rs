//! The newest commits, kept while a transaction reads ranges that these commits must not change.
//!
//! 1. While there are watchers, each commit leaves its payload, with its seq. The oldest payloads go when together they
//!    exceed [`RING_BYTES`].
//! 2. A range is compared with all commits after a snapshot, and later only with commits that were added since.
//!
//! Invariant: the first watcher registers only while no commit gets its seq, so every later commit is in the ring.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use index::{Seq, TableId, Update};
use parking_lot::Mutex;

use crate::format::{self, Logged};

/// Bytes of commits that are kept.
const RING_BYTES: usize = 4 << 20;

/// A key that was committed, or the first of a range, if one was found.
pub(crate) type Hit = Option<(TableId, Vec<u8>)>;

#[derive(Default)]
struct Commits {
    watchers: usize,
    /// Commits up to this one may be missing.
    floor: Seq,
    newest: VecDeque<(Seq, Vec<u8>)>,
    bytes: usize,
    /// Commits that were ever added.
    pushed: u64,
}

/// The newest commits.
#[derive(Default)]
pub(crate) struct Ring {
    commits: Mutex<Commits>,
    watched: AtomicBool,
}

impl Ring {
    /// Registers one more watcher. `last` gives the last assigned seq. To be called while no commit gets its seq.
    pub(super) fn watch(&self, last: impl FnOnce() -> Seq) -> Seq {
        let mut commits = self.commits.lock();
        if commits.watchers == 0 {
            commits.floor = last();
        }
        commits.watchers += 1;
        self.watched.store(true, Ordering::Relaxed);
        commits.floor
    }

    /// Unregisters a watcher.
    pub(crate) fn unwatch(&self) {
        let mut commits = self.commits.lock();
        commits.watchers -= 1;
        if commits.watchers == 0 {
            *commits = Commits::default();
            self.watched.store(false, Ordering::Relaxed);
        }
    }

    /// Adds a commit that has its seq. To be called before the stripes of its keys are released.
    pub(super) fn note(&self, seq: Seq, payload: &[u8]) {
        if !self.watched.load(Ordering::Relaxed) {
            return;
        }
        let mut commits = self.commits.lock();
        if commits.watchers == 0 {
            return;
        }
        commits.pushed += 1;
        if payload.len() > RING_BYTES {
            // Newer commits may be here already.
            let newest = commits.newest.drain(..).map(|(seq, _)| seq).max();
            (commits.bytes, commits.floor) = (0, commits.floor.max(seq).max(newest.unwrap_or_default()));
            return;
        }
        commits.bytes += payload.len();
        commits.newest.push_back((seq, payload.to_vec()));
        while commits.bytes > RING_BYTES {
            let Some((seq, payload)) = commits.newest.pop_front() else { break };
            commits.bytes -= payload.len();
            commits.floor = commits.floor.max(seq);
        }
    }

    /// The first key for which `is_hit` holds in the commits after `after`, and the number of commits added so far. An
    /// error where the ring does not reach that far back: the seq up to which commits may be missing.
    pub(crate) fn find_after(
        &self, after: Seq, is_hit: impl FnMut(TableId, &Logged<'_>) -> bool,
    ) -> Result<(Hit, u64), Seq> {
        let commits = self.commits.lock();
        if commits.floor > after {
            return Err(commits.floor);
        }
        Ok((find(commits.newest.iter().filter(|(seq, _)| *seq > after), is_hit), commits.pushed))
    }

    /// The same for the commits that were added after the first `count`; none where some of them have gone since.
    pub(crate) fn find_since(&self, count: u64, is_hit: impl FnMut(TableId, &Logged<'_>) -> bool) -> Option<Hit> {
        let commits = self.commits.lock();
        let all = commits.newest.len();
        let new = usize::try_from(commits.pushed - count).ok().filter(|new| *new <= all)?;
        Some(find(commits.newest.range(all - new..), is_hit))
    }
}

/// The first key of some commits for which `is_hit` holds.
fn find<'a>(
    commits: impl Iterator<Item = &'a (Seq, Vec<u8>)>, mut is_hit: impl FnMut(TableId, &Logged<'_>) -> bool,
) -> Hit {
    for (seq, payload) in commits {
        for (table, logged) in format::Operations::new(payload, *seq).flatten() {
            if is_hit(table, &logged) {
                let (Logged::Update(Update { key, .. }) | Logged::DeleteRange { low: key, .. }) = logged;
                return Some((table, key.to_vec()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(1);

    #[test]
    fn the_ring_is_bounded_and_says_from_where_on_it_is_whole() {
        let ring = Ring::default();
        let payload = |key: &[u8]| {
            let mut payload = Vec::new();
            let value = index::Payload::Inline(&[0; 1024]);
            format::put_operation(&mut payload, TABLE, key, index::Operation::Put(value, None));
            payload
        };
        let note = |seq: u64| ring.note(Seq(seq), &payload(&seq.to_be_bytes()));
        note(1);
        ring.watch(|| Seq(1));
        (2..=5).for_each(note);
        let is_of =
            |found: &Logged<'_>, key: u64| matches!(found, Logged::Update(update) if update.key == key.to_be_bytes());
        let find = |after: u64, key: u64| ring.find_after(Seq(after), |_, found| is_of(found, key)).map(|(hit, _)| hit);
        assert_eq!(find(0, 9), Err(Seq(1)));
        assert_eq!(find(3, 3), Ok(None));
        assert_eq!(find(3, 4), Ok(Some((TABLE, 4u64.to_be_bytes().to_vec()))));
        let (_, count) = ring.find_after(Seq(4), |_, _| false).expect("it reaches back");
        note(6);
        assert_eq!(ring.find_since(count, |_, _| true), Some(Some((TABLE, 6u64.to_be_bytes().to_vec()))));
        assert_eq!(ring.find_since(count + 1, |_, _| true), Some(None));
        (7..=6000).for_each(note);
        assert_eq!(ring.find_since(count, |_, _| true), None, "some have gone");
        let floor = ring.commits.lock().floor;
        assert!(floor > Seq(1) && floor < Seq(6000));
        assert_eq!(find(floor.0, 6000), Ok(Some((TABLE, 6000u64.to_be_bytes().to_vec()))));
        ring.unwatch();
        assert!(ring.commits.lock().newest.is_empty());
    }

    #[test]
    fn a_commit_that_is_longer_than_the_ring_hides_no_newer_one() {
        let ring = Ring::default();
        ring.watch(|| Seq(9));
        ring.note(Seq(11), &[0; 100]);
        ring.note(Seq(10), &vec![0; RING_BYTES + 1]);
        assert_eq!(ring.find_after(Seq(10), |_, _| false).map(drop), Err(Seq(11)));
        ring.note(Seq(12), &[]);
        assert!(ring.find_after(Seq(11), |_, _| false).is_ok());
        ring.note(Seq(8), &vec![0; RING_BYTES + 1]);
        assert_eq!(ring.find_after(Seq(10), |_, _| false).map(drop), Err(Seq(12)));
    }
}
