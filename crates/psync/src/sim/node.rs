//! One file of a simulated disk: the content for reads, the content of the platter, and the changes on the way.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use random::Random;

use crate::{BLOCK, SECTOR};

/// A file that names share. Locked only while the disk is locked.
pub(super) type SharedNode = Arc<Mutex<Node>>;

/// A file without its name.
#[derive(Default)]
pub(super) struct Node {
    content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Blocks for which the disk keeps no room. A crash brings none back, so a writer there has to count on a full
    /// disk.
    holes: BTreeSet<usize>,
}

/// A change since the last flush.
enum Change {
    Write {
        /// Offset of the first sector touched.
        first: usize,
        /// Whole sectors as they were after the write.
        image: Vec<u8>,
        /// Length of the file after the write.
        len: usize,
        /// The platter never gets it.
        lost: bool,
    },
    Length(usize),
}

impl Change {
    /// Notes that a later write of a sector is on the platter: should this one arrive, it changes nothing.
    fn replace(&mut self, start: usize, sector: &[u8]) {
        if let Self::Write { first, image, .. } = self
            && let Some(at) = start.checked_sub(*first)
            && let Some(bytes) = image.get_mut(at..at + SECTOR)
        {
            bytes.copy_from_slice(sector);
        }
    }

    /// Notes that a later cut of the file is on the platter: this write's bytes beyond the cut are gone.
    fn cut(&mut self, len: usize) {
        if let Self::Write { first, image, .. } = self {
            let kept = len.saturating_sub(*first).min(image.len());
            image[kept..].fill(0);
        }
    }
}

/// Which of the pending sectors of one file survive.
enum Survivors {
    None,
    All,
    /// Each sector with this chance.
    Sectors(f64),
    /// Each write as a whole.
    Writes(Vec<bool>),
    /// The changes before `torn`, and of `torn` the first sectors.
    Prefix {
        torn: usize,
        sectors: usize,
    },
    /// All changes, but of `torn` only every sector that a coin picks.
    AllButOne {
        torn: usize,
    },
}

impl Survivors {
    fn choose(pending: &[Change], random: &mut Random) -> Self {
        let count = pending.len();
        match random.index(6) {
            0 => Self::None,
            1 => Self::All,
            2 => Self::Sectors([0.1, 0.5, 0.9][random.index(3)]),
            3 => Self::Writes((0..count).map(|_| random.coin()).collect()),
            4 => Self::Prefix { torn: random.index(count + 1), sectors: random.index(33) },
            _ => Self::AllButOne { torn: random.index(count.max(1)) },
        }
    }

    fn keep(&self, change: usize, sector: usize, random: &mut Random) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Sectors(chance) => random.chance(*chance),
            Self::Writes(kept) => kept[change],
            Self::Prefix { torn, sectors } => change < *torn || (change == *torn && sector < *sectors),
            Self::AllButOne { torn } => change != *torn || random.coin(),
        }
    }
}

impl Node {
    pub(super) fn len(&self) -> usize {
        self.content.len()
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Bytes that the file takes of the disk.
    pub(super) fn room(&self) -> usize {
        self.len().saturating_sub(self.holes.len() * BLOCK)
    }

    /// Bytes that the file takes of the disk in addition, once all of a range is written.
    pub(super) fn growth(&self, range: &Range<usize>) -> usize {
        range.end.saturating_sub(self.len()) + self.holes.range(blocks(range)).count() * BLOCK
    }

    /// Gives the room of whole blocks back. The range is inside the file.
    pub(super) fn punch(&mut self, range: &Range<usize>) {
        self.write(range.start, &vec![0; range.len()], false);
        self.holes.extend(range.start.div_ceil(BLOCK)..range.end / BLOCK);
    }

    /// Reserves room for all of a range, which is inside the file.
    pub(super) fn fill(&mut self, range: &Range<usize>) {
        blocks(range).for_each(|block| {
            self.holes.remove(&block);
        });
    }

    /// Copies the bytes that are there from `offset` on; returns the bytes copied.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let found = self.content.get(offset..).unwrap_or_default();
        let count = found.len().min(into.len());
        into[..count].copy_from_slice(&found[..count]);
        count
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8], lost: bool) {
        let end = offset + bytes.len();
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset..end].copy_from_slice(bytes);
        self.fill(&(offset..end));
        let first = offset / SECTOR * SECTOR;
        let last = end.next_multiple_of(SECTOR);
        let mut image = self.content[first..last.min(self.content.len())].to_vec();
        image.resize(last - first, 0);
        self.pending.push(Change::Write { first, image, len: self.content.len(), lost });
    }

    /// Writes durably: the sectors of this write are on the platter at once, with the length that is needed to read
    /// them.
    pub(super) fn write_durably(&mut self, offset: usize, bytes: &[u8], lost: bool) {
        let end = offset + bytes.len();
        self.write(offset, bytes, lost);
        let cut = self.pending.iter().any(|change| matches!(change, Change::Length(len) if *len < end));
        if cut || self.durable.len() < end {
            self.settle_lengths();
        }
        self.settle_last(|_| !lost);
    }

    /// Writes durably and fails: some sectors reach the platter, and the others are forgotten.
    pub(super) fn write_in_part(&mut self, offset: usize, bytes: &[u8], lost: bool, random: &mut Random) {
        let grows = self.content.len() < offset + bytes.len();
        self.write(offset, bytes, lost);
        let survivors = Survivors::choose(&self.pending[self.pending.len() - 1..], random);
        let length_is_durable = random.coin();
        if length_is_durable {
            self.settle_lengths();
        }
        self.settle_last(|sector| !lost && survivors.keep(0, sector, random));
        if grows && !length_is_durable {
            self.pending.push(Change::Length(self.content.len()));
        }
    }

    /// Puts the whole history of lengths on the platter, as a journal does that commits the last of them.
    fn settle_lengths(&mut self) {
        for index in 0..self.pending.len() {
            if let Change::Length(len) = self.pending[index] {
                self.durable.truncate(len);
                for change in &mut self.pending[..index] {
                    change.cut(len);
                }
            }
        }
        let length = self.content.len();
        self.durable.resize(length, 0);
        self.pending.retain_mut(|change| match change {
            Change::Write { len, .. } => {
                *len = length;
                true
            }
            Change::Length(_) => false,
        });
    }

    /// Ends the wait of the last change, a write. The sectors that `keep` wants are on the platter, and no older image
    /// of them can arrive.
    fn settle_last(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let Some(Change::Write { first, image, .. }) = self.pending.pop() else {
            unreachable!("the last change is the write that was just made");
        };
        let length = self.durable.len();
        for (sector, bytes) in image.chunks(SECTOR).enumerate().filter(|(sector, _)| keep(*sector)) {
            let start = first + sector * SECTOR;
            if self.durable.len() < start + SECTOR {
                self.durable.resize(start + SECTOR, 0);
            }
            self.durable[start..start + SECTOR].copy_from_slice(bytes);
            for older in &mut self.pending {
                older.replace(start, bytes);
            }
        }
        self.durable.truncate(length);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.content.resize(len, 0);
        self.forget_holes();
        self.pending.push(Change::Length(len));
    }

    /// Forgets holes behind the end.
    fn forget_holes(&mut self) {
        let end = self.content.len() / BLOCK;
        self.holes.retain(|block| *block < end);
    }

    pub(super) fn flush(&mut self) {
        let changes = self.pending.len();
        self.apply(changes, |_, _| true);
    }

    /// Decides which pending changes reached the platter; the others are forgotten.
    pub(super) fn lose_some(&mut self, random: &mut Random) {
        let survivors = Survivors::choose(&self.pending, random);
        let count = self.pending.len();
        let lengths = match random.index(4) {
            0 => 0,
            1 => random.index(count + 1),
            _ => count,
        };
        self.apply(lengths, |change, sector| survivors.keep(change, sector, random));
    }

    /// Decides which changes survive a loss of power.
    pub(super) fn crash(&mut self, random: &mut Random) {
        self.lose_some(random);
        self.content.clone_from(&self.durable);
        self.forget_holes();
    }

    /// Changes bytes at rest; returns whether the file has all of them.
    pub(super) fn damage(&mut self, range: Range<usize>, mut change: impl FnMut(u8) -> u8) -> bool {
        if range.start > range.end || range.end > self.content.len() {
            return false;
        }
        for offset in range {
            self.content[offset] = change(self.content[offset]);
            if let Some(durable) = self.durable.get_mut(offset) {
                *durable = self.content[offset];
            }
        }
        true
    }

    /// Puts the sectors that `keep` wants on the platter, and the lengths of the first `lengths` changes.
    fn apply(&mut self, lengths: usize, mut keep: impl FnMut(usize, usize) -> bool) {
        let durable = &mut self.durable;
        let mut length = durable.len();
        for (index, change) in self.pending.drain(..).enumerate() {
            match change {
                Change::Write { first, image, len, lost } => {
                    for (sector, bytes) in image.chunks(SECTOR).enumerate() {
                        if !keep(index, sector) || lost {
                            continue;
                        }
                        let start = first + sector * SECTOR;
                        let end = start + SECTOR;
                        if durable.len() < end {
                            durable.resize(end, 0);
                        }
                        durable[start..end].copy_from_slice(bytes);
                    }
                    if index < lengths {
                        length = len;
                    }
                }
                Change::Length(len) if index < lengths => {
                    durable.truncate(len);
                    length = len;
                }
                Change::Length(_) => {}
            }
        }
        durable.resize(length, 0);
    }
}

/// The blocks of a range.
const fn blocks(range: &Range<usize>) -> Range<usize> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_flush_makes_the_whole_content_durable() {
        let mut node = Node::default();
        node.write(100, &[7; 1000], false);
        node.set_len(700);
        node.write(2000, &[9; 10], false);
        node.flush();
        let expected = node.content.clone();
        assert_eq!(expected.len(), 2010);
        assert_eq!(expected[700..2000], [0; 1300]);
        node.crash(&mut Random::from_seed(1));
        assert_eq!(node.content, expected);
    }

    #[test]
    fn each_sector_survives_as_some_version_of_itself() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let mut node = Node::default();
            node.write(0, &[1; 2 * SECTOR], false);
            node.flush();
            node.write(0, &[2; 2 * SECTOR], false);
            node.write(0, &[3; 100], false);
            node.crash(&mut Random::from_seed(seed));
            assert_eq!(node.len(), 2 * SECTOR);
            let first = (node.content[0], node.content[SECTOR - 1]);
            // The third write's sector has the second write's bytes behind its own.
            assert!([(1, 1), (2, 2), (3, 2)].contains(&first), "{first:?}");
            outcomes.insert((first, node.content[SECTOR]));
        }
        // Torn ones among them: the second sector old and the first new, and the other way round.
        assert!(outcomes.contains(&((2, 2), 1)) && outcomes.contains(&((1, 1), 2)));
        assert!(outcomes.contains(&((3, 2), 1)) && outcomes.contains(&((3, 2), 2)));
    }

    #[test]
    fn lengths_and_data_survive_independently() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let mut node = Node::default();
            node.write(0, &[1; SECTOR], false);
            node.flush();
            node.write(SECTOR, &[2; SECTOR], false);
            node.crash(&mut Random::from_seed(seed));
            outcomes.insert(node.content[SECTOR - 1..].to_vec());
        }
        let with = |byte| [vec![1], vec![byte; SECTOR]].concat();
        let expected = [vec![1], with(0), with(2)];
        assert_eq!(outcomes, expected.into());
    }

    #[test]
    fn what_is_punched_reads_as_zeros_and_takes_room_again_when_it_is_written() {
        let mut node = Node::default();
        node.write(0, &[1; 4 * BLOCK], false);
        node.flush();
        node.punch(&(BLOCK..3 * BLOCK));
        assert_eq!((node.len(), node.room()), (4 * BLOCK, 2 * BLOCK));
        assert_eq!(node.content[BLOCK..3 * BLOCK], [0; 2 * BLOCK]);
        assert_eq!(node.growth(&(BLOCK + 5..BLOCK + 6)), BLOCK);
        node.write(BLOCK + 5, &[2], false);
        assert_eq!(node.growth(&(0..5 * BLOCK)), 2 * BLOCK);
        node.fill(&(0..4 * BLOCK));
        assert_eq!(node.room(), 4 * BLOCK);
        node.punch(&(0..4 * BLOCK));
        node.set_len(BLOCK);
        assert_eq!(node.room(), 0);
        node.set_len(4 * BLOCK);
        assert_eq!(node.room(), 3 * BLOCK);
    }

    #[test]
    fn a_lost_write_is_never_durable() {
        let mut node = Node::default();
        node.write(0, &[1; SECTOR], false);
        node.flush();
        node.write(0, &[2; SECTOR], true);
        node.flush();
        assert_eq!(node.content[0], 2);
        node.crash(&mut Random::from_seed(3));
        assert_eq!(node.content, [1; SECTOR]);
    }
}
