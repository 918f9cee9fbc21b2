//! Blocks in memory: decompressed, checked, and ready to be searched.

use std::path::Path;

use doclog::Flaw;
use index::{Damage, Error, Image, Result};
use mapped::{Shared, SharedBytes};

use crate::format::block::{self, Block};
use crate::format::fences::{self, Fences};
use crate::format::filter::Filter;
use crate::format::stored::{self, Identity};
use crate::format::{Checked, Place};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Partition,
    Filter,
    Top,
}

impl Kind {
    /// Places of a fence in a block of fences.
    const fn places(self) -> usize {
        if matches!(self, Self::Top) { 2 } else { 1 }
    }
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Data(block::Shape),
    Fences(fences::Shape),
    Filter,
}

/// A block that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    bytes: SharedBytes,
    shape: Shape,
}

impl Loaded {
    /// Checks the stored bytes of a block of the file at `path`.
    pub(crate) fn decode(stored: &[u8], kind: Kind, place: Place, of: Identity, path: &Path) -> Result<Self> {
        let at = |damage: Damage| damage.at(path.display(), place.offset.into());
        of.check(place, stored).map_err(at)?;
        let block = stored::get(stored).map_err(|flaw| match flaw {
            Flaw::Damage(found) => at(Damage::new(0, "a stored block", "one that can be decompressed", found)),
            Flaw::NotBuilt(compression) => {
                let (file, offset) = (path.to_owned(), place.offset.into());
                Error::Document(doclog::Error::NotBuilt { file, offset, compression })
            }
        })?;
        let shape = Self::shape_of(&block, kind).map_err(at)?;
        Ok(Self { bytes: Shared::copied(&block), shape })
    }

    fn shape_of(block: &[u8], kind: Kind) -> Checked<Shape> {
        Ok(match kind {
            Kind::Data => Shape::Data(block::Shape::of(block)?),
            Kind::Partition | Kind::Top => Shape::Fences(fences::Shape::of(block, kind.places())?),
            Kind::Filter => {
                Filter::decode(block)?;
                Shape::Filter
            }
        })
    }

    /// Bytes on the heap, beside the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        Shared::taken(self.bytes.len())
    }

    /// The versions of a data block.
    ///
    /// # Panics
    /// In another block.
    pub(crate) fn data(&self) -> Block<'_> {
        match self.shape {
            Shape::Data(shape) => Block::new(&self.bytes, shape),
            _ => panic!("a block is what it was asked for as"),
        }
    }

    /// The fences of a partition or a top.
    ///
    /// # Panics
    /// In another block.
    pub(crate) fn fences(&self) -> Fences<'_> {
        match self.shape {
            Shape::Fences(shape) => Fences::new(&self.bytes, shape),
            _ => panic!("a block is what it was asked for as"),
        }
    }

    /// A filter.
    ///
    /// # Panics
    /// In another block.
    pub(crate) fn filter(&self) -> Filter<'_> {
        Filter::decode(&self.bytes).expect("a filter was checked when it was read")
    }
}

impl Image for Loaded {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
