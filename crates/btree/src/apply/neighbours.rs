//! Which neighbouring leaves are rewritten together, under one parent.
//!
//! 1. A rewritten leaf that is less than a quarter full is joined with the leaf before or after, if both together
//!    are expected to fill at most two thirds of a leaf. Where neither neighbour fits, the leaf shares entries with the
//!    smaller one, unless the leaf is at the end at which the tree grows. A leaf without a neighbour is looked at again
//!    ([`index::Again`]).
//! 2. A leaf that has to be cut, at no end of the tree, takes along a neighbour that is full too, as in a B*-tree
//!    (Knuth, "The Art of Computer Programming", vol. 3, section 6.2.4). Both are cut into three, where each alone
//!    would be cut into halves. Full neighbours that are rewritten in any case make a row of up to [`ROW_MAX`].
//! 3. A neighbour that was to be appended to, or left alone, is read and rewritten too.

use std::ops::Range;

use space::PAGE;

use super::Apply;
use super::layout::{Growth, SPREAD, length, packed, part};
use super::task::{How, Merged, Parent, Task};

/// Most leaves of a row. A longer row is cut into hardly fewer leaves.
const ROW_MAX: usize = 4;

/// Neighbouring leaves that are rewritten together.
pub(super) struct Group {
    pub(super) parent: usize,
    pub(super) children: Range<usize>,
    /// The members, in key order.
    pub(super) members: Vec<Member>,
    /// Where the group grew, if the group is more than a leaf.
    pub(super) growth: Growth,
}

/// A task of the window, or of its second round.
#[derive(Clone, Copy)]
pub(super) enum Member {
    First(usize),
    Second(usize),
}

/// Neighbouring children that may form a group.
struct Candidate {
    children: Range<usize>,
    bytes: usize,
    entries: usize,
    rewritten: bool,
    /// False for the end at which the tree grows.
    settled: bool,
    /// Whether little room is left, and there are keys to cut between.
    full: bool,
    /// Whether the candidate is full, and will be cut by itself as far as is known.
    cut: bool,
}

impl Candidate {
    /// Whether both candidates are cut as a row. One of them would be cut by itself. Either both are rewritten in any
    /// case, or such a leaf takes the other one along.
    fn is_row_with(&self, next: &Self) -> bool {
        let leaves = self.children.len() + next.children.len();
        let most = if self.rewritten && next.rewritten { ROW_MAX } else { 2 };
        self.full && next.full && (self.cut || next.cut) && leaves <= most
    }

    fn join(&mut self, next: Self) {
        self.children.end = next.children.end;
        self.bytes += next.bytes;
        self.entries += next.entries;
        self.rewritten = true;
        self.settled |= next.settled;
        self.full &= next.full;
        self.cut |= next.cut;
    }
}

impl Apply<'_> {
    /// The groups of leaves to rewrite together, and the tasks of the neighbours that are taken along, which have to be
    /// loaded.
    pub(super) fn group(
        &self, parents: &[Parent], tasks: &mut [Task], merged: &[Option<Merged<'_>>],
    ) -> (Vec<Group>, Vec<Task>) {
        let (mut groups, mut second) = (Vec::new(), Vec::new());
        let mut start = 0;
        while start < tasks.len() {
            let parent = tasks[start].parent;
            let count = tasks[start..].partition_point(|task| task.parent == parent);
            let range = start..start + count;
            let candidates = self.candidates(&parents[parent], &tasks[range.clone()], &merged[range.clone()]);
            for candidate in candidates.into_iter().filter(|candidate| candidate.rewritten) {
                let members = members(&parents[parent], &candidate, tasks, range.clone(), &mut second);
                let growth = if candidate.full { Growth::Row } else { Growth::Anywhere };
                groups.push(Group { parent, children: candidate.children, members, growth });
            }
            start = range.end;
        }
        (groups, second)
    }

    /// Bytes of a leaf for entries of this count and these bytes.
    fn capacity(&self, entries: usize, bytes: usize) -> usize {
        self.leaf_pages(entries, bytes) as usize * PAGE
    }

    /// Whether a leaf of so many entries in so many bytes is nearly empty.
    pub(super) fn is_small(&self, entries: usize, bytes: usize) -> bool {
        bytes > 0 && bytes < self.capacity(entries, bytes) / 4
    }

    /// Whether a leaf is fuller than leaves that were just cut.
    fn is_full(&self, entries: usize, bytes: usize) -> bool {
        bytes > part(self.capacity(entries, bytes), SPREAD)
    }

    /// Whether a full leaf grew all over, or kept nearly all keys and has no room left. The second case arises after a
    /// load, when entries of a later commit take a little more.
    fn has_outgrown(&self, merged: &Merged<'_>) -> bool {
        match merged.growth {
            Growth::Anywhere => true,
            Growth::Nowhere => merged.length > packed(self.capacity(merged.entries.len(), merged.length)),
            _ => false,
        }
    }

    /// Whether no key has versions that fill half of a leaf. Such versions could not be cut, so a neighbour would be
    /// taken along and rewritten in vain.
    fn can_be_cut(&self, merged: &Merged<'_>) -> bool {
        let most = self.capacity(merged.entries.len(), merged.length) / 2;
        let mut keys = merged.entries.chunk_by(|one, next| one.key == next.key);
        self.rules.horizon.is_empty() || keys.all(|versions| length(versions) <= most)
    }

    fn candidates(&self, parent: &Parent, tasks: &[Task], merged: &[Option<Merged<'_>>]) -> Vec<Candidate> {
        let rewritten = tasks.iter().zip(merged).filter_map(|(task, merged)| {
            let children = task.child..task.child + 1;
            let settled = |growth| matches!(growth, Growth::Anywhere | Growth::Nowhere);
            merged.as_ref().map(|merged| {
                let (entries, bytes) = (merged.entries.len(), merged.length);
                let settled = settled(merged.growth);
                let full = settled && !self.touching && self.is_full(entries, bytes) && self.can_be_cut(merged);
                let cut = full && self.has_outgrown(merged);
                Candidate { children, bytes, entries, rewritten: true, settled, full, cut }
            })
        });
        let rewritten: Vec<_> = rewritten.collect();
        let is_small = |of: &Candidate| of.rewritten && self.is_small(of.entries, of.bytes);
        if !rewritten.iter().any(|one| one.cut || is_small(one)) {
            return rewritten;
        }
        let (mut tasks, mut rewritten) = (tasks.iter().peekable(), rewritten.into_iter().peekable());
        let mut out: Vec<Candidate> = Vec::new();
        for child in 0..parent.children() {
            let task = tasks.next_if(|task| task.child == child);
            let next = rewritten.next_if(|candidate| candidate.children.start == child).unwrap_or_else(|| {
                let (entries, bytes) = expected(parent, child, task, !self.rules.horizon.is_empty());
                // A longer leaf has keys with many versions.
                let full = self.is_full(entries, bytes) && bytes <= self.capacity(entries, bytes);
                let (children, rewritten, settled, cut) = (child..child + 1, false, false, false);
                Candidate { children, bytes, entries, rewritten, settled, full, cut }
            });
            let Some(last) = out.last_mut() else {
                out.push(next);
                continue;
            };
            let free = last.rewritten && next.rewritten && (last.bytes == 0 || next.bytes == 0);
            let (entries, bytes) = (last.entries + next.entries, last.bytes + next.bytes);
            let small = is_small(last) || is_small(&next);
            if free || last.is_row_with(&next) || small && !self.is_full(entries, bytes) {
                last.join(next);
            } else {
                out.push(next);
            }
        }
        self.share(out)
    }

    /// Lets leaves that are still small share entries with the smaller of their neighbours.
    fn share(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let mut out: Vec<Candidate> = Vec::with_capacity(candidates.len());
        let mut rest = candidates.into_iter().peekable();
        while let Some(mut one) = rest.next() {
            if one.rewritten && one.settled && self.is_small(one.entries, one.bytes) {
                let bytes = |neighbour: Option<&Candidate>| {
                    // A longer leaf has keys with many versions, which cannot be cut.
                    let cut = |other: &&Candidate| {
                        other.children.len() > 1 || other.bytes <= self.capacity(other.entries, other.bytes)
                    };
                    neighbour.filter(cut).map(|other| other.bytes)
                };
                let (before, after) = (bytes(out.last()), bytes(rest.peek()));
                if let Some(last) =
                    out.last_mut().filter(|_| before.is_some_and(|size| after.is_none_or(|other| size <= other)))
                {
                    last.join(one);
                    continue;
                }
                if after.is_some() {
                    one.join(rest.next().expect("its size is known"));
                }
            }
            out.push(one);
        }
        out
    }
}

/// The expected content of a leaf if rewritten, as far as known without a read: its number of entries, and the end of
/// its runs. Half of the possibly dead entries are subtracted, unless snapshots may need them.
fn expected(parent: &Parent, child: usize, task: Option<&Task>, snapshots: bool) -> (usize, usize) {
    let Some(pointer) = parent.pointer(child) else { return (0, 0) };
    let (mut length, mut entries, mut least) =
        (pointer.length as usize, pointer.entries as usize, pointer.keys_min as usize);
    if let Some(Task { how: How::Append { runs, keys_min }, updates, .. }) = task {
        length = runs.last().map_or(length, |(at, plan)| at + plan.bytes);
        entries += updates.len();
        least = *keys_min as usize;
    }
    if snapshots {
        return (entries, length);
    }
    let stay = usize::midpoint(entries, least);
    (stay, length * stay / entries.max(1))
}

/// The members of a group; members that are not loaded become tasks of the second round.
fn members(
    parent: &Parent, candidate: &Candidate, tasks: &mut [Task], range: Range<usize>, second: &mut Vec<Task>,
) -> Vec<Member> {
    let mut out = Vec::with_capacity(candidate.children.len());
    for child in candidate.children.clone() {
        let index = range.start + tasks[range.clone()].partition_point(|task| task.child < child);
        let task = (index < range.end).then(|| &mut tasks[index]).filter(|task| task.child == child);
        let updates = match task {
            Some(Task { how: How::Rewrite, .. }) => {
                out.push(Member::First(index));
                continue;
            }
            Some(task) => {
                task.how = How::Joined;
                task.updates.clone()
            }
            None => 0..0,
        };
        out.push(Member::Second(second.len()));
        let pointer = parent.pointer(child);
        second.push(Task { parent: candidate.children.start, child, pointer, updates, how: How::Rewrite });
    }
    out
}
