//! Checks everything that a version refers to.
//!
//! 1. Of each file every block is read, past the cache: its checksum, its form, the order of its keys, its place
//!    between its fences, and the filter, which must have every key. The counts of the footer are compared with those
//!    of a whole file.
//! 2. Where all of that is sound, all runs are walked through together: for the live keys, and the documents of all
//!    versions.
//!
//! Anything that does not check is a finding; the check goes on with the next block.

use std::collections::HashSet;
use std::sync::Arc;

use index::{Bounds, Damage, Direction, Operation, Result, Seq, Visit};

use crate::blocks::{Kind, Loaded};
use crate::format::KEY_BYTES_MAX;
use crate::format::filter::Hash;
use crate::merged::Merged;
use crate::runs::Run;
use crate::scan::Pace;
use crate::shared::Want;
use crate::sst::Sst;
use crate::version::Version;

/// Bytes that the walks of all runs read ahead together.
const READ_AHEAD_BYTES: usize = 4 << 20;
/// Keys that are reported together.
const KEYS: u64 = 1 << 10;
/// Blocks that are read together.
const WINDOW: usize = 64;

/// Checks a version.
pub(crate) fn verify(version: &Version, visit: &mut dyn Visit) -> Result<()> {
    let mut is_sound = true;
    let mut checked = HashSet::new();
    for (_, slice) in version.all() {
        if !checked.insert(slice.sst().number()) {
            continue;
        }
        let mut check = Check { version, sst: slice.sst(), visit, is_sound: true, counts: Counts::default() };
        check.file();
        is_sound &= check.is_sound;
    }
    if is_sound { walk(version, visit) } else { Ok(()) }
}

/// Walks through all runs.
fn walk(version: &Version, visit: &mut dyn Visit) -> Result<()> {
    let runs: Vec<Run> = version.runs().cloned().collect();
    let pace = Pace::of_many(runs.len(), READ_AHEAD_BYTES);
    let mut merged = Merged::with_pace(&version.shared, &runs, &Bounds::all(), Direction::Forward, pace, None)?;
    let mut keys = 0;
    while merged.advance()? {
        let mut newest = None;
        for (_, update) in merged.versions() {
            if newest.is_some_and(|(_, seq)| update.seq > seq) {
                visit.finding(format!(
                    "table {}: a version of {} with seq {} is in an older run than one with a lower seq",
                    version.table.0,
                    update.key.escape_ascii(),
                    update.seq.0
                ));
            }
            newest.get_or_insert((update.operation != Operation::Delete, update.seq));
            if let Some(document) = update.operation.document() {
                visit.document(&document);
            }
        }
        keys += u64::from(newest.is_some_and(|(is_put, seq)| is_put && !visit.is_hidden(merged.key(), seq)));
        if keys >= KEYS {
            visit.keys(std::mem::take(&mut keys));
        }
    }
    visit.keys(keys);
    Ok(())
}

/// What was met in a file.
#[derive(Default)]
struct Counts {
    entries: u64,
    tombstones: u64,
    documents: u64,
    oldest: Option<Seq>,
    newest: Option<Seq>,
}

struct Check<'a> {
    version: &'a Version,
    sst: &'a Arc<Sst>,
    visit: &'a mut dyn Visit,
    is_sound: bool,
    counts: Counts,
}

impl Check<'_> {
    fn failed(&mut self, error: &index::Error) {
        self.is_sound = false;
        self.visit.finding(error.to_string());
    }

    fn damage(&mut self, offset: u32, damage: Damage) {
        let error = damage.at(self.sst.path(self.version.shared.store()), offset.into());
        self.failed(&error);
    }

    /// Checks a file.
    fn file(&mut self) {
        let store = self.version.shared.store();
        match Sst::find(store, self.sst.kind(), self.version.table, self.sst.number()) {
            Ok(found) if found.footer() != self.sst.footer() || found.bytes() != self.sst.bytes() => {
                let (expected, found) = (format!("{:?}", self.sst.footer()), format!("{:?}", found.footer()));
                self.damage(0, Damage::new(0, "footer of a file", expected, found));
            }
            Ok(_) => {}
            Err(error) => self.failed(&error),
        }
        let top = match self.sst.top(&self.version.shared) {
            Ok(top) => Arc::clone(top),
            Err(error) => return self.failed(&error),
        };
        let (mut last, top) = (Vec::new(), top.fences());
        for index in 0..top.len() {
            let begin = top.key(index).concat();
            if index > 0 && begin < last {
                self.damage(self.sst.footer().top.offset, Damage::new(0, "fences of a file", "in order", "others"));
            }
            let filter = top.place(index, 1);
            let filter = (filter.bytes > 0).then(|| self.block(filter, Kind::Filter));
            let partition = self.block(top.place(index, 0), Kind::Partition);
            if let Some(partition) = partition {
                self.partition(&partition, filter.flatten().as_deref(), &mut last);
            }
        }
        if self.is_sound {
            self.counts();
        }
    }

    fn block(&mut self, place: crate::format::Place, kind: Kind) -> Option<Arc<Loaded>> {
        let want = Want { sst: self.sst, place, kind };
        match self.version.shared.read_again(&[want]) {
            Ok(mut blocks) => blocks.pop(),
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    /// Checks the blocks of a partition.
    fn partition(&mut self, partition: &Loaded, filter: Option<&Loaded>, last: &mut Vec<u8>) {
        let fences = partition.fences();
        for first in (0..fences.len()).step_by(WINDOW) {
            let window = first..(first + WINDOW).min(fences.len());
            let want = |index: usize| Want { sst: self.sst, place: fences.place(index, 0), kind: Kind::Data };
            let wants: Vec<_> = window.clone().map(want).collect();
            let blocks: Vec<Option<Arc<Loaded>>> = match self.version.shared.read_again(&wants) {
                Ok(blocks) => blocks.into_iter().map(Some).collect(),
                // One of them does not check: each is read alone.
                Err(_) => window.clone().map(|index| self.block(fences.place(index, 0), Kind::Data)).collect(),
            };
            for (index, block) in window.zip(blocks) {
                let Some(block) = block else { continue };
                let begin = fences.key(index).concat();
                let (known, data) = (fences.tombstones(index), block.data());
                let is_tombstone = |index: &usize| data.operation(*index) == Operation::Delete;
                let count = (0..data.len()).filter(is_tombstone).count();
                if usize::try_from(known.count).ok() != Some(count) {
                    let damage = Damage::new(0, "tombstones of a block", known.count, count);
                    self.damage(fences.place(index, 0).offset, damage);
                }
                self.data(&block, &begin, filter, last, fences.place(index, 0).offset);
            }
        }
    }

    /// Checks a data block whose keys are at or behind `begin` and behind `last`.
    fn data(&mut self, loaded: &Loaded, begin: &[u8], filter: Option<&Loaded>, last: &mut Vec<u8>, offset: u32) {
        let block = loaded.data();
        let mut before: Option<Seq> = None;
        for index in 0..block.len() {
            let key = [block.shared(), block.rest(index)].concat();
            let (seq, operation) = (block.seq(index), block.operation(index));
            let is_same = self.counts.entries > 0 && key == *last;
            let is_in_order = if is_same {
                before.is_none_or(|before| seq < before)
            } else {
                self.counts.entries == 0 || key > *last
            };
            if !is_in_order || key.as_slice() < begin || key.len() > KEY_BYTES_MAX {
                return self.damage(
                    offset,
                    Damage::new(0, "keys of a block", "in order behind its fence", key.escape_ascii()),
                );
            }
            if filter.is_some_and(|filter| !filter.filter().may_have(Hash::of(&key))) {
                return self.damage(offset, Damage::new(0, "filter of a key", "one that has it", key.escape_ascii()));
            }
            before = Some(seq);
            let counts = &mut self.counts;
            counts.entries += 1;
            counts.tombstones += u64::from(operation == Operation::Delete);
            counts.documents += operation.document().map_or(0, |document| document.stored_bytes());
            counts.oldest = Some(counts.oldest.unwrap_or(seq).min(seq));
            counts.newest = Some(counts.newest.unwrap_or(seq).max(seq));
            *last = key;
        }
    }

    /// Compares what was met with the footer.
    fn counts(&mut self) {
        let footer = *self.sst.footer();
        let Counts { entries, tombstones, documents, oldest, newest } = &self.counts;
        let found = (*entries, *tombstones, *documents, *oldest, *newest);
        let expected = (footer.entries, footer.tombstones, footer.documents, Some(footer.oldest), Some(footer.newest));
        if found != expected {
            let damage = Damage::new(0, "counts of a file", format!("{expected:?}"), format!("{found:?}"));
            self.damage(footer.top.offset, damage);
        }
    }
}
