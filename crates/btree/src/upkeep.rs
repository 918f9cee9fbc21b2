//! Upkeep of a tree. A tree has no files of its own: pages that it gives up are free with the next flush of the log
//! once nobody reads them.

use index::{Compacted, Horizon, LeafKeys, Part, Result, Seq, Time, Upkeep};
use space::{Extent, PageId};

use crate::apply::compact::compact;
use crate::tree::BTree;
use crate::{settings, walk};

impl Upkeep for BTree {
    fn compact(&self, part: Part<'_>, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>> {
        assert!(part.chosen.is_none(), "a tree chooses nothing");
        let (base, again) = self.base();
        if base.root.pointer.is_none() {
            return Ok(None);
        }
        let given = part.settings.map(|settings| settings::decode(settings, self.table()));
        let leaf_pages = given.transpose()?.unwrap_or(base.root.leaf_pages);
        let stretch = compact(&base, again, part, leaf_pages, through, horizon)?;
        let applied = self.pend(stretch.done, base.floor);
        Ok(Some(Compacted { applied, next: stretch.next, leaves: stretch.leaves, bytes: stretch.bytes }))
    }

    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>> {
        walk::due(&self.current(), now, most)
    }

    fn beyond(&self, page: PageId, most: usize) -> Result<Vec<LeafKeys>> {
        walk::beyond(&self.current(), page, most)
    }

    fn extents(&self, visit: &mut dyn FnMut(Extent)) -> Result<()> {
        walk::extents(&self.current(), visit)
    }
}
