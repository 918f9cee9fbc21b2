//! Checking everything that a version refers to.
//!
//! 1. The tree is walked from the root, past the cache: the children of a node are read in one psync each, leaves at most
//!    PioMax at a time.
//! 2. Of a node: identity, CRC, separators that rise and lie within its bounds. Of a leaf: every run's CRC and chain, the
//!    order of its entries, keys within its bounds and, on sorted pages, between its fences, and the counts in its pointer.
//! 3. What does not check is a finding; the walk goes on with the rest.
//!
//! Documents are reported of every version that is still in a leaf, also of those that no reader will see again: they
//! are live until a rewrite reports them dropped. A version that was written again with the same document reports it once;
//! one that came after a newer one of its key was reported dropped before it came again ([`crate::apply`]), and is not
//! reported.

use std::collections::HashSet;

use doclog::DocPointer;
use index::{Error, Operation, Payload, Result, Visit};
use psync::Buffer;
use space::PAGE;

use crate::format::node::{NodeIdentity, decode};
use crate::format::{Damage, Pointer};
use crate::leaf::{Leaf, Sorted};
use crate::node::{Edges, Node};
use crate::version::Version;

/// Checks a version.
pub(crate) fn verify(version: &Version, visit: &mut dyn Visit) -> Result<()> {
    let Some(root) = version.root.pointer else { return Ok(()) };
    let child = Child { pointer: root, low: Vec::new(), fences: Vec::new(), high: None };
    let mut walk = Walk { version, visit, extents: HashSet::new() };
    if version.root.height == 1 { walk.leaves(&[child]) } else { walk.nodes(&[child], version.root.height - 1) }
}

/// What a pointer says of the entries of its leaf.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    entries: u64,
    documents: bool,
}

/// A child and the bounds that its parents give it.
struct Child {
    pointer: Pointer,
    low: Vec<u8>,
    /// Between the parts of a leaf.
    fences: Vec<Vec<u8>>,
    high: Option<Vec<u8>>,
}

impl Child {
    fn holds(&self, key: &[u8]) -> bool {
        key >= self.low.as_slice() && self.high.as_deref().is_none_or(|high| key < high)
    }
}

struct Walk<'a> {
    version: &'a Version,
    visit: &'a mut dyn Visit,
    /// First pages seen, so that a loop of damaged pointers ends and shared pages are found.
    extents: HashSet<u64>,
}

impl Walk<'_> {
    /// Reads children, `bytes` of each, and gives what could be read.
    fn read(&mut self, children: &[Child], bytes: impl Fn(&Pointer) -> usize) -> Vec<Option<Buffer>> {
        let shared = &self.version.shared;
        let request = |child: &Child| shared.read(&child.pointer, 0, bytes(&child.pointer), 0);
        let completions = shared.psync().run(children.iter().map(request).collect());
        completions
            .into_iter()
            .map(|completion| match completion.result {
                Ok(()) => completion.buffer,
                Err(error) => {
                    self.visit.finding(Error::from(error).to_string());
                    None
                }
            })
            .collect()
    }

    fn finding(&mut self, pointer: &Pointer, damage: Damage) {
        self.visit.finding(self.version.shared.corrupt(pointer, damage).to_string());
    }

    /// Reports an extent; false if it was reported before.
    fn claim(&mut self, pointer: &Pointer) -> bool {
        if self.extents.insert(pointer.page) {
            self.visit.extent(pointer.page, pointer.pages);
            return true;
        }
        self.finding(pointer, Damage::new(0, "pages of a tree", "one pointer to them", "two"));
        false
    }

    /// Checks nodes of `level` and what is below them. Recursion as deep as the tree is high.
    fn nodes(&mut self, children: &[Child], level: u8) -> Result<()> {
        let window = self.version.shared.psync().pio_max();
        for children in children.chunks(window) {
            let pages = self.read(children, |_| PAGE);
            for (child, page) in children.iter().zip(pages) {
                let new = self.claim(&child.pointer);
                let Some(page) = page.filter(|_| new) else { continue };
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
                    Err(damage) => self.finding(pointer, damage),
                }
            }
        }
        Ok(())
    }

    fn leaves(&mut self, children: &[Child]) -> Result<()> {
        let window = self.version.shared.psync().pio_max();
        for children in children.chunks(window) {
            let buffers = self.read(children, Pointer::published_bytes);
            for (child, bytes) in children.iter().zip(buffers) {
                let new = self.claim(&child.pointer);
                let Some(bytes) = bytes.filter(|_| new) else { continue };
                if let Err(damage) = self.leaf(child, bytes) {
                    self.finding(&child.pointer, damage);
                }
            }
        }
        Ok(())
    }

    fn leaf(&mut self, child: &Child, bytes: Buffer) -> std::result::Result<(), Damage> {
        let pointer = &child.pointer;
        let leaf = Leaf::parse(&bytes, pointer, pointer.all(), self.version.table)?;
        let end = || Damage::new(0, "runs of a leaf", "what its pointer publishes", "less");
        let visible = leaf.visible(pointer).ok_or_else(end)?;
        visible.check_order()?;
        let fences: Vec<_> = child.fences.iter().map(Vec::as_slice).collect();
        visible.check_fences(pointer, &fences)?;
        let entries = visible.sorted()?;
        let (mut counts, mut keys) = (Counts { entries: entries.len() as u64, ..Counts::default() }, 0);
        for versions in entries.chunk_by(|one, other| one.update.key == other.update.key) {
            let key = versions[0].update.key;
            if !child.holds(key) {
                let bounds =
                    format!("{} to {}", text(&child.low), child.high.as_deref().map_or_else(|| "the end".into(), text));
                return Err(Damage::new(0, "key of a leaf", bounds, text(key)));
            }
            let newest = &versions[versions.len() - 1].update;
            keys += u64::from(newest.operation != Operation::Delete);
            self.versions(versions, &mut counts);
        }
        self.visit.keys(keys);
        let stated = Counts { entries: u64::from(pointer.entries), documents: pointer.documents };
        if counts != stated {
            return Err(Damage::new(0, "entries of a leaf", format!("{stated:?}"), format!("{counts:?}")));
        }
        if keys < u64::from(pointer.keys_min) {
            return Err(Damage::new(0, "live keys of a leaf", format!("at least {}", pointer.keys_min), keys));
        }
        Ok(())
    }

    /// Reports the documents of all versions of a key, and counts.
    fn versions(&mut self, versions: &[Sorted<'_>], counts: &mut Counts) {
        let mut newer_came = u32::MAX;
        for same in versions.chunk_by(|one, other| one.update.seq == other.update.seq).rev() {
            let came = same[0].run;
            let stale = came > newer_came;
            newer_came = newer_came.min(came);
            let mut documents: Vec<DocPointer> = Vec::new();
            for sorted in same {
                match sorted.update.operation {
                    Operation::Put(Payload::Document(document)) => {
                        counts.documents = true;
                        if !stale && !documents.contains(&document) {
                            self.visit.document(&document);
                            documents.push(document);
                        }
                    }
                    Operation::Put(Payload::Inline(_)) | Operation::Delete => {}
                }
            }
        }
    }
}

/// A node's children, if its separators rise within its bounds.
fn checked(child: &Child, node: &Node) -> std::result::Result<Vec<Child>, Damage> {
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
            Child { pointer: *pointer, low: edges.low(index).to_vec(), fences, high: high(index) }
        })
        .collect())
}

/// A key as people can read it.
fn text(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}
