//! The shape of a version, and keys that cut it into parts.

use doclog::DocPointer;
use index::{Figure, Result, Stats};

use crate::format::node::{Group, Node};
use crate::format::record::Shape;
use crate::version::Version;

/// The shape of a version, as described by its commit header. Only the height needs nodes: those on one way down, which
/// enters B+-trees of groups where there are any.
pub(crate) fn stats(version: &Version) -> Result<Stats> {
    let Shape { internal_nodes, leaves, leaf_bytes, versions, .. } = version.header().shape;
    let (mut height, mut next) = (0, version.header().root);
    while let Some(pointer) = next {
        height += 1;
        let node = version.nodes(&[pointer])?.remove(0);
        let tree_of = |index| match node.group(index) {
            Group::Tree(below) => Some(below),
            Group::Keys(_) => None,
        };
        next = if node.level() > 0 { Some(node.child(0)) } else { (0..node.len()).find_map(tree_of) };
    }
    Ok(Stats {
        entries: versions,
        entry_bytes: leaf_bytes,
        stored_bytes: leaf_bytes,
        figures: vec![
            Figure::count("levels", height),
            Figure::count("internal nodes", internal_nodes),
            Figure::count("leaves", leaves),
        ],
    })
}

/// A part of a version.
struct Part {
    /// Lower bound of the keys of the part.
    low: Vec<u8>,
    /// The bytes that all its keys begin with, and the place of its node; none if the part is cut no further.
    below: Option<(Vec<u8>, DocPointer)>,
    is_root: bool,
}

/// Lower bounds of parts, after the first. Each round takes apart all parts that have nodes of their own, in one psync,
/// until there are more than `wanted` parts.
pub(crate) fn fences(version: &Version, wanted: usize) -> Result<Vec<Vec<u8>>> {
    let Some(root) = version.header().root else { return Ok(Vec::new()) };
    let mut parts = vec![Part { low: Vec::new(), below: Some((Vec::new(), root)), is_root: true }];
    while parts.len() <= wanted {
        let pointers: Vec<_> =
            parts.iter().filter_map(|part| part.below.as_ref().map(|(_, pointer)| *pointer)).collect();
        if pointers.is_empty() {
            break;
        }
        let mut nodes = version.nodes(&pointers)?.into_iter();
        let mut cut = Vec::new();
        for part in parts {
            match part.below.as_ref().and_then(|(prefix, _)| Some((prefix, nodes.next()?))) {
                None => cut.push(part),
                Some((prefix, node)) => take_apart(&part, prefix, &node, &mut cut),
            }
        }
        parts = cut;
    }
    let mut lows: Vec<_> = parts.into_iter().skip(1).map(|part| part.low).collect();
    lows.dedup();
    Ok(lows)
}

fn take_apart(part: &Part, prefix: &[u8], node: &Node, parts: &mut Vec<Part>) {
    let skip = if part.is_root { node.skip() } else { b"" };
    let prefix = [prefix, skip].concat();
    let mut low = part.low.clone();
    for index in 0..node.len() {
        let begin = [&prefix, node.bound(index)].concat();
        if node.level() > 0 {
            let low = if index == 0 { low.clone() } else { begin };
            parts.push(Part { low, below: Some((prefix.clone(), node.child(index))), is_root: false });
        } else if let Group::Tree(pointer) = node.group(index) {
            let low = if index == 0 { low.clone() } else { begin.clone() };
            parts.push(Part { low, below: Some((begin, pointer)), is_root: true });
        } else if index == 0 || matches!(node.group(index - 1), Group::Tree(_)) {
            // Groups of keys next to each other are one part.
            if index > 0 {
                low = begin;
            }
            parts.push(Part { low: low.clone(), below: None, is_root: false });
        }
    }
}
