//! Extents that a change of a tree takes and gives up.

use std::sync::Arc;

use index::{Error, Result};
use space::{Class, Extent, PageId, PagedFile};

/// Extents that a change took and gave up. Unless the change is kept, the taken extents are given back.
pub(crate) struct Claims {
    pages: Arc<PagedFile>,
    class: Class,
    /// Whether checkpoints may come before the change is in the log.
    ahead: bool,
    /// The page below which extents are taken.
    below: Option<PageId>,
    fresh: bool,
    allocated: Vec<Extent>,
    retired: Vec<Extent>,
}

impl Claims {
    pub(crate) fn new(pages: &Arc<PagedFile>, class: Class) -> Self {
        Self {
            pages: Arc::clone(pages),
            class,
            ahead: false,
            below: None,
            fresh: false,
            allocated: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// Restricts the extents to those below this page, if there is one.
    pub(crate) const fn set_below(&mut self, page: Option<PageId>) {
        self.below = page;
    }

    /// Claims of a change that checkpoints do not wait for.
    pub(crate) fn ahead(pages: &Arc<PagedFile>) -> Self {
        let mut claims = Self::new(pages, Class::Normal);
        claims.ahead = true;
        claims
    }

    /// Takes `count` extents of `pages` pages, in page order.
    pub(crate) fn allocate(&mut self, count: usize, pages: u32) -> Result<Vec<Extent>> {
        if let Some(below) = self.below.filter(|_| count > 0) {
            let extents = self.pages.allocate_below(count, pages, self.class, below)?;
            return Ok(self.note(extents));
        }
        let extents = if self.ahead {
            self.pages.allocate_ahead(count, pages, self.class)?
        } else {
            self.pages.allocate_many(count, pages, self.class)?
        };
        Ok(self.note(extents))
    }

    fn note(&mut self, extents: Vec<Extent>) -> Vec<Extent> {
        self.allocated.extend_from_slice(&extents);
        self.fresh = true;
        extents
    }

    /// The longest available extent of whole pieces of `unit` pages, up to `units` of them.
    pub(crate) fn allocate_long(&mut self, unit: u32, mut units: u32) -> Result<Extent> {
        loop {
            match self.allocate(1, unit * units) {
                Err(Error::Space(error)) if error.is_disk_full() && units > 1 => units /= 2,
                other => return Ok(other?[0]),
            }
        }
    }

    /// Whether extents were taken since the last call.
    pub(crate) const fn are_fresh(&mut self) -> bool {
        std::mem::replace(&mut self.fresh, false)
    }

    /// Gives back all but the first `keep` pages of an extent that was taken as a whole.
    pub(crate) fn shorten(&mut self, extent: Extent, keep: u32) -> Result<()> {
        if keep == extent.pages {
            return Ok(());
        }
        let rest = Extent::new(PageId(extent.page.0 + u64::from(keep)), extent.pages - keep);
        self.pages.discard(&[rest])?;
        let index = self.allocated.iter().rposition(|taken| *taken == extent);
        let index = index.expect("only an extent that was taken is shortened");
        if keep == 0 {
            self.allocated.swap_remove(index);
        } else {
            self.allocated[index].pages = keep;
        }
        Ok(())
    }

    /// Gives up an extent that the new version does not refer to.
    pub(crate) fn retire(&mut self, extent: Extent) {
        self.retired.push(extent);
    }

    /// A position to which [`Claims::undo`] returns.
    pub(crate) fn mark(&self) -> (usize, usize) {
        (self.allocated.len(), self.retired.len())
    }

    /// Gives back the extents taken since the mark. Extents given up since then stay in use.
    pub(crate) fn undo(&mut self, (allocated, retired): (usize, usize)) {
        give_back(&self.pages, &self.allocated.split_off(allocated));
        self.retired.truncate(retired);
    }

    /// Ends the change: returns the taken and the given up extents, in page order and joined where they touch.
    pub(crate) fn keep(&mut self) -> (Vec<Extent>, Vec<Extent>) {
        (joined(std::mem::take(&mut self.allocated)), joined(std::mem::take(&mut self.retired)))
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        give_back(&self.pages, &self.allocated);
    }
}

fn give_back(pages: &PagedFile, extents: &[Extent]) {
    if let Err(error) = pages.discard(extents) {
        events::error!(%error, "pages of a failed change stay unused until the database is opened again");
    }
}

fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.page);
    let mut out: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match out.last_mut() {
            Some(last) if last.end() == extent.page && last.pages.checked_add(extent.pages).is_some() => {
                last.pages += extent.pages;
            }
            _ => out.push(extent),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let extent = |page, pages| Extent::new(PageId(page), pages);
        let list = vec![extent(9, 1), extent(1, 2), extent(3, 4), extent(8, 1)];
        assert_eq!(joined(list), vec![extent(1, 6), extent(8, 2)]);
    }
}
