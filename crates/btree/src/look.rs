//! A lookup of one key that shows its version where it lies.
//!
//! 1. It goes down by nodes of the cache's front, which it borrows one after the other, so that it writes to no memory that others read.
//! 2. Where the front or the cache has the parts of the leaf, the version is shown in the image, which can be kept ([`Seen::home`]).
//! 3. Else what is missing is read as by any search, and a copy is shown.

use std::sync::Arc;

use cache::Held;
use index::{Found, Image, Moment, Result, Seen};

use crate::format::Pointer;
use crate::leaf::Leaf;
use crate::search;
use crate::version::Version;

/// Shows the newest version of `key` at or below the seq of `at`, if there is one.
pub(crate) fn look(version: &Version, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
    let Some(root) = &version.root.pointer else { return Ok(()) };
    let Some((pointer, part)) = leaf_of(version, root, key)? else {
        return copied(show, |out| search::get_many(version, &[key], at, out));
    };
    let (shared, last) = (&*version.shared, pointer.parts() - 1);
    let one = shared.held_part(&pointer, part);
    let other = (pointer.appended && part != last).then(|| shared.held_part(&pointer, last));
    let in_one = one.as_ref().and_then(|leaf| Some((leaf, leaf.seen(&pointer, part)?)));
    let in_other = other.as_ref().map(|leaf| leaf.as_ref().and_then(|leaf| Some((leaf, leaf.seen(&pointer, last)?))));
    let (Some((leaf, visible)), None | Some(Some(_))) = (in_one, in_other) else {
        let part_of = |leaf: Held<Leaf>, part| leaf.seen(&pointer, part).is_some().then(|| Arc::clone(leaf.shared()));
        let (one, other) =
            (one.and_then(|leaf| part_of(leaf, part)), other.flatten().and_then(|leaf| part_of(leaf, last)));
        return copied(show, |out| search::get_in(version, &pointer, part, [one, other], key, at, out));
    };
    shared.counters.leaf_hits.add(1 + u64::from(other.is_some()));
    let damaged = |damage| shared.corrupt(&pointer, damage);
    let mut newest = visible.find(key, at.seq).map_err(damaged)?.map(|update| (leaf, update));
    if let Some(Some((leaf, visible))) = in_other {
        let update = visible.find(key, at.seq).map_err(damaged)?;
        // Of equal versions the one that was appended counts.
        if let Some(update) = update.filter(|update| newest.is_none_or(|(_, older)| update.seq >= older.seq)) {
            newest = Some((leaf, update));
        }
    }
    if let Some((leaf, update)) = newest {
        let home = || -> Arc<dyn Image> { Arc::<Leaf>::clone(leaf.shared()) };
        show(&Seen { home: Some(&home), ..Seen::of(&update, at.now) });
    }
    Ok(())
}

/// Shows a copy of what `get` finds.
fn copied(show: &mut dyn FnMut(&Seen<'_>), get: impl FnOnce(&mut [Option<Found>]) -> Result<()>) -> Result<()> {
    let mut found = [None];
    get(&mut found)?;
    found.iter().flatten().for_each(|found| show(&found.seen()));
    Ok(())
}

/// The leaf that `key` is in, and the part of it, but for what was appended. None where the root is a leaf of several parts, whose fences nobody
/// knows.
pub(crate) fn leaf_of(version: &Version, root: &Pointer, key: &[u8]) -> Result<Option<(Pointer, usize)>> {
    let Some(top) = version.top()? else { return Ok((root.parts() == 1).then_some((*root, 0))) };
    let mut place = top.find(key);
    let mut pointer = top.pointer(place.child);
    for level in (1..version.root.height.saturating_sub(1)).rev() {
        let node = version.shared.held_node(version.table, &pointer, level)?;
        place = node.find(key);
        pointer = node.pointer(place.child);
    }
    Ok(Some((pointer, place.part)))
}

impl Image for Leaf {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
}
