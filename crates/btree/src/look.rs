//! A lookup of one key that shows its version where that version lies.
//!
//! 1. The lookup goes down by nodes of the cache's front, borrowed one after the other, so that it writes to no memory
//!    that others read.
//! 2. Where the front or the cache has the blocks of the leaf, the version is shown in the image, which can be kept
//!    ([`Seen::home`]).
//! 3. Otherwise the key is looked up by a usual search, and a copy is shown.

use std::sync::Arc;

use cache::Held;
use index::bloom::Hash;
use index::{Found, Image, Moment, Result, Seen, Update};

use crate::filter::{Filter, Link};
use crate::leaf::Leaf;
use crate::search;
use crate::shared::Shared;
use crate::version::Version;
use crate::way::{Way, way};

/// Shows the newest version of `key` at or below the seq of `at`, if there is one.
pub(crate) fn look(version: &Version, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
    let Some(root) = &version.root.pointer else { return Ok(()) };
    let Some(way) = way(version, root, key)? else {
        return copied(show, |out| search::get_many(version, &[key], at, out));
    };
    let looked = if way.pointer.is_filtered() {
        filtered(&version.shared, &way, key, at, show)
    } else {
        unfiltered(&version.shared, &way, key, at, show)
    };
    match looked? {
        Looked::All => Ok(()),
        Looked::Missing => copied(show, |out| search::get_in(version, &way, key, at, out)),
    }
}

/// The outcome of a lookup in images.
enum Looked {
    All,
    /// A block is not in memory as the pointer publishes it. Nothing was shown.
    Missing,
}

fn filtered(shared: &Shared, way: &Way<'_>, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<Looked> {
    let pointer = &way.pointer;
    let (filter, hash) = (Filter::new(pointer, way.filter()), Hash::of(key));
    let (mut block, mut hits) = (filter.next(hash, way.part, None), 0);
    while let Some(number) = block {
        let leaf = shared.held_block(pointer, number);
        let visible = leaf.as_ref().and_then(|leaf| Some((leaf, leaf.seen(pointer, number, filter.link(number).end)?)));
        let Some((leaf, visible)) = visible else { return Ok(Looked::Missing) };
        hits += 1;
        if let Some(update) = visible.find(key, at.seq).map_err(|damage| shared.corrupt(pointer, damage))? {
            shared.counters.leaf_hits.add(hits);
            show_in(leaf, &update, at, show);
            return Ok(Looked::All);
        }
        block = filter.next(hash, way.part, Some(number));
    }
    shared.counters.leaf_hits.add(hits);
    Ok(Looked::All)
}

fn unfiltered(
    shared: &Shared, way: &Way<'_>, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>),
) -> Result<Looked> {
    let pointer = &way.pointer;
    let mut blocks = search::unfiltered(pointer, way.part);
    let blocks = [blocks.next(), blocks.next()];
    let leaves = blocks.map(|block| shared.held_block(pointer, block?));
    let mut newest: Option<(&Held<Leaf>, Update<'_>)> = None;
    let mut hits = 0;
    for (block, leaf) in blocks.into_iter().zip(&leaves) {
        let Some(block) = block else { continue };
        hits += 1;
        let visible = leaf.as_ref().and_then(|leaf| Some((leaf, leaf.seen(pointer, block, Link::default().end)?)));
        let Some((leaf, visible)) = visible else { return Ok(Looked::Missing) };
        let update = visible.find(key, at.seq).map_err(|damage| shared.corrupt(pointer, damage))?;
        // Of equal versions the appended one counts.
        if let Some(update) = update.filter(|update| newest.is_none_or(|(_, older)| update.seq >= older.seq)) {
            newest = Some((leaf, update));
        }
    }
    shared.counters.leaf_hits.add(hits);
    if let Some((leaf, update)) = newest {
        show_in(leaf, &update, at, show);
    }
    Ok(Looked::All)
}

/// Shows a version that lies in an image.
fn show_in(leaf: &Held<Leaf>, update: &Update<'_>, at: Moment, show: &mut dyn FnMut(&Seen<'_>)) {
    let home = || -> Arc<dyn Image> { Arc::<Leaf>::clone(leaf.shared()) };
    show(&Seen { home: Some(&home), ..Seen::of(update, at.now) });
}

/// Shows a copy of the version that `get` finds.
fn copied(show: &mut dyn FnMut(&Seen<'_>), get: impl FnOnce(&mut [Option<Found>]) -> Result<()>) -> Result<()> {
    let mut found = [None];
    get(&mut found)?;
    found.iter().flatten().for_each(|found| show(&found.seen()));
    Ok(())
}

impl Image for Leaf {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
}
