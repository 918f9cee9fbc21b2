//! An allocator that is made when it is first used.
//!
//! A long free list takes longer to put in order than a database to open. A database that is only read never needs its
//! free list, and one that writes needs it with its first round, or its first documents.

use std::path::Path;

use crate::allocator::Allocator;
use crate::{CheckedImage, Stats};

/// An allocator, or the image from which it will be made.
#[derive(Debug)]
pub(crate) enum Lazy {
    Image(Box<Path>, CheckedImage),
    Made(Box<Allocator>),
}

impl Lazy {
    /// The allocator of `file` in the state of `image`.
    pub(crate) fn new(file: &Path, image: CheckedImage) -> Self {
        Self::Image(file.into(), image)
    }

    /// The allocator, made now if it was not used before.
    pub(crate) fn get(&mut self) -> &mut Allocator {
        if let Self::Image(file, image) = self {
            *self = Self::Made(Box::new(Allocator::new(file, image)));
        }
        self.made().expect("it was made")
    }

    /// The allocator, if it was used before.
    pub(crate) fn made(&mut self) -> Option<&mut Allocator> {
        match self {
            Self::Image(..) => None,
            Self::Made(allocator) => Some(allocator),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self {
            Self::Image(_, image) => image.stats(),
            Self::Made(allocator) => allocator.stats(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lazy;
    use crate::{AllocatorImage, CheckedImage, Extent, PageId};
    use std::path::Path;

    #[test]
    fn an_allocator_is_made_with_its_first_use() {
        let free = [(1, 4), (9, 1), (50, 50)].map(|(page, pages)| Extent::new(PageId(page), pages)).to_vec();
        let holes = [(5, 4), (20, 30)].map(|(page, pages)| Extent::new(PageId(page), pages)).to_vec();
        let image = AllocatorImage { total_pages: 100, free, holes };
        let mut lazy = Lazy::new(Path::new("data"), CheckedImage::from(&image));
        let stats = lazy.stats();
        assert!(lazy.made().is_none());
        assert_eq!(lazy.get().survey().image(), image);
        assert!(lazy.made().is_some());
        assert_eq!(lazy.stats(), stats);
    }
}
