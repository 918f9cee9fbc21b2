//! Which slices are merged next.
//!
//! 1. **Targets** are counted from the bottom: the level with the most bytes is the last one, and each level above it
//!    should have a [`GROWTH`]th of the one below. Levels that would have less than level 0 may have stay empty, so
//!    level 0 is merged into the first level that does not: the **base**.
//! 2. Level 0 goes first. Its debt is its depth: the sublevels that a lookup may have to ask. Of all intervals between
//!    two slices of the base, the one is taken that has the most of level 0 for each byte of the base.
//! 3. Where level 0 has little for what lies below it, its own slices are merged with one another.
//! 4. Then come keys where level 0 is dense with tombstones, and levels above their target: the slice with the least
//!    below it moves down.
//! 5. Where nobody writes, everything that is more than a small part of what lies below it moves down.

use std::cell::LazyCell;
use std::sync::Arc;

use index::When;

use crate::compaction::Job;
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
/// A merge takes the bytes of so many files, or one interval.
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
    let of_dense = || if has_tombstones { dense(&all, base) } else { None };
    let of_rest = || if when == When::Idle { idle(&all, base) } else { None };
    of_newest.or_else(of_dense).or_else(|| lower(version, base, when)).or_else(of_rest)
}

/// On a full disk: the merge of an interval that gives most room back for what it takes meanwhile, or else that of a
/// slice whose file has little else. None where no merge gives much back.
pub(crate) fn relief(version: &Version) -> Option<Job> {
    let base = base(version);
    let is_worth = |interval: &Interval<'_>| {
        interval.tombstones > 0
            || (interval.newest_bytes > 0 && interval.newest_bytes * RELIEF_PART > interval.base_bytes)
    };
    let all = intervals(version, base).into_iter().filter(is_worth);
    let takes = |interval: &Interval<'_>| (interval.base_bytes + interval.newest_bytes) / (1 + interval.tombstones);
    if let Some(least) = all.min_by_key(takes) {
        return Some(Job { moves: false, ..least.job(BOTTOM) });
    }
    // Files of which little is left.
    let is_little = |(_, slice): &(usize, &Arc<Slice>)| slice.bytes() * 2 < slice.sst().bytes();
    let (level, slice) = version.all().filter(is_little).min_by_key(|(_, slice)| slice.bytes())?;
    Some(Job { moves: false, ..Job::of(level, level, slice.low(), Some(slice.end())) })
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
}

/// The intervals of the base, in key order.
fn intervals(version: &Version, base: usize) -> Vec<Interval<'_>> {
    let is_base = !version.level(base).slices().is_empty();
    let of_newest = || version.sublevels().first().map_or(&[][..], |run| run.slices());
    // Without a base, between those of the oldest sublevel.
    let slices = if is_base { version.level(base).slices() } else { of_newest() };
    let begin = |index: usize| if index == 0 { &[][..] } else { slices[index].low() };
    let mut all: Vec<Interval<'_>> = (0..slices.len().max(1))
        .map(|index| Interval {
            from: begin(index),
            until: (index + 1 < slices.len()).then(|| begin(index + 1)),
            newest_bytes: 0,
            base_bytes: if is_base { slices[index].bytes() } else { 0 },
            depth: 0,
            tombstones: 0,
            base_entries: if is_base { slices[index].entries() } else { 0 },
        })
        .collect();
    for run in version.sublevels() {
        for slice in run.slices() {
            let first = all.partition_point(|interval| interval.until.is_some_and(|until| until <= slice.low()));
            let behind = all.partition_point(|interval| interval.from <= slice.high());
            let within = &mut all[first..behind];
            let parts = within.len().max(1) as u64;
            let (share, tombstones) = (slice.bytes() / parts, slice.sst().footer().tombstones);
            for interval in within {
                interval.tombstones += tombstones.div_ceil(parts);
                interval.newest_bytes += share.max(1);
                interval.depth += 1;
            }
        }
    }
    all
}

/// The merge of level 0 where it has the most for what is below it.
fn newest(version: &Version, all: &[Interval<'_>], base: usize, least: usize) -> Option<Job> {
    let worth = |interval: &Interval<'_>| {
        #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits")]
        let ratio = interval.newest_bytes as f64 / (interval.base_bytes + interval.newest_bytes).max(1) as f64;
        ratio
    };
    let deep = |interval: &&Interval<'_>| interval.depth >= least.min(2) && interval.newest_bytes > 0;
    let best = all.iter().enumerate().filter(|(_, interval)| deep(interval));
    let (index, best) = best.max_by(|(_, one), (_, other)| worth(one).total_cmp(&worth(other)))?;
    let (newest_bytes, base_bytes): (u64, u64) = all
        .iter()
        .fold((0, 0), |(newest, base), interval| (newest + interval.newest_bytes, base + interval.base_bytes));
    // Where documents are most of the bytes, merging with the base costs little beside them.
    let is_apart = version.sublevels().len() > 1 && least > 1;
    if is_apart && best.newest_bytes * SPARSE < best.base_bytes && newest_bytes * SPARSE < base_bytes {
        return Some(Job::of(0, 0, &[], None));
    }
    let job_bytes = JOB_FILES * version.file_bytes() as u64;
    // Neighbours go along as long as they have about as much.
    let (mut behind, mut bytes) = (index + 1, best.newest_bytes + best.base_bytes);
    while let Some(next) = all.get(behind)
        && bytes + next.newest_bytes + next.base_bytes <= job_bytes
        && 2.0 * worth(next) >= worth(best)
    {
        bytes += next.newest_bytes + next.base_bytes;
        behind += 1;
    }
    Some(Interval { until: all[behind - 1].until, ..*best }.job(base))
}

/// The merge of level 0 where it is dense with tombstones: they take away a part of what is below them.
fn dense(all: &[Interval<'_>], base: usize) -> Option<Job> {
    let is_dense =
        |interval: &&Interval<'_>| interval.tombstones > 0 && interval.tombstones * DENSE_PART >= interval.base_entries;
    all.iter().filter(is_dense).max_by_key(|interval| interval.tombstones).map(|most| most.job(base))
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

/// The merge of a slice of a level with what is below it. It ends before the next slice of its level, and takes whole
/// slices from below where it can.
fn down(version: &Version, level: usize, slice: &Slice) -> Job {
    let next = version.level(level).within(slice.low(), None).get(1);
    let until = next.map(|next| next.low().to_vec());
    Job::of(level, level + 1, slice.low(), until)
}

/// Where nobody writes: intervals in which level 0 has more than a small part of what is below it.
fn idle(all: &[Interval<'_>], base: usize) -> Option<Job> {
    let is_much =
        |interval: &&Interval<'_>| interval.newest_bytes > 0 && interval.newest_bytes * IDLE_PART > interval.base_bytes;
    all.iter().find(is_much).map(|interval| interval.job(base))
}
