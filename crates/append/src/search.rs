//! Many keys at once (the multi-path search of Roh et al., PVLDB 5(4), 2011, section 3.1.1).
//!
//! All keys go down together, a node at a time: their next nodes are fetched as one psync, whatever the level and the
//! B+-tree of each node. A key is absent if it lacks the chunks that a B+-tree leaves out, or has no group, or if the
//! filter of a leaf excludes the key ([`crate::filter`]). A lookup does not enter the leaf for an excluded key.

use std::ops::Range;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Found, Moment, Result, Update};

use crate::filter;
use crate::format::NODE_BYTES;
use crate::format::node::{Group, Node, Versions};
use crate::version::Version;

/// The chunk that a key has at `depth`, which may be short or empty at its end.
pub(crate) fn chunk_at(key: &[u8], depth: usize, chunk_bytes: usize) -> &[u8] {
    let rest = &key[depth..];
    &rest[..rest.len().min(chunk_bytes)]
}

/// Keys on their way down.
struct Walk {
    pointer: DocPointer,
    /// Bytes of the keys above the B+-tree, and whether the node is its root.
    depth: usize,
    is_root: bool,
    keys: Range<usize>,
}

/// Gets nodes.
type Fetch<'a> = dyn FnMut(&[DocPointer]) -> Result<Vec<Arc<Node>>> + 'a;

/// The leaves that are entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Leaves that may have one of the keys.
    MayHave,
    /// Leaves that the keys belong to, present or not.
    All,
}

/// Leads `count` sorted keys down from `root`. `fetch` gets nodes; `found` is shown each key that is present, with its
/// versions.
pub(crate) fn descend<'k>(
    root: DocPointer, count: usize, chunk_bytes: usize, leaves: Leaves, key: impl Fn(usize) -> &'k [u8],
    fetch: &mut Fetch<'_>, found: &mut dyn FnMut(usize, Versions<'_>),
) -> Result<()> {
    // From the first to the last key that the filter does not exclude.
    let wanted = |filter: &[u8], depth: usize, keys: Range<usize>| -> Range<usize> {
        let may_be =
            |index: &usize| leaves == Leaves::All || filter::may_have(filter, &key(*index)[depth..], chunk_bytes);
        let Some(first) = keys.clone().find(may_be) else { return 0..0 };
        let last = (first..keys.end).rfind(may_be).unwrap_or(first);
        first..last + 1
    };
    let mut walks = vec![Walk { pointer: root, depth: 0, is_root: true, keys: 0..count }];
    while !walks.is_empty() {
        let pointers: Vec<_> = walks.iter().map(|walk| walk.pointer).collect();
        let mut below = Vec::new();
        for (walk, node) in walks.into_iter().zip(fetch(&pointers)?) {
            let Some((depth, keys)) = within(&walk, &node, &key) else { continue };
            let mut start = keys.start;
            while start < keys.end {
                let chunk = chunk_at(key(start), depth, chunk_bytes);
                if node.level() > 0 {
                    let child = node.child_of(chunk);
                    let is_here = |index: usize| {
                        child + 1 == node.len() || chunk_at(key(index), depth, chunk_bytes) < node.bound(child + 1)
                    };
                    let end = (start + 1..keys.end).find(|index| !is_here(*index)).unwrap_or(keys.end);
                    let keys = wanted(node.filter(child), depth, start..end);
                    below.push(Walk { pointer: node.child(child), depth, is_root: false, keys });
                    start = end;
                    continue;
                }
                let is_here = |index: &usize| chunk_at(key(*index), depth, chunk_bytes) == chunk;
                let end = (start + 1..keys.end).find(|index| !is_here(index)).unwrap_or(keys.end);
                let depth = depth + chunk.len();
                match node.group_of(chunk).map(|index| (index, node.group(index))) {
                    None => {}
                    Some((index, Group::Tree(pointer))) => {
                        let keys = wanted(node.filter(index), depth, start..end);
                        below.push(Walk { pointer, depth, is_root: true, keys });
                    }
                    Some((_, Group::Keys(group))) => {
                        for index in start..end {
                            if let Some(versions) = group.find(&key(index)[depth..]) {
                                found(index, versions);
                            }
                        }
                    }
                }
                start = end;
            }
        }
        below.retain(|walk| !walk.keys.is_empty());
        walks = below;
    }
    Ok(())
}

/// The depth behind the skip of the B+-tree that a walk has reached, and those keys of the walk that have the skip.
fn within<'k>(walk: &Walk, node: &Node, key: &impl Fn(usize) -> &'k [u8]) -> Option<(usize, Range<usize>)> {
    if !walk.is_root {
        return Some((walk.depth, walk.keys.clone()));
    }
    let skip = node.skip();
    let has_it = |index: &usize| key(*index)[walk.depth..].starts_with(skip);
    let start = walk.keys.clone().find(has_it)?;
    let end = (start..walk.keys.end).find(|index| !has_it(index)).unwrap_or(walk.keys.end);
    Some((walk.depth + skip.len(), start..end))
}

/// Memory that one key takes on its way: a node that is read for the key, and the bytes of that node.
const KEY_BYTES: usize = 2 * NODE_BYTES;

/// Looks keys up in a version, so many together as the batch's share of memory is enough for.
pub(crate) fn get_many(version: &Version, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
    let Some(root) = version.header().root else { return Ok(()) };
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|index| keys[*index]);
    let mut fetch = |pointers: &[DocPointer]| version.looked_up(pointers);
    let together = version.shared.read_ahead().share();
    for order in order.chunks(together.lookups(KEY_BYTES)) {
        descend(
            root,
            order.len(),
            version.header().chunk_bytes(),
            Leaves::MayHave,
            |index| keys[order[index]],
            &mut fetch,
            &mut |index, mut versions| {
                if let Some((seq, operation)) = versions.find(|(seq, _)| *seq <= at.seq) {
                    let key = keys[order[index]];
                    out[order[index]] = Some(Found::of(&Update { key, seq, operation }, at.now));
                }
            },
        )?;
    }
    Ok(())
}
