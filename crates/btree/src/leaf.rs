//! Leaves in memory.
//!
//! 1. A [`Leaf`] is an image of a whole leaf or of one block, parsed from the pages that hold the bytes. Each run's CRC
//!    is checked once, during parsing. The end of the image is checked too:
//!    - Where the image goes to the end of the published bytes, the runs must end exactly at the pointer's length, with
//!      the pointer's CRC.
//!    - An earlier page that was appended to must end with the CRC in the leaf's filter.
//!    - Other sorted pages have one run each, and never change.
//! 2. A leaf that grew is a new `Leaf`; an old one never changes. A pointer can use any image of its leaf that has a
//!    run ending at the pointer's length with the pointer's CRC. That CRC covers all runs appended before, so the image
//!    begins with the same runs; the later runs are younger and are ignored ([`Leaf::visible`]).
//! 3. [`Visible::find`] looks in every run that may have the key for the newest version at or below a seq. Of two equal
//!    versions, the later run's wins. A cached leaf has a small filter for each small run: appends make many runs, and
//!    a look into each would touch far more memory than the search itself.
//! 4. [`Visible::sorted`] lists entries of all runs in order, for scans and rewrites.

mod rest;

use std::ops::Range;
use std::sync::Arc;

use index::bloom::Hash;
use index::{Seq, TableId, Update, head};
use mapped::{Shared, SharedBytes};
use space::PAGE;

use crate::filter::{Filter, Link};
use crate::format::run::{Heads, Identity, RUN_HEADER, Run, RunHeader};
use crate::format::{Damage, Pointer};
use crate::partition::partition_point;

pub(crate) use rest::Unread;

/// A run and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: usize,
    /// Heads of its first and last key: keys outside are not in the run.
    heads: (u64, u64),
    /// A key whose [`Hash::mark`] is missing here is not in the run.
    filter: u64,
    header: RunHeader,
}

/// Runs of more entries have no filter, because the filter would hold too many marks.
const FILTER_ENTRIES_MAX: usize = 24;

impl Span {
    fn end(&self) -> usize {
        self.start + usize::from(self.header.length)
    }

    /// The run, out of `bytes` that begin at byte `first` of the leaf.
    #[inline]
    fn run<'a>(&self, first: usize, bytes: &'a [u8]) -> Run<'a> {
        Run::new(&bytes[self.start - first..self.end() - first], &self.header)
    }
}

/// The runs of a leaf or of one block.
pub(crate) struct Leaf {
    /// Byte of the leaf at which the image begins.
    first: usize,
    /// CRC of the run before the first one; 0 where the first one follows no run.
    before: u32,
    /// The bytes of the image, copied from the read buffer. The buffer itself is not kept: aligned memory is for I/O,
    /// and a cache of such buffers would waste the rest of each last page and the cost of alignment.
    bytes: SharedBytes,
    spans: Vec<Span>,
}

/// A leaf as one pointer sees it: its first runs.
#[derive(Clone, Copy)]
pub(crate) struct Visible<'a> {
    /// Byte of the leaf at which `bytes` begin.
    first: usize,
    bytes: &'a [u8],
    spans: &'a [Span],
}

/// An entry of a leaf, as [`Visible::sorted`] lists it.
pub(crate) struct Sorted<'a> {
    head: u64,
    /// Index of the entry's run in the leaf.
    pub(crate) run: u32,
    pub(crate) update: Update<'a>,
}

fn malformed(start: usize) -> Damage {
    Damage::new(start, "entries of a run", "whole entries", "an entry that leaves the run")
}

impl Leaf {
    /// Parses `pages`, which hold the bytes `of` the leaf: all bytes or one block.
    pub(crate) fn parse(
        pages: &[u8], pointer: &Pointer, of: Range<usize>, link: Link, table: TableId,
    ) -> Result<Self, Damage> {
        let mut spans = Vec::new();
        let visible = Visible::check(pages, pointer, of, link, table, &mut spans)?;
        let mut leaf = Self { first: visible.first, before: link.before, bytes: Shared::copied(visible.bytes), spans };
        leaf.filter(0);
        Ok(leaf)
    }

    /// Joins the images of all blocks from a part on into one image; none where a block is not whole.
    pub(crate) fn joined(blocks: &[Arc<Self>], pointer: &Pointer) -> Option<Self> {
        let first = blocks.first().map_or(0, |block| block.first);
        let length = blocks.last().map_or(0, |last| last.first + last.bytes.len() - first);
        let mut bytes = Shared::zeroed(length);
        let mut spans: Vec<Span> = Vec::with_capacity(blocks.iter().map(|block| block.spans.len()).sum());
        for block in blocks {
            let follows = spans.last().is_some_and(|last| last.header.crc == block.before);
            if !follows && !pointer.begins_page(block.first) {
                return None;
            }
            let at = block.first - first;
            bytes.get_mut(at..at + block.bytes.len())?.copy_from_slice(&block.bytes);
            spans.extend_from_slice(&block.spans);
        }
        Some(Self { first, before: 0, bytes, spans })
    }

    /// The image of the block in the bytes `of` the leaf.
    pub(crate) fn block(&self, of: Range<usize>) -> Self {
        let of = of.start - self.first..(of.end - self.first).min(self.bytes.len());
        let inside = self.first + of.start..self.first + of.end;
        let first = self.spans.partition_point(|span| span.start < inside.start);
        let spans: Vec<_> =
            self.spans[first..].iter().take_while(|span| inside.contains(&span.start)).copied().collect();
        let before = first.checked_sub(1).map_or(self.before, |last| self.spans[last].header.crc);
        Self { first: inside.start, before, bytes: Shared::copied(&self.bytes[of]), spans }
    }

    /// Fills the filters of the runs from `first` on.
    fn filter(&mut self, first: usize) {
        for span in &mut self.spans[first..] {
            let run = span.run(self.first, &self.bytes);
            if run.count() <= FILTER_ENTRIES_MAX {
                let mut marks = (0..run.count()).map(|index| run.key(index).map(|(key, _)| Hash::of(key).mark()));
                // The filter of a run with a malformed entry is full, so that a search reaches the entry and reports
                // it.
                span.filter = marks.try_fold(0, |filter, mark| Some(filter | mark?)).unwrap_or(u64::MAX);
            }
        }
    }

    /// The image after an append; the old image goes to the end of the published bytes. `pages` are the leaf's new last
    /// pages, and new runs begin at `from`. Damage is impossible, because the pages were just made from this leaf.
    pub(crate) fn extended(&self, pointer: &Pointer, table: TableId, from: usize, pages: &[u8]) -> Option<Self> {
        let first = pointer.published_bytes().checked_sub(pages.len())?.checked_sub(self.first)?;
        let old = &self.bytes[..self.bytes.len().min(first)];
        let mut bytes = Shared::zeroed(pointer.length as usize - self.first);
        bytes[..old.len()].copy_from_slice(old);
        let new = &mut bytes[first..];
        new.copy_from_slice(&pages[..new.len()]);
        let spans: Vec<_> = self.spans.iter().take_while(|span| span.end() <= from).copied().collect();
        let known = spans.len();
        let mut leaf = Self { first: self.first, before: self.before, bytes, spans };
        add_runs(&leaf.bytes, leaf.first, from, pointer, leaf.before, table, &mut leaf.spans).ok()?;
        leaf.filter(known);
        leaf.visible(pointer).is_some().then_some(leaf)
    }

    /// The part of the image that `pointer` sees; the image goes to the end of the then published bytes. None if the
    /// image does not match the pointer.
    pub(crate) fn visible(&self, pointer: &Pointer) -> Option<Visible<'_>> {
        let length = pointer.length as usize;
        let runs = self.spans.partition_point(|span| span.end() <= length);
        let last = self.spans[..runs].last()?;
        let same = last.end() == length && last.header.crc == pointer.chain;
        let stale = seeded::on(seeded::Bug::StaleCachedTail) || seeded::on(seeded::Bug::RunChecksumSkipped);
        let spans = &self.spans[..runs];
        (same || stale).then_some(Visible { first: self.first, bytes: &self.bytes, spans })
    }

    /// The part of a block's image that `pointer` sees; none if the image does not match the pointer:
    ///
    /// - the last block: the runs that the pointer publishes;
    /// - an earlier page that was appended to: the runs up to the one with the CRC `end`;
    /// - other sorted pages, which never change: all runs.
    pub(crate) fn seen(&self, pointer: &Pointer, block: usize, end: Option<u32>) -> Option<Visible<'_>> {
        if block + 1 == pointer.blocks() {
            return self.visible(pointer);
        }
        let runs = match end {
            Some(crc) => self.spans.iter().rposition(|span| span.header.crc == crc)? + 1,
            None => self.spans.len(),
        };
        Some(Visible { first: self.first, bytes: &self.bytes, spans: &self.spans[..runs] })
    }

    /// Byte of the leaf at which the image begins.
    pub(crate) const fn first(&self) -> usize {
        self.first
    }

    /// The bytes of the image.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        Shared::taken(self.bytes.len()) + self.spans.capacity() * size_of::<Span>()
    }
}

/// Adds the runs from `at` on to `spans`; `bytes` begin at byte `first` of the leaf, behind a run of CRC `before`.
fn add_runs(
    bytes: &[u8], first: usize, mut at: usize, pointer: &Pointer, before: u32, table: TableId, spans: &mut Vec<Span>,
) -> Result<(), Damage> {
    let end = first + bytes.len();
    while at < end {
        let page_end = (at / PAGE + 1) * PAGE;
        if page_end - at < RUN_HEADER {
            at = page_end;
            continue;
        }
        let room = &bytes[at - first..page_end.min(end) - first];
        let previous = spans.last().map_or(before, |span| span.header.crc);
        let Some(span) = run_at(room, at, pointer, table, previous)? else {
            at = page_end;
            continue;
        };
        spans.push(span);
        at = span.end();
    }
    Ok(())
}

/// The run at byte `at` of the leaf, behind a run of CRC `previous`. `room` is the published rest of the page. None
/// where the next run is on the next page.
fn run_at(room: &[u8], at: usize, pointer: &Pointer, table: TableId, previous: u32) -> Result<Option<Span>, Damage> {
    let begins = pointer.begins_page(at);
    let Some(header) = RunHeader::decode(room).map_err(|damage| shifted(damage, at))? else {
        if begins {
            return Err(Damage::new(at, "sorted page of a leaf", "a run", "none"));
        }
        return Ok(None);
    };
    let run = &room[..usize::from(header.length)];
    let identity = Identity { incarnation: pointer.incarnation, table };
    let position = u32::try_from(at).expect("a leaf is shorter than 4 GiB");
    let previous = if begins { 0 } else { previous };
    header.check(run, &identity, position, previous).map_err(|damage| shifted(damage, at))?;
    let (low, high) = Run::new(run, &header).ends().ok_or_else(|| malformed(at))?;
    Ok(Some(Span { start: at, heads: (head(low), head(high)), filter: u64::MAX, header }))
}

fn shifted(damage: Damage, by: usize) -> Damage {
    Damage { offset: damage.offset + by, ..damage }
}

impl<'a> Visible<'a> {
    /// Checks `pages`, which hold the bytes `of` the leaf, and lists their runs in `spans`, replacing the old content.
    pub(crate) fn check(
        pages: &'a [u8], pointer: &Pointer, of: Range<usize>, link: Link, table: TableId, spans: &'a mut Vec<Span>,
    ) -> Result<Self, Damage> {
        let length = pointer.length as usize;
        let end = of.end.min(length);
        let bytes = &pages[..pages.len().min(end.saturating_sub(of.start))];
        spans.clear();
        add_runs(bytes, of.start, of.start, pointer, link.before, table, spans)?;
        let (last, chain) = spans.last().map_or((of.start, 0), |span| (span.end(), span.header.crc));
        if end < length {
            if let Some(crc) = link.end.filter(|crc| *crc != chain && !seeded::on(seeded::Bug::RunChecksumSkipped)) {
                let (expected, found) = (format!("{crc:08x}"), format!("{chain:08x}"));
                return Err(Damage::new(last, "CRC of the last run on a page", expected, found));
            }
            // Each sorted page was found to begin with a run.
            let visible = Self { first: of.start, bytes: &bytes[..last - of.start], spans };
            return Ok(visible);
        }
        if last != length {
            return Err(Damage::new(last, "end of a leaf's last run", length, last));
        }
        if chain != pointer.chain && !seeded::on(seeded::Bug::RunChecksumSkipped) {
            let (expected, found) = (format!("{:08x}", pointer.chain), format!("{chain:08x}"));
            return Err(Damage::new(last, "CRC of a leaf's last run", expected, found));
        }
        Ok(Self { first: of.start, bytes, spans })
    }

    /// The bytes that hold the runs.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The runs in the order of their appends, each with its start in [`Visible::bytes`] and its least seq.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, Seq, Run<'a>)> {
        self.spans.iter().map(|span| (span.start - self.first, Seq(span.header.base), self.run(span)))
    }

    /// The damage of the run at `start` of [`Visible::bytes`].
    pub(crate) fn malformed(&self, start: usize) -> Damage {
        malformed(self.first + start)
    }

    fn run(&self, span: &Span) -> Run<'a> {
        span.run(self.first, self.bytes)
    }

    /// The bytes of the last run's page, up to the end of that run.
    pub(crate) fn tail(&self) -> &'a [u8] {
        let end = self.spans.last().map_or(0, Span::end);
        let start = end - end % PAGE;
        &self.bytes[start - self.first..end - self.first]
    }

    /// The newest version of `key` at or below `at`, expired or not.
    pub(crate) fn find(&self, key: &[u8], at: Seq) -> Result<Option<Update<'a>>, Damage> {
        let (number, mark) = (head(key), Hash::of(key).mark());
        let mut best: Option<(Seq, &Span, usize)> = None;
        for span in self.spans.iter().rev() {
            let outside = number < span.heads.0 || number > span.heads.1;
            if outside || span.filter & mark == 0 || span.header.base > at.0 {
                continue;
            }
            let run = self.run(span);
            let after = position(&run, span.heads, number, key, at).ok_or_else(|| malformed(span.start))?;
            let Some(index) = after.checked_sub(1) else { continue };
            let (found, seq) = run.key(index).ok_or_else(|| malformed(span.start))?;
            if found == key && best.is_none_or(|(newest, _, _)| seq > newest) {
                best = Some((seq, span, index));
            }
        }
        best.map(|(_, span, index)| self.run(span).entry(index).ok_or_else(|| malformed(span.start))).transpose()
    }

    /// Appends every version of `key` to `out`, in the order of the appends.
    pub(crate) fn versions(&self, key: &[u8], out: &mut Vec<Update<'a>>) -> Result<(), Damage> {
        let number = head(key);
        for span in self.spans.iter().filter(|span| span.heads.0 <= number && number <= span.heads.1) {
            let run = self.run(span);
            let mut index = first_that(&run, |found| found >= key).ok_or_else(|| malformed(span.start))?;
            while index < run.count() {
                let entry = run.entry(index).ok_or_else(|| malformed(span.start))?;
                if entry.key != key {
                    break;
                }
                out.push(entry);
                index += 1;
            }
        }
        Ok(())
    }

    /// Every entry, by key, then seq, then run.
    pub(crate) fn sorted(&self) -> Result<Vec<Sorted<'a>>, Damage> {
        let mut entries = Vec::new();
        for (number, span) in (0..).zip(self.spans) {
            let run = self.run(span);
            for index in 0..run.count() {
                let update = run.entry(index).ok_or_else(|| malformed(span.start))?;
                entries.push(Sorted { head: head(update.key), run: number, update });
            }
        }
        // A stable sort that is fast on input of a few sorted pieces, such as runs.
        entries.sort_by(|one, other| {
            let key = |of: &Sorted<'a>| (of.update.key, of.update.seq);
            one.head.cmp(&other.head).then_with(|| key(one).cmp(&key(other)))
        });
        Ok(entries)
    }

    /// Whether `key` is above, or below, every key.
    pub(crate) fn is_beyond(&self, key: &[u8], above: bool) -> Result<bool, Damage> {
        for span in self.spans {
            let run = self.run(span);
            let index = if above { run.count() - 1 } else { 0 };
            let (end, _) = run.key(index).ok_or_else(|| malformed(span.start))?;
            if (above && key <= end) || (!above && key >= end) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Appends every entry to `out`, run after run.
    pub(crate) fn entries(&self, out: &mut Vec<Update<'a>>) -> Result<(), Damage> {
        for span in self.spans {
            let run = self.run(span);
            for index in 0..run.count() {
                out.push(run.entry(index).ok_or_else(|| malformed(span.start))?);
            }
        }
        Ok(())
    }

    /// Checks that the entries of every run rise by key, then by seq.
    pub(crate) fn check_order(&self) -> Result<(), Damage> {
        for span in self.spans {
            let run = self.run(span);
            let mut last = None;
            for index in 0..run.count() {
                let entry = run.key(index).ok_or_else(|| malformed(span.start))?;
                if last.is_some_and(|last| last >= entry) {
                    return Err(Damage::new(
                        span.start,
                        "order of a run",
                        "rising keys and seqs",
                        format!("entry {index} out of order"),
                    ));
                }
                last = Some(entry);
            }
        }
        Ok(())
    }

    /// Checks that the filter of a whole leaf misses no entry, and holds the CRCs at which its pages end.
    pub(crate) fn check_filter(&self, pointer: &Pointer, filter: &Filter<'_>) -> Result<(), Damage> {
        for span in self.spans {
            let run = self.run(span);
            let page = u32::try_from(span.start / PAGE).expect("a leaf has fewer than 2^15 pages");
            for index in 0..run.count() {
                let (key, _) = run.key(index).ok_or_else(|| malformed(span.start))?;
                if !filter.knows(key, page, pointer.begins_page(span.start)) {
                    let found = format!("not \"{}\"", key.escape_ascii());
                    return Err(Damage::new(span.start, "filter of a leaf", "all its keys", found));
                }
            }
        }
        for pair in self.spans.windows(2).filter(|pair| pair[0].start / PAGE != pair[1].start / PAGE) {
            let page = pair[0].start / PAGE;
            let Some(behind) = (page + 1).checked_sub(pointer.sorted as usize) else { continue };
            let stated = filter.link(pointer.parts() - 1 + behind).end.unwrap_or(0);
            if stated != pair[0].header.crc {
                let (expected, found) = (format!("{stated:08x}"), format!("{:08x}", pair[0].header.crc));
                return Err(Damage::new(pair[0].start, "CRC of the last run on a page", expected, found));
            }
        }
        Ok(())
    }

    /// Checks that runs stand only where searches by this pointer look. Where the fences are known, checks that the
    /// keys of each part's sorted pages lie between the leaf's fences.
    pub(crate) fn check_fences(&self, pointer: &Pointer, fences: &[&[u8]]) -> Result<(), Damage> {
        let last = (pointer.sorted as usize - 1) * PAGE;
        let lost = |span: &&Span| !pointer.begins_page(span.start) && (!pointer.appended || span.start < last);
        if let Some(span) = self.spans.iter().find(lost) {
            return Err(Damage::new(span.start, "runs of a leaf", "none where searches do not look", "one"));
        }
        if fences.is_empty() {
            return Ok(());
        }
        for span in self.spans.iter().filter(|span| pointer.begins_page(span.start)) {
            let run = self.run(span);
            let part = (span.start / PAGE) >> pointer.part_log;
            let ends = run.key(0).zip(run.key(run.count() - 1));
            let ((low, _), (high, _)) = ends.ok_or_else(|| malformed(span.start))?;
            let above = part.checked_sub(1).is_none_or(|fence| fences[fence] <= low);
            if !above || fences.get(part).is_some_and(|fence| high >= *fence) {
                return Err(Damage::new(span.start, "sorted page of a leaf", "keys between its fences", "others"));
            }
        }
        Ok(())
    }
}

/// How many entries of the run are at or below (key, at). `number` is the key's head, between the run's heads `ends`.
#[inline]
fn position(run: &Run<'_>, ends: (u64, u64), number: u64, key: &[u8], at: Seq) -> Option<usize> {
    let Some(heads) = run.heads() else {
        return partition(run, 0, |entry| {
            let found = head(entry.0);
            found < number || (found == number && entry <= (key, at))
        });
    };
    let below = heads_below(&heads, run.count(), ends, number);
    let is_above = |index| index == run.count() || heads.get(index) != number;
    if is_above(below) || run.key(below)? > (key, at) {
        return Some(below);
    }
    // Most often there is one entry with this head. Where there are more, all of them may count.
    if is_above(below + 1) {
        return Some(below + 1);
    }
    partition(run, below + 1, |entry| entry <= (key, at))
}

/// Number of entries around a key's expected place, assuming evenly spread keys. The search begins with these entries.
const AROUND: usize = 4;

/// How many of `count` heads are below `number`. Keys are mostly spread evenly. The search then needs only a few
/// entries around the expected place, on neighbouring cache lines, instead of one entry on each of many lines.
/// Otherwise the attempt costs two looks.
#[inline]
fn heads_below(heads: &Heads<'_>, count: usize, (first, last): (u64, u64), number: u64) -> usize {
    let (mut low, mut high) = (0, count);
    if count > 2 * AROUND && first < last {
        // The shift makes room for the product: there are far fewer than 2^16 entries on a page.
        let (from_first, all) = ((number - first) >> 16, ((last - first) >> 16) + 1);
        let guess = usize::try_from(from_first * (count as u64 - 1) / all).unwrap_or(0).min(count - 1);
        if heads.get(guess) < number {
            low = guess + 1;
            let end = (guess + AROUND).min(count - 1);
            if heads.get(end) >= number { high = end } else { low = end + 1 }
        } else {
            high = guess;
            let begin = guess.saturating_sub(AROUND);
            if heads.get(begin) < number { low = begin + 1 } else { high = begin }
        }
    }
    low + partition_point(high - low, |index| heads.get(low + index) < number)
}

/// The first entry whose key is `wanted`, or the number of entries. All entries behind a wanted one are wanted.
pub(crate) fn first_that(run: &Run<'_>, wanted: impl Fn(&[u8]) -> bool) -> Option<usize> {
    partition(run, 0, |(key, _)| !wanted(key))
}

/// How many entries are `before`: these are the first ones, and at least `low`. None where the run is malformed.
#[inline]
fn partition(run: &Run<'_>, mut low: usize, before: impl Fn((&[u8], Seq)) -> bool) -> Option<usize> {
    let mut high = run.count();
    while low < high {
        let middle = low + (high - low) / 2;
        if before(run.key(middle)?) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// Checks `page`, the last page of a leaf, as far as possible without the pages before, and that the page ends as
/// `pointer` says.
pub(crate) fn check_tail(page: &[u8], pointer: &Pointer, table: TableId) -> Result<(), Damage> {
    let length = pointer.length as usize;
    let start = length - length % PAGE;
    let identity = Identity { incarnation: pointer.incarnation, table };
    let (mut at, mut previous) = (0, pointer.begins_page(start).then_some(0));
    while at < length - start {
        let room = &page[at..length - start];
        let header = RunHeader::decode(room).map_err(|damage| shifted(damage, start + at))?;
        let end = || Damage::new(start + at, "run on a leaf's last page", "a run", "none");
        let header = header.ok_or_else(end)?;
        if let Some(previous) = previous {
            let position = u32::try_from(start + at).expect("a leaf is shorter than 4 GiB");
            let run = &room[..usize::from(header.length)];
            header.check(run, &identity, position, previous).map_err(|damage| shifted(damage, start + at))?;
        }
        previous = Some(header.crc);
        at += usize::from(header.length);
    }
    if previous != Some(pointer.chain) && !seeded::on(seeded::Bug::RunChecksumSkipped) {
        let found = previous.map_or_else(|| "no run".to_owned(), |crc| format!("{crc:08x}"));
        return Err(Damage::new(start + at, "CRC of a leaf's last run", format!("{:08x}", pointer.chain), found));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
