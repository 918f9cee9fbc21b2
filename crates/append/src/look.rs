//! A lookup of one key that shows its version where it lies.
//!
//! The lookup goes down by nodes of the cache's front, borrowed one after the other, so no memory that others read is
//! written. A node that is nowhere in memory is read. The version is shown in the node that has it, and the caller can
//! keep that node. A leaf whose filter excludes the key is not asked for.

use std::sync::Arc;

use index::{Image, Moment, Result, Seen, Update};

use crate::filter;
use crate::format::node::{Group, Node};
use crate::search::chunk_at;
use crate::version::Version;

/// Shows the newest version of `key` at or below the seq of `at`, if there is one.
pub(crate) fn look(version: &Version, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
    let Some(mut pointer) = version.header().root else { return Ok(()) };
    let (home, chunk_bytes) = (version.home(), version.header().chunk_bytes());
    let (mut depth, mut is_root) = (0, true);
    loop {
        let node = version.shared.held_node(&home, &pointer)?;
        if is_root {
            let skip = node.skip();
            if !key[depth..].starts_with(skip) {
                return Ok(());
            }
            depth += skip.len();
        }
        let chunk = chunk_at(key, depth, chunk_bytes);
        if node.level() > 0 {
            let child = node.child_of(chunk);
            if !filter::may_have(node.filter(child), &key[depth..], chunk_bytes) {
                return Ok(());
            }
            (pointer, is_root) = (node.child(child), false);
            continue;
        }
        let Some(group) = node.group_of(chunk) else { return Ok(()) };
        depth += chunk.len();
        match node.group(group) {
            Group::Tree(root) => {
                if !filter::may_have(node.filter(group), &key[depth..], chunk_bytes) {
                    return Ok(());
                }
                (pointer, is_root) = (root, true);
            }
            Group::Keys(keys) => {
                let versions = keys.find(&key[depth..]);
                let newest = versions.and_then(|mut versions| versions.find(|(seq, _)| *seq <= at.seq));
                if let Some((seq, operation)) = newest {
                    let home = || -> Arc<dyn Image> { Arc::<Node>::clone(node.shared()) };
                    show(&Seen { home: Some(&home), ..Seen::of(&Update { key, seq, operation }, at.now) });
                }
                return Ok(());
            }
        }
    }
}
