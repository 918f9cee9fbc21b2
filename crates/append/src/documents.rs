//! Walking the versions whose values are documents.
//!
//! What is ahead is a list of pieces in key order. The first is read, if it has to be, together with those right behind it, ever more of them, and taken
//! apart.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Result, ShowVersions, Update};

use crate::format::node::{Group, Keys, Node};
use crate::version::Version;

/// Nodes that the first read brings.
const FIRST_WINDOW: usize = 2;

/// What all keys below a node begin with.
type Prefix = Arc<[u8]>;

enum Piece {
    /// A node that is not read yet; `is_root` says that what it skips is not in the prefix.
    Unread {
        pointer: DocPointer,
        prefix: Prefix,
        is_root: bool,
    },
    Node {
        node: Arc<Node>,
        prefix: Prefix,
        is_root: bool,
    },
    /// The groups of a leaf from one on.
    Groups {
        node: Arc<Node>,
        prefix: Prefix,
        first: usize,
    },
}

/// Shows the versions of each key from `from` on that has documents.
pub(crate) fn documents(version: &Version, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
    let root = version.header().root.map(|pointer| Piece::Unread { pointer, prefix: [].into(), is_root: true });
    let mut walk = Walk { version, from, ahead: root.into_iter().collect(), window: FIRST_WINDOW };
    while let Some(piece) = walk.ahead.pop_front() {
        match piece {
            unread @ Piece::Unread { .. } => {
                walk.ahead.push_front(unread);
                walk.read()?;
            }
            Piece::Node { node, prefix, is_root } => walk.take_apart(node, prefix, is_root),
            Piece::Groups { node, prefix, first } => {
                if walk.groups(&node, &prefix, first, show).is_break() {
                    break;
                }
            }
        }
    }
    Ok(())
}

struct Walk<'a> {
    version: &'a Version,
    from: &'a [u8],
    ahead: VecDeque<Piece>,
    window: usize,
}

impl Walk<'_> {
    /// Reads the first pieces, up to one that is read.
    fn read(&mut self) -> Result<()> {
        let pointer = |piece: &Piece| match piece {
            Piece::Unread { pointer, .. } => Some(*pointer),
            _ => None,
        };
        let pointers: Vec<_> = self.ahead.iter().map_while(pointer).take(self.window).collect();
        let nodes = self.version.nodes(&pointers)?;
        for (piece, node) in self.ahead.iter_mut().zip(nodes) {
            if let Piece::Unread { prefix, is_root, .. } = piece {
                *piece = Piece::Node { node, prefix: Arc::clone(prefix), is_root: *is_root };
            }
        }
        self.window = (self.window * 2).min(self.version.shared.pio_max().max(FIRST_WINDOW));
        Ok(())
    }

    fn take_apart(&mut self, node: Arc<Node>, prefix: Prefix, is_root: bool) {
        let prefix = if is_root && !node.skip().is_empty() { [&prefix, node.skip()].concat().into() } else { prefix };
        if node.level() == 0 {
            self.ahead.push_front(Piece::Groups { node, prefix, first: 0 });
            return;
        }
        let ends_before =
            |child: usize| child + 1 < node.len() && [&prefix, node.bound(child + 1)].concat().as_slice() <= self.from;
        let first = (0..node.len()).find(|child| !ends_before(*child)).unwrap_or(node.len());
        for child in (first..node.len()).rev() {
            let pointer = node.child(child);
            self.ahead.push_front(Piece::Unread { pointer, prefix: Arc::clone(&prefix), is_root: false });
        }
    }

    /// Shows the groups of a leaf from `first` on, up to the next B+-tree, which comes next.
    fn groups(
        &mut self, node: &Arc<Node>, prefix: &Prefix, first: usize, show: &mut ShowVersions<'_>,
    ) -> ControlFlow<()> {
        for index in first..node.len() {
            let begin = [prefix, node.bound(index)].concat();
            match node.group(index) {
                Group::Keys(keys) => self.keys(&begin, keys, show)?,
                // No key of it is from there on.
                Group::Tree(_) if begin.as_slice() < self.from && !self.from.starts_with(&begin) => {}
                Group::Tree(pointer) => {
                    let (node, prefix) = (Arc::clone(node), Arc::clone(prefix));
                    self.ahead.push_front(Piece::Groups { node, prefix, first: index + 1 });
                    self.ahead.push_front(Piece::Unread { pointer, prefix: begin.into(), is_root: true });
                    break;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn keys(&self, begin: &[u8], keys: Keys<'_>, show: &mut ShowVersions<'_>) -> ControlFlow<()> {
        for (rest, versions) in keys.iter() {
            let key = [begin, rest].concat();
            if key.as_slice() < self.from {
                continue;
            }
            let mut versions: Vec<Update<'_>> =
                versions.map(|(seq, operation)| Update { key: &key, seq, operation }).collect();
            versions.reverse();
            if !versions.iter().any(|version| version.operation.document().is_some()) {
                versions.clear();
            }
            if versions.is_empty() && key == self.from {
                continue;
            }
            show(&key, &versions)?;
        }
        ControlFlow::Continue(())
    }
}
