//! Lookups of many keys at once, each in several files.
//!
//! 1. For each key come the files that may have it, the newest first. All partitions and filters of all keys and files
//!    are fetched in one psync, because most of them are in memory, and a key is in few files.
//! 2. Then each key asks the newest file whose filter does not exclude it, all keys in one psync. A key that is not
//!    found asks the next one, so the last psyncs have few keys.
//!
//! Invariant: of two files of a key, the version in the newer one is not the older version. So the first file with a
//! version at or below a seq has the newest of them.

use std::sync::Arc;

use index::{Result, Seq, Update};

use crate::blocks::{Kind, Loaded};
use crate::format::filter::Hash;
use crate::shared::{Shared, Want};
use crate::sst::Sst;

/// A key, and the files that may have it.
pub(crate) struct Asked<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) at: Seq,
    /// The newest first.
    pub(crate) files: Vec<&'a Sst>,
}

/// The place of a key in a file: a block that may have it, and where the next one is if it has too many versions.
pub(crate) struct Way<'a> {
    pub(crate) sst: &'a Sst,
    /// Index in the top, and in the partition.
    pub(crate) partition: usize,
    pub(crate) block: usize,
    pub(crate) fences: Arc<Loaded>,
}

/// Shows each of the keys, by its index, its newest version at or below its seq, if there is one, and the file that has
/// this version.
///
/// # Errors
/// When a read fails, or what was read does not check.
pub(crate) fn find(shared: &Shared, asked: &[Asked<'_>], show: &mut dyn FnMut(usize, &Sst, &Update<'_>)) -> Result<()> {
    let mut ways = ways(shared, asked)?;
    let mut open: Vec<usize> = (0..asked.len()).filter(|index| !ways[*index].is_empty()).collect();
    while !open.is_empty() {
        let wants: Vec<_> = open.iter().map(|index| ways[*index][0].want()).collect();
        let blocks = shared.blocks(&wants)?;
        let mut left = Vec::new();
        for (index, loaded) in open.into_iter().zip(blocks) {
            let (Asked { key, at, .. }, block) = (&asked[index], loaded.data());
            let way = &mut ways[index];
            if let Some(found) = block.find(key, *at) {
                let update = Update { key, seq: block.seq(found), operation: block.operation(found) };
                show(index, way[0].sst, &update);
                continue;
            }
            if !way[0].advance(shared, key)? {
                way.remove(0);
            }
            if !way.is_empty() {
                left.push(index);
            }
        }
        open = left;
    }
    Ok(())
}

/// For each key the ways through the files whose filters do not exclude it.
fn ways<'a>(shared: &Shared, asked: &[Asked<'a>]) -> Result<Vec<Vec<Way<'a>>>> {
    let (mut wants, mut partitions) = (Vec::new(), Vec::new());
    for Asked { key, files, .. } in asked {
        for sst in files {
            let top = sst.top(shared)?.fences();
            let partition = top.seek(key);
            let filter = top.place(partition, 1);
            wants.push(Want { sst, place: top.place(partition, 0), kind: Kind::Partition });
            wants.extend((filter.bytes > 0).then_some(Want { sst, place: filter, kind: Kind::Filter }));
            partitions.push(partition);
        }
    }
    let mut blocks = shared.blocks(&wants)?.into_iter().zip(&wants).peekable();
    let mut partitions = partitions.into_iter();
    let mut ways = Vec::with_capacity(asked.len());
    for Asked { key, files, .. } in asked {
        let (hash, mut of_key) = (Hash::of(key), Vec::new());
        for (sst, partition) in files.iter().zip(partitions.by_ref()) {
            let (fences, _) = blocks.next().expect("a partition for each file");
            let filter = blocks.next_if(|(_, want)| want.kind == Kind::Filter);
            if filter.is_none_or(|(filter, _)| filter.filter().may_have(hash)) {
                let block = fences.fences().seek(key);
                of_key.push(Way { sst, partition, block, fences });
            }
        }
        ways.push(of_key);
    }
    Ok(ways)
}

impl<'a> Way<'a> {
    pub(crate) fn want(&self) -> Want<'a> {
        Want { sst: self.sst, place: self.fences.fences().place(self.block, 0), kind: Kind::Data }
    }

    /// Goes on to the next block with versions of `key`; false if there is none.
    pub(crate) fn advance(&mut self, shared: &Shared, key: &[u8]) -> Result<bool> {
        self.block += 1;
        if self.block < self.fences.fences().len() {
            return Ok(self.fences.fences().is_key(self.block, key));
        }
        let top = self.sst.top(shared)?.fences();
        (self.partition, self.block) = (self.partition + 1, 0);
        if self.partition >= top.len() || !top.is_key(self.partition, key) {
            return Ok(false);
        }
        let want = Want { sst: self.sst, place: top.place(self.partition, 0), kind: Kind::Partition };
        self.fences = shared.block(want)?;
        Ok(true)
    }
}
