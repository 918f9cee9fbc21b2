//! Compaction: slices of some levels are merged into one of them, within an interval of keys.
//!
//! 1. A [`Job`] says which levels, which keys, and how far the merge goes. Slices that are only in part within the keys
//!    that were merged are cut: what is left of them stays where it is, in the same file.
//! 2. Where nothing is to be merged, because only one level has keys there, its slices move down without being read,
//!    unless the caller forgets afterwards what hides some of their versions.
//! 3. Where range tombstones hide everything from everyone, files go without being read.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use index::merge::Rules;
use index::{Bounds, Horizon, Part, Result, Seq};
use seeded::Bug;

use crate::files::Files;
use crate::format::edit::Entry;
use crate::rewrite::{Input, Made, Output, Rewritten, rewrite};
use crate::runs::Run;
use crate::slices::{Slice, behind};
use crate::version::{BOTTOM, Change, Version, stream_of};

/// What is to be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// The levels, all between these two included.
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// The keys, from this one on.
    pub(crate) from: Vec<u8>,
    /// The end of the keys; none for all that follow.
    pub(crate) until: Option<Vec<u8>>,
    /// The merge ends behind so many bytes of keys from `counted` on.
    pub(crate) bytes: usize,
    pub(crate) counted: Vec<u8>,
    /// Whether slices may move as they are. If not, every version of the keys is looked at.
    pub(crate) moves: bool,
}

/// What came of a job.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) change: Change,
    pub(crate) made: Made,
    pub(crate) dropped: Vec<doclog::DocPointer>,
    /// The first key that was not merged; none at the end of the tree.
    pub(crate) next: Option<Vec<u8>>,
    /// Slices that were merged or moved.
    pub(crate) slices: usize,
    /// Bytes of keys and values that were merged.
    pub(crate) bytes: usize,
}

/// A slice of the job, with its level.
type Placed = (usize, Arc<Slice>);

impl Job {
    /// The merge of all that these levels have of some keys.
    pub(crate) fn of(first: usize, last: usize, from: &[u8], until: Option<Vec<u8>>) -> Self {
        Self { first, last, from: from.to_vec(), until, bytes: usize::MAX, counted: Vec::new(), moves: true }
    }

    /// The job that rewrites a part of a tree. It begins and ends between two slices of the lowest run, so that many
    /// short parts do not cut the run into many short files. One that is to give space back ends there even where the
    /// part is long: a file that is merged in part gives nothing back.
    pub(crate) fn of_part(base: &Version, part: &Part<'_>) -> Self {
        let lowest = base.runs().next().cloned().unwrap_or_default();
        let from = lowest.slice_of(part.from).map_or(part.from, |slice| slice.low());
        // The slice in the middle of which the part ends.
        let last = part.until.and_then(|until| lowest.slice_of(until).filter(|slice| slice.low() < until));
        let mut until = last.map_or(part.until.map(<[u8]>::to_vec), |slice| Some(slice.end()));
        let file_bytes = base.file_bytes();
        // A stretch that is shorter would leave files that are too short.
        let mut bytes = part.bytes.max(file_bytes / 2);
        if part.reclaims {
            let mut sum = 0;
            let mut within = lowest.within(from, until.as_deref()).iter();
            let enough = within.find(|slice| {
                sum += slice.bytes();
                sum >= bytes as u64
            });
            if let Some(enough) = enough {
                until = Some(enough.end().max(behind(part.from)));
            }
            bytes = bytes.max(2 * file_bytes);
            if enough.is_some() || part.until.is_some() {
                bytes = usize::MAX;
            }
        }
        let (from, counted) = (from.to_vec(), part.from.to_vec());
        Self { first: 0, last: BOTTOM, from, until, bytes, counted, moves: false }
    }

    /// The slices of a version that the job is about.
    fn slices(&self, base: &Version) -> Vec<Placed> {
        let within = |(_, slice): &(usize, &Arc<Slice>)| slice.overlaps(&self.from, self.until.as_deref());
        let levels = base.all().filter(|(level, _)| (self.first..=self.last).contains(level));
        levels.filter(within).map(|(level, slice)| (level, Arc::clone(slice))).collect()
    }

    /// Carries the job out on a version. None where the levels have nothing from the beginning of the keys on.
    ///
    /// # Errors
    /// When a file cannot be read, made or written. Nothing is left of the job then.
    pub(crate) fn run(
        &self, base: &Version, files: &Arc<Files>, through: Seq, horizon: &Horizon,
    ) -> Result<Option<Done>> {
        let slices = self.slices(base);
        if slices.is_empty() {
            let behind = Self { until: None, ..self.clone() }.slices(base);
            let next = behind.iter().map(|(_, slice)| slice.low()).min();
            return Ok(next.map(|next| Done { next: Some(next.to_vec()), ..Done::default() }));
        }
        if let Some(done) = self.moved(base, &slices) {
            return Ok(Some(done));
        }
        let older: Vec<Run> = (self.last + 1..=BOTTOM).rev().map(|level| base.level(level).clone()).collect();
        let mut runs: Vec<Run> = (self.first.max(1)..=self.last).rev().map(|level| base.level(level).clone()).collect();
        if self.first == 0 {
            runs.extend(base.sublevels().iter().cloned());
        }
        let bounds = self.bounds();
        let total: u64 = slices.iter().map(|(_, slice)| slice.bytes()).sum();
        let total = usize::try_from(total).unwrap_or(usize::MAX).min(self.bytes);
        let file_bytes = file_bytes(total, base.file_bytes());
        let output = Output::new(base, files, self.last, base.format(self.last, horizon.now), file_bytes);
        let rules = Rules { horizon, through, is_all: true };
        let input = Input { runs: &runs, older: &older, bounds: &bounds, bytes: self.bytes, counted: &self.counted };
        let Rewritten { made, dropped, next, bytes, taken } = rewrite(&base.shared, &input, rules, output)?;
        let end = next.or_else(|| self.until.clone());
        let mut change = match self.cut(base, &slices, end.as_deref(), &taken) {
            Ok(change) => change,
            Err(error) => {
                files.abandon(&made.numbers());
                return Err(error);
            }
        };
        let age = slices.iter().filter(|(level, _)| *level == 0).map(|(_, slice)| slice.age()).max().unwrap_or(0);
        let entry = |written| Slice::whole(stream_of(self.last), age, written).entry(self.last);
        change.added.extend(made.written.iter().map(entry));
        change.expires = made.expires;
        Ok(Some(Done { change, made, dropped, next: end, slices: slices.len(), bytes }))
    }

    /// The change without these slices as far as they are within the keys from the beginning of the job on and below
    /// `end`.
    fn cut(&self, base: &Version, slices: &[Placed], end: Option<&[u8]>, merged: &HashMap<u64, u64>) -> Result<Change> {
        let taken = slices.iter().filter(|(_, slice)| slice.overlaps(&self.from, end));
        let mut left = Vec::new();
        let (mut removed, mut gone) = (BTreeSet::new(), Vec::new());
        for (level, slice) in taken {
            removed.insert(slice.sst().number());
            gone.push(Arc::as_ptr(slice));
            let rest = slice.without(&base.shared, &self.from, end)?;
            left.extend(rest.into_iter().map(|rest| rest.entry(*level)));
        }
        let mut added: Vec<Entry> = others(base, &removed, &gone).chain(left).collect();
        share(base, &mut added, merged);
        Ok(Change { removed: removed.into_iter().collect(), added, expires: false })
    }

    /// The job where only one level has keys, and nothing is to be got rid of: its slices move.
    fn moved(&self, base: &Version, slices: &[Placed]) -> Option<Done> {
        let slices = if seeded::on(Bug::MovedOverOverlap) { &slices[slices.len() - 1..] } else { slices };
        let (level, _) = *slices.first()?;
        let is_one = self.moves
            && self.first < self.last
            && level < self.last
            && slices.iter().all(|(other, _)| *other == level)
            && (level > 0 || do_not_overlap(slices));
        // Short files are better merged with one another.
        let bytes: u64 = slices.iter().map(|(_, slice)| slice.bytes()).sum();
        let are_long = slices.len() == 1 || bytes >= slices.len() as u64 * base.file_bytes() as u64 / 4;
        let is_whole = |(_, slice): &Placed| {
            let footer = slice.sst().footer();
            let is_clean = footer.tombstones == 0 || self.last < BOTTOM;
            slice.low() >= self.from.as_slice()
                && index::is_below(slice.high(), self.until.as_deref())
                && is_clean
                && slice.bytes() + slice.bytes() / 4 >= slice.sst().bytes()
        };
        if !is_one || !are_long || !slices.iter().all(is_whole) {
            return None;
        }
        let removed: BTreeSet<u64> = slices.iter().map(|(_, slice)| slice.sst().number()).collect();
        let gone: Vec<_> = slices.iter().map(|(_, slice)| Arc::as_ptr(slice)).collect();
        let moved = slices.iter().map(|(_, slice)| slice.entry(self.last));
        let added = others(base, &removed, &gone).chain(moved).collect();
        let change = Change { removed: removed.into_iter().collect(), added, expires: false };
        let (made, dropped, next) = (Made::default(), Vec::new(), self.until.clone());
        Some(Done { change, made, dropped, next, slices: slices.len(), bytes: 0 })
    }

    /// Takes a part of the tree away that range tombstones hide from everyone. Slices go unread, but for those with
    /// documents, because each document is reported. None where something is seen, or where cuts in the middle of
    /// slices are not worth the little that goes.
    ///
    /// # Errors
    /// As [`Job::run`].
    pub(crate) fn hidden(
        base: &Version, files: &Arc<Files>, part: &Part<'_>, through: Seq, horizon: &Horizon,
    ) -> Result<Option<Done>> {
        let mut job = Self::of_part(base, part);
        (job.from, job.until) = (part.from.to_vec(), part.until.map(<[u8]>::to_vec));
        let slices = job.slices(base);
        let is_whole = |(_, slice): &&Placed| {
            slice.low() >= job.from.as_slice() && index::is_below(slice.high(), job.until.as_deref())
        };
        let bytes: u64 = slices.iter().filter(is_whole).map(|(_, slice)| slice.bytes()).sum();
        let is_much = bytes >= base.shared.sizes().file_bytes(0) as u64;
        if !is_much || !horizon.is_bare(&job.from, job.until.as_deref()) {
            return Ok(None);
        }
        let with_documents = slices.iter().filter(|(_, slice)| slice.sst().footer().documents > 0);
        let mut with_documents: Vec<&Placed> = with_documents.collect();
        // The oldest first.
        with_documents.sort_by_key(|(level, slice)| (Reverse(*level), slice.age()));
        let runs: Vec<Run> = with_documents.into_iter().map(|(_, slice)| Run::new(vec![Arc::clone(slice)])).collect();
        let bounds = job.bounds();
        let input = Input { runs: &runs, older: &[], bounds: &bounds, bytes: usize::MAX, counted: &[] };
        let output = Output::new(base, files, BOTTOM, base.format(BOTTOM, horizon.now), usize::MAX);
        let rules = Rules { horizon, through, is_all: true };
        let Rewritten { made, dropped, bytes, .. } = rewrite(&base.shared, &input, rules, output)?;
        let change = job.cut(base, &slices, job.until.as_deref(), &HashMap::new());
        let change = match change {
            Ok(change) if made.written.is_empty() => change,
            // Something stays after all, because its commit may be applied again.
            outcome => {
                files.abandon(&made.numbers());
                return outcome.map(|_| None);
            }
        };
        Ok(Some(Done { change, made, dropped, next: job.until, slices: slices.len(), bytes }))
    }

    fn bounds(&self) -> Bounds {
        let upper = self.until.clone().map_or(Bound::Unbounded, Bound::Excluded);
        Bounds { lower: Bound::Included(self.from.clone()), upper }
    }
}

/// Divides what is left of the versions of a file over its slices, where it is known how many were merged.
fn share(base: &Version, added: &mut [Entry], merged: &HashMap<u64, u64>) {
    let mut left: HashMap<u64, (u64, u64)> = HashMap::new();
    for (number, merged) in merged {
        let of_file = base.all().filter(|(_, slice)| slice.sst().number() == *number);
        let entries: u64 = of_file.map(|(_, slice)| slice.entries()).sum();
        left.insert(*number, (entries.saturating_sub(*merged), 0));
    }
    let bytes = |entry: &Entry| u64::from(entry.part.end - entry.part.start).max(1);
    for entry in added.iter() {
        if let Some((_, all)) = left.get_mut(&entry.footer.number) {
            *all += bytes(entry);
        }
    }
    for entry in added {
        if let Some((entries, all)) = left.get_mut(&entry.footer.number) {
            // The last slice of a file gets what is left.
            entry.entries =
                u64::try_from(u128::from(*entries) * u128::from(bytes(entry)) / u128::from(*all)).unwrap_or(0);
            (*entries, *all) = (*entries - entry.entries, *all - bytes(entry));
        }
    }
}

fn do_not_overlap(slices: &[Placed]) -> bool {
    let mut keys: Vec<_> = slices.iter().map(|(_, slice)| (slice.low(), slice.high())).collect();
    keys.sort_unstable();
    keys.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// The other slices of files that go: they come again.
fn others<'a>(
    base: &'a Version, removed: &'a BTreeSet<u64>, gone: &'a [*const Slice],
) -> impl Iterator<Item = Entry> + 'a {
    let is_other = |(_, slice): &(usize, &Arc<Slice>)| {
        removed.contains(&slice.sst().number()) && !gone.contains(&Arc::as_ptr(slice))
    };
    base.all().filter(is_other).map(|(level, slice)| slice.entry(level))
}

/// Bytes of a file where `total` bytes are merged: files of about the same size, and none that is short.
fn file_bytes(total: usize, usual: usize) -> usize {
    let files = (total + usual / 2) / usual;
    total / files.max(1) + usual / 16
}
