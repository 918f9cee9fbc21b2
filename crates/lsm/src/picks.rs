//! Which slices are merged next.
//!
//! 1. **Targets** are counted from the bottom: the level with the most bytes is the last one, and each level above it
//!    should have a [`GROWTH`]th of the one below. Levels that would have less than level 0 may have stay empty, so
//!    level 0 is merged into the first level that does not: the **base**.
//! 2. Level 0 goes first. Its debt is its depth: the sublevels that a lookup may have to ask. Of all intervals between
//!    two slices of the base, the one is taken that has the most of level 0 for each byte of the base.
//! 3. Where level 0 has little for what lies below it, its own slices are merged with one another, where they are most.
//! 4. Then come keys where level 0 is dense with tombstones, and levels above their target: the slice with the least
//!    below it moves down.
//! 5. Where nobody writes, everything that is more than a small part of what lies below it moves down.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use index::When;
use space::PAGE;

use crate::compaction::Job;
use crate::relocate::Plan;
use crate::slices::Slice;
use crate::version::{BOTTOM, Version};

/// How many times as many bytes a level has as the one above.
const GROWTH: u64 = 8;
/// Bytes of level 0, about, that make no other level necessary between it and the base.
const LEVEL_0_BYTES: u64 = 384 << 20;
/// Sublevels from which on level 0 is merged while others write, and where nobody writes.
const DEPTH_BUSY: usize = 8;
const DEPTH_IDLE: usize = 2;
/// From so many sublevels on writers make way for merges, ever more up to so many.
const DEPTH_DEBT: usize = 10;
const DEPTH_MAX: usize = 24;
/// Level 0 is merged with itself where the base has so many times its bytes.
const SPARSE: u64 = 16;
/// Where nobody writes, a level may have this part of what lies below it.
const IDLE_PART: u64 = 16;
/// Level 0 is merged early where its tombstones are at least this part of the versions below it.
const DENSE_PART: u64 = 8;
/// On a full disk a merge is worth it where level 0 has this part of what lies below it.
const RELIEF_PART: u64 = 8;
/// A merge takes the bytes of about so many files.
const JOB_FILES: u64 = 3;

/// The level that level 0 is merged into. What is above it goes down with level 0.
fn base(version: &Version) -> usize {
    let mut target = most(version) / GROWTH;
    let mut base = BOTTOM;
    while target > LEVEL_0_BYTES && base > 1 {
        (target, base) = (target / GROWTH, base - 1);
    }
    base
}

/// Bytes of the level that has the most.
fn most(version: &Version) -> u64 {
    (1..=BOTTOM).map(|level| version.bytes_of(level)).max().unwrap_or(0)
}

/// How far merges of level 0 are behind, from 0 to 1.
pub(crate) fn debt(version: &Version) -> f64 {
    let above = version.sublevels().len().saturating_sub(DEPTH_DEBT).min(DEPTH_MAX - DEPTH_DEBT);
    #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
    let debt = above as f64 / (DEPTH_MAX - DEPTH_DEBT) as f64;
    debt
}

/// The next merge; none where there is nothing to do.
pub(crate) fn pick(version: &Version, when: When) -> Option<Job> {
    let base = base(version);
    let depth = version.sublevels().len();
    let least = match when {
        When::Busy => depth_busy(version),
        When::Idle => DEPTH_IDLE,
    };
    // Asked often, and mostly for nothing.
    let all = LazyCell::new(|| intervals(version, base));
    let has_tombstones = version.slices(0).iter().any(|slice| slice.sst().footer().tombstones > 0);
    let of_newest = if depth >= least { newest(version, &all, base, least) } else { None };
    let of_dense = || if has_tombstones { dense(version, &all, base) } else { None };
    let of_rest = || if when == When::Idle { idle(version, &all, base) } else { None };
    of_newest.or_else(of_dense).or_else(|| lower(version, base, when)).or_else(of_rest)
}

/// What gives space back on a full disk.
pub(crate) enum Relief {
    Merge(Job),
    /// These files have dead parts. Their slices are written again.
    Files(Plan<'static>),
    /// Gives back what was overwritten, which may be nothing: then it takes a little.
    Guess(Job),
}

/// On a full disk: the merge whose tombstones take the most away for what it takes meanwhile, or the shortest one if
/// `bytes` is 1; or else files with many dead bytes, of about `bytes` that live, or one; or else a merge of overwritten
/// keys, if there are any. None where nothing gives much back.
pub(crate) fn relief(version: &Version, bytes: u64) -> Option<Relief> {
    let base = base(version);
    let intervals = intervals(version, base);
    let whole = |job| Job { moves: false, ..job };
    let of_newest = intervals.iter().filter(|interval| interval.tombstones > 0);
    // Where there is little room, what takes the least.
    let worth = |tombstones: u64| if bytes > 1 { tombstones } else { 1 };
    let of_newest = of_newest.map(|interval| (interval.bytes() / worth(interval.tombstones), interval.job(base)));
    let of_levels = (1..BOTTOM).flat_map(|level| version.level(level).slices().iter().map(move |slice| (level, slice)));
    let of_levels = of_levels.filter_map(|(level, slice)| {
        let tombstones = slice.part_of(slice.sst().footer().tombstones);
        let takes = || (slice.bytes() + overlap(version, level + 1, slice)) / worth(tombstones);
        (tombstones > 0).then(|| (takes(), down(version, level, slice)))
    });
    let merge = of_newest.chain(of_levels).min_by_key(|(takes, _)| *takes).map(|(_, job)| Relief::Merge(whole(job)));
    let guess = || {
        let is_much = |interval: &&Interval<'_>| interval.newest_bytes * RELIEF_PART > interval.base_bytes;
        let much = intervals.iter().filter(|interval| interval.newest_bytes > 0).filter(is_much);
        much.min_by_key(|interval| interval.bytes()).map(|interval| Relief::Guess(whole(interval.job(base))))
    };
    merge.or_else(|| sparse(version, bytes).map(Relief::Files)).or_else(guess)
}

/// The files with the most dead bytes, of about `bytes` that live together, or one. None where none has much that is
/// dead for what lives in it.
fn sparse(version: &Version, bytes: u64) -> Option<Plan<'static>> {
    let mut files: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, slice) in version.all() {
        let (live, dead) = files.entry(slice.sst().number()).or_insert_with(|| (0, slice.sst().bytes()));
        *live += slice.bytes();
        *dead = dead.saturating_sub(slice.bytes() + PAGE as u64);
    }
    let is_worth = |(live, dead): (u64, u64)| dead > 0 && dead * RELIEF_PART >= live;
    let mut files: Vec<_> = files.into_iter().filter(|(_, bytes)| is_worth(*bytes)).collect();
    files.sort_by_key(|(_, (_, dead))| Reverse(*dead));
    let mut taken = 0;
    let fits = |(_, (live, _)): &(u64, (u64, u64))| {
        let is_first = taken == 0;
        taken += live.max(&1);
        is_first || taken <= bytes
    };
    let chosen: Plan<'static> = files.into_iter().take_while(fits).map(|(number, _)| (number, Vec::new())).collect();
    (!chosen.is_empty()).then_some(chosen)
}

/// Sublevels from which on level 0 is merged while others write: fewer where documents are most of the bytes, because
/// they are known to be dead only then, and merging costs little beside them.
fn depth_busy(version: &Version) -> usize {
    let (mut slices, mut documents) = (0, 0);
    for (_, slice) in version.all() {
        slices += slice.bytes();
        documents += slice.sst().footer().documents;
    }
    let times = usize::try_from(documents / slices.max(1)).unwrap_or(usize::MAX);
    (DEPTH_BUSY / times.saturating_add(1)).max(1)
}

/// Keys between two slices of the base, and what is in them.
struct Interval<'a> {
    from: &'a [u8],
    until: Option<&'a [u8]>,
    newest_bytes: u64,
    base_bytes: u64,
    depth: usize,
    /// Those of level 0, about, and the versions of the base.
    tombstones: u64,
    base_entries: u64,
}

impl Interval<'_> {
    /// The merge of level 0 in it with the base.
    fn job(&self, base: usize) -> Job {
        Job::of(0, base, self.from, self.until.map(<[u8]>::to_vec))
    }

    fn bytes(&self) -> u64 {
        self.newest_bytes + self.base_bytes
    }

    /// How much of its bytes level 0 has.
    fn worth(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits")]
        let worth = self.newest_bytes as f64 / self.bytes().max(1) as f64;
        worth
    }
}

/// Bytes of a merge, about.
fn job_bytes(version: &Version) -> u64 {
    JOB_FILES * version.file_bytes() as u64
}

/// The merge of level 0 with the base in neighbouring intervals. It ends early where they have much more than a merge
/// takes, because nothing else can be written meanwhile.
fn merge(version: &Version, intervals: &[Interval<'_>], last: usize) -> Option<Job> {
    let (first, behind) = (intervals.first()?, intervals.last()?);
    let job = Job::of(0, last, first.from, behind.until.map(<[u8]>::to_vec));
    let taken = |interval: &Interval<'_>| interval.newest_bytes + if last > 0 { interval.base_bytes } else { 0 };
    let (bytes, most) = (intervals.iter().map(taken).sum::<u64>(), job_bytes(version));
    let is_long = bytes > 2 * most;
    Some(Job { bytes: if is_long { usize::try_from(most).unwrap_or(usize::MAX) } else { usize::MAX }, ..job })
}

/// Where intervals begin: at each slice of the base, and at those of the oldest sublevel that have no key of a slice of
/// the base between their own.
fn begins(version: &Version, base: usize) -> Vec<(&[u8], Option<&Slice>)> {
    let base = version.level(base);
    let mut all: Vec<(&[u8], Option<&Slice>)> =
        base.slices().iter().map(|slice| (slice.low(), Some(&**slice))).collect();
    let oldest = version.sublevels().first().map_or(&[][..], |run| run.slices());
    let is_apart = |slice: &&Arc<Slice>| base.within(slice.low(), Some(&slice.end())).is_empty();
    all.extend(oldest.iter().filter(is_apart).map(|slice| (slice.low(), None)));
    all.sort_unstable_by_key(|(low, _)| *low);
    // The first one begins before all keys, and there is always one.
    match all.first_mut() {
        Some((low, _)) => *low = &[],
        None => all.push((&[], None)),
    }
    all
}

/// The intervals of the base, in key order.
fn intervals(version: &Version, base: usize) -> Vec<Interval<'_>> {
    let begins = begins(version, base);
    let untils = begins.iter().skip(1).map(|(next, _)| Some(*next)).chain([None]);
    let of_begin = |((from, slice), until)| {
        let slice: Option<&Slice> = slice;
        let (base_bytes, base_entries) = slice.map_or((0, 0), |slice| (slice.bytes(), slice.entries()));
        Interval { from, until, newest_bytes: 0, base_bytes, depth: 0, tombstones: 0, base_entries }
    };
    let mut all: Vec<Interval<'_>> = begins.iter().copied().zip(untils).map(of_begin).collect();
    for run in version.sublevels() {
        // The last interval in which this run was counted.
        let mut counted = None;
        for slice in run.slices() {
            let first = all.partition_point(|interval| interval.until.is_some_and(|until| until <= slice.low()));
            let behind = all.partition_point(|interval| interval.from <= slice.high());
            let within = &mut all[first..behind];
            let parts = within.len().max(1) as u64;
            let (share, tombstones) = (slice.bytes() / parts, slice.part_of(slice.sst().footer().tombstones));
            for (index, interval) in (first..).zip(within) {
                interval.tombstones += tombstones.div_ceil(parts);
                interval.newest_bytes += share.max(1);
                interval.depth += usize::from(counted < Some(index));
                counted = Some(index);
            }
        }
    }
    all
}

/// The merge of level 0 where it has the most for what is below it.
fn newest(version: &Version, all: &[Interval<'_>], base: usize, least: usize) -> Option<Job> {
    let is_deep = |interval: &Interval<'_>| interval.depth >= least.min(2) && interval.newest_bytes > 0;
    let deep = || all.iter().enumerate().filter(|(_, interval)| is_deep(interval));
    let (best, most) = deep().max_by(|(_, one), (_, other)| one.worth().total_cmp(&other.worth()))?;
    let (newest_bytes, base_bytes): (u64, u64) = all
        .iter()
        .fold((0, 0), |(newest, base), interval| (newest + interval.newest_bytes, base + interval.base_bytes));
    let is_sparse = |newest: u64, base: u64| newest * SPARSE < base;
    // Where documents are most of the bytes, merging with the base costs little beside them.
    let is_apart = version.sublevels().len() > 1 && least > 1;
    let job_bytes = job_bytes(version);
    if is_apart && is_sparse(most.newest_bytes, most.base_bytes) && is_sparse(newest_bytes, base_bytes) {
        let (deepest, _) = deep().max_by_key(|(_, interval)| interval.depth)?;
        let neighbours = grown(all, deepest, job_bytes, |interval| (interval.newest_bytes, interval.depth > 1));
        return merge(version, neighbours, 0);
    }
    // Neighbours go along as long as they have about as much.
    let neighbours = grown(all, best, job_bytes, |interval| (interval.bytes(), 2.0 * interval.worth() >= most.worth()));
    merge(version, neighbours, base)
}

/// An interval and its neighbours, first those behind it and then those before, up to so many bytes.
fn grown<'a, 'b>(
    all: &'a [Interval<'b>], index: usize, bytes: u64, counts: impl Fn(&Interval<'b>) -> (u64, bool),
) -> &'a [Interval<'b>] {
    let mut left = bytes.saturating_sub(counts(&all[index]).0);
    let mut goes = |interval: &&Interval<'b>| {
        let (bytes, goes) = counts(interval);
        let fits = goes && bytes <= left;
        left -= if fits { bytes } else { 0 };
        fits
    };
    let behind = all[index + 1..].iter().take_while(&mut goes).count();
    let before = all[..index].iter().rev().take_while(&mut goes).count();
    &all[index - before..=index + behind]
}

/// The merge of level 0 where it is dense with tombstones: they take away a part of what is below them.
fn dense(version: &Version, all: &[Interval<'_>], base: usize) -> Option<Job> {
    let is_dense =
        |interval: &Interval<'_>| interval.tombstones > 0 && interval.tombstones * DENSE_PART >= interval.base_entries;
    let dense = all.iter().enumerate().filter(|(_, interval)| is_dense(interval));
    let (index, _) = dense.max_by_key(|(_, interval)| interval.tombstones)?;
    merge(version, &all[index..=index], base)
}

/// The move of a slice of a level that has too much.
fn lower(version: &Version, base: usize, when: When) -> Option<Job> {
    let mut target = most(version);
    for level in (1..BOTTOM).rev() {
        target /= GROWTH;
        let most = if level < base {
            0
        } else if when == When::Idle {
            target
        } else {
            target + target / 4
        };
        if version.bytes_of(level) > most {
            return version
                .level(level)
                .slices()
                .iter()
                .map(|slice| (overlap(version, level + 1, slice), slice))
                .min_by_key(|(below, slice)| below * 1024 / slice.bytes())
                .map(|(_, slice)| down(version, level, slice));
        }
    }
    None
}

/// Bytes of a level in the keys of a slice.
fn overlap(version: &Version, level: usize, slice: &Slice) -> u64 {
    let run = version.level(level);
    let within = run.within(slice.low(), None).iter().take_while(|below| below.low() <= slice.high());
    within.map(|below| below.bytes()).sum()
}

/// The merge of a slice of a level with what is below it. It ends before the next slice of its level, and earlier where
/// there is much below; it takes whole slices from below where it can.
fn down(version: &Version, level: usize, slice: &Slice) -> Job {
    let next = version.level(level).within(slice.low(), None).get(1);
    let until = next.map(|next| next.low().to_vec());
    let (mut bytes, most) = (0, job_bytes(version));
    let mut below = version.level(level + 1).within(slice.low(), until.as_deref()).iter();
    let is_last = |below: &&Arc<Slice>| {
        bytes += below.bytes();
        bytes >= most
    };
    let early = below.by_ref().find(is_last).and(below.next()).map(|next| next.low().to_vec());
    Job::of(level, level + 1, slice.low(), early.or(until))
}

/// Where nobody writes: intervals in which level 0 has more than a small part of what is below it.
fn idle(version: &Version, all: &[Interval<'_>], base: usize) -> Option<Job> {
    let is_much =
        |interval: &Interval<'_>| interval.newest_bytes > 0 && interval.newest_bytes * IDLE_PART > interval.base_bytes;
    let index = all.iter().position(is_much)?;
    let neighbours = grown(all, index, job_bytes(version), |interval| (interval.bytes(), is_much(interval)));
    merge(version, neighbours, base)
}
