//! A lookup of one key whose way is in memory: partitions and filters are found in the cache, and at most the blocks of
//! the key are read. Otherwise the key is looked up as many are ([`crate::search`]), which reads what is missing in one
//! psync.

use std::sync::Arc;

use index::{Image, Moment, Result, Seen, Update};

use crate::blocks::{Kind, Loaded};
use crate::format::filter::Hash;
use crate::search::Way;
use crate::shared::Want;
use crate::sst::Sst;
use crate::version::Version;

/// Shows the newest version of `key` at or below the seq of `at`, if there is one.
pub(crate) fn look(version: &Version, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
    let (shared, hash) = (&version.shared, Hash::of(key));
    for slice in version.slices_of(key) {
        let sst = slice.sst();
        let Some(mut way) = (match way(version, sst, key, hash)? {
            Cached::Way(way) => way,
            Cached::Missing => {
                return version.find(&[key], at, &mut |_, update| show(&Seen::of(update, at.now)));
            }
        }) else {
            continue;
        };
        loop {
            let loaded = shared.block(way.want())?;
            let block = loaded.data();
            if let Some(found) = block.find(key, at.seq) {
                let update = Update { key, seq: block.seq(found), operation: block.operation(found) };
                let home = || -> Arc<dyn Image> { Arc::<Loaded>::clone(&loaded) };
                show(&Seen { home: Some(&home), ..Seen::of(&update, at.now) });
                return Ok(());
            }
            if !way.advance(shared, key)? {
                break;
            }
        }
    }
    Ok(())
}

/// What the cache says of a key in a file.
enum Cached<'a> {
    /// The way to its block; none where the file does not have the key.
    Way(Option<Way<'a>>),
    /// Something has to be read.
    Missing,
}

fn way<'a>(version: &Version, sst: &'a Sst, key: &[u8], hash: Hash) -> Result<Cached<'a>> {
    let top = sst.top(&version.shared)?.fences();
    let partition = top.seek(key);
    let filter = top.place(partition, 1);
    if filter.bytes > 0 {
        let Some(filter) = version.shared.cached(Want { sst, place: filter, kind: Kind::Filter }) else {
            return Ok(Cached::Missing);
        };
        if !filter.filter().may_have(hash) {
            return Ok(Cached::Way(None));
        }
    }
    let want = Want { sst, place: top.place(partition, 0), kind: Kind::Partition };
    let Some(fences) = version.shared.cached(want) else { return Ok(Cached::Missing) };
    let block = fences.fences().seek(key);
    Ok(Cached::Way(Some(Way { sst, partition, block, fences })))
}
