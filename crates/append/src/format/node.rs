//! A node: one of a B+-tree, of which the trie has many.
//!
//! ```text
//! 0  1  level: 0 is a leaf
//! 1  .  skip, as bytes: whole chunks that all keys of the B+-tree share and that are left out in it; in its root alone
//! .  .  number of entries, a number
//! .  .  entries
//! ```
//!
//! An entry of an internal node is a **child**: its lower bound as bytes, and a pointer. No chunk of the child is below
//! its bound; the bound of the first child says nothing. Every pointer is followed by the due time of the node that it
//! leads to, and by the filter of that node. An entry of a leaf is a **group**, the keys that share a chunk:
//!
//! ```text
//! .  chunk, as bytes: of the length of all chunks, or what is left of the one key that ends in it
//! .  keys, a number: 0 says that they are in a B+-tree of their own, whose root a pointer behind it leads to
//! .  per key: what is behind the chunk, as bytes; versions, a number; the versions, newest first
//! ```
//!
//! Chunks rise, and so do the keys of a group; seqs of versions fall. No entry refers to another one, so an entry that
//! an update leaves alone is copied unchanged.

use std::ops::Range;

use codec::put_number;
use doclog::DocPointer;
use index::due::{self, Due};
use index::{Operation, Seq, Time, Update};
use mapped::{Shared, SharedBytes};

use super::input::Input;
use super::{Checked, Damage, KEY_BYTES_MAX, Link, put_bytes, put_link, put_version};

/// Fewest bytes of an entry: a group with a single tombstone under an empty chunk.
const ENTRY_BYTES_MIN: usize = 6;

/// Offset of the skip: behind the level.
const SKIP_AT: usize = 1;

const CHECKED: &str = "a node was checked when it was read";

/// The first index of a range that is not `below`; none behind it is `below` either.
pub(crate) fn partition(range: Range<usize>, below: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start.midpoint(end);
        if below(middle) { start = middle + 1 } else { end = middle }
    }
    start
}

/// A node that was checked. Behind its bytes stand only the places where entries and keys begin, so that many nodes fit
/// in memory. All is in one allocation, because many nodes are read and dropped.
#[derive(Debug)]
pub(crate) struct Node {
    /// The node, the places of its entries and of the end of the last one, and the places of the keys of all groups.
    memory: SharedBytes,
    bytes: usize,
    entries: usize,
    keys: usize,
    /// Two bytes for each place, or four if an entry makes the node longer than two bytes can tell.
    place_bytes: usize,
    level: u8,
}

/// The content of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Group<'a> {
    /// Another B+-tree.
    Tree(DocPointer),
    /// Keys.
    Keys(Keys<'a>),
}

/// The keys of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    node: &'a Node,
    start: usize,
    end: usize,
}

/// The bytes behind the chunk of the key at a place of a node, and the versions of the key.
fn key_at(bytes: &[u8], at: usize) -> (&[u8], Versions<'_>) {
    let mut input = Input::new(bytes, at);
    let key = input.bytes().and_then(|rest| Ok((rest, input.count()?)));
    let (rest, left) = key.expect(CHECKED);
    (rest, Versions { input, left })
}

impl<'a> Keys<'a> {
    /// For each key the bytes behind the chunk, and the versions, newest first.
    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = (&'a [u8], Versions<'a>)> + ExactSizeIterator {
        (self.start..self.end).map(move |index| self.node.key(index))
    }

    /// The versions of the key whose bytes behind the chunk are `rest`.
    pub(crate) fn find(self, rest: &[u8]) -> Option<Versions<'a>> {
        let found = partition(self.start..self.end, |index| self.node.key(index).0 < rest);
        let (there, versions) = (found < self.end).then(|| self.node.key(found))?;
        (there == rest).then_some(versions)
    }
}

/// Versions of a key, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Versions<'a> {
    input: Input<'a>,
    left: usize,
}

impl<'a> Iterator for Versions<'a> {
    type Item = (Seq, Operation<'a>);

    fn next(&mut self) -> Option<(Seq, Operation<'a>)> {
        self.left = self.left.checked_sub(1)?;
        Some(self.input.version().expect("the versions of a node were checked when it was read"))
    }
}

impl Node {
    /// Checks the bytes of a node of a trie with chunks of `chunk_bytes`.
    pub(crate) fn decode(bytes: &[u8], chunk_bytes: usize) -> Checked<Self> {
        let mut input = Input::new(bytes, 0);
        let level = input.take(1)?[0];
        let skip = input.bytes()?;
        if !skip.len().is_multiple_of(chunk_bytes) || skip.len() > KEY_BYTES_MAX {
            let expected = format!("whole chunks of {chunk_bytes} bytes, at most {KEY_BYTES_MAX}");
            return Err(Damage::new(SKIP_AT, "skip of a node", expected, skip.len()));
        }
        let count = input.count()?;
        if count == 0 {
            return Err(Damage::new(input.at(), "entries of a node", "at least one", 0));
        }
        let most = count.min(bytes.len() / ENTRY_BYTES_MIN);
        let mut entries = Vec::with_capacity(most + 1);
        let mut keys = Vec::with_capacity(if level == 0 { most } else { 0 });
        let mut before: Option<&[u8]> = None;
        for _ in 0..count {
            let begin = input.at();
            let bound = input.bytes()?;
            if bound.len() > chunk_bytes.min(KEY_BYTES_MAX) {
                return Err(Damage::new(begin, "chunk", format!("at most {chunk_bytes} bytes"), bound.len()));
            }
            let first_key = keys.len();
            let is_tree = level > 0 || read_keys(&mut input, &mut keys)?;
            if is_tree {
                input.link()?;
            }
            let is_full = bound.len() == chunk_bytes;
            let alone = || !is_tree && keys.len() == first_key + 1 && key_at(bytes, keys[first_key]).0.is_empty();
            if level == 0 && !is_full && !alone() {
                return Err(Damage::new(begin, "group of a short chunk", "one key that ends in it", "another"));
            }
            if before.is_some_and(|before| before >= bound) {
                return Err(Damage::new(begin, "order of a node", "rising chunks", "others"));
            }
            before = Some(bound);
            entries.push(begin);
        }
        entries.push(input.at());
        input.end()?;
        Ok(Self::new(bytes, level, &entries, &keys))
    }

    fn new(bytes: &[u8], level: u8, entries: &[usize], keys: &[usize]) -> Self {
        let place_bytes = if u16::try_from(bytes.len()).is_ok() { size_of::<u16>() } else { size_of::<u32>() };
        let mut memory = Shared::zeroed(bytes.len() + (entries.len() + keys.len()) * place_bytes);
        let (node, places) = memory.split_at_mut(bytes.len());
        node.copy_from_slice(bytes);
        for (out, place) in places.chunks_exact_mut(place_bytes).zip(entries.iter().chain(keys)) {
            out.copy_from_slice(&place.to_le_bytes()[..place_bytes]);
        }
        Self { memory, bytes: bytes.len(), entries: entries.len() - 1, keys: keys.len(), place_bytes, level }
    }

    /// A place in the bytes: of an entry, of the end of the last one, or of a key.
    fn place(&self, index: usize) -> usize {
        let at = &self.memory[self.bytes + index * self.place_bytes..][..self.place_bytes];
        match *at {
            [low, high] => usize::from(u16::from_le_bytes([low, high])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => unreachable!("a place takes two bytes or four"),
        }
    }

    fn key_place(&self, index: usize) -> usize {
        self.place(self.entries + 1 + index)
    }

    fn key(&self, index: usize) -> (&[u8], Versions<'_>) {
        key_at(&self.memory[..self.bytes], self.key_place(index))
    }

    pub(crate) const fn level(&self) -> u8 {
        self.level
    }

    /// Whole chunks that the B+-tree under this root leaves out.
    pub(crate) fn skip(&self) -> &[u8] {
        Input::new(&self.memory[..self.bytes], SKIP_AT).bytes().expect(CHECKED)
    }

    /// Number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.entries
    }

    /// Bytes of the node.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes on the heap, beside the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        Shared::taken(self.memory.len())
    }

    /// The encoded bytes of an entry.
    pub(crate) fn entry(&self, index: usize) -> &[u8] {
        &self.memory[self.place(index)..self.place(index + 1)]
    }

    /// Bytes of these entries.
    pub(crate) fn entries_bytes(&self, entries: Range<usize>) -> usize {
        self.place(entries.end) - self.place(entries.start)
    }

    /// The lower bound of a child, or the chunk of a group, and the bytes behind that.
    #[inline(always)]
    fn taken_apart(&self, index: usize) -> (&[u8], Input<'_>) {
        let mut input = Input::new(&self.memory[..self.bytes], self.place(index));
        (input.bytes().expect(CHECKED), input)
    }

    /// The lower bound of a child, or the chunk of a group.
    #[inline]
    pub(crate) fn bound(&self, index: usize) -> &[u8] {
        self.taken_apart(index).0
    }

    /// The pointer to a child.
    pub(crate) fn child(&self, index: usize) -> DocPointer {
        debug_assert!(self.level > 0, "leaves have no children");
        self.taken_apart(index).1.pointer().expect(CHECKED)
    }

    /// The parts of the link to a child or tree; none for a group of keys.
    fn link_at(&self, index: usize) -> Option<(DocPointer, Option<Due>, &[u8])> {
        let mut input = self.taken_apart(index).1;
        if self.level == 0 && input.number().expect(CHECKED) > 0 {
            return None;
        }
        Some(input.link().expect(CHECKED))
    }

    /// The link to a child or tree; none for a group of keys.
    pub(crate) fn link(&self, index: usize) -> Option<Link> {
        let (pointer, due, filter) = self.link_at(index)?;
        Some(Link { pointer, due, filter: filter.into() })
    }

    /// The filter of a child or tree; empty if there is none.
    pub(crate) fn filter(&self, index: usize) -> &[u8] {
        self.link_at(index).map_or(&[], |(_, _, filter)| filter)
    }

    /// Versions of all keys.
    fn versions(&self) -> impl Iterator<Item = Versions<'_>> {
        (0..self.keys).map(|index| self.key(index).1)
    }

    /// The due time of the node's own groups, for a leaf that is made at `now`.
    pub(crate) fn own_due(&self, now: Time) -> Option<Due> {
        let versions = || self.versions().flatten();
        due::made(versions().filter_map(|(_, operation)| operation.expiry()).collect(), versions().count(), now)
    }

    /// The earliest due time of the node and the nodes below, for a node that is made at `now`.
    pub(crate) fn due(&self, now: Time) -> Option<Due> {
        let below = (0..self.len()).filter_map(|index| self.link_at(index)).map(|(_, due, _)| due);
        due::first(below.chain([self.own_due(now)]))
    }

    /// The content of a group.
    pub(crate) fn group(&self, index: usize) -> Group<'_> {
        debug_assert!(self.level == 0, "only leaves have groups");
        let mut input = self.taken_apart(index).1;
        let keys = input.count().expect(CHECKED);
        if keys == 0 {
            return Group::Tree(input.pointer().expect(CHECKED));
        }
        let begin = self.place(index);
        let start = partition(0..self.keys, |key| self.key_place(key) < begin);
        Group::Keys(Keys { node: self, start, end: start + keys })
    }

    /// The child that a chunk belongs to.
    pub(crate) fn child_of(&self, chunk: &[u8]) -> usize {
        partition(0..self.len(), |index| self.bound(index) <= chunk).saturating_sub(1)
    }

    /// The group of a chunk.
    pub(crate) fn group_of(&self, chunk: &[u8]) -> Option<usize> {
        let found = partition(0..self.len(), |index| self.bound(index) < chunk);
        (found < self.len() && self.bound(found) == chunk).then_some(found)
    }

    /// Numbers of versions, and of keys whose newest version is no tombstone, in the node's groups.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let versions = self.versions().map(|versions| versions.left as u64).sum();
        (versions, self.versions().filter(|versions| versions_live(versions.clone())).count() as u64)
    }
}

impl index::Image for Node {
    fn bytes(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

fn versions_live(mut versions: Versions<'_>) -> bool {
    versions.next().is_some_and(|(_, operation)| operation != Operation::Delete)
}

/// Reads the keys of a group; true if the group is a tree instead.
fn read_keys(input: &mut Input<'_>, keys: &mut Vec<usize>) -> Checked<bool> {
    let count = input.count()?;
    let mut before: Option<&[u8]> = None;
    for _ in 0..count {
        let begin = input.at();
        let rest = input.bytes()?;
        if rest.len() > KEY_BYTES_MAX || before.is_some_and(|before| before >= rest) {
            return Err(Damage::new(begin, "key of a group", "one that fits, above the one before it", rest.len()));
        }
        before = Some(rest);
        let versions = input.count()?;
        if versions == 0 {
            return Err(Damage::new(begin, "versions of a key", "at least one", 0));
        }
        let mut newer = None;
        for _ in 0..versions {
            let begin = input.at();
            let (seq, _) = input.version()?;
            if newer.is_some_and(|newer| seq >= newer) {
                return Err(Damage::new(begin, "versions of a key", "falling seqs", seq.0));
            }
            newer = Some(seq);
        }
        keys.push(begin);
    }
    Ok(count == 0)
}

/// The bytes of a node whose entries are written.
pub(crate) fn encode(level: u8, skip: &[u8], count: usize, entries: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(skip.len() + entries.len() + 8);
    out.push(level);
    put_bytes(&mut out, skip);
    put_number(&mut out, count as u64);
    out.extend_from_slice(entries);
    out
}

/// Writes an entry of an internal node.
pub(crate) fn put_child(out: &mut Vec<u8>, bound: &[u8], link: &Link) {
    put_bytes(out, bound);
    put_link(out, link);
}

/// Writes a group that is a tree.
pub(crate) fn put_tree(out: &mut Vec<u8>, chunk: &[u8], link: &Link) {
    put_bytes(out, chunk);
    put_number(out, 0);
    put_link(out, link);
}

/// Writes a group of keys. The versions are sorted by key, which is the bytes behind the chunk, and then by seq.
pub(crate) fn put_keys(out: &mut Vec<u8>, chunk: &[u8], versions: &[Update<'_>]) {
    put_bytes(out, chunk);
    let keys = || versions.chunk_by(|one, other| one.key == other.key);
    put_number(out, keys().count() as u64);
    for versions in keys() {
        put_bytes(out, versions[0].key);
        put_number(out, versions.len() as u64);
        versions.iter().rev().for_each(|version| put_version(out, version.seq, &version.operation));
    }
}

#[cfg(test)]
mod tests {
    use doclog::{DocLength, SegmentId};
    use index::{Expiry, Payload};

    use super::*;
    use crate::format::FILTER_BYTES_MAX;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn pointer() -> DocPointer {
        DocPointer { segment: SegmentId(300), offset: 64, length: DocLength::plain(4000), crc: 0x0102_0304 }
    }

    fn leaf() -> Vec<u8> {
        let version = |key, seq, operation| Update { key, seq: Seq(seq), operation };
        let mut groups = Vec::new();
        let versions =
            [version(b"x", 5, Operation::Put(Payload::Inline(b"one"), None)), version(b"x", 9, Operation::Delete)];
        put_keys(&mut groups, b"ab", &versions);
        put_tree(&mut groups, b"ac", &Link { pointer: pointer(), due: Due::from_units(200), filter: [1, 2, 3].into() });
        let expiring = Operation::Put(Payload::Document(pointer()), Expiry::at(5));
        put_keys(&mut groups, b"b", &[version(b"", 7, expiring)]);
        encode(0, b"skip", 3, &groups)
    }

    #[test]
    fn golden_nodes() {
        let place = "ac0208a01f04030201";
        let never = [place, "00", "00"].concat();
        let group = concat!("026162", "01", "0178", "02", "0902", "0519", "6f6e65");
        let tree = ["026163", "00", place, "c801", "03010203"].concat();
        let short = ["0162", "01", "00", "01", "070505", place].concat();
        assert_eq!(hex(&leaf()), ["00", "04736b6970", "03", group, &tree, &short].concat());
        let mut children = Vec::new();
        let link = Link { pointer: pointer(), due: None, filter: Box::default() };
        put_child(&mut children, b"", &link);
        put_child(&mut children, b"m", &link);
        let internal = encode(1, b"", 2, &children);
        assert_eq!(hex(&internal), ["01", "00", "02", "00", &never, "016d", &never].concat());

        let leaf = Node::decode(&leaf(), 2).expect("whole");
        assert_eq!((leaf.skip(), leaf.len(), leaf.counts()), (&b"skip"[..], 3, (3, 1)));
        assert!(matches!(leaf.group(1), Group::Tree(found) if found == pointer()));
        assert_eq!([0, 1, 2].map(|index| leaf.filter(index)), [&b""[..], &[1, 2, 3], b""]);
        // One of three versions expires, which is at least a quarter; the tree is due later.
        let dues = [leaf.own_due(Time(0)), leaf.due(Time(0)), leaf.link(1).and_then(|link| link.due)];
        assert_eq!(dues.map(Due::to_units), [1, 1, 200]);
        let internal = Node::decode(&internal, 2).expect("whole");
        assert_eq!([&b""[..], b"l", b"m", b"zz"].map(|chunk| internal.child_of(chunk)), [0, 0, 1, 1]);
    }

    #[test]
    fn nodes_that_no_trie_has_are_refused() {
        for length in 0..leaf().len() {
            Node::decode(&leaf()[..length], 2).expect_err("cut");
        }
        Node::decode(&[leaf(), vec![0]].concat(), 2).expect_err("something behind it");
        Node::decode(&leaf(), 3).expect_err("chunks of another length");
        let version = Update { key: b"", seq: Seq(1), operation: Operation::Delete };
        let group = |chunk| {
            let mut out = Vec::new();
            put_keys(&mut out, chunk, &[version]);
            out
        };
        Node::decode(&encode(0, b"", 2, &[group(b"b"), group(b"a")].concat()), 2).expect_err("falling chunks");
        Node::decode(&encode(0, b"", 0, b""), 2).expect_err("nothing");
        assert!(group(b"").len() >= ENTRY_BYTES_MIN);
        let rising = Update { seq: Seq(2), ..version };
        let mut out = Vec::new();
        put_keys(&mut out, b"a", &[rising, version]);
        Node::decode(&encode(0, b"", 1, &out), 2).expect_err("seqs that do not fall");
        let mut tree = Vec::new();
        let filter = vec![0; FILTER_BYTES_MAX + 1].into();
        put_tree(&mut tree, b"ab", &Link { pointer: pointer(), due: None, filter });
        Node::decode(&encode(0, b"", 1, &tree), 2).expect_err("a filter that is too long");
    }

    #[test]
    fn a_node_may_be_longer_than_short_places_tell() {
        let value = [7; 200];
        let keys: Vec<_> = (0..400_u32).map(|number| number.to_be_bytes()).collect();
        let versions: Vec<_> = keys
            .iter()
            .map(|key| Update { key, seq: Seq(5), operation: Operation::Put(Payload::Inline(&value), None) })
            .collect();
        let mut entries = Vec::new();
        put_keys(&mut entries, b"ab", &versions);
        put_keys(&mut entries, b"ac", &versions[..2]);
        let node = Node::decode(&encode(0, b"", 2, &entries), 2).expect("whole");
        assert!(node.bytes() > usize::from(u16::MAX) && node.counts() == (402, 402));
        let Group::Keys(last) = node.group(1) else { panic!("keys") };
        assert_eq!(last.iter().map(|(rest, _)| rest.to_vec()).collect::<Vec<_>>(), keys[..2].to_vec());
        let Group::Keys(all) = node.group(0) else { panic!("keys") };
        assert!(
            keys.iter().all(|key| all.find(key).is_some()) && all.find(b"").is_none() && last.find(&keys[2]).is_none()
        );
    }
}
