//! The intact parts of a damaged tree.
//!
//! 1. The tree is walked as verification walks it ([`crate::descend`]). A node that does not check is reported as the
//!    range of keys that are unread by the damage.
//! 2. Of a leaf every run that checks is taken ([`crate::leaf`]), the newest version of each key, and runs that are not
//!    taken are reported as ranges too. A leaf that a device cannot read as a whole is read page by page.
//!
//! Leaves are found through their parents only, because the incarnation that their checksums begin with stands nowhere
//! else. So a leaf without a parent cannot be told from the earlier content of its pages.
//!
//! Invariants: pairs come in key order. A key in a range reported as lost may be missing, be older than in the tree, or
//! have been deleted. All other keys are as the tree had them.

use std::ops::ControlFlow;

use index::{Error, Lost, Operation, PairRef, Rescue, Result, TableId};
use psync::Buffer;
use space::PAGE;

use crate::descend::{Child, Witness, descend};
use crate::format::root::Redo;
use crate::format::{Damage, Pointer};
use crate::leaf::{Unread, Visible};
use crate::version::Version;

/// Shows the parts of a version that check, and reports the others.
pub(crate) fn salvage(version: &Version, rescue: &mut dyn Rescue) {
    descend(version, &mut Salvage { version, rescue });
}

/// The root record in a redo, as [`crate::BTree::open`] takes it.
///
/// # Errors
/// [`Error::Corrupt`] when `redo` is not one of this table.
pub(crate) fn root_of_redo(redo: &[u8], table: TableId) -> Result<Vec<u8>> {
    let redo = Redo::decode(redo, table).map_err(|damage| damage.in_record("redo", table))?;
    Ok(redo.root.encode(table))
}

struct Salvage<'a> {
    version: &'a Version,
    rescue: &'a mut dyn Rescue,
}

impl Witness for Salvage<'_> {
    fn extent(&mut self, _pointer: &Pointer) {}

    fn damaged(&mut self, child: &Child, why: Error) {
        self.rescue.lost(Lost { low: child.low.clone(), high: child.high.clone(), taken: false, why });
    }

    fn leaf(&mut self, child: &Child, bytes: std::result::Result<Buffer, psync::Error>) -> ControlFlow<()> {
        match bytes {
            Ok(bytes) => self.take(child, &bytes),
            Err(_) => self.take(child, &self.read_pages(&child.pointer)),
        }
    }
}

impl Salvage<'_> {
    /// The pages of a leaf, with zeros for those that cannot be read.
    fn read_pages(&self, pointer: &Pointer) -> Vec<u8> {
        let shared = &self.version.shared;
        let pages = pointer.published_bytes() / PAGE;
        let reads = (0..pages).map(|page| shared.read(pointer, page, PAGE, page as u64));
        let mut bytes = vec![0; pages * PAGE];
        for completion in shared.psync().run(reads.collect()) {
            if let (Ok(()), Some(page)) = (&completion.result, &completion.buffer) {
                let at = usize::try_from(completion.tag).expect("a page of a leaf") * PAGE;
                bytes[at..at + PAGE].copy_from_slice(page);
            }
        }
        bytes
    }

    fn take(&mut self, child: &Child, bytes: &[u8]) -> ControlFlow<()> {
        let (mut spans, mut damages) = (Vec::new(), Vec::new());
        let rest = Visible::rest(bytes, &child.pointer, self.version.table, &mut spans, &mut |unread, damage| {
            // One report of each range is enough.
            if damages.iter().all(|(known, _)| *known != unread) {
                damages.push((unread, damage));
            }
        });
        let entries = rest.sorted().unwrap_or_else(|damage| {
            damages.push((Unread::All, damage));
            Vec::new()
        });
        let newest = entries.chunk_by(|one, other| one.update.key == other.update.key);
        let newest = newest.map(|versions| versions[versions.len() - 1].update);
        let puts = newest.filter_map(|update| match update.operation {
            Operation::Put(value, expiry) => Some(PairRef { key: update.key, seq: update.seq, value, expiry }),
            Operation::Delete => None,
        });
        let (pairs, strangers): (Vec<_>, Vec<_>) = puts.partition(|pair| child.holds(pair.key));
        if !strangers.is_empty() {
            damages.push((Unread::All, Damage::new(0, "keys of a leaf", "within its bounds", "others too")));
        }
        for (unread, damage) in damages {
            self.tell(child, unread, damage, &pairs);
        }
        if pairs.is_empty() { ControlFlow::Continue(()) } else { self.rescue.pairs(&pairs) }
    }

    fn tell(&mut self, child: &Child, unread: Unread, damage: Damage, pairs: &[PairRef<'_>]) {
        let (mut low, mut high) = (&child.low, child.high.as_ref());
        if let Unread::Part(part) = unread
            && child.fences.len() + 1 == child.pointer.parts()
        {
            low = part.checked_sub(1).map_or(low, |fence| &child.fences[fence]);
            high = child.fences.get(part).or(high);
        }
        let taken =
            pairs.iter().any(|pair| pair.key >= low.as_slice() && high.is_none_or(|high| pair.key < high.as_slice()));
        let why = self.version.shared.corrupt(&child.pointer, damage);
        self.rescue.lost(Lost { low: low.clone(), high: high.cloned(), taken, why });
    }
}
