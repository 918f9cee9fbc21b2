//! Walks through a version that are no scans: its documents, keys to cut it at, and its shape.

use std::ops::Bound;

use index::{Bounds, Direction, Figure, Result, ShowVersions, Stats, Update};

use crate::merged::Merged;
use crate::runs::Run;
use crate::version::Version;

/// Keys that are looked at between two shown keys without versions.
const QUIET_KEYS: usize = 256;
/// Keys to cut at, for each that is wanted, at most.
const FENCES_MAX: usize = 4;

/// See [`index::View::documents`].
pub(crate) fn documents(version: &Version, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
    let has_documents = version.all().any(|(_, slice)| slice.sst().footer().documents > 0);
    if !has_documents {
        return Ok(());
    }
    let runs: Vec<Run> = version.runs().cloned().collect();
    let bounds = Bounds { lower: Bound::Included(from.to_vec()), upper: Bound::Unbounded };
    let mut merged = Merged::new(&version.shared, &runs, &bounds, Direction::Forward)?;
    let mut quiet = 0;
    while merged.advance()? {
        let key = merged.key();
        let flow = if merged.versions().any(|(_, update)| update.operation.document().is_some()) {
            quiet = 0;
            let versions: Vec<Update<'_>> = merged.versions().rev().map(|(_, update)| update).collect();
            show(key, &versions)
        } else {
            quiet += 1;
            if quiet < QUIET_KEYS || key <= from {
                continue;
            }
            quiet = 0;
            show(key, &[])
        };
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

/// See [`index::View::fences`].
pub(crate) fn fences(version: &Version, wanted: usize) -> Result<Vec<Vec<u8>>> {
    let mut keys: Vec<Vec<u8>> = version.all().map(|(_, slice)| slice.low().to_vec()).collect();
    for deeper in [false, true] {
        keys.sort_unstable();
        keys.dedup();
        if keys.len() > wanted {
            break;
        }
        keys.clear();
        for (_, slice) in version.all() {
            let top = slice.sst().top(&version.shared)?.fences();
            for index in 0..top.len() {
                let key = top.key(index).concat();
                if !deeper && slice.has(&key) {
                    keys.push(key);
                } else if deeper {
                    let partition = slice.sst().partition(&version.shared, index)?;
                    let fences = partition.fences();
                    let all = (0..fences.len()).map(|index| fences.key(index).concat());
                    keys.extend(all.filter(|key| slice.has(key)));
                }
            }
        }
    }
    keys.sort_unstable();
    keys.dedup();
    // The first is no cut.
    let keys: Vec<_> = keys.into_iter().skip(1).collect();
    let step = keys.len().div_ceil((FENCES_MAX * wanted).max(1)).max(1);
    Ok(keys.into_iter().skip(step / 2).step_by(step).collect())
}

/// The shape of a version.
pub(crate) fn stats(version: &Version) -> Stats {
    let mut stats = Stats::default();
    let (mut slices, mut blocks, mut tombstones) = (0, 0, 0);
    for (_, slice) in version.all() {
        let footer = slice.sst().footer();
        slices += 1;
        stats.entries += slice.entries();
        blocks += slice.part_of(footer.blocks);
        tombstones += slice.part_of(footer.tombstones);
        stats.entry_bytes += slice.bytes();
        stats.stored_bytes += slice.bytes();
    }
    let depth = version.sublevels().len() as u64;
    stats.figures = vec![
        Figure::count("levels", version.runs().count() as u64),
        Figure::count("sublevels", depth),
        Figure::count("slices", slices),
        Figure::count("blocks", blocks),
        Figure::count("tombstones", tombstones),
    ];
    stats
}
