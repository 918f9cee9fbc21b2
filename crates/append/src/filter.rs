//! Filters: whether a leaf may have a key, known before it is read (Bloom, CACM 13(7), 1970).
//!
//! 1. The filter of a leaf stands in the link to the leaf. A key is in the filter by the bytes behind the chunks that
//!    lead to the link, because a search knows the key there by these bytes.
//! 2. A group that is a B+-tree of its own is in the filter by its chunk.
//! 3. A rewritten leaf gets a new filter, of [`KEY_BITS`] bits for each key, but no more than [`FILTER_BYTES_MAX`]
//!    bytes.
//!
//! Internal nodes have no filter. Neither has a leaf with such a group under chunks that its B+-tree skips, because a
//! search does not know how many they are. The root of a trie has no link.
//!
//! Invariant: every key in a leaf is in its filter, so a search may pass over keys that the filter excludes.

use index::bloom::{self, Hash};

use crate::format::FILTER_BYTES_MAX;
use crate::format::node::{Group, Node};

/// Bits for each key. One lookup in forty of an absent key is misled, because the filter is asked twice: for the key,
/// and for its chunk.
const KEY_BITS: usize = 10;

/// The filter of a node; empty if the node has none.
pub(crate) fn of(node: &Node) -> Box<[u8]> {
    let trees = |node: &Node| (0..node.len()).any(|index| matches!(node.group(index), Group::Tree(_)));
    if node.level() > 0 || (!node.skip().is_empty() && trees(node)) {
        return Box::default();
    }
    let mut hashes = Vec::new();
    each(node, |hash| hashes.push(hash));
    let mut bits = vec![0; (hashes.len() * KEY_BITS).div_ceil(8).min(FILTER_BYTES_MAX)];
    let is_missed = |hash: &Hash| seeded::on(seeded::Bug::FilterMissesKey) && hash.bits().is_multiple_of(16);
    hashes.into_iter().filter(|hash| !is_missed(hash)).for_each(|hash| bloom::add(&mut bits, hash));
    bits.into()
}

/// Whether the leaf with this filter may have the key whose bytes behind the link are `rest`, in a trie with chunks of
/// `chunk_bytes`.
pub(crate) fn may_have(filter: &[u8], rest: &[u8], chunk_bytes: usize) -> bool {
    let has = |key: &[u8]| bloom::may_have(filter, Hash::of(key));
    filter.is_empty() || has(rest) || rest.get(..chunk_bytes).is_some_and(has)
}

/// Whether the filter in the link to a leaf has all keys and trees of the leaf.
pub(crate) fn knows(filter: &[u8], node: &Node) -> bool {
    let mut knows = true;
    each(node, |hash| knows &= filter.is_empty() || bloom::may_have(filter, hash));
    knows
}

/// Shows each hash of a leaf that belongs in its filter.
fn each(node: &Node, mut show: impl FnMut(Hash)) {
    let mut key = node.skip().to_vec();
    let skip = key.len();
    for index in 0..node.len() {
        key.truncate(skip);
        key.extend_from_slice(node.bound(index));
        match node.group(index) {
            Group::Tree(_) => show(Hash::of(&key)),
            Group::Keys(keys) => {
                let chunk = key.len();
                for (rest, _) in keys.iter() {
                    key.truncate(chunk);
                    key.extend_from_slice(rest);
                    show(Hash::of(&key));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use doclog::DocPointer;
    use index::{Operation, Seq, Update};

    use super::*;
    use crate::format::Link;
    use crate::format::node::{encode, put_keys, put_tree};

    fn leaf(skip: &[u8], with_tree: bool) -> Node {
        let mut groups = Vec::new();
        for number in 0..90_u32 {
            let version = Update { key: b"rest", seq: Seq(7), operation: Operation::Delete };
            put_keys(&mut groups, &number.to_be_bytes(), &[version]);
        }
        let link = Link { pointer: DocPointer::default(), due: None, filter: Box::default() };
        if with_tree {
            put_tree(&mut groups, b"tree", &link);
        }
        Node::decode(&encode(0, skip, 90 + usize::from(with_tree), &groups), 4).expect("whole")
    }

    fn rest(skip: &[u8], number: u32) -> Vec<u8> {
        [skip, &number.to_be_bytes(), b"rest"].concat()
    }

    #[test]
    fn what_is_in_a_leaf_is_in_its_filter_and_little_else() {
        for (skip, with_tree) in [(&b""[..], false), (b"", true), (b"skip", false)] {
            let leaf = leaf(skip, with_tree);
            let filter = of(&leaf);
            assert_eq!(filter.len(), if with_tree { 114 } else { 113 });
            assert!(knows(&filter, &leaf));
            assert!((0..90).all(|number| may_have(&filter, &rest(skip, number), 4)));
            assert!(!with_tree || may_have(&filter, b"tree and whatever is below", 4));
            let misled = (1000..11_000).filter(|number| may_have(&filter, &rest(skip, *number), 4)).count();
            assert!(misled < 400, "{misled} of 10,000 keys that are not there");
            let one_less = [&filter[..10], &[0], &filter[11..]].concat();
            assert!(!knows(&one_less, &leaf));
        }
    }

    #[test]
    fn a_leaf_has_no_filter_where_a_search_could_not_ask_it() {
        let skipping = leaf(b"skip", true);
        assert!(of(&skipping).is_empty() && knows(b"", &skipping) && may_have(b"", b"any", 4));
    }
}
