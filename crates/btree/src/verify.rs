//! A check of all nodes and leaves that a version refers to.
//!
//! 1. The tree is walked from the root ([`crate::descend`]), which checks its nodes.
//! 2. A leaf is checked for:
//!    - every run's CRC and chain, and the order of its entries;
//!    - keys within the leaf's bounds and, on sorted pages, between its fences;
//!    - a filter that misses none of the keys;
//!    - no version behind a newer one of its key;
//!    - the counts in the pointer.
//! 3. Every failed check is a finding; the walk goes on with the rest.
//!
//! Documents are reported of every version that is still in a leaf, also of versions that no reader will see again:
//! they are live until a rewrite reports them dropped. A version that was written again with the same document is
//! reported once. A version that came after a newer one of its key is not reported, because that version was reported
//! dropped before the repetition ([`crate::apply`]).

use std::ops::ControlFlow;

use doclog::DocPointer;
use index::{Error, Operation, Visit};
use psync::Buffer;

use crate::descend::{Child, Witness, descend};
use crate::filter::{Filter, Link};
use crate::format::{Damage, Pointer};
use crate::leaf::{Leaf, Sorted};
use crate::version::Version;

/// Checks a version.
pub(crate) fn verify(version: &Version, visit: &mut dyn Visit) {
    descend(version, &mut Verify { version, visit });
}

/// A pointer's counts of the entries of its leaf.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    entries: u64,
    documents: bool,
}

struct Verify<'a> {
    version: &'a Version,
    visit: &'a mut dyn Visit,
}

impl Witness for Verify<'_> {
    fn extent(&mut self, pointer: &Pointer) {
        self.visit.extent(pointer.page, pointer.pages);
    }

    fn damaged(&mut self, _child: &Child, error: Error) {
        self.visit.finding(error.to_string());
    }

    fn leaf(&mut self, child: &Child, bytes: Result<Buffer, psync::Error>) -> ControlFlow<()> {
        let checked = bytes.map_err(Error::from).and_then(|bytes| {
            let corrupt = |damage| self.version.shared.corrupt(&child.pointer, damage);
            self.check(child, &bytes).map_err(corrupt)
        });
        if let Err(error) = checked {
            self.damaged(child, error);
        }
        ControlFlow::Continue(())
    }
}

impl Verify<'_> {
    fn check(&mut self, child: &Child, bytes: &[u8]) -> Result<(), Damage> {
        let pointer = &child.pointer;
        let leaf = Leaf::parse(bytes, pointer, pointer.all(), Link::default(), self.version.table)?;
        let end = || Damage::new(0, "runs of a leaf", "what its pointer publishes", "less");
        let visible = leaf.visible(pointer).ok_or_else(end)?;
        visible.check_order()?;
        let fences: Vec<_> = child.fences.iter().map(Vec::as_slice).collect();
        visible.check_fences(pointer, &fences)?;
        if pointer.is_filtered() {
            visible.check_filter(pointer, &Filter::new(pointer, &child.filter))?;
        }
        let entries = visible.sorted()?;
        let (mut counts, mut keys, mut live) = (Counts { entries: entries.len() as u64, ..Counts::default() }, 0, 0);
        for versions in entries.chunk_by(|one, other| one.update.key == other.update.key) {
            let key = versions[0].update.key;
            if !child.holds(key) {
                let bounds =
                    format!("{} to {}", text(&child.low), child.high.as_deref().map_or_else(|| "the end".into(), text));
                return Err(Damage::new(0, "key of a leaf", bounds, text(key)));
            }
            let newest = &versions[versions.len() - 1].update;
            let in_order = versions.windows(2).all(|pair| pair[0].run <= pair[1].run) && newest.seq <= pointer.newest;
            if pointer.is_filtered() && !in_order {
                let found = format!("others, of {}", text(key));
                return Err(Damage::new(0, "versions of a key", "each behind the older ones", found));
            }
            let is_put = newest.operation != Operation::Delete;
            keys += u64::from(is_put);
            live += u64::from(is_put && !self.visit.is_hidden(key, newest.seq));
            self.versions(versions, &mut counts);
        }
        self.visit.keys(live);
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
                if let Some(document) = sorted.update.operation.document() {
                    counts.documents = true;
                    if !stale && !documents.contains(&document) {
                        self.visit.document(&document);
                        documents.push(document);
                    }
                }
            }
        }
    }
}

/// A key in readable form.
fn text(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}
