//! The settings of a tree: the pages of a new leaf, as a `u32`.

use index::{Damage, Error, Figure, Result, TableId, Use};
use space::PAGE;

use crate::cost::{Memory, Workload, choose};
use crate::format::LEAF_PAGES_MAX;

pub(crate) fn encode(leaf_pages: u32) -> Vec<u8> {
    leaf_pages.to_le_bytes().to_vec()
}

/// The pages of a new leaf, if the settings are those of a tree.
fn decoded(settings: &[u8]) -> Option<u32> {
    let leaf_pages = u32::from_le_bytes(settings.try_into().ok()?);
    (1..=LEAF_PAGES_MAX).contains(&leaf_pages).then_some(leaf_pages)
}

/// The pages of a new leaf of a table's tree with these settings. A number out of bounds, which earlier versions took
/// from a backup as it came, stands for the nearest one.
pub(crate) fn decode(settings: &[u8], table: TableId) -> Result<u32> {
    let malformed = |_| -> Error {
        let found = format!("{} bytes", settings.len());
        Damage::new(0, "pages of a new leaf", "4 bytes", found).in_record("settings of a tree", table)
    };
    let leaf_pages = settings.try_into().map(u32::from_le_bytes).map_err(malformed)?;
    Ok(leaf_pages.clamp(1, LEAF_PAGES_MAX))
}

/// The settings that the options say, or that are given, or those with the least time per operation by the cost model.
pub(crate) fn of_use(used: &Use<'_>) -> Vec<u8> {
    let by_model = || {
        let memory = Memory::Divided { cache_bytes: used.cache_bytes, write_buffer_bytes: used.write_buffer_bytes };
        let &Use { records, record_bytes, insert_share, batched_share, .. } = used;
        choose(used.profile, &Workload { records, record_bytes, insert_share, batched_share, memory }).leaf_pages
    };
    encode(used.leaf_pages.or_else(|| used.given.and_then(decoded)).unwrap_or_else(by_model))
}

/// What the settings say.
pub(crate) fn figures(settings: &[u8]) -> Option<Vec<Figure>> {
    decoded(settings).map(|leaf_pages| vec![Figure::bytes("new leaf", u64::from(leaf_pages) * PAGE as u64)])
}
