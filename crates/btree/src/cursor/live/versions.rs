//! The versions in a run, and their places.

use std::ops::Range;

use index::{Bounds, PairAt, Seq, Time, head};

use crate::format::run::{EntryPlace, Run};
use crate::leaf::first_that;

/// A version of a key, and its place in the bytes of its leaf.
#[derive(Clone, Copy)]
pub(super) struct Version {
    /// The eight bytes of the key after the prefix that all keys share.
    pub(super) head: u64,
    pub(super) pair: PairAt,
    /// Whether the version is a tombstone or has expired.
    pub(super) is_gone: bool,
}

/// Hands the versions in a run within `bounds` to `each`, in their order; none where the run is malformed.
#[inline(always)]
pub(super) fn versions(
    start: usize, run: &Run<'_>, prefix: usize, bounds: Option<&Bounds>, now: Time, mut each: impl FnMut(Version),
) -> Option<()> {
    let entries = within(run, bounds)?;
    if entries.is_empty() {
        return Some(());
    }
    if let Some(strip) = run.strip(entries.clone(), prefix) {
        let (word, key_length, is_gone) = (strip.word, strip.key_length, strip.word.is_tombstone());
        let (mut key_at, stride) = (u32::try_from(start + strip.key_at).ok()?, u32::try_from(strip.stride).ok()?);
        for (seq, head) in strip.entries() {
            each(Version { head, pair: word.pair_at(Seq(seq), key_at, key_length), is_gone });
            key_at = key_at.wrapping_add(stride);
        }
        return Some(());
    }
    for index in entries {
        let place = run.place(index)?;
        let EntryPlace { seq, key_at, key_length, word } = place;
        let (from, to) = (usize::from(key_at) + prefix, usize::from(key_at) + usize::from(key_length));
        let head = head(run.bytes().get(from..to)?);
        let pair = word.pair_at(Seq(seq), u32::try_from(start + usize::from(key_at)).ok()?, key_length);
        let is_gone = word.is_tombstone() || word.expires() && run.expiry(&place)?.is_over(now);
        each(Version { head, pair, is_gone });
    }
    Some(())
}

/// The entries of a run whose keys are within bounds, or all entries where there are no bounds. None where the run is
/// malformed.
fn within(run: &Run<'_>, bounds: Option<&Bounds>) -> Option<Range<usize>> {
    let Some(bounds) = bounds else { return Some(0..run.count()) };
    let (first, last) = run.ends()?;
    let from = if bounds.above_lower(first) { 0 } else { first_that(run, |key| bounds.above_lower(key))? };
    let to = if bounds.below_upper(last) { run.count() } else { first_that(run, |key| !bounds.below_upper(key))? };
    Some(from..to)
}
