//! Fences: what is known of blocks without reading them. A **partition** has a fence for each of some neighbouring data
//! blocks, and the **top** of a file has one for each partition, with the filter of the partition's keys.
//!
//! ```text
//!  0  entries      u16  n, at least 1
//!  2  shared       u16  bytes that all keys begin with
//!  4  seq width    u8   w, from 0 to 8: bytes of each seq above the base; 255: there are neither tombstones nor seqs
//!  5  places       u8   of an entry: 1 in a partition; 2 in a top, of the partition and of its filter
//!  6  base         u64  the lowest seq; 0 if there are none
//! 14  shared bytes of the keys
//!  .  ends of keys      u16 × n  of what is behind the shared bytes, from the first one on
//!  .  places            10 bytes × places × n
//!  .  tombstones        u32 × n  the highest bit says whether the block is bare
//!  .  newest seqs       w bytes × n, above the base
//!  .  keys, without the shared bytes
//! ```
//!
//! The key of a fence is not above any key of its block, and above every key of the blocks before. It is as short as
//! that allows; the first one of a file is empty. Keys of fences rise. They are alike only where the versions of one
//! key take several blocks: then that key is the key of the first of them, too, and of its partition.
//!
//! A fence has the CRC of its block, so a block of another file or of an earlier life of this one does not check, even
//! if it is whole.
//!
//! A block is **bare** if the newest version of each of its keys is a tombstone. A reader that sees its newest seq
//! finds nothing in it but what hides older versions. Tombstones and seqs are left out where there are none at all.
//!
//! Invariant: fences are checked once, as data blocks are.

use codec::sized;
use index::{Damage, Seq};

use super::keys::{self, ENTRIES_MAX, HEAD, Head, Keys, narrow, place, rising, width_of};
use super::{BLOCK_BYTES_MAX, Checked, Place};

const COUNT: usize = size_of::<u32>();
/// In place of the width of seqs, if there are no tombstones.
const NO_TOMBSTONES: u8 = u8::MAX;

/// In a number of tombstones: whether the block is bare.
const BARE: u32 = 1 << 31;

/// Tombstones of a block, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstones {
    pub(crate) count: u32,
    /// Whether the newest version of each key is one.
    pub(crate) is_bare: bool,
    /// The newest seq of the block, be it of a tombstone or not.
    pub(crate) newest: Seq,
}

impl Tombstones {
    /// Those of no block.
    const NONE: Self = Self { count: 0, is_bare: true, newest: Seq(0) };
    /// Those of blocks without tombstones, whose newest seq was not written down.
    const UNKNOWN: Self = Self { count: 0, is_bare: false, newest: Seq::MAX };

    /// Those of both blocks.
    fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count).min(BARE - 1),
            is_bare: self.is_bare && other.is_bare,
            newest: self.newest.max(other.newest),
        }
    }

    fn encode(self) -> u32 {
        self.count | if self.is_bare { BARE } else { 0 }
    }

    const fn decode(number: u32, newest: Seq) -> Self {
        Self { count: number & !BARE, is_bare: number & BARE != 0, newest }
    }
}

/// Fences that are being made, with `PLACES` places each.
pub(crate) struct Maker<const PLACES: usize> {
    keys: Keys,
    places: Vec<[Place; PLACES]>,
    tombstones: Vec<Tombstones>,
}

impl<const PLACES: usize> Maker<PLACES> {
    pub(crate) fn new() -> Self {
        Self { keys: Keys::default(), places: Vec::new(), tombstones: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the block with a fence more; none where there would be more than a block can have.
    pub(crate) fn bytes_with(&self, key: &[u8]) -> Option<usize> {
        let entries = self.places.len() + 1;
        let longest = PLACES * Place::BYTES + COUNT + size_of::<u64>();
        let bytes = HEAD + self.keys.column_bytes(Some(key)) + entries * longest;
        (entries <= ENTRIES_MAX && bytes <= BLOCK_BYTES_MAX).then_some(bytes)
    }

    pub(crate) fn push(&mut self, key: &[u8], places: [Place; PLACES], tombstones: Tombstones) {
        debug_assert!(self.bytes_with(key).is_some(), "a block has an end");
        self.keys.push(key);
        self.places.push(places);
        self.tombstones.push(tombstones);
    }

    /// What all blocks have together.
    pub(crate) fn tombstones(&self) -> Tombstones {
        self.tombstones.iter().copied().fold(Tombstones::NONE, Tombstones::and)
    }

    /// Writes the fences behind `out`, and has none again.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let all = self.tombstones();
        let oldest = self.tombstones.iter().map(|tombstones| tombstones.newest.0).min().unwrap_or(0);
        let width = (all.count > 0).then(|| width_of(all.newest.0 - oldest));
        let places = u8::try_from(PLACES).expect("one or two");
        let marks = [width.unwrap_or(NO_TOMBSTONES), places];
        let base = width.map_or(0, |_| oldest);
        Head { entries: self.keys.len(), shared: self.keys.shared(), marks, base }.put(out);
        self.keys.put_ends(out);
        self.places.iter().flatten().for_each(|place| out.extend_from_slice(&place.encode()));
        if let Some(width) = width {
            self.tombstones.iter().for_each(|tombstones| out.extend_from_slice(&tombstones.encode().to_le_bytes()));
            let above = self.tombstones.iter().map(|tombstones| tombstones.newest.0 - oldest);
            above.for_each(|above| out.extend_from_slice(&above.to_le_bytes()[..width.into()]));
        }
        self.keys.put_rests(out);
        self.keys.clear();
        self.places.clear();
        self.tombstones.clear();
    }
}

/// Where the columns of checked fences are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    head: Head,
    keys: usize,
}

impl Shape {
    /// Checks fences with so many places each.
    pub(crate) fn of(bytes: &[u8], places: usize) -> Checked<Self> {
        let damage = |at, what, expected: String, found: usize| Err(Damage::new(at, what, expected, found));
        let mut shape = Self { head: Head::read(bytes)?, keys: 0 };
        let [width, of_each] = shape.head.marks;
        if usize::from(of_each) != places {
            return damage(5, "places of a fence", places.to_string(), of_each.into());
        }
        if usize::from(width) > size_of::<u64>() && width != NO_TOMBSTONES {
            return damage(4, "bytes of the seqs of fences", "at most 8, or 255".into(), width.into());
        }
        shape.keys = shape.seqs() + shape.width().unwrap_or(0) * shape.len();
        if shape.keys > bytes.len() {
            return damage(0, "columns of fences", format!("at most {}", bytes.len()), shape.keys);
        }
        let end = shape.keys + rising(bytes, shape.head.ends_of_keys(), shape.len())?;
        if end != bytes.len() {
            return damage(0, "keys of fences", format!("an end at {}", bytes.len()), end);
        }
        let overflows = |index: &usize| shape.head.base.checked_add(shape.above(bytes, *index)).is_none();
        if let Some(index) = (0..shape.len()).find(overflows) {
            return damage(shape.seqs(), "newest seq of a fence", "one of 64 bits".into(), index);
        }
        Ok(shape)
    }

    const fn len(&self) -> usize {
        self.head.entries
    }

    fn width(&self) -> Option<usize> {
        (self.head.marks[0] != NO_TOMBSTONES).then_some(self.head.marks[0].into())
    }

    const fn places(&self) -> usize {
        self.head.marks[1] as usize
    }

    const fn places_at(&self) -> usize {
        self.head.ends_of_keys() + self.len() * keys::END
    }

    const fn counts(&self) -> usize {
        self.places_at() + self.len() * self.places() * Place::BYTES
    }

    fn seqs(&self) -> usize {
        self.counts() + self.width().map_or(0, |_| self.len() * COUNT)
    }

    fn above(&self, bytes: &[u8], index: usize) -> u64 {
        self.width().map_or(0, |width| narrow(bytes, self.seqs() + index * width, width))
    }
}

/// Checked fences.
#[derive(Clone, Copy)]
pub(crate) struct Fences<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

impl<'a> Fences<'a> {
    /// The fences with these bytes, whose shape was found before.
    pub(crate) const fn new(bytes: &'a [u8], shape: Shape) -> Self {
        Self { bytes, shape }
    }

    pub(crate) const fn len(&self) -> usize {
        self.shape.len()
    }

    fn shared(&self) -> &'a [u8] {
        &self.bytes[HEAD..HEAD + self.shape.head.shared]
    }

    fn rest(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.shape.keys..][place(self.bytes, self.shape.head.ends_of_keys(), index)]
    }

    /// The key of a fence, in two parts.
    pub(crate) fn key(&self, index: usize) -> [&'a [u8]; 2] {
        [self.shared(), self.rest(index)]
    }

    /// The block that has `key` if any here has it; of several with versions of the key, the first.
    pub(crate) fn seek(&self, key: &[u8]) -> usize {
        let index = keys::seek(self.shared(), self.len(), |index| self.rest(index), key);
        if index < self.len() && self.is_key(index, key) { index } else { index.saturating_sub(1) }
    }

    /// As [`Fences::seek`]; of several blocks with versions of the key, the last.
    pub(crate) fn seek_last(&self, key: &[u8]) -> usize {
        keys::seek_behind(self.shared(), self.len(), |index| self.rest(index), key).saturating_sub(1)
    }

    /// Whether the key of a fence is `key`.
    pub(crate) fn is_key(&self, index: usize, key: &[u8]) -> bool {
        key.strip_prefix(self.shared()) == Some(self.rest(index))
    }

    /// A place of an entry.
    pub(crate) fn place(&self, index: usize, which: usize) -> Place {
        let at = self.shape.places_at() + (index * self.shape.places() + which) * Place::BYTES;
        Place::decode(self.bytes, at)
    }

    /// The tombstones of a block.
    pub(crate) fn tombstones(&self, index: usize) -> Tombstones {
        if self.shape.width().is_none() {
            return Tombstones::UNKNOWN;
        }
        let number = sized::u32_at(self.bytes, self.shape.counts() + index * COUNT);
        Tombstones::decode(number, Seq(self.shape.head.base + self.shape.above(self.bytes, index)))
    }
}

/// The shortest key above `last` and not above `next`.
pub(crate) fn between<'a>(last: &[u8], next: &'a [u8]) -> &'a [u8] {
    debug_assert!(last < next, "keys rise");
    &next[..index::common_prefix(last, next) + 1]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(number: u32) -> Place {
        Place { offset: number * 4096, bytes: 4000, crc: number ^ 0x5555 }
    }

    fn some(number: u32, has_tombstones: bool) -> Tombstones {
        let newest = Seq(1000 + u64::from(number) * 300);
        match has_tombstones && number.is_multiple_of(3) {
            true => Tombstones { count: number + 1, is_bare: number.is_multiple_of(2), newest },
            false => Tombstones { count: 0, is_bare: false, newest },
        }
    }

    fn encode<const PLACES: usize>(keys: &[Vec<u8>], has_tombstones: bool) -> Vec<u8> {
        let mut maker = Maker::<PLACES>::new();
        for (number, key) in (0..).zip(keys) {
            assert!(maker.bytes_with(key).is_some());
            maker.push(
                key,
                std::array::from_fn(|which| place(10 * number + u32::from(which > 0))),
                some(number, has_tombstones),
            );
        }
        let mut out = Vec::new();
        maker.finish(&mut out);
        assert!(maker.is_empty());
        out
    }

    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let key = prop::collection::vec(0..5_u8, 0..6);
        prop::collection::btree_set(key, 1..40).prop_map(|keys| keys.into_iter().collect())
    }

    proptest! {
        #[test]
        fn fences_have_what_was_put_in(keys in keys(), has_tombstones in any::<bool>(), probe in prop::collection::vec(0..5_u8, 0..6)) {
            let bytes = encode::<2>(&keys, has_tombstones);
            let fences = Fences::new(&bytes, Shape::of(&bytes, 2).expect("fences"));
            prop_assert_eq!(fences.len(), keys.len());
            for (number, key) in (0..).zip(&keys) {
                let index = number as usize;
                prop_assert_eq!(&fences.key(index).concat(), key);
                prop_assert_eq!([0, 1].map(|which| fences.place(index, which)), [0, 1].map(|which| place(10 * number + which)));
                let expected = if has_tombstones { some(number, true) } else { Tombstones::UNKNOWN };
                prop_assert_eq!(fences.tombstones(index), expected);
                prop_assert_eq!(fences.seek(key), index);
            }
            let below = keys.iter().rposition(|key| *key <= probe).unwrap_or(0);
            prop_assert_eq!(fences.seek(&probe), below);
            prop_assert!(Shape::of(&bytes, 1).is_err());
        }

        #[test]
        fn changed_fences_are_refused_or_read_without_harm(
            keys in keys(), at in any::<prop::sample::Index>(), to in any::<u8>(), has_tombstones in any::<bool>()
        ) {
            let mut bytes = encode::<1>(&keys, has_tombstones);
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(shape) = Shape::of(&bytes, 1) {
                let fences = Fences::new(&bytes, shape);
                for index in 0..fences.len() {
                    let _ = (fences.key(index), fences.place(index, 0), fences.tombstones(index));
                    prop_assert!(fences.seek(&fences.key(index).concat()) < fences.len());
                }
            }
        }

        #[test]
        fn a_fence_lies_between_two_keys(one in prop::collection::vec(0..3_u8, 0..6), other in prop::collection::vec(0..3_u8, 0..6)) {
            let (last, next) = (one.clone().min(other.clone()), one.max(other));
            if last < next {
                let fence = between(&last, &next);
                prop_assert!(last.as_slice() < fence && fence <= next.as_slice());
                prop_assert!(fence.is_empty() || fence[..fence.len() - 1] <= last[..]);
            }
        }
    }

    #[test]
    fn of_alike_fences_the_first_is_found() {
        let keys: Vec<Vec<u8>> = [&b""[..], b"k", b"k", b"k", b"m"].map(<[u8]>::to_vec).to_vec();
        let bytes = encode::<1>(&keys, false);
        let fences = Fences::new(&bytes, Shape::of(&bytes, 1).expect("fences"));
        let keys = [&b"a"[..], b"k", b"ka", b"l", b"m", b"z"];
        assert_eq!(keys.map(|key| fences.seek(key)), [0, 1, 3, 3, 4, 4]);
        assert_eq!(keys.map(|key| fences.seek_last(key)), [0, 3, 3, 3, 4, 4]);
    }
}
