//! A data block: the versions of some keys, in columns.
//!
//! ```text
//!  0  entries      u16  n, at least 1
//!  2  shared       u16  bytes that all keys begin with
//!  4  seq width    u8   w, from 0 to 8: bytes of each seq above the base
//!  5  kinds        u8   1: there is a column of kinds; 0: each entry is a value that does not expire
//!  6  base         u64  the lowest seq
//! 14  shared bytes of the keys
//!  .  ends of keys      u16 × n  of what is behind the shared bytes, from the first one on
//!  .  ends of values    u16 × n  likewise
//!  .  seqs              w bytes × n, above the base
//!  .  kinds             u8 × n
//!  .  keys, without the shared bytes
//!  .  values
//! ```
//!
//! Keys rise; the versions of a key stand together, the newest first. A kind is that of a version: 1 a value, 2 a
//! tombstone, 3 a document, 4 and 5 as 1 and 3 with an expiry. In the column of values an entry has (1) the expiry, 8
//! bytes, if there is one, and (2) the bytes of the value, or the pointer to the document, or nothing.
//!
//! Columns, because a search then needs only ends and keys, and no entry depends on another one. With restart points,
//! a search would decode the entries between two of them. Columns cost four bytes an entry, which restart points would
//! save in part.
//!
//! Invariant: a block is checked once, when it was read, and no access checks again: its ends rise and lie in the
//! block, and each value is as its kind says. The order of keys is left to `verify`: a key out of order is not found.

use doclog::DocPointer;
use index::{Damage, Expiry, Operation, Payload, Seq, Update};

use super::fences::Tombstones;
use super::keys::{self, END, ENTRIES_MAX, HEAD, Head, Keys, narrow, place, put_end, rising, width_of};
use super::{BLOCK_BYTES_MAX, Checked};

const VALUE: u8 = 1;
const TOMBSTONE: u8 = 2;
const DOCUMENT: u8 = 3;
const VALUE_EXPIRING: u8 = 4;
const DOCUMENT_EXPIRING: u8 = 5;

const fn kind_of(operation: &Operation<'_>) -> u8 {
    match operation {
        Operation::Put(Payload::Inline(_), None) => VALUE,
        Operation::Put(Payload::Inline(_), Some(_)) => VALUE_EXPIRING,
        Operation::Put(Payload::Document(_), None) => DOCUMENT,
        Operation::Put(Payload::Document(_), Some(_)) => DOCUMENT_EXPIRING,
        Operation::Delete => TOMBSTONE,
    }
}

/// Bytes of an operation in the column of values.
fn value_bytes(operation: &Operation<'_>) -> usize {
    let payload = match operation {
        Operation::Put(Payload::Inline(value), _) => value.len(),
        Operation::Put(Payload::Document(_), _) => DocPointer::BYTES,
        Operation::Delete => 0,
    };
    operation.expiry().map_or(0, |_| Expiry::BYTES) + payload
}

fn put_value(out: &mut Vec<u8>, operation: &Operation<'_>) {
    out.extend(operation.expiry().into_iter().flat_map(Expiry::encode));
    match operation {
        Operation::Put(Payload::Inline(value), _) => out.extend_from_slice(value),
        Operation::Put(Payload::Document(document), _) => out.extend_from_slice(&document.encode()),
        Operation::Delete => {}
    }
}

/// The operation of a kind with these bytes in the column of values; none where they do not fit together.
fn operation_of(kind: u8, bytes: &[u8]) -> Option<Operation<'_>> {
    let expiry = || Expiry::decode(bytes).map(Some);
    let document = |bytes: &[u8]| Some(Payload::Document(DocPointer::decode(bytes.try_into().ok()?)));
    Some(match kind {
        VALUE => Operation::Put(Payload::Inline(bytes), None),
        VALUE_EXPIRING => Operation::Put(Payload::Inline(bytes.get(Expiry::BYTES..)?), expiry()?),
        DOCUMENT => Operation::Put(document(bytes)?, None),
        DOCUMENT_EXPIRING => Operation::Put(document(bytes.get(Expiry::BYTES..)?)?, expiry()?),
        TOMBSTONE if bytes.is_empty() => Operation::Delete,
        _ => return None,
    })
}

/// The range of some seqs, and whether they need a column of kinds.
#[derive(Clone, Copy)]
struct Span {
    oldest: u64,
    newest: u64,
    has_kinds: bool,
}

impl Span {
    const NONE: Self = Self { oldest: u64::MAX, newest: 0, has_kinds: false };

    fn with(self, update: &Update<'_>) -> Self {
        Self {
            oldest: self.oldest.min(update.seq.0),
            newest: self.newest.max(update.seq.0),
            has_kinds: self.has_kinds || kind_of(&update.operation) != VALUE,
        }
    }

    const fn width(self) -> u8 {
        width_of(self.newest.saturating_sub(self.oldest))
    }

    /// Bytes of an entry in the columns beside keys and values.
    const fn entry_bytes(self) -> usize {
        END + self.width() as usize + self.has_kinds as usize
    }
}

/// A block that is being made.
#[derive(Clone)]
pub(crate) struct Builder {
    span: Span,
    keys: Keys,
    values: Vec<u8>,
    ends: Vec<usize>,
    seqs: Vec<u64>,
    kinds: Vec<u8>,
    tombstones: u32,
    is_bare: bool,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            span: Span::NONE,
            keys: Keys::default(),
            values: Vec::new(),
            ends: Vec::new(),
            seqs: Vec::new(),
            kinds: Vec::new(),
            tombstones: 0,
            is_bare: true,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    pub(crate) const fn tombstones(&self) -> Tombstones {
        Tombstones { count: self.tombstones, is_bare: self.is_bare, newest: Seq(self.span.newest) }
    }

    /// The last key; none before the first.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.keys.last()
    }

    /// Bytes of the block with one version more; none where there would be more than a block can have.
    pub(crate) fn bytes_with(&self, update: &Update<'_>) -> Option<usize> {
        let entries = self.seqs.len() + 1;
        let columns = entries * self.span.with(update).entry_bytes();
        let values = self.values.len() + value_bytes(&update.operation);
        let bytes = HEAD + self.keys.column_bytes(Some(update.key)) + columns + values;
        (entries <= ENTRIES_MAX && bytes <= BLOCK_BYTES_MAX).then_some(bytes)
    }

    /// Adds a version, which comes behind the last one. [`Builder::bytes_with`] has told that the block can have it.
    pub(crate) fn push(&mut self, update: &Update<'_>) {
        debug_assert!(self.bytes_with(update).is_some(), "a block has an end");
        let (is_tombstone, is_newest) = (update.operation == Operation::Delete, self.last_key() != Some(update.key));
        self.is_bare &= is_tombstone || !is_newest;
        self.tombstones += u32::from(is_tombstone);
        self.span = self.span.with(update);
        self.keys.push(update.key);
        put_value(&mut self.values, &update.operation);
        self.ends.push(self.values.len());
        self.seqs.push(update.seq.0);
        self.kinds.push(kind_of(&update.operation));
    }

    /// Writes the block behind `out`, and is empty again.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let (Span { oldest, has_kinds, .. }, width) = (self.span, self.span.width());
        let (entries, shared) = (self.keys.len(), self.keys.shared());
        Head { entries, shared, marks: [width, u8::from(has_kinds)], base: oldest }.put(out);
        self.keys.put_ends(out);
        self.ends.iter().for_each(|end| put_end(out, *end));
        self.seqs.iter().for_each(|seq| out.extend_from_slice(&(seq - oldest).to_le_bytes()[..width.into()]));
        if has_kinds {
            out.extend_from_slice(&self.kinds);
        }
        self.keys.put_rests(out);
        out.extend_from_slice(&self.values);
        self.clear();
    }

    fn clear(&mut self) {
        self.span = Span::NONE;
        (self.tombstones, self.is_bare) = (0, true);
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
        self.seqs.clear();
        self.kinds.clear();
    }
}

/// Where the columns of a checked block are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    head: Head,
    keys: usize,
    values: usize,
}

impl Shape {
    /// Checks a block.
    pub(crate) fn of(bytes: &[u8]) -> Checked<Self> {
        let damage = |at, what, expected: &str, found: usize| Err(Damage::new(at, what, expected, found));
        let mut shape = Self { head: Head::read(bytes)?, keys: 0, values: 0 };
        if shape.width() > size_of::<u64>() {
            return damage(4, "bytes of the seqs of a block", "at most 8", shape.width());
        }
        if shape.head.marks[1] > 1 {
            return damage(5, "kinds of a block", "0 or 1", shape.head.marks[1].into());
        }
        shape.keys = shape.kinds() + usize::from(shape.head.marks[1]) * shape.len();
        if shape.keys > bytes.len() {
            return damage(0, "columns of a block", "no longer than the block", shape.keys);
        }
        shape.values = shape.keys + rising(bytes, shape.head.ends_of_keys(), shape.len())?;
        let end = shape.values + rising(bytes, shape.ends_of_values(), shape.len())?;
        if end != bytes.len() {
            return damage(0, "keys and values of a block", "an end where the block ends", end);
        }
        for index in 0..shape.len() {
            let value = shape.value(bytes, index);
            if operation_of(shape.kind(bytes, index), value).is_none() {
                return damage(shape.kinds(), "kind of a version", "one that its value fits", index);
            }
            if shape.head.base.checked_add(shape.above(bytes, index)).is_none() {
                return damage(shape.seqs(), "seq of a version", "one of 64 bits", index);
            }
        }
        Ok(shape)
    }

    const fn len(&self) -> usize {
        self.head.entries
    }

    const fn width(&self) -> usize {
        self.head.marks[0] as usize
    }

    const fn ends_of_values(&self) -> usize {
        self.head.ends_of_keys() + self.len() * END
    }

    const fn seqs(&self) -> usize {
        self.ends_of_values() + self.len() * END
    }

    const fn kinds(&self) -> usize {
        self.seqs() + self.len() * self.width()
    }

    fn rest<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        &bytes[self.keys..self.values][place(bytes, self.head.ends_of_keys(), index)]
    }

    fn value<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        &bytes[self.values..][place(bytes, self.ends_of_values(), index)]
    }

    fn above(&self, bytes: &[u8], index: usize) -> u64 {
        narrow(bytes, self.seqs() + index * self.width(), self.width())
    }

    fn kind(&self, bytes: &[u8], index: usize) -> u8 {
        if self.head.marks[1] == 1 { bytes[self.kinds() + index] } else { VALUE }
    }
}

/// A checked block.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

impl<'a> Block<'a> {
    /// The block with these bytes, whose shape was found before.
    pub(crate) const fn new(bytes: &'a [u8], shape: Shape) -> Self {
        Self { bytes, shape }
    }

    /// Number of versions.
    pub(crate) const fn len(&self) -> usize {
        self.shape.len()
    }

    /// The bytes that all keys begin with.
    pub(crate) fn shared(&self) -> &'a [u8] {
        &self.bytes[HEAD..HEAD + self.shape.head.shared]
    }

    /// What is behind the shared bytes of a key.
    pub(crate) fn rest(&self, index: usize) -> &'a [u8] {
        self.shape.rest(self.bytes, index)
    }

    pub(crate) fn seq(&self, index: usize) -> Seq {
        Seq(self.shape.head.base + self.shape.above(self.bytes, index))
    }

    pub(crate) fn operation(&self, index: usize) -> Operation<'a> {
        let kind = self.shape.kind(self.bytes, index);
        operation_of(kind, self.shape.value(self.bytes, index)).expect("a block was checked when it was read")
    }

    /// The first version of a key at or behind `key`; the number of versions where all come before.
    pub(crate) fn seek(&self, key: &[u8]) -> usize {
        keys::seek(self.shared(), self.len(), |index| self.rest(index), key)
    }

    /// The first version of a key behind `key`; the number of versions where there is none.
    pub(crate) fn seek_behind(&self, key: &[u8]) -> usize {
        keys::seek_behind(self.shared(), self.len(), |index| self.rest(index), key)
    }

    /// Whether a version is of `key`.
    pub(crate) fn is_of(&self, index: usize, key: &[u8]) -> bool {
        key.strip_prefix(self.shared()) == Some(self.rest(index))
    }

    /// The newest version of `key` at or below `seq`.
    pub(crate) fn find(&self, key: &[u8], seq: Seq) -> Option<usize> {
        let mut versions = (self.seek(key)..self.len()).take_while(|index| self.is_of(*index, key));
        versions.find(|index| self.seq(*index) <= seq)
    }
}

#[cfg(test)]
mod tests {
    use doclog::{DocLength, SegmentId};
    use proptest::prelude::*;

    use super::*;

    type Version = (Vec<u8>, u64, Change);

    #[derive(Clone, Debug, PartialEq)]
    enum Change {
        Put(Vec<u8>, Option<u64>),
        Document(u64, Option<u64>),
        Delete,
    }

    impl Change {
        fn operation(&self) -> Operation<'_> {
            let expiry = |millis: &Option<u64>| millis.and_then(Expiry::at);
            match self {
                Self::Put(value, millis) => Operation::Put(Payload::Inline(value), expiry(millis)),
                Self::Document(number, millis) => {
                    let length = DocLength::plain((*number).min(1 << 20).try_into().expect("little"));
                    let pointer = DocPointer { segment: SegmentId(*number), offset: number * 8, length, crc: 9 };
                    Operation::Put(Payload::Document(pointer), expiry(millis))
                }
                Self::Delete => Operation::Delete,
            }
        }
    }

    fn update((key, seq, change): &Version) -> Update<'_> {
        Update { key, seq: Seq(*seq), operation: change.operation() }
    }

    fn encode(versions: &[Version]) -> Vec<u8> {
        let (mut builder, mut out) = (Builder::new(), Vec::new());
        for version in versions {
            let told = builder.bytes_with(&update(version)).expect("there is room");
            builder.push(&update(version));
            builder.clone().finish(&mut out);
            assert_eq!(out.len(), told, "a block is as long as was told");
            out.clear();
        }
        builder.finish(&mut out);
        assert!(builder.is_empty());
        out
    }

    fn decode(bytes: &[u8]) -> Block<'_> {
        Block::new(bytes, Shape::of(bytes).expect("a block"))
    }

    /// Versions in the order of a block.
    fn versions() -> impl Strategy<Value = Vec<Version>> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
        let expiry = prop_oneof![Just(None), (1..u64::MAX).prop_map(Some)];
        let change = prop_oneof![
            4 => (bytes(40), expiry.clone()).prop_map(|(value, expiry)| Change::Put(value, expiry)),
            1 => (0..1_u64 << 40, expiry).prop_map(|(number, expiry)| Change::Document(number, expiry)),
            2 => Just(Change::Delete),
        ];
        let key = prop_oneof![bytes(3), bytes(12).prop_map(|rest| [&b"shared by many"[..], &rest].concat())];
        let seq = prop_oneof![0..20_u64, any::<u64>()];
        prop::collection::vec((key, seq, change), 1..60).prop_map(|mut versions: Vec<Version>| {
            versions.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
            versions.dedup_by(|one, other| (&one.0, one.1) == (&other.0, other.1));
            versions
        })
    }

    proptest! {
        #[test]
        fn a_block_has_what_was_put_in(versions in versions(), probe in prop::collection::vec(any::<u8>(), 0..4)) {
            let bytes = encode(&versions);
            let block = decode(&bytes);
            prop_assert_eq!(block.len(), versions.len());
            for (index, version) in versions.iter().enumerate() {
                prop_assert_eq!([block.shared(), block.rest(index)].concat(), version.0.clone());
                let found = (block.seq(index), block.operation(index));
                prop_assert_eq!(found, (Seq(version.1), version.2.operation()));
            }
            for key in versions.iter().map(|version| &version.0).chain([&probe]) {
                let first = versions.iter().position(|version| version.0 >= *key).unwrap_or(versions.len());
                prop_assert_eq!(block.seek(key), first);
                for seq in [0, 7, 19, u64::MAX] {
                    let newest = versions.iter().position(|version| version.0 == *key && version.1 <= seq);
                    prop_assert_eq!(block.find(key, Seq(seq)), newest);
                }
            }
        }

        #[test]
        fn a_changed_block_is_refused_or_read_without_harm(
            versions in versions(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()
        ) {
            let mut bytes = encode(&versions);
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(bytes.len() - cut.index(2) * cut.index(bytes.len()));
            if let Ok(shape) = Shape::of(&bytes) {
                let block = Block::new(&bytes, shape);
                for index in 0..block.len() {
                    let _ = (block.seq(index), block.operation(index), block.find(block.rest(index), Seq::MAX));
                }
            }
        }
    }

    #[test]
    fn tombstones_are_counted_and_make_a_block_bare_if_they_are_the_newest() {
        let tombstones = |versions: &[Version]| {
            let mut builder = Builder::new();
            versions.iter().for_each(|version| builder.push(&update(version)));
            builder.tombstones()
        };
        let (put, key) = (Change::Put(vec![1], None), |key: &[u8]| key.to_vec());
        let hidden = [(key(b"a"), 5, Change::Delete), (key(b"a"), 3, put.clone()), (key(b"b"), 4, Change::Delete)];
        assert_eq!(tombstones(&hidden), Tombstones { count: 2, is_bare: true, newest: Seq(5) });
        let shown = [(key(b"a"), 5, put), (key(b"a"), 3, Change::Delete), (key(b"b"), 9, Change::Delete)];
        assert_eq!(tombstones(&shown), Tombstones { count: 2, is_bare: false, newest: Seq(9) });
    }

    #[test]
    fn plain_values_of_one_commit_take_four_bytes_each_and_what_they_are() {
        let versions: Vec<Version> =
            (0..30_u32).map(|key| (key.to_be_bytes().to_vec(), 1 << 40, Change::Put(vec![7; 100], None))).collect();
        assert_eq!(encode(&versions).len(), HEAD + 3 + 30 * (4 + 1 + 100));
    }

    #[test]
    fn a_block_ends_where_its_numbers_do() {
        let mut builder = Builder::new();
        let value = vec![7; BLOCK_BYTES_MAX - 100];
        let long = |key| Update { key, seq: Seq(1), operation: Operation::Put(Payload::Inline(&value), None) };
        assert!(builder.bytes_with(&long(b"a")).is_some());
        builder.push(&long(b"a"));
        assert!(builder.bytes_with(&long(b"b")).is_none());
        let mut builder = Builder::new();
        for seq in (0..ENTRIES_MAX as u64 / 4).rev() {
            let update = Update { key: b"k", seq: Seq(seq), operation: Operation::Delete };
            assert!(builder.bytes_with(&update).is_some(), "{seq}");
            builder.push(&update);
        }
    }
}
