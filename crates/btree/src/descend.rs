//! A descent through all nodes and leaves that a version refers to, past the cache, whatever is damaged.
//!
//! 1. The children of a node are read in one psync each, leaves at most PioMax at a time, in key order.
//! 2. A node's identity and CRC are checked, and that its separators rise and lie within its bounds. The entries of a
//!    leaf are left to the [`Witness`].
//! 3. A node or leaf that does not check is reported with the keys that are hidden by the damage, and the walk goes on
//!    with the rest.

use std::collections::HashSet;
use std::ops::ControlFlow;

use index::Error;
use psync::Buffer;
use space::PAGE;

use crate::format::node::{NodeIdentity, decode};
use crate::format::{Damage, Pointer};
use crate::node::{Edges, Node};
use crate::version::Version;

/// A child and the bounds that its parents give it.
pub(crate) struct Child {
    pub(crate) pointer: Pointer,
    pub(crate) low: Vec<u8>,
    /// The bounds between the parts of a leaf.
    pub(crate) fences: Vec<Vec<u8>>,
    pub(crate) filter: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

impl Child {
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        key >= self.low.as_slice() && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// The receiver of all that a descent meets.
pub(crate) trait Witness {
    /// The extent of a node or leaf that was not met before.
    fn extent(&mut self, pointer: &Pointer);

    /// A damaged node or leaf. The walk does not enter the node or leaf, so everything below is out of reach.
    fn damaged(&mut self, child: &Child, error: Error);

    /// The published bytes of a leaf, or the reason why the read failed. The witness may end the walk.
    fn leaf(&mut self, child: &Child, bytes: Result<Buffer, psync::Error>) -> ControlFlow<()>;
}

/// Goes down a version.
pub(crate) fn descend(version: &Version, witness: &mut dyn Witness) {
    let Some(root) = version.root.pointer else { return };
    let child = Child { pointer: root, low: Vec::new(), fences: Vec::new(), filter: Vec::new(), high: None };
    let mut walk = Walk { version, witness, extents: HashSet::new() };
    let level = version.root.height - 1;
    // An early end is known to the witness itself.
    let _ = if level == 0 { walk.leaves(&[child]) } else { walk.nodes(&[child], level) };
}

struct Walk<'a> {
    version: &'a Version,
    witness: &'a mut dyn Witness,
    /// First pages seen, so that a loop of damaged pointers ends and shared pages are found.
    extents: HashSet<u64>,
}

impl Walk<'_> {
    /// Reads children, `bytes` of each.
    fn read(&self, children: &[Child], bytes: impl Fn(&Pointer) -> usize) -> Vec<Result<Buffer, psync::Error>> {
        let shared = &self.version.shared;
        let request = |child: &Child| shared.read(&child.pointer, 0, bytes(&child.pointer), 0);
        let completions = shared.psync().run(children.iter().map(request).collect());
        let buffer = |completion: psync::Completion| {
            completion.result.map(|()| completion.buffer.expect("a read hands its buffer back"))
        };
        completions.into_iter().map(buffer).collect()
    }

    fn damaged(&mut self, child: &Child, damage: Damage) {
        self.witness.damaged(child, self.version.shared.corrupt(&child.pointer, damage));
    }

    /// Reports an extent; false if it was reported before.
    fn claim(&mut self, child: &Child) -> bool {
        if self.extents.insert(child.pointer.page) {
            self.witness.extent(&child.pointer);
            return true;
        }
        self.damaged(child, Damage::new(0, "pages of a tree", "one pointer to them", "two"));
        false
    }

    /// Looks at nodes of `level` and all below them. Recursion as deep as the tree is high.
    fn nodes(&mut self, children: &[Child], level: u8) -> ControlFlow<()> {
        let window = self.version.shared.psync().pio_max();
        for children in children.chunks(window) {
            let pages = self.read(children, |_| PAGE);
            for (child, page) in children.iter().zip(pages) {
                if !self.claim(child) {
                    continue;
                }
                let page = match page {
                    Ok(page) => page,
                    Err(error) => {
                        self.witness.damaged(child, error.into());
                        continue;
                    }
                };
                let pointer = &child.pointer;
                let identity = NodeIdentity {
                    table: self.version.table,
                    page: pointer.page,
                    incarnation: pointer.incarnation,
                    level,
                };
                match decode(&identity, &page).and_then(|node| checked(child, &node)) {
                    Ok(below) if level == 1 => self.leaves(&below)?,
                    Ok(below) => self.nodes(&below, level - 1)?,
                    Err(damage) => self.damaged(child, damage),
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn leaves(&mut self, children: &[Child]) -> ControlFlow<()> {
        let window = self.version.shared.psync().pio_max();
        for children in children.chunks(window) {
            let buffers = self.read(children, Pointer::published_bytes);
            for (child, bytes) in children.iter().zip(buffers) {
                if self.claim(child) {
                    self.witness.leaf(child, bytes)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// A node's children, if its separators rise within its bounds.
fn checked(child: &Child, node: &Node) -> Result<Vec<Child>, Damage> {
    let edges: Edges = node.edges(&child.low);
    let within = (1..edges.bounds()).all(|bound| child.holds(edges.bound(bound)));
    if !edges.is_sorted() || !within {
        return Err(Damage::new(0, "separators of an internal node", "rising within its bounds", "others"));
    }
    let high = |index: usize| {
        if index + 1 < edges.len() { Some(edges.low(index + 1).to_vec()) } else { child.high.clone() }
    };
    let children = edges.pointers().iter().enumerate();
    Ok(children
        .map(|(index, pointer)| {
            let fences = edges.bounds_of(index).skip(1).map(|bound| edges.bound(bound).to_vec()).collect();
            let (low, filter) = (edges.low(index).to_vec(), edges.filter(index).to_vec());
            Child { pointer: *pointer, low, fences, filter, high: high(index) }
        })
        .collect())
}
