//! Leaves that are rewritten: merged, joined, laid out, and placed in fresh extents.
//!
//! 1. All runs of a leaf and its new updates are merged, and dead versions are dropped ([`index::merge`]).
//! 2. Some leaves are joined with their neighbours ([`super::neighbours`]).
//! 3. The remaining entries are laid out as no leaf, one, or several ([`super::layout`]). New leaves of a window get
//!    neighbouring extents, and leaves whose pages touch are written in one piece.

use std::ops::Range;

use index::bloom::Hash;
use index::merge::{self, is_document};
use index::{Operation, Result, Seq, Update};
use psync::{Buffer, Request};
use space::{Extent, PAGE};

use super::Apply;
use super::layout::{self, Cut, Growth};
use super::neighbours::{Group, Member};
use super::task::{How, Loaded, Merged, Parent, Task};
use crate::counters::count;
use crate::fences::{Fences, Parts};
use crate::filter::{Maker, Shape};
use crate::format::Pointer;
use crate::format::run::{Identity, Plan};
use crate::node::{Keys, separator};
use index::due;

/// Most bytes of one write of several new leaves; a single leaf may be longer.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// A leaf does not count as growing if its live keys grew by at most one part in this many.
const FEW_PART: u32 = 32;

/// The content of a group, and how that content is cut into leaves.
pub(super) struct Laid<'w> {
    entries: Vec<Update<'w>>,
    cuts: Vec<Cut>,
    hot: bool,
}

/// A new leaf.
pub(super) struct NewLeaf {
    pub(super) low: Vec<u8>,
    pub(super) fences: Keys,
    pub(super) filter: Vec<u8>,
    pub(super) pointer: Pointer,
    /// Index of the leaf's write, and the leaf's bytes in that write.
    pub(super) write: usize,
    pub(super) bytes: Range<usize>,
    /// Whether the old leaf was cached.
    pub(super) hot: bool,
    /// Little of the leaf will stay when everything through this seq is in the tree.
    pub(super) waits_for: Option<Seq>,
}

/// An encoded leaf, and the data that stands beside its pointer.
pub(super) struct Made {
    pub(super) pointer: Pointer,
    pub(super) fences: Keys,
    pub(super) filter: Vec<u8>,
}

impl<'a> Apply<'a> {
    /// Merges the loaded leaves of the tasks that rewrite.
    pub(super) fn merge_all<'w>(&mut self, tasks: &[Task], loaded: &'w [Loaded]) -> Result<Vec<Option<Merged<'w>>>>
    where
        'a: 'w,
    {
        let mut out = Vec::with_capacity(tasks.len());
        for (task, loaded) in tasks.iter().zip(loaded) {
            let rewrite = matches!(task.how, How::Rewrite);
            out.push(if rewrite { Some(self.merge(task, loaded)?) } else { None });
        }
        Ok(out)
    }

    fn merge<'w>(&mut self, task: &Task, loaded: &'w Loaded) -> Result<Merged<'w>>
    where
        'a: 'w,
    {
        let mut entries: Vec<Update<'w>> = Vec::new();
        let (mut growth, mut hot) = (Growth::Above, false);
        if let (Some(pointer), Loaded::Leaf(leaf, cached)) = (&task.pointer, loaded) {
            hot = *cached;
            let visible = leaf.visible(pointer).expect("a leaf is chosen or read by this pointer");
            let corrupt = |damage| self.base.shared.corrupt(pointer, damage);
            entries.reserve(pointer.entries as usize + task.updates.len());
            visible.entries(&mut entries).map_err(corrupt)?;
            growth = self.growth(task, |key, above| visible.is_beyond(key, above).map_err(corrupt))?;
        }
        entries.extend(self.updates(task.updates.clone()));
        let entries = merge::merge(entries, self.rules, &mut self.dropped_documents);
        let length = layout::length(&entries);
        let replaces =
            |pointer: &Pointer| !self.touching && live_keys(&entries) <= pointer.keys_min + pointer.keys_min / FEW_PART;
        if growth == Growth::Anywhere && task.pointer.as_ref().is_some_and(replaces) {
            growth = Growth::Nowhere;
        }
        Ok(Merged { entries, length, growth, hot })
    }

    fn growth(&self, task: &Task, is_beyond: impl Fn(&[u8], bool) -> Result<bool>) -> Result<Growth> {
        if task.updates.is_empty() || self.touching {
            return Ok(Growth::Anywhere);
        }
        if is_beyond(self.batch.get(task.updates.start).key, true)? {
            return Ok(Growth::Above);
        }
        if is_beyond(self.batch.get(task.updates.end - 1).key, false)? {
            return Ok(Growth::Below);
        }
        let deletes = self.updates(task.updates.clone()).filter(|update| update.operation == Operation::Delete).count();
        Ok(if 2 * deletes > task.updates.len() { Growth::Nowhere } else { Growth::Anywhere })
    }

    /// Lays out the remaining entries of each group.
    pub(super) fn lay_out<'w>(
        &mut self, groups: &[Group], mut first: Vec<Option<Merged<'w>>>, mut second: Vec<Option<Merged<'w>>>,
    ) -> Result<Vec<Laid<'w>>> {
        let mut out = Vec::with_capacity(groups.len());
        for group in groups {
            let mut parts = group.members.iter().map(|member| {
                let part = match member {
                    Member::First(index) => first[*index].take(),
                    Member::Second(index) => second[*index].take(),
                };
                part.expect("a member of a group was merged, and is in no other")
            });
            let mut all = parts.next().expect("a group has a member");
            for part in parts {
                all.entries.extend(part.entries);
                all.length += part.length;
                all.hot |= part.hot;
                all.growth = group.growth;
            }
            let pages = self.leaf_pages(all.entries.len(), all.length);
            let cuts = layout::cut(&all.entries, pages, all.growth)?;
            self.packed |= cuts.len() > 1 && matches!(all.growth, Growth::Above | Growth::Below);
            self.count_group(group, cuts.len());
            out.push(Laid { entries: all.entries, cuts, hot: all.hot });
        }
        Ok(out)
    }

    fn count_group(&self, group: &Group, leaves: usize) {
        let counters = &self.base.shared.counters;
        match (group.members.len(), leaves) {
            (members, 0) => count(&counters.leaves_removed, members),
            (1, 1) => count(&counters.leaves_shrunk, 1),
            (members, 1) => count(&counters.leaves_merged, members - 1),
            (members, leaves) if leaves <= members => count(&counters.leaves_redistributed, members),
            _ => count(&counters.leaves_split, 1),
        }
    }

    /// Gives the new leaves extents, and adds their writes; returns each group's new leaves.
    pub(super) fn place(
        &mut self, parents: &[Parent], groups: &[Group], laid: &[Laid<'_>], writes: &mut Vec<Request>,
    ) -> Result<Vec<Vec<NewLeaf>>> {
        let extents = self.extents(laid)?;
        let cuts: Vec<Cut> = laid.iter().flat_map(|laid| laid.cuts.iter().copied()).collect();
        let mut places = places(&cuts, &extents).into_iter();
        let mut extents = extents.into_iter();
        let mut buffers: Vec<(u64, Buffer)> = Vec::new();
        let mut out = Vec::with_capacity(groups.len());
        for (group, laid) in groups.iter().zip(laid) {
            let (mut start, mut leaves) = (0, Vec::with_capacity(laid.cuts.len()));
            for (cut, (extent, place)) in laid.cuts.iter().zip(extents.by_ref().zip(places.by_ref())) {
                if place.at == 0 {
                    buffers.push((extent.offset(), Buffer::zeroed(place.write_bytes)));
                }
                let low = match start {
                    0 => parents[group.parent].low(group.children.start),
                    _ => separator(laid.entries[start - 1].key, laid.entries[start].key).to_vec(),
                };
                let bytes = place.at..place.at + cut.used * PAGE;
                let (_, buffer) = buffers.last_mut().expect("the first leaf of a write makes its buffer");
                let entries = &laid.entries[start..cut.end];
                let Made { pointer, fences, filter } = self.encode(entries, &low, extent, &mut buffer[bytes.clone()]);
                let waits_for = self.waits_for(&pointer, entries);
                let write = writes.len() + buffers.len() - 1;
                leaves.push(NewLeaf { low, fences, filter, pointer, write, bytes, hot: laid.hot, waits_for });
                start = cut.end;
            }
            out.push(leaves);
        }
        let file = self.base.shared.pages().file();
        writes.extend(buffers.into_iter().map(|(offset, buffer)| Request::write(file, offset, buffer, 0)));
        Ok(out)
    }

    /// An extent for each cut, in order.
    fn extents(&mut self, laid: &[Laid<'_>]) -> Result<Vec<Extent>> {
        let pages: Vec<u32> = laid.iter().flat_map(|laid| &laid.cuts).map(|cut| cut.pages).collect();
        let mut out = Vec::with_capacity(pages.len());
        for alike in pages.chunk_by(|one, other| one == other) {
            out.extend(self.claims.allocate(alike.len(), alike[0])?);
        }
        Ok(out)
    }

    /// Encodes entries as a leaf whose lower bound is `low`, a run per page.
    pub(super) fn encode(&self, entries: &[Update<'_>], low: &[u8], extent: Extent, out: &mut [u8]) -> Made {
        let shared = &self.base.shared;
        let identity = Identity { incarnation: shared.incarnation(), table: self.base.table };
        let (mut next, mut chain, mut length) = (0, 0, 0);
        let mut fences = Fences::default();
        // For each page, the index at which its entries end, and the CRC of its run.
        let mut pages = Vec::with_capacity(out.len() / PAGE);
        for (page, bytes) in out.chunks_exact_mut(PAGE).enumerate() {
            let rest = &entries[next..];
            let plan = Plan::fit(rest.iter().copied(), PAGE).expect("a page holds the largest entry");
            let position = u32::try_from(page * PAGE).expect("a leaf is shorter than 4 GiB");
            let before = if next > 0 { Some(entries[next - 1].key) } else { None };
            if fences.add_page(before, rest[0].key) {
                chain = 0;
            }
            chain = plan.encode(rest.iter().copied(), &identity, position, chain, &mut bytes[..plan.bytes]);
            next += plan.count;
            length = page * PAGE + plan.bytes;
            pages.push((next, chain));
        }
        assert_eq!(next, entries.len(), "a leaf was measured to hold its entries");
        let number = |count: usize| u32::try_from(count).expect("a leaf has fewer than 2^24 entries");
        let keys_min = live_keys(entries);
        count(&shared.counters.leaf_pages_written, out.len() / PAGE);
        let Parts { sorted, part_log, fences } = fences.finish(low);
        let expiries = entries.iter().filter_map(|entry| entry.operation.expiry()).collect();
        let pointer = Pointer {
            page: extent.page.0,
            pages: extent.pages,
            incarnation: identity.incarnation,
            sorted,
            part_log,
            appended: length > sorted as usize * PAGE,
            length: number(length),
            chain,
            entries: number(entries.len()),
            keys_min,
            documents: entries.iter().any(is_document),
            due: due::made(expiries, entries.len(), self.rules.horizon.now),
            newest: entries.iter().map(|entry| entry.seq).max().unwrap_or(Seq(0)),
            filter: Shape::new(extent.pages, sorted, entries.len(), length),
        };
        let pointer = pointer.sound();
        let filter = filter_of(&pointer, entries, &pages);
        Made { pointer, fences, filter }
    }

    /// The newest seq of the tombstones that may not go yet, if two thirds of a new leaf's entries may be dead.
    pub(super) fn waits_for(&self, pointer: &Pointer, entries: &[Update<'_>]) -> Option<Seq> {
        let stays = |entry: &&Update<'_>| entry.operation == Operation::Delete && entry.seq > self.rules.through;
        let newest = entries.iter().filter(stays).map(|entry| entry.seq).max();
        newest.filter(|_| is_sparse(pointer.keys_min, pointer.entries))
    }
}

/// The filter of a new leaf. `pages` holds, for each page, the end of its entries and the CRC of its run.
fn filter_of(pointer: &Pointer, entries: &[Update<'_>], pages: &[(usize, u32)]) -> Vec<u8> {
    let mut filter = Maker::new(pointer.filter, pointer.pages, pointer.sorted);
    let mut start = 0;
    for (page, (end, crc)) in (0..).zip(pages) {
        let hashes = entries[start..*end].iter().map(|entry| Hash::of(entry.key));
        if page < pointer.sorted {
            hashes.for_each(|hash| filter.add_sorted(hash));
        } else {
            hashes.for_each(|hash| filter.add_appended(hash, page));
        }
        if page + 1 >= pointer.sorted && page != pointer.last_page() {
            filter.end((page + 1 - pointer.sorted) as usize, *crc);
        }
        start = *end;
    }
    filter.finish()
}

/// Number of keys in sorted entries whose newest version is no tombstone.
fn live_keys(entries: &[Update<'_>]) -> u32 {
    let keys = entries.chunk_by(|one, other| one.key == other.key);
    let live = keys.filter(|versions| versions.last().is_some_and(|newest| newest.operation != Operation::Delete));
    u32::try_from(live.count()).unwrap_or(u32::MAX)
}

/// Whether two thirds of a leaf's entries may be dead.
pub(super) const fn is_sparse(keys_min: u32, entries: u32) -> bool {
    3 * keys_min <= entries
}

/// Position of a new leaf in a write.
struct Place {
    /// First byte of the leaf; at 0 a new write begins.
    at: usize,
    /// Bytes of the whole write, if the leaf is the first in the write.
    write_bytes: usize,
}

/// Puts leaves whose pages touch into one write.
fn places(cuts: &[Cut], extents: &[Extent]) -> Vec<Place> {
    let mut out: Vec<Place> = Vec::with_capacity(cuts.len());
    let (mut first, mut end) = (0, None);
    for (index, (cut, extent)) in cuts.iter().zip(extents).enumerate() {
        let bytes = cut.used * PAGE;
        let joins = index > 0 && end == Some(extent.page.0) && out[first].write_bytes + bytes <= WRITE_BYTES_MAX;
        if joins {
            let at = out[first].write_bytes;
            out[first].write_bytes += bytes;
            out.push(Place { at, write_bytes: 0 });
        } else {
            first = index;
            out.push(Place { at: 0, write_bytes: bytes });
        }
        end = Some(extent.page.0 + cut.used as u64);
    }
    out
}
