//! Tree search: which versions have their documents in the segments to clean.

use std::ops::ControlFlow;

use index::{
    Horizon, Seq, Update, View,
    merge::{Rules, merge},
};

use super::{Fate, Moves, Plan, Version};
use crate::Result;

/// A stretch ends after it has looked at so many keys, or has found so many versions, however few bytes that are.
const KEYS_MAX: usize = 64 << 10;
const VERSIONS_MAX: usize = 16 << 10;

/// The versions of the stretch that begins at `from`, and where the next one begins.
pub(super) fn search(
    view: &dyn View, from: &[u8], plan: &Plan, horizon: &Horizon, through: Seq,
) -> Result<(Moves, Option<Vec<u8>>)> {
    let mut found = Moves { keys: Vec::new(), versions: Vec::new(), through, urgent: plan.urgent };
    let rules = Rules { horizon, through };
    let (mut keys, mut bytes, mut next) = (0, 0, None);
    view.documents(from, &mut |key, versions| {
        keys += 1;
        bytes += of_key(&mut found, key, versions, plan, rules);
        if bytes < plan.window_bytes && keys < KEYS_MAX && found.versions.len() < VERSIONS_MAX {
            return ControlFlow::Continue(());
        }
        next = Some(if versions.is_empty() { key.to_vec() } else { [key, &[0]].concat() });
        ControlFlow::Break(())
    })?;
    Ok((found, next))
}

/// Adds what there is of a key; bytes that are to be moved.
fn of_key(found: &mut Moves, key: &[u8], versions: &[Update<'_>], plan: &Plan, rules: Rules<'_>) -> u64 {
    let is_there = |version: &Update<'_>| {
        version.operation.document().is_some_and(|document| plan.segments.contains(&document.segment))
    };
    if !versions.iter().any(is_there) {
        return 0;
    }
    let stay = merge(versions, rules, &mut Vec::new());
    let (start, mut bytes) = (found.keys.len(), 0);
    found.keys.extend_from_slice(key);
    for same in versions.chunk_by(|one, other| one.seq == other.seq).filter(|same| same.iter().any(is_there)) {
        // The last of equal versions is the one that counts.
        let last = &same[same.len() - 1];
        let Some(document) = last.operation.document() else { continue };
        let stays = stay.iter().any(|own| own.seq == last.seq && own.operation.document() == Some(document));
        let fate = if stays && is_there(last) { Fate::Moves } else { Fate::Dies };
        if fate == Fate::Moves {
            bytes += document.stored_bytes();
        }
        let (key, expiry) = (start..found.keys.len(), last.operation.expiry());
        found.versions.push(Version { key, seq: last.seq, expiry, document, fate });
    }
    bytes
}
