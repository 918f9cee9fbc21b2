//! A walk over leaves in key order that reports each node and leaf: for callers that need the trie as stored, not the
//! view of one reader.
//!
//! 1. The rest of the walk is a stack of pieces, the first in key order on top: nodes that are not read yet, and
//!    neighbouring groups of a leaf.
//! 2. If a node has to be read, the nodes behind it on the stack are read with it in one psync. Their number grows as
//!    the walk goes on, because some walks end in the first leaf.
//! 3. Each piece has a [`Span`]: no other piece has keys of that span. By the span the walker decides whether to enter
//!    the piece, before anything is read.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use doclog::DocPointer;
use index::Result;

use crate::format::Link;
use crate::format::node::{Group, Node, Versions};
use crate::version::Version;

/// Nodes in the first psync, and most nodes in one psync.
const FIRST_WINDOW: usize = 2;
const WINDOW: usize = 64;

/// A key range: from `low` to below `high`, or without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

impl Span {
    /// Every key.
    pub(crate) const fn all() -> Self {
        Self { low: Vec::new(), high: None }
    }
}

/// Groups with keys next to each other in a leaf.
pub(crate) struct Groups {
    node: Arc<Node>,
    range: Range<usize>,
    prefix: Prefix,
    pub(crate) span: Span,
}

impl Groups {
    /// Shows the versions of each key, newest first.
    pub(crate) fn each_key<'a>(
        &'a self, mut show: impl FnMut(Vec<u8>, Versions<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for index in self.range.clone() {
            let Group::Keys(keys) = self.node.group(index) else { continue };
            for (rest, versions) in keys.iter() {
                show([&self.prefix, self.node.bound(index), rest].concat(), versions)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Bytes of the groups' entries.
    pub(crate) fn bytes(&self) -> usize {
        self.range.clone().map(|index| self.node.entry(index).len()).sum()
    }
}

/// The walker.
pub(crate) trait Walk {
    /// Whether to enter the node that the link leads to, which has these keys.
    fn enters(&mut self, span: &Span, link: &Link) -> bool;

    /// The entered nodes, each or the reason why the node cannot be read.
    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>>;

    /// A leaf, before its groups.
    fn leaf(&mut self, leaf: &Node, span: &Span) -> ControlFlow<()>;

    /// Groups of the leaf, or of one before it.
    fn groups(&mut self, groups: &Groups) -> ControlFlow<()>;

    /// A node that cannot be read, or does not check.
    fn failed(&mut self, span: &Span, why: index::Error) -> ControlFlow<()>;
}

/// The bytes that all keys below a node begin with.
type Prefix = Arc<[u8]>;

/// A node ahead.
struct At {
    link: Link,
    prefix: Prefix,
    /// The node is a root, and its skipped chunks are not in the prefix yet.
    is_root: bool,
    span: Span,
    read: Option<Result<Arc<Node>>>,
}

enum Piece {
    Node(At),
    Groups(Groups),
}

/// Walks all of a version. Only `walk` knows whether the end was reached.
pub(crate) fn walk(version: &Version, walk: &mut dyn Walk) {
    let header = version.header();
    let Some(pointer) = header.root else { return };
    let link = Link { pointer, due: header.due, filter: Box::default() };
    let (mut ahead, mut window) = (Vec::new(), FIRST_WINDOW);
    let root = At { link, prefix: [].into(), is_root: true, span: Span::all(), read: None };
    push(&mut ahead, walk, vec![Piece::Node(root)]);
    while let Some(piece) = ahead.pop() {
        let goes_on = match piece {
            Piece::Groups(groups) => walk.groups(&groups),
            Piece::Node(At { read: None, .. }) => {
                ahead.push(piece);
                read(version, walk, &mut ahead, window);
                window = (2 * window).min(WINDOW);
                ControlFlow::Continue(())
            }
            Piece::Node(At { read: Some(Err(why)), span, .. }) => walk.failed(&span, why),
            Piece::Node(At { read: Some(Ok(node)), prefix, is_root, span, .. }) => {
                let leaf = if node.level() == 0 { walk.leaf(&node, &span) } else { ControlFlow::Continue(()) };
                if leaf.is_continue() {
                    let pieces = take_apart(&node, &prefix, is_root, &span);
                    push(&mut ahead, walk, pieces);
                }
                leaf
            }
        };
        if goes_on.is_break() {
            return;
        }
    }
}

/// Puts pieces, which are in key order, on top of the stack.
fn push(ahead: &mut Vec<Piece>, walk: &mut dyn Walk, pieces: Vec<Piece>) {
    let first = ahead.len();
    ahead.extend(pieces.into_iter().filter(|piece| match piece {
        Piece::Groups(_) => true,
        Piece::Node(at) => walk.enters(&at.span, &at.link),
    }));
    ahead[first..].reverse();
}

/// Reads the first nodes that are not read yet.
fn read(version: &Version, walk: &mut dyn Walk, ahead: &mut [Piece], window: usize) {
    let mut unread: Vec<&mut At> = Vec::with_capacity(window);
    for piece in ahead.iter_mut().rev() {
        match piece {
            Piece::Node(at) if at.read.is_none() => unread.push(at),
            _ => {}
        }
        if unread.len() == window {
            break;
        }
    }
    let pointers: Vec<_> = unread.iter().map(|at| at.link.pointer).collect();
    for (at, node) in unread.into_iter().zip(walk.fetch(version, &pointers)) {
        at.read = Some(node);
    }
}

/// The pieces of a node, in key order.
fn take_apart(node: &Arc<Node>, prefix: &Prefix, is_root: bool, span: &Span) -> Vec<Piece> {
    let prefix =
        if is_root && !node.skip().is_empty() { [prefix, node.skip()].concat().into() } else { Arc::clone(prefix) };
    let begin = |index: usize| [&prefix, node.bound(index)].concat();
    let within = |first: usize, end: usize| Span {
        low: if first == 0 { span.low.clone() } else { begin(first) },
        high: if end < node.len() { Some(begin(end)) } else { span.high.clone() },
    };
    let (mut pieces, mut first) = (Vec::new(), 0);
    while first < node.len() {
        let end = match node.link(first) {
            Some(_) => first + 1,
            None => (first..node.len()).find(|index| node.link(*index).is_some()).unwrap_or(node.len()),
        };
        let span = within(first, end);
        pieces.push(match node.link(first) {
            None => {
                Piece::Groups(Groups { node: Arc::clone(node), range: first..end, prefix: Arc::clone(&prefix), span })
            }
            Some(link) if node.level() > 0 => {
                Piece::Node(At { link, prefix: Arc::clone(&prefix), is_root: false, span, read: None })
            }
            Some(link) => Piece::Node(At { link, prefix: begin(first).into(), is_root: true, span, read: None }),
        });
        first = end;
    }
    pieces
}
